"""Collecting the evidence of each gate: what is so now, what happens next, and how that is undone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kafka_migration.approvals.cutover import cutover_facts
from kafka_migration.approvals.evidence import Evidence, GateName, Table, item, limited, verdicts
from kafka_migration.domain.errors import MigrationError
from kafka_migration.domain.listing import listed
from kafka_migration.groups import translate
from kafka_migration.inventory import inventory, plan_changes, preflight
from kafka_migration.kafka.facts import GroupFacts, Inventory
from kafka_migration.link import lag
from kafka_migration.topics import create

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.plans.changes import Change


#: The command that lists everything that the inventory has.
_INVENTORY = "check PLAN --json"


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
    found = cutover_facts(ctx, taken, create.verify(ctx))
    return replace(found, tables=(_lag(ctx), _positions(ctx), _groups(taken.groups.values()), _stragglers(taken)))


def _items(value: Any) -> dict[str, str]:
    if isinstance(value, dict):
        return {name: item(one) for name, one in value.items()}
    return {"all": "unknown" if value is None else item(value)}


# -- tables ---------------------------------------------------------------------------------------------------------


def _changes(changed: Iterable[Change]) -> Table:
    rows = tuple((change.field, change.before, change.now, change.holds) for change in changed)
    return Table(title="Changes of the plan", columns=("field", "was", "is", "holds"), rows=rows)


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


def size(count: int) -> str:
    """Bytes for a person."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
