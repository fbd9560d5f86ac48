"""Before clients go back: what stands on the target, and whether the way back is open. Changes nothing on the clusters.

What moves while records flow (the reverse mirror, its lag, each group) is not asked here: the steps that follow do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_migration.approvals.rollback import selected
from kafka_migration.domain.checks import CheckResult, Gate
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.listing import listed
from kafka_migration.groups.hooks import check_hooks
from kafka_migration.inventory import plan_changes
from kafka_migration.link import reverse, switched
from kafka_migration.link.switched import Switch, SwitchState
from kafka_migration.migration import completion
from kafka_migration.migration.history import remember_run
from kafka_migration.steps import switch
from kafka_migration.steps.step import Decision

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


STANDS = "clients stand on the target"


def run(back: Context, *, run_of_plan: str = "") -> Decision:
    """Whether there is something to move back, and a way. ``run_of_plan`` names the run of a DAG that is bound to this
    plan once all checks have passed, "" for a command.

    Raises Refused where the forward link is not sealed, producers are back already, or the migration was completed or
    cancelled, or goes by another plan.
    """
    forward = back.before()
    plan_changes.require(forward)
    completion.require_none(back)
    last = switched.read(back)
    if last is not None and last.state is SwitchState.DONE:
        raise Refused(
            f"producers were switched back already: {last}",
            remedy="there is nothing to move back; forward again it is `mirror`, by the next generation of the link",
        )
    if last is None or not last.is_unfinished:
        # Where it began, another link may have begun behind it, whose seal is none of this one's business.
        reverse.arm(replace(forward, dry_run=True))
    producers = back.plan.producers
    groups, away = selected(back), switched.away_from(back, "source")
    checks = (_stands(back, groups, away), *check_hooks(back.plan), *(switch.check_ground(back) if producers else ()))
    gate = Gate.of("rollback", checks)
    if not gate.exit_code and run_of_plan:
        remember_run(back, run_of_plan)
    return Decision(
        exit_code=gate.exit_code,
        message=gate.shut_by,
        facts={"groups": len(groups), "producers": producers is not None},
        notes=tuple(f"{check.name} {check.verdict}: {check.evidence}" for check in checks),
        value=gate,
    )


def _stands(back: Context, groups: Sequence[str], away: Switch | None) -> CheckResult:
    if not groups and away is None:
        return CheckResult.failed(
            STANDS,
            f"no group of {back.plan.name} stands there, and its producers were not switched there",
            remedy="there is nothing to move back; `status` shows where groups and producers are",
        )
    if back.plan.producers is None:
        producers = "their owners move them"
    else:
        producers = "not switched by this migration" if away is None else str(away)
    evidence = f"groups that go back: {listed(groups) or 'none'}; producers: {producers}"
    return CheckResult.passed(STANDS, evidence)
