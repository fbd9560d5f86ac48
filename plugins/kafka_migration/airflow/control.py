"""What a person asks for by the form of a plan's `control_` DAG: hold the mirror, let it go on, end the migration."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kafka_migration.airflow.base import MigrationOperator, require
from kafka_migration.domain.errors import BadInput, Refused

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_migration.migration.context import Context as MigrationContext


class Action(StrEnum):
    """Each is the command of that name."""

    PAUSE = "pause"
    RESUME = "resume"
    THROTTLE = "throttle"
    CANCEL = "cancel"
    COMPLETE = "complete"

    @property
    def is_final(self) -> bool:
        """Whether nothing takes it back."""
        return self in (Action.CANCEL, Action.COMPLETE)


class ControlOperator(MigrationOperator):
    """Does what the form asks for, in the name of the user who triggered the run, as Airflow's server recorded it."""

    def execute(self, context: Context) -> dict[str, Any]:
        """What holds the mirror back now; or, of what ended the migration, the step's facts."""
        from kafka_migration.link.reverse import behind
        from kafka_migration.steps import cancel, complete, controls

        form, run = context["params"], context["dag_run"]
        action, by, reason = Action(form["action"]), run.triggering_user_name or f"run {run.run_id}", form["reason"]
        with self.opened(context) as ctx:
            if action.is_final:
                _require_confirmed(ctx, action, by=by, confirmed=form["confirm"])
                if action is Action.CANCEL:
                    decision = cancel.run(ctx, by=by, reason=reason, keep_topics=form["keep_topics"])
                else:
                    decision = complete.run(ctx, by=by)
                for note in decision.notes:
                    self.log.info("%s", note)
                require(decision.exit_code, decision.message)
                return dict(decision.facts)
            link = behind(ctx) if form["reverse"] else ctx
            if action is Action.PAUSE:
                held = controls.pause(link, by=by, reason=reason)
            elif action is Action.RESUME:
                held = controls.resume(link, by=by)
            else:
                held = controls.throttle(link, _rate(form["rate"]), by=by)
            return held.as_dict()


def _rate(text: str | None) -> int | None:
    from kafka_migration.domain.controls import parse_rate

    return parse_rate(text or "")


def _require_confirmed(ctx: MigrationContext, action: Action, *, by: str, confirmed: str | None) -> None:
    """Raise BadInput unless the migration's name was typed, Refused for who is not among the plan's approvers."""
    if confirmed != ctx.plan.name:
        raise BadInput(
            f"what `{action}` ends cannot be brought back, so it is asked for twice",
            field="confirm",
            value=confirmed,
            remedy=f"trigger the DAG again, and type {ctx.plan.name} there",
        )
    allowed = ctx.plan.approvals.approvers
    if allowed and by not in allowed:
        raise Refused(
            f"{by} is not one of the plan's approvers ({', '.join(allowed)}), and nobody else may {action} here",
            remedy="have one of them trigger this DAG, or add the name to approvals.approvers of the plan",
        )
