"""What must be so before a fence is applied, as named checks: who would be denied, who asks, and what would go wrong.

Nothing is changed. What brokers show to nobody (``super.users``) is named as such, and not taken for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kafka_migration.domain.checks import CheckResult
from kafka_migration.domain.errors import MigrationError, NotAuthorized
from kafka_migration.domain.listing import listed
from kafka_migration.fence import record
from kafka_migration.fence.bans import Ban, is_open, may, rehearsal_of, rehearsed_by
from kafka_migration.fence.ground import Ground
from kafka_migration.kafka.errors import NoAuthorizer, NotSupported
from kafka_migration.kafka.types import Acl
from kafka_migration.link import switched
from kafka_migration.plans.producers import EVERYBODY

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.plans.producers import Fence

PROBE = "fence: probe"
ALONE = "rehearsal: nobody but the probe is denied"
OPEN_DOOR = "allow.everyone.if.no.acl.found"


@dataclass(frozen=True, slots=True, kw_only=True)
class Targets:
    """Whom a fence is about. ``principals`` are denied, sorted, without the probe and the migration's own; ``acls`` are
    all that there are; ``everybody``: an ACL lets everybody in, so who might write is not known."""

    principals: tuple[str, ...]
    acls: tuple[Acl, ...]
    everybody: bool


def targets(ground: Ground, fence: Fence, ban: Ban, names: tuple[str, ...]) -> Targets:
    """Whom to deny: those whom any ACL lets do it, whom the plan names, and where an ACL lets everybody, all whom the
    cluster knows by other ACLs and as SCRAM users. Raises NoAuthorizer, and NotAuthorized without Describe on the
    cluster."""
    acls, resources = ground.cluster.acls(), ground.resources(ban, names)
    everybody = is_open(acls, ban, resources)
    found = {*may(acls, ban, resources), *fence.principals}
    if everybody:
        found |= {acl.principal for acl in acls}
        # The check of principals warns in any case where everybody may write.
        with suppress(NotAuthorized, NotSupported):
            found |= {f"User:{user.user}" for user in ground.cluster.scram_users()}
    exempt = {EVERYBODY, ground.own_principal, ground.probe_principal}
    return Targets(principals=tuple(sorted(found - exempt)), acls=acls, everybody=everybody)


def check(ctx: Context, ground: Ground, fence: Fence, ban: Ban, names: tuple[str, ...]) -> tuple[CheckResult, ...]:
    """Every check, in the order in which people read them."""
    results = [not_standing(ctx, ban)] if ban.rehearses else [_left(ctx, ban)]
    if fence.kind == "none":
        evidence = f"kind none: nothing keeps producers from writing to the {ban.side}, and nothing is promised"
        remedy = f"where the {ban.side} has an authorizer use acl_deny, else hook"
        return (*results, CheckResult.warned("fence", evidence, remedy=remedy))
    if fence.kind == "hook":
        evidence = f"{len(fence.close)} hooks close the way in; proved by log ends that stand still, not by brokers"
        return (*results, CheckResult.passed("fence", evidence))
    found: list[Targets] = []

    def whom() -> CheckResult:
        found.append(targets(ground, fence, ban, names))
        return _whom(ctx, ground, fence, ban, names, found[0])

    results += [
        _run("fence: principals to deny", whom),
        _run("fence: may change ACLs", lambda: _may_alter(ground)),
        _run("fence: the migration's own principal", lambda: _own(ground, fence, ban, names, found)),
        _run("fence: super users", lambda: _super_users(ground, fence)),
        _run(PROBE, lambda: _probe(ctx, ground, ban, names, found)),
    ]
    if ban.rehearses:
        results.append(_run(ALONE, lambda: _alone(ground, fence, ban, names)))
    return tuple(results)


def _run(name: str, ask: Callable[[], CheckResult]) -> CheckResult:
    try:
        return ask()
    except (NotAuthorized, NoAuthorizer) as error:
        remedy = error.remedy or "use a fence of the kind hook: without an authorizer no ACL denies anything"
        return CheckResult.failed(name, error.message, remedy=remedy)
    except MigrationError as error:
        return CheckResult.unchecked(name, error.message, remedy=error.remedy)


def _left(ctx: Context, ban: Ban) -> CheckResult:
    last, rehearsal = record.read(ctx, ban), rehearsal_of(ban)
    if last is None or not last.stands:
        left = record.rehearsals(ctx)
        if rehearsal is not None and rehearsal in left:
            evidence = f"a rehearsal is {left[rehearsal].state} since {left[rehearsal].at}: the probe alone is denied"
            remedy = "a fence ends it, as `fence --lift` does; see that nobody rehearses just now"
            return CheckResult.warned("fence: none stands", evidence, remedy=remedy)
        return CheckResult.passed("fence: none stands", "no fence of this plan stands")
    evidence = f"a fence of {len(last.names)} topics is {last.state} since {last.at}"
    if ban.rests and (switch := switched.away_from(ctx, ban.side)) is not None:
        evidence += f", as it should: the {switch.to} serves them"
        return CheckResult.passed("fence: none stands", evidence)
    remedy = "`fence` proves it again, `fence --lift` lifts it; do one of them before anything else"
    return CheckResult.warned("fence: none stands", evidence, remedy=remedy)


def not_standing(ctx: Context, ban: Ban) -> CheckResult:
    """The fence that ``ban`` rehearses does not stand: the probe's denials would be its own, and taken away."""
    name, fence = "rehearsal: no fence stands", rehearsed_by(ban)
    last = None if fence is None else record.read(ctx, fence)
    if last is None or not last.stands:
        return CheckResult.passed(name, f"none on the {ban.side}")
    return CheckResult.failed(
        name,
        f"a fence of {len(last.names)} topics on the {ban.side} is {last.state} since {last.at}",
        remedy="`fence --lift` lifts it; then rehearse",
    )


def _alone(ground: Ground, fence: Fence, ban: Ban, names: tuple[str, ...]) -> CheckResult:
    """Two ways in which denying the probe would deny a client: it goes by the probe's name, or by having no ACL at all
    where brokers let everybody in as long as a resource has none."""
    if ground.probe_principal in fence.principals:
        return CheckResult.failed(
            ALONE,
            f"{ground.probe_principal} is the probe's principal, and the plan names it as a producer's",
            remedy="give the probe a principal of its own",
        )
    acls = ground.cluster.acls()
    bare = [name for name in ground.resources(ban, names) if not any(acl.is_on(ban.kind, name) for acl in acls)]
    if bare and OPEN_DOOR in ground.cluster.broker_configs():
        return CheckResult.failed(
            ALONE,
            evidence=f"brokers have {OPEN_DOOR}, and no ACL is on {listed(bare)}: the first one, the probe's denial,"
            " would shut out everybody who has none",
            remedy="grant the probe and the producers Write by ACLs first",
        )
    return CheckResult.passed(ALONE, f"{ground.probe_principal}, by {len(names)} ACLs, which are removed again")


def _whom(ctx: Context, ground: Ground, fence: Fence, ban: Ban, names: tuple[str, ...], found: Targets) -> CheckResult:
    name = "fence: principals to deny"
    if not found.principals:
        return CheckResult.failed(
            name,
            evidence=f"no ACL lets anybody {ban.operation.lower()}, and the plan names nobody: whoever does is a super"
            " user, or the brokers let everybody in where no ACL is found",
            remedy="give producers principals of their own with ACLs that let them write, or name them in"
            f" {_section(ban)}.principals",
        )
    evidence = f"{listed(found.principals)} on {len(names)} topics"
    if found.everybody:
        return CheckResult.warned(
            name,
            evidence=f"{evidence}; but an ACL lets {EVERYBODY} {ban.operation.lower()}: who else does is not known, and"
            " not denied",
            remedy=f"name all that write in {_section(ban)}.principals; a denial for everybody would stop the mirror"
            " and the reverse link, too",
        )
    return CheckResult.passed(name, evidence)


def _section(ban: Ban) -> str:
    return "producers.fence" if ban.side == "source" else "producers.target_fence"


def _may_alter(ground: Ground) -> CheckResult:
    name = "fence: may change ACLs"
    if "ALTER" in ground.cluster.cluster_operations():
        return CheckResult.passed(name, "Alter on the cluster")
    return CheckResult.failed(
        name,
        "missing ACL: Alter on cluster kafka-cluster",
        remedy=f"grant it to the migration's principal on the {ground.cluster.role} for as long as producers are moved",
    )


def _own(ground: Ground, fence: Fence, ban: Ban, names: tuple[str, ...], found: list[Targets]) -> CheckResult:
    name, own = "fence: the migration's own principal", ground.own_principal
    if not own:
        return CheckResult.failed(
            name,
            "its connection does not name it, so it could be denied with the others",
            remedy="name it in producers.fence.own_principal",
        )
    if own in fence.principals:
        return CheckResult.failed(
            name,
            f"{own} is the mirror's principal and the reverse link's, and the plan has it denied",
            remedy="give producers that use it a principal of their own, and name that in producers.fence.principals",
        )
    configs = ground.cluster.broker_configs()
    if (
        OPEN_DOOR in configs
        and own not in fence.super_users
        and found
        and not _is_let(found[0], own, ban, ground.resources(ban, names))
    ):
        need, more = ("Read", " (and Write, for the reverse link)") if ban.kind == "TOPIC" else ("Describe", "")
        return CheckResult.failed(
            name,
            evidence=f"brokers have {OPEN_DOOR}, and no ACL lets {own} {need.lower()}: with the fence's ACLs on the"
            f" {ban.kind.lower()}s it would be shut out as well",
            remedy=f"grant {own} {need} on the {ban.kind.lower()}s{more}, and their clients theirs before: the first"
            " ACL on one shuts out whoever has none; or name it in producers.fence.super_users if it is one",
        )
    return CheckResult.passed(
        name,
        evidence=f"{own} is not denied: the mirror reads on, and the reverse link may write; clients that use this name"
        " are not fenced either",
    )


def _is_let(found: Targets, own: str, ban: Ban, names: tuple[str, ...]) -> bool:
    """Whether ACLs let ``own`` do what it needs: read the topics, or see what groups committed (which Read implies)."""
    needs = [replace(ban, operation=one) for one in (("READ",) if ban.kind == "TOPIC" else ("READ", "DESCRIBE"))]
    return all(any({own, EVERYBODY} & may(found.acls, need, (name,)) for need in needs) for name in names)


def _super_users(ground: Ground, fence: Fence) -> CheckResult:
    name = "fence: super users"
    config = ground.cluster.broker_configs().get("super.users")
    shown = {part.strip() for part in (config.value or "").split(";") if part.strip()} if config else set()
    known = shown | {*fence.super_users}
    if wrong := sorted(known & {*fence.principals, ground.probe_principal}):
        return CheckResult.failed(
            name,
            f"super users cannot be fenced, no ACL binds them: {listed(wrong)}",
            remedy="give these producers, or the probe, principals that are no super users",
        )
    if known:
        evidence = f"not fenced, since no ACL binds them: {listed(sorted(known))}"
        return CheckResult.passed(name, evidence)
    if config is None:
        return CheckResult.passed(name, "the brokers have none")
    return CheckResult.warned(
        name,
        "the brokers have super.users and show them to nobody: a producer that is one of them is not fenced",
        remedy="name them in producers.fence.super_users, and see to it that no producer uses one",
    )


def _probe(ctx: Context, ground: Ground, ban: Ban, names: tuple[str, ...], found: list[Targets]) -> CheckResult:
    name, probe, principal = PROBE, ground.probe, ground.probe_principal
    if probe is None or not principal:
        return CheckResult.failed(
            name,
            "the probe's connection does not name its principal",
            remedy="name it in producers.fence.probe_principal",
        )
    if principal == ground.own_principal:
        return CheckResult.failed(
            name,
            f"the probe is {principal}, the migration's own principal, which must not be denied",
            remedy="give the probe a principal of its own",
        )
    if probe.cluster_id() != ground.cluster.cluster_id():
        return CheckResult.failed(
            name,
            f"the probe's connection leads to another cluster than the {ban.side}",
            remedy="point it at the same brokers",
        )
    try:
        denied = probe.denied_by_broker(ban.kind, ban.operation, names, ground.call_seconds)
    except NotAuthorized as error:
        return CheckResult.failed(
            name,
            f"{principal} may not describe {error.resource}",
            remedy=f"grant {principal} Write on the topics, which implies Describe",
        )
    refused = sorted({*ground.resources(ban, frozenset().union(*denied.values()))} - _ours(ctx, ground, ban))
    if refused:
        return CheckResult.failed(
            name,
            evidence=f"{principal} may not {ban.operation.lower()} to {listed(refused)}: that it is denied there would"
            " prove nothing",
            remedy=f"grant {principal} {ban.operation.capitalize()} on the topics, and remove what denies it",
        )
    return CheckResult.passed(name, f"{principal} may {ban.operation.lower()}, by all {len(denied)} brokers")


def _ours(ctx: Context, ground: Ground, ban: Ban) -> frozenset[str]:
    """Names on which an earlier fence denies the probe: of this migration, or of one that shares its denials."""
    known = record.own_acls(ctx, ban).union(*record.of_others(ctx, ban, ground.cluster.cluster_id()).values())
    return frozenset(acl.resource for acl in known if acl.principal == ground.probe_principal)
