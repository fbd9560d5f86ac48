"""Validate: both clusters read again by another reader, and compared."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kafka_migration.steps.step import Decision
from kafka_migration.validation import validate

if TYPE_CHECKING:
    from kafka_migration.domain.levels import Level
    from kafka_migration.migration.context import Context
    from kafka_migration.migration.reports import Place


def run(
    ctx: Context,
    *,
    reports: Place,
    spark_master: str | None = None,
    topics: Collection[str] = (),
    level: Level | None = None,
    full: bool = False,
) -> Decision:
    """Pass if everything is equal. See :func:`kafka_migration.validation.validate.apply` for the options."""
    found = validate.apply(ctx, spark_master=spark_master, reports=reports, topics=topics, level=level, full=full)
    remedy = f"see the Data Docs, and {found.folder / 'validation.json'}"
    return Decision(
        exit_code=found.exit_code,
        message=f"{found.result.summary()}\n  remedy: {remedy}" if found.exit_code else found.result.summary(),
        facts={"verdict": str(found.verdict), "folder": str(found.folder)},
        value=found,
    )
