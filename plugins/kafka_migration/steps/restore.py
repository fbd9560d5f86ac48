"""Restore: the target topics get the configs of their sources that were disabled while records were copied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_migration.steps.step import Decision
from kafka_migration.topics import restore

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


def run(ctx: Context) -> Decision:
    """Set them, read back and compare; a second call changes nothing. Raises Refused unless the link is sealed."""
    done = restore.apply(ctx)
    return Decision(facts={"topics": len(done)}, value=done)
