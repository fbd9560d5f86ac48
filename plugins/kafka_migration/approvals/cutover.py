"""The cutover gate, asked before each group is moved: a cutover of many groups takes hours, and much changes in them.

An answer that was revoked, a halt, a verdict that turned: all of that stands in the state on the target, and is read
each time. What only the clusters show (topics, their configs, what groups read) is asked anew once it is older than
:data:`FACTS_SECONDS`, since it is many requests for many groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafka_migration.approvals import approvals
from kafka_migration.approvals.evidence import GateName
from kafka_migration.approvals.gates import cutover_facts
from kafka_migration.inventory import inventory
from kafka_migration.kafka.facts import Inventory
from kafka_migration.topics import create
from kafka_migration.topics.declared import Drift

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

FACTS_SECONDS = 15.0


class CutoverGate:
    """The gate, for as long as one call of the cutover takes."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._seen: tuple[float, Inventory, Sequence[Drift]] | None = None

    def ask(self) -> str:
        """Why the next group may be moved. Raises NotApproved if not, CouldNotFindOut if a check could not run."""
        ctx = self._ctx
        now = ctx.clock.monotonic()
        if self._seen is None or now - self._seen[0] > FACTS_SECONDS:
            self._seen = (now, inventory.take(ctx, briefly=True), create.verify(ctx))
        _, taken, drift = self._seen
        return approvals.check(ctx, GateName.CUTOVER, now=cutover_facts(ctx, taken, drift)).reason
