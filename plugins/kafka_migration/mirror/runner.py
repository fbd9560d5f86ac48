"""Where epochs run, as the driver sees it: on Spark, or wherever a test lets them run."""

from __future__ import annotations

from typing import Protocol

from kafka_migration.domain.types import Receipt
from kafka_migration.mirror.orders import TaskOrders


class EpochUnderWay(Protocol):
    """An epoch that runs somewhere."""

    def is_done(self) -> bool:
        """True once it has ended, well or not."""

    def receipts(self) -> list[Receipt]:
        """What its tasks did. Raises if any task died: then nothing is known of the whole epoch."""


class Runner(Protocol):
    """Where epochs run: one task per element of ``orders``."""

    def start(self, orders: list[TaskOrders]) -> EpochUnderWay:
        """Begin an epoch."""
