"""Where epochs run, as the driver sees it: on Spark, or wherever a test lets them run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kafka_migration.domain.types import Receipt
from kafka_migration.mirror.orders import TaskOrders


class EpochUnderWay(Protocol):
    """An epoch that runs somewhere."""

    def is_done(self) -> bool:
        """True once it has ended, well or not."""

    def tasks(self) -> Mapping[int, bool]:
        """The tasks that have begun (indexes of the orders), as far as is known now: True if it ended, well or not."""

    def receipts(self) -> list[Receipt]:
        """What its tasks did. Raises if any task died: then nothing is known of the whole epoch."""


class Runner(Protocol):
    """Where epochs run: one task per element of ``orders``."""

    @property
    def slots(self) -> int | None:
        """How many tasks can run side by side; None if that is not known, or may change."""

    def start(self, orders: list[TaskOrders]) -> EpochUnderWay:
        """Begin an epoch."""
