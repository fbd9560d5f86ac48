"""Approvals: a person's answer, bound to the digest of the evidence that they saw (docs/behaviours.md, 4 and 27).

The evidence of each gate is collected here: what is so now, what happens next, and how that is undone. Between answer
and work, the clusters may change. So the answer names a digest, and whoever is about to act takes the evidence once
more and compares. No answer is never "approved", and a check that fails cannot be approved away.

Whoever may write to the journal may not approve: answers are signed with the approval key over all that they contain.
An older answer that is written again changes nothing (see :mod:`kafka_migration.approvals.record`), and neither does
the removal of a newer one, for as long as the journal remembers that something was removed (docs/security.md,
Approvals).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kafka_migration.approvals import waves
from kafka_migration.approvals.cutover import cutover_facts, schema_checks
from kafka_migration.approvals.evidence import Evidence, GateName, Table, item, limited, verdicts
from kafka_migration.approvals.passing import (
    CLOCKS_DIFFER,
    NotApproved,
    Passed,
    require_approver,
    require_key,
    require_open,
    require_passed,
    require_young,
)
from kafka_migration.approvals.producers import producers_facts
from kafka_migration.approvals.record import (
    AIRFLOW,
    APPROVED,
    REJECTED,
    REVOKED,
    Approval,
    answers,
    is_signed,
    of_waves,
    write,
)
from kafka_migration.approvals.rollback import rollback_evidence
from kafka_migration.domain.amounts import size
from kafka_migration.domain.errors import BadInput, MigrationError
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import Desired
from kafka_migration.fence import fence
from kafka_migration.groups import looks, translate
from kafka_migration.inventory import inventory, plan_changes, preflight
from kafka_migration.kafka.facts import GroupFacts, Inventory
from kafka_migration.link import lag
from kafka_migration.migration import cancellation
from kafka_migration.state.link import Wish
from kafka_migration.topics import create
from kafka_migration.waves import sizing
from kafka_migration.waves.order import Wave, Waves

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.plans.changes import Change

#: The command that lists everything that the inventory has.
_INVENTORY = "check PLAN --json"


def evidence(ctx: Context, gate: GateName) -> Evidence:
    """What there is to see before ``gate``, now. Read-only. Raises what looking at the clusters raises; Refused for a
    cancelled migration, unless it is about to begin again."""
    if gate is not GateName.PLAN:
        cancellation.require_none(ctx)
    takes = {
        GateName.PLAN: plan_evidence,
        GateName.CUTOVER: cutover_evidence,
        GateName.PRODUCERS: producers_evidence,
        GateName.ROLLBACK: rollback_evidence,
    }
    return takes[gate](ctx)


def record(
    ctx: Context,
    gate: GateName,
    digest: str,
    approver: str,
    *,
    seen_at: datetime | None = None,
    now: Evidence | None = None,
    via: str = AIRFLOW,
) -> Approval:
    """Record that ``approver`` approved the evidence with ``digest``, taken at ``seen_at`` (default: just now).

    ``approver`` is whom ``via`` has authenticated. ``ctx`` must have been opened with ``make_state``, or the answer
    dies with the process. ``now`` is the evidence as it is at this moment, if the caller has just taken it;
    otherwise it is taken. Raises NotApproved if the evidence changed since, is too old, or holds a check that
    fails; or if ``approver`` is not among the plan's approvers. Raises BadInput where there is no key to sign with.
    """
    now = now or evidence(ctx, gate)
    seen_at = seen_at or now.taken_at
    examine(ctx, gate, digest, approver, seen_at=seen_at, now=now)
    approval = write(ctx, gate, APPROVED, digest, approver, via=via, seen_at=seen_at, facts=now.facts)
    if gate is GateName.CUTOVER:
        looks.take(ctx, translate.selected_groups(ctx))
    return approval


def examine(ctx: Context, gate: GateName, digest: str, approver: str, *, seen_at: datetime, now: Evidence) -> None:
    """Whether such an answer could be recorded, by the same rules as ``record``, which raises the same. Read-only."""
    require_key(ctx)
    require_approver(ctx, gate, approver)
    if digest != now.digest:
        raise NotApproved(
            gate,
            f"the answer is for {digest}, but the evidence is {now.digest} now",
            digest=now.digest,
            remedy="look at the evidence again, it has changed, and answer again",
        )
    require_open(now)
    if seen_at > ctx.clock.now() + CLOCKS_DIFFER:
        raise BadInput(
            "evidence cannot have been taken in the future",
            field="seen_at",
            value=seen_at.isoformat(),
            remedy="correct this machine's clock, or show the evidence again",
        )
    require_young(ctx, gate, seen_at, "the evidence was taken")


def reject(
    ctx: Context, gate: GateName, digest: str, approver: str, *, reason: str = "", via: str = AIRFLOW
) -> Approval:
    """Record that ``approver`` rejected the gate; an earlier approval is void with it.

    At the cutover gate the mirror is stopped, too: nobody would be there to end it. Nothing is lost by that. Not where
    a wave is rejected: others go on. Raises Refused for the whole of a plan with waves.
    """
    require_approver(ctx, gate, approver)
    if gate is GateName.CUTOVER:
        waves.require_wave(ctx)
    stops = gate is GateName.CUTOVER and ctx.scope.is_whole and not ctx.dry_run
    if stops and (ctx.link.run() or {}).get("state") == "running":
        why = f"{approver} rejected the cutover gate" + (f": {reason}" if reason else "")
        ctx.link.wish(Wish(desired=Desired.STOP, reason=why, at=ctx.stamp()))
    return write(ctx, gate, REJECTED, digest, approver, via=via, reason=reason)


def revoke(ctx: Context, gate: GateName, approver: str, *, reason: str = "", via: str = AIRFLOW) -> Approval:
    """Take back what was approved at ``gate``: the next step that asks it is refused; what was done stays done.

    Raises NotApproved if there is nothing to take back, or ``approver`` is not among the plan's approvers.
    """
    require_approver(ctx, gate, approver)
    newest = answers(ctx).get(gate)
    standing = [newest] if newest is not None else []
    if gate is GateName.ROLLBACK and ctx.scope.is_whole:
        standing += of_waves(ctx, gate)
    standing = [answer for answer in standing if answer.answer == APPROVED]
    if not standing:
        raise NotApproved(gate, "there is no approval to revoke", remedy="see `status`; nothing needs to be done")
    return write(ctx, gate, REVOKED, standing[0].digest, approver, via=via, reason=reason)


def receipt(ctx: Context, seen: Evidence) -> str:
    """What proves later that ``seen`` was shown, and when: for :func:`shown_by`. "" where there is no key for it."""
    text = f"{seen.digest}@{seen.taken_at.isoformat(timespec='milliseconds')}"
    if not is_signed(ctx):
        return text
    keys = ctx.approval_keys()
    return f"{text}#{keys.sign(_shown(ctx, seen.gate, text))}" if keys else ""


def shown_by(ctx: Context, gate: GateName, text: str) -> tuple[str, datetime]:
    """Digest and time of the evidence that a receipt stands for. Raises BadInput for what is not a receipt of it."""
    require_key(ctx)
    what, _, signature = text.partition("#")
    digest, _, taken_at = what.partition("@")
    try:
        at = datetime.fromisoformat(taken_at)
        genuine = at.tzinfo is not None and (
            not is_signed(ctx) or ctx.approval_keys().has_signed(signature, _shown(ctx, gate, what))
        )
    except ValueError:
        genuine = False
    if not genuine:
        raise BadInput(
            f"not a receipt of the evidence of this {gate} gate",
            field="--receipt",
            value=text,
            remedy=f"show the evidence again (approve {gate} PLAN --show), and give the receipt that stands below it",
        )
    return digest, at


def _shown(ctx: Context, gate: GateName, text: str) -> dict[str, Any]:
    return {"kind": "receipt", "migration": ctx.plan.name, "gate": str(gate), "receipt": text}


def check(ctx: Context, gate: GateName) -> Passed:
    """Take the evidence of ``gate``, and let pass or raise NotApproved. Read-only."""
    return require_passed(ctx, evidence(ctx, gate))


def plan_evidence(ctx: Context) -> Evidence:
    """Before anything is created: inventory, preflight and the plan's digest. Read-only."""
    taken_at = ctx.clock.now()
    seen = preflight.check(ctx)
    stable = seen.inventory.stable() if seen.inventory else {}
    facts: dict[str, dict[str, str]] = {"plan": {"digest": ctx.plan.digest}}
    # Whatever an inventory counts as stable is bound, so nothing that it learns to see can be left out here.
    for name, value in stable.items():
        facts[name.replace("_", " ")] = _items(value)
    changed = plan_changes.shown(ctx)
    if changed:
        facts["plan changes"] = {change.field: item(f"{change.before} -> {change.now}") for change in changed}
    facts["checks"] = verdicts(seen.gate)
    tables = [_changes(changed)] if changed else []
    if seen.inventory is not None and seen.waves is not None:
        # Who approves the plan approves what moves together, and when.
        facts["waves"] = {wave.name: item([at, wave.as_dict()]) for at, wave in enumerate(seen.waves.waves, 1)}
        tables += _waves(ctx, seen.waves, seen.inventory)
    if seen.inventory is not None:
        tables += [_topics(seen.inventory), _groups(seen.inventory.groups.values()), _not_moved(seen.inventory)]
    return Evidence(
        gate=GateName.PLAN,
        migration=ctx.plan.name,
        scope=ctx.scope.key,
        taken_at=taken_at,
        facts=facts,
        checks=seen.gate,
        tables=tuple(tables),
        inventory=seen.inventory,
    )


def cutover_evidence(ctx: Context) -> Evidence:
    """Before the first group moves: lag, verdict, groups and their positions, who still writes. Read-only."""
    taken = inventory.take(ctx)
    found = cutover_facts(ctx, taken, create.verify(ctx), schema_checks(ctx))
    tables = (_lag(ctx), _positions(ctx), _groups(taken.groups.values()), _stragglers(taken))
    return replace(found, tables=tables if ctx.scope.is_whole else (_wave(ctx, taken), *tables))


def producers_evidence(ctx: Context) -> Evidence:
    """Before producers are switched: the fence and its checks, hooks, lag, sizes, who writes. Read-only."""
    taken = inventory.take(ctx)
    found = producers_facts(ctx, taken, create.verify(ctx), fence.check(ctx))
    writers = replace(_stragglers(taken), note="The fence keeps them from writing, or names who writes nevertheless.")
    return replace(found, tables=(*found.tables, _lag(ctx), _topics(taken), writers))


def _items(value: Any) -> dict[str, str]:
    if isinstance(value, dict):
        return {name: item(one) for name, one in value.items()}
    return {"all": "unknown" if value is None else item(value)}


# -- tables ---------------------------------------------------------------------------------------------------------


def _changes(changed: Iterable[Change]) -> Table:
    rows = tuple((change.field, change.before, change.now, change.holds) for change in changed)
    return Table(title="Changes of the plan", columns=("field", "was", "is", "holds"), rows=rows)


def _waves(ctx: Context, waves: Waves, taken: Inventory) -> tuple[Table, Table]:
    see = "waves PLAN --json"
    sized = sizing.sizes(ctx, waves, taken)
    numbers = limited("Waves, in their order", sizing.COLUMNS, (sizing.row(one) for one in sized), see=see)
    members = (
        (sizing.title(wave), listed(sorted(wave.topics)), listed(sorted(wave.groups)) or "none") for wave in waves.waves
    )
    return (
        replace(numbers, note=" ".join(filter(None, (numbers.note, sizing.note(sized))))),
        limited("What moves together", ("wave", "topics", "groups"), members, see=see),
    )


def _wave(ctx: Context, taken: Inventory) -> Table:
    """The wave in scope, with its size; ``taken`` is of its topics and groups."""
    wave = Wave(name=ctx.scope.key, topics=frozenset(taken.topics), groups=frozenset(taken.groups))
    (sized,) = sizing.sizes(ctx, Waves(waves=(wave,), links=()), taken)
    return Table(title="This wave", columns=sizing.COLUMNS, rows=(sizing.row(sized),), note=sizing.note((sized,)))


def _topics(taken: Inventory) -> Table:
    rows = (
        (
            name,
            str(topic.partitions),
            str(topic.replication_factor),
            f"{topic.offsets:,}",
            "unknown" if topic.bytes is None else size(topic.bytes),
            f"{topic.records_per_second:,.0f}",
            ", ".join(f"{key}={value}" for key, value in sorted(topic.configs.items())),
        )
        for name, topic in sorted(taken.topics.items())
    )
    columns = ("topic", "parts", "repl", "offsets", "size", "per s", "configs")
    return limited("Topics", columns, rows, see=_INVENTORY)


def _groups(groups: Iterable[GroupFacts]) -> Table:
    rows = (
        (
            group.name,
            group.protocol,
            group.state,
            str(len(group.members)),
            "unknown" if group.lag is None else f"{group.lag:,}",
            ", ".join(sorted(group.topics)),
        )
        for group in sorted(groups, key=lambda group: group.name)
    )
    columns = ("group", "protocol", "state", "members", "lag", "reads")
    return limited("Consumer groups", columns, rows, see=_INVENTORY)


def _not_moved(taken: Inventory) -> Table:
    def count(found: tuple[Any, ...] | None) -> str:
        return "unknown" if found is None else str(len(found))

    rows = (
        ("ACLs", count(taken.acls)),
        ("client quotas", count(taken.quotas)),
        ("SCRAM users", count(taken.scram_users)),
        ("groups that read these topics and are not moved", listed(taken.left_behind) or "none"),
    )
    return Table(title="Not moved by this plan", columns=("what", "found on the source"), rows=rows)


def _lag(ctx: Context) -> Table:
    columns = ("what", "now")
    try:
        meter = lag.LagMeter(ctx)
        meter.read()
        ctx.clock.sleep(1.0)
        report = meter.read()
    except MigrationError as error:
        return Table(title="Replication lag", columns=columns, rows=(("lag", f"unknown: {error.message}"),))
    worst = report.sample.worst
    return Table(
        title="Replication lag",
        columns=columns,
        rows=(
            ("lag", lag.describe(report)),
            ("most behind", f"{worst[0]} ({worst[1]:,})" if worst and worst[1] else "none"),
            ("mirror", report.mirror),
        ),
    )


def _positions(ctx: Context) -> Table:
    """Where every group would resume if it were moved now, and what would prevent the move."""
    rows = []
    for group in translate.preview(ctx).groups:
        first = "; ".join(
            f"{one.tp}: {'-' if one.source is None else one.source} -> {one.target}" for one in group.translations[:3]
        )
        more = f" and {len(group.translations) - 3} more" if len(group.translations) > 3 else ""
        remarks = listed([*group.problems, *group.flags])
        rows.append((group.group, f"{group.state}, {group.members} members", first + more, remarks))
    columns = ("group", "state", "source -> target", "remarks")
    return limited("Where each group would resume", columns, rows, see="translate PLAN --json")


def _stragglers(taken: Inventory) -> Table:
    rows = (
        (
            name,
            f"{topic.records_per_second:,.0f}",
            "unknown" if topic.producers is None else f"{topic.producers.active} known to the leaders",
        )
        for name, topic in sorted(taken.topics.items())
        if topic.records_per_second > 0 or (topic.producers is not None and topic.producers.active)
    )
    columns = ("topic", "offsets per s", "producer ids")
    shown = limited("Producers that write to the source", columns, rows, see=_INVENTORY)
    note = "They stay on the source, and the mirror keeps copying what they write."
    return replace(shown, note=f"{note} {shown.note}".strip())
