"""Where copy rounds run, as the driver sees it: on Spark, or wherever a test lets them run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kafka_migration.copy.orders import TaskOrders
from kafka_migration.domain.types import Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What the tasks of a round did: ``receipts`` of those that ended in order, and what the others died of, by the
    index of their orders. Of these nothing is known but what they reported while they ran."""

    receipts: list[Receipt] = field(default_factory=list)
    failed: Mapping[int, Exception] = field(default_factory=dict)


class CopyRound(Protocol):
    """A round that runs somewhere."""

    def is_done(self) -> bool:
        """True once it has ended, well or not."""

    def tasks(self) -> Mapping[int, bool]:
        """The tasks that have begun (indexes of the orders), as far as is known now: True if it ended, well or not."""

    def abandon(self, why: Exception) -> None:
        """Wait no longer for the tasks that have not ended: they failed, because of ``why``."""

    def ended(self) -> Ended:
        """Wait for its end, and return what its tasks did."""


class Runner(Protocol):
    """Where rounds run: one task per element of ``orders``."""

    @property
    def slots(self) -> int | None:
        """How many tasks can run side by side; None if that is not known, or may change."""

    def start(self, orders: list[TaskOrders]) -> CopyRound:
        """Begin a round."""
