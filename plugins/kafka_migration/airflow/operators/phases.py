"""The phases that simply run: each task is one call of the phase, and what it makes of the result."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_migration.airflow.operators.base import MigrationOperator, phase_name, require
from kafka_migration.plans.places import REPORTS_DIRECTORY

if TYPE_CHECKING:
    from airflow.sdk import Context


def reports_directory() -> Path:
    """The folder with one folder per plan; the checkout's reports/ by default."""
    default = Path(__file__).resolve().parents[4] / "reports"
    return Path(os.environ.get(REPORTS_DIRECTORY) or default)


class KafkaCheckOperator(MigrationOperator):
    """Inventory and preflight. Read-only; fails if a check fails or could not run."""

    def execute(self, context: Context) -> dict[str, Any]:
        """The inventory's digest, and how many checks there were."""
        from kafka_migration.inventory import preflight

        with self.opened(to_check=True) as ctx:
            found = preflight.check(ctx)
        for it in found.gate.results:
            remedy = f"\n  remedy: {it.remedy}" if it.remedy else ""
            self.log.info("%-9s %s: %s%s", it.verdict, it.name, it.evidence, remedy)
        said = "\n".join(f"{it.name} {it.verdict}: {it.evidence}\n  remedy: {it.remedy}" for it in found.gate.blockers)
        require(found.exit_code, f"{len(found.gate.blockers)} checks do not pass:\n{said}")
        digest = found.inventory.digest if found.inventory else ""
        return {"inventory": digest, "checks": len(found.gate.results)}


class KafkaCreateTargetsOperator(MigrationOperator):
    """Creates the target topics, once the plan gate lets pass."""

    def execute(self, context: Context) -> dict[str, Any]:
        """How many topics there are, and how many are not as declared."""
        from kafka_migration.approvals import approvals
        from kafka_migration.approvals.evidence import GateName
        from kafka_migration.migration.history import phase, remember_beginning
        from kafka_migration.steps import create

        # Not even the internal topics are made before the gate is open.
        with self.opened() as ctx:
            passed = approvals.check(ctx, GateName.PLAN)
            self.log.info("plan gate: %s", passed.reason)
        with self.opened(make_state=True) as ctx, phase(ctx, "create_targets") as run:
            remember_beginning(ctx, passed.evidence.inventory)
            created = create.apply(ctx)
            run.ends(0, topics=len(created.steps), drift=len(created.drift))
        for drift in created.drift:
            self.log.warning("%s", drift)
        return {"topics": len(created.steps), "drift": len(created.drift)}


class KafkaListBatchesOperator(MigrationOperator):
    """Lists the groups to move, in batches: one mapped task moves one batch."""

    def execute(self, context: Context) -> list[list[str]]:
        """The batches; none if the plan moves no group."""
        from kafka_migration.steps import cutover

        with self.opened(make_state=True) as ctx:
            return cutover.batches(ctx)


class KafkaCutOverOperator(MigrationOperator):
    """Moves a batch of groups, once the cutover gate lets pass. A group that was moved already is left as it is."""

    template_fields: Sequence[str] = ("snapshot", "groups")

    def __init__(self, *, groups: Any, **kwargs: Any) -> None:
        """``groups`` is one batch."""
        super().__init__(**kwargs)
        self.groups = groups

    def execute(self, context: Context) -> dict[str, int]:
        """How many groups ended in which way."""
        from kafka_migration.migration.history import phase
        from kafka_migration.steps import cutover

        with self.opened(make_state=True) as ctx, phase(ctx, phase_name("cut_over", context)) as run:
            result = cutover.apply(ctx, self.groups)
            run.ends(result.exit_code, "; ".join(f"{it.group}: {it.reason}" for it in result.groups if it.exit_code))
        counts: dict[str, int] = {}
        for it in result.groups:
            counts[str(it.outcome)] = counts.get(str(it.outcome), 0) + 1
        left = [it for it in result.groups if it.exit_code]
        said = "\n".join(f"{it.group}: {it.outcome}: {it.reason}\n  remedy: {it.remedy}" for it in left)
        require(result.exit_code, f"{len(left)} of {len(result.groups)} groups were not moved:\n{said}")
        return counts


class MigrationReportOperator(MigrationOperator):
    """Writes the migration's report."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Where it stands, and how many exceptions it names."""
        from kafka_migration.steps import report

        with self.opened(make_state=True) as ctx:
            written = report.apply(ctx, reports_directory())
        for exception in written.report["exceptions"]:
            self.log.warning("%s", exception)
        return {"html": str(written.html_path), "exceptions": len(written.report["exceptions"])}
