"""Before clients go back: what stands on the target, and whether the way back is open. Changes nothing on the clusters.

What moves while records flow (the reverse mirror, its lag, each group) is not asked here: the steps that follow do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_migration.approvals.rollback import selected
from kafka_migration.domain.checks import Gate
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.listing import listed
from kafka_migration.groups.hooks import check_hooks
from kafka_migration.inventory import plan_changes
from kafka_migration.link import reverse, switched
from kafka_migration.link.switched import SwitchState
from kafka_migration.migration import completion
from kafka_migration.migration.history import remember_run
from kafka_migration.steps import switch
from kafka_migration.steps.step import Decision

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


def run(back: Context, *, run_of_plan: str = "") -> Decision:
    """Whether there is something to move back, and a way. ``run_of_plan`` names the run of a DAG that is bound to this
    plan once all checks have passed, "" for a command.

    Raises Refused where the forward link is not sealed, nothing stands on the target, the migration was completed or
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
    groups, away = selected(back), switched.away_from(back, "source")
    if not groups and away is None:
        raise Refused(
            f"no group of {back.plan.name} stands on the target, and its producers were not switched there",
            remedy="there is nothing to move back; `status` shows where groups and producers are",
        )
    producers = back.plan.producers
    checks = (*check_hooks(back.plan), *(switch.check_ground(back) if producers else ()))
    gate = Gate.of("rollback", checks)
    if not gate.exit_code and run_of_plan:
        remember_run(back, run_of_plan)
    # Of a plan without producers their owners have moved them, and move them back.
    there = (
        "their owners', not moved" if not producers else "not switched by this migration" if away is None else str(away)
    )
    return Decision(
        exit_code=gate.exit_code,
        message=gate.shut_by,
        facts={"groups": len(groups), "producers": producers is not None},
        notes=(f"groups that go back: {listed(groups) or 'none'}", f"producers: {there}"),
        value=gate,
    )
