"""What the source's clients may do on it, and could not do on the target. Changes nothing.

Making ACLs is an administrator's: :func:`commands` are those of Kafka's own tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from shlex import quote
from typing import TYPE_CHECKING, Any

from kafka_migration.access.carried import Carried, Copying, Names, in_order
from kafka_migration.domain.direction import SOURCE, TARGET, Side
from kafka_migration.domain.errors import NotAuthorized, Refused
from kafka_migration.domain.listing import listed
from kafka_migration.fence import record as fences
from kafka_migration.fence.bans import BANS
from kafka_migration.fence.ground import principal_of
from kafka_migration.kafka.errors import NotSupported
from kafka_migration.kafka.types import Acl
from kafka_migration.plans.access import Access
from kafka_migration.plans.producers import EVERYBODY

if TYPE_CHECKING:
    from kafka_migration.kafka.cluster import Cluster
    from kafka_migration.migration.context import Context

#: A rule on everything is one on each topic: some of them, of many topics, would be more than a controller bears.
_MOST = 50_000
_OPEN_DOOR = "allow.everyone.if.no.acl.found"
#: Names in one command line.
_AT_ONCE = 50
_USER = "User:"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessDiff:
    """``missing`` on the target; ``present`` there; ``left_out`` of the source, each with why; ``notes`` on both.

    ``users`` are the source's users who may use something of the plan's, by name, with their names on the target.
    """

    missing: tuple[Acl, ...]
    present: int
    left_out: tuple[Carried, ...]
    users: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "missing": [asdict(acl) for acl in self.missing],
            "present": self.present,
            "left_out": [asdict(one.acl) | {"why": one.why} for one in self.left_out],
            "notes": list(self.notes),
        }


def read(ctx: Context) -> AccessDiff:
    """Compare both clusters. Raises NoAuthorizer for one without an authorizer, NotAuthorized, BadInput for principals
    that cannot have one name, Refused for more ACLs than is sensible."""
    source, access = ctx.source.acls(), ctx.plan.access or Access()
    copying = Copying(
        names={
            "TOPIC": Names(ctx.plan.topics.matches, {*ctx.source.topic_names(), *ctx.target.topic_names()}),
            "GROUP": Names(ctx.plan.groups.matches, {*ctx.source.groups(), *ctx.target.groups()}),
        },
        access=access,
        own=_own_principals(ctx),
        fences=_fences(ctx, SOURCE),
    )
    found = copying.carried(source)
    wanted = {acl for one in found for acl in one.made}
    if len(wanted) > _MOST:
        most = sorted(found, key=lambda one: -len(one.made))[:5]
        raise Refused(
            f"{len(wanted):,} ACLs would be made, most of them for {listed(_line(one.acl) for one in most)}",
            remedy="exclude these principals (access.exclude), and grant them a prefix by hand",
        )
    # A fence's denial goes when it is lifted.
    there = set(ctx.target.acls()) - _fences(ctx, TARGET)
    return AccessDiff(
        missing=tuple(in_order(wanted - there)),
        present=len(wanted & there),
        left_out=tuple(one for one in found if not one.made),
        users=dict(sorted(_users(found))),
        notes=tuple(_notes(ctx, access, source)),
    )


def commands(acls: Iterable[Acl], *, servers: str) -> tuple[str, ...]:
    """``acls`` as command lines of Kafka's own tool, in their order. ``servers`` as a shell word.

    The administrator's own credentials are in the file ``admin.properties``, never on the command line.
    """
    together: dict[tuple[str, str, str, str, str, tuple[str, ...]], list[str]] = {}
    operations: dict[tuple[str, str, str, str, str, str], list[str]] = {}
    for acl in acls:
        key = (acl.permission, acl.principal, acl.host, acl.resource_type, acl.pattern, acl.resource)
        operations.setdefault(key, []).append(acl.operation)
    for (permission, principal, host, kind, pattern, resource), found in operations.items():
        together.setdefault((permission, principal, host, kind, pattern, tuple(found)), []).append(resource)
    lines = []
    for (permission, principal, host, kind, pattern, may), names in together.items():
        verb = permission.lower()
        words = ["kafka-acls", "--bootstrap-server", servers, "--command-config", "admin.properties", "--add"]
        words += [f"--{verb}-principal", quote(principal)]
        words += [] if host == "*" else [f"--{verb}-host", quote(host)]
        words += [word for one in may for word in ("--operation", one.title().replace("_", ""))]
        words += ["--resource-pattern-type", "prefixed"] if pattern == "PREFIXED" else []
        option = f"--{kind.lower().replace('_', '-')}"
        for at in range(0, len(names), _AT_ONCE):
            some = names[at : at + _AT_ONCE]
            rest = [option] if kind == "CLUSTER" else [word for name in some for word in (option, quote(name))]
            lines.append(" ".join([*words, *rest]))
    return tuple(lines)


def _users(found: Iterable[Carried]) -> Iterator[tuple[str, str]]:
    for one in found:
        for acl in one.made:
            names = one.acl.principal, acl.principal
            if acl.permission == "ALLOW" and EVERYBODY not in names and all(name.startswith(_USER) for name in names):
                yield names[0].removeprefix(_USER), names[1].removeprefix(_USER)


def _own_principals(ctx: Context) -> frozenset[str]:
    """Those of the migration on either cluster, and of its probes, as far as anybody but the brokers knows."""
    found = {principal_of(cluster.connection) for cluster in (ctx.source, ctx.target)}
    if ctx.plan.producers is not None:
        for side in (SOURCE, TARGET):
            fence = ctx.plan.producers.fence_on(side)
            found |= {fence.own_principal or "", fence.probe_principal or ""}
    return frozenset(found - {""})


def _fences(ctx: Context, side: Side) -> frozenset[Acl]:
    """Denials of fences on this cluster, of this migration and of others with the same target, while brokers may show
    them."""
    cluster: Cluster = ctx.source if side == SOURCE else ctx.target
    found: set[Acl] = set()
    for ban in BANS:
        if ban.side == side:
            found |= fences.own_acls(ctx, ban)
            found = found.union(*fences.of_others(ctx, ban, cluster.cluster_id()).values())
    return frozenset(found)


def _notes(ctx: Context, access: Access, source: Iterable[Acl]) -> Iterator[str]:
    known = {acl.principal for acl in source}
    for name in sorted({*access.principals, *access.exclude} - known):
        yield f"the source has no ACL of {name}, which the plan's section access names"
    if _is_open(ctx.source):
        yield f"the source lets everybody use what has no ACL ({_OPEN_DOOR}): such clients have none to be copied"
    if _is_open(ctx.target):
        yield (
            f"the target lets everybody use what has no ACL ({_OPEN_DOOR}): the first ACL on a topic shuts out whoever"
            " has none, the migration, too"
        )


def _is_open(cluster: Cluster) -> bool:
    with suppress(NotAuthorized, NotSupported):
        config = cluster.broker_configs().get(_OPEN_DOOR)
        return config is not None and str(config.value).lower() == "true"
    return False


def _line(acl: Acl) -> str:
    return f"{acl.permission} {acl.principal} {acl.operation} on {acl.resource_type} {acl.resource}"
