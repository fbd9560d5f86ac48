"""Inventory and preflight: what the plan means on the source, and every check of both clusters. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_migration.inventory import preflight
from kafka_migration.steps.step import Decision

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


def run(ctx: Context) -> Decision:
    """Pass if no check fails. A check that could not run is no pass, and worth another try."""
    found = preflight.check(ctx)
    blockers = found.gate.blockers
    return Decision(
        exit_code=found.exit_code,
        message=f"{len(blockers)} checks do not pass:\n{found.gate.shut_by}" if blockers else "",
        facts={"inventory": found.inventory.digest if found.inventory else "", "checks": len(found.gate.results)},
        notes=tuple(
            f"{r.verdict:<9} {r.name}: {r.evidence}" + (f"\n  remedy: {r.remedy}" if r.remedy else "")
            for r in found.gate.results
        ),
        value=found,
    )
