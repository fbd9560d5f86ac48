"""What a person asks for by the form of a plan's `control_` DAG: hold the mirror, let it go on, end the migration."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kafka_migration.airflow.alerts import tries_before
from kafka_migration.airflow.base import MigrationOperator
from kafka_migration.domain.controls import parse_rate
from kafka_migration.domain.errors import BadInput, Refused
from kafka_migration.migration.joined import joined

if TYPE_CHECKING:
    from datetime import datetime

    from airflow.sdk import Context

    from kafka_migration.migration.context import Context as MigrationContext


#: What nothing brings back is not done later than so long after it was asked for: a DAG that is paused keeps its runs.
FINAL_SECONDS = 900.0


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
        found = self._control(context)
        self.publish(context)
        return found

    def _control(self, context: Context) -> dict[str, Any]:
        from kafka_migration.link.reverse import behind
        from kafka_migration.steps import cancel, complete, controls

        form, run = context["params"], context["dag_run"]
        action, by, reason = Action(form["action"]), run.triggering_user_name or f"run {run.run_id}", form["reason"]
        with self.opened(context) as ctx:
            _require_fitting(action, form)
            if action.is_final:
                is_cleared = bool(run.clear_number or tries_before(context))
                _require_asked_now(ctx, action, run.run_after, is_cleared=is_cleared)
                _require_confirmed(ctx, action, by=by, confirmed=form["confirm"])
                if action is Action.CANCEL:
                    decision = cancel.run(ctx, by=by, reason=reason, keep_topics=form["keep_topics"])
                else:
                    decision = complete.run(ctx, by=by)
                return self.facts_of(decision)
            link = behind(ctx) if form["reverse"] else ctx
            if action is Action.PAUSE:
                held = controls.pause(link, by=by, reason=reason)
            elif action is Action.RESUME:
                held = controls.resume(link, by=by)
            else:
                held = controls.throttle(link, parse_rate(form["rate"] or ""), by=by)
            return held.as_dict()


#: Field of the form -> the actions that take it.
_TAKEN_BY = {
    "reverse": (Action.PAUSE, Action.RESUME, Action.THROTTLE),
    "rate": (Action.THROTTLE,),
    "keep_topics": (Action.CANCEL,),
    "confirm": (Action.CANCEL, Action.COMPLETE),
}


def _require_fitting(action: Action, form: Mapping[str, Any]) -> None:
    """Raise BadInput for a field that was filled in, and that ``action`` does not take: something else was meant."""
    for field, actions in _TAKEN_BY.items():
        if form[field] and action not in actions:
            raise BadInput(
                f"`{action}` does not take this",
                field=field,
                value=form[field],
                remedy=f"leave it out, or choose {' or '.join(actions)}; then trigger the DAG again",
            )


def _require_asked_now(ctx: MigrationContext, action: Action, asked: datetime, *, is_cleared: bool) -> None:
    """Raise Refused for a task that was cleared, or was triggered long ago: what nothing brings back is done once, in
    the name of who asked for it and has seen how things are."""
    if is_cleared:
        raise Refused(
            f"this task was cleared, and `{action}` is done in the name of who triggered the run",
            remedy="trigger the DAG again, in your own name",
        )
    age = (ctx.clock.now() - asked).total_seconds()
    if age > FINAL_SECONDS:
        raise Refused(
            f"`{action}` was asked for {age / 60:,.0f} minutes ago, and much may have happened since",
            remedy="unpause the DAG, look at `status`, and trigger it again",
        )


def _require_confirmed(ctx: MigrationContext, action: Action, *, by: str, confirmed: str | None) -> None:
    """Raise BadInput unless the migration's name was typed, Refused for who is not among the plan's approvers: those of
    the plan as it is, and of the one that the migration goes by. An edit alone makes nobody an approver of this."""
    if confirmed != ctx.plan.name:
        raise BadInput(
            f"what `{action}` ends cannot be brought back, so it is asked for twice",
            field="confirm",
            value=confirmed,
            remedy=f"trigger the DAG again, and type {ctx.plan.name} there",
        )
    last = joined(ctx)
    for plan in (ctx.plan, *([] if last is None else [last.plan()])):
        allowed = plan.approvals.approvers
        if allowed and by not in allowed:
            raise Refused(
                f"{by} is not one of the plan's approvers ({', '.join(allowed)}), and nobody else may {action} here",
                remedy="have one of them trigger this DAG; whom the plan names newly counts once it has joined the"
                " migration (`approve plan`, `create`)",
            )
