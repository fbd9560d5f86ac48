"""Computed waves as they were when `create` ran: what they are taken from moves (leaders forget producers, topics
grow), and a wave that was approved, or has moved, must not become another one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from kafka_migration.plans.waves import Waves
from kafka_migration.waves.order import Wave

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

KIND, NAME = "waves", "computed"


def pin(ctx: Context, waves: Iterable[Wave]) -> None:
    """Remember ``waves`` for as long as the plan has them computed by the same fields; nothing of a plan that gives its
    waves, or has none."""
    if ctx.plan.waves is None or ctx.plan.waves.auto is None or ctx.dry_run:
        return
    kept = [{"name": wave.name, "topics": sorted(wave.topics), "canary": wave.canary} for wave in waves]
    value = {"fields": ctx.plan.snapshot().get("waves"), "waves": kept}
    if value != ctx.journal.read(KIND, NAME):
        ctx.journal.record(KIND, NAME, value)


def pinned(ctx: Context) -> tuple[Wave, ...]:
    """The waves that were pinned, without their groups; none before `create`, or once the plan's fields changed."""
    value = ctx.journal.read(KIND, NAME)
    if value is None or not _are_the_plans(ctx, value["fields"]):
        return ()
    return tuple(
        Wave(name=one["name"], topics=frozenset(one["topics"]), canary=one["canary"]) for one in value["waves"]
    )


def _are_the_plans(ctx: Context, fields: Any) -> bool:
    """Whether ``fields``, as they were stored, are those of the plan."""
    try:
        # With the defaults of this version: a field that it knows and the other did not is no change.
        return Waves.model_validate_json(json.dumps(fields)) == ctx.plan.waves
    except ValidationError:
        return False
