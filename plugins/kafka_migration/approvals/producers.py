"""The gate before producers are switched: what the cutover gate asks, and whether and on whom a fence can be made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_migration.approvals.cutover import CutoverGate, facts_of_scope
from kafka_migration.approvals.evidence import Evidence, GateName, Table, item, verdicts
from kafka_migration.domain.checks import Gate
from kafka_migration.domain.listing import listed
from kafka_migration.fence import fence
from kafka_migration.fence.ground import require_producers

if TYPE_CHECKING:
    from kafka_migration.fence.fence import Fenced
    from kafka_migration.kafka.facts import Inventory
    from kafka_migration.migration.context import Context
    from kafka_migration.topics.declared import Drift


class ProducersGate(CutoverGate):
    """The gate, for as long as one switch takes. Whom the fence denies is looked up once, before there is one."""

    _found: Fenced | None = None

    def _facts(self, taken: Inventory, drift: Sequence[Drift]) -> Evidence:
        self._found = self._found or fence.check(self._ctx)
        return producers_facts(self._ctx, taken, drift, self._found)


def gate_of(ctx: Context) -> CutoverGate:
    """The gate that a switch of the plan's producers asks."""
    return ProducersGate(ctx) if ctx.plan.producers_apart else CutoverGate(ctx)


def producers_facts(ctx: Context, taken: Inventory, drift: Sequence[Drift], found: Fenced) -> Evidence:
    """The evidence, with the tables of whom the fence denies and which hooks are run."""
    seen = facts_of_scope(ctx, taken, drift)
    gate = Gate.of("producers", (*seen.checks.results, *found.checks))
    denied = sorted({acl.principal for acl in found.denials})
    hooks = [(place, str(hook)) for place, hook in require_producers(ctx).hooks()]
    facts = {"fence": {"kind": found.kind, "denied": item(denied), "topics": item(list(found.names))}}
    rows = [("kind", found.kind), ("topics", listed(found.names)), ("principals", listed(denied) or "none")]
    tables = (
        Table(title="The fence", columns=("what", "on the source"), rows=tuple(rows)),
        Table(title="Hooks", columns=("place", "what is run"), rows=tuple(hooks)),
    )
    return replace(
        seen,
        gate=GateName.PRODUCERS,
        facts={**seen.facts, **facts, "checks": verdicts(gate)},
        checks=gate,
        tables=tables,
    )
