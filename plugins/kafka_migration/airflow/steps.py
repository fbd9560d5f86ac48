"""The steps of the table as tasks: each is one call of the runner, and what Airflow makes of its decision.

The first tasks of a run are here, too: one notes the plan as it is now; one asks, before a repeated validation, whether
it is of use. So is what a person asks for by the form of a `control_` DAG: hold the mirror, let it go on, end the
migration.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.standard.operators.python import ShortCircuitOperator
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from kafka_migration.airflow.alerts import tries_before
from kafka_migration.airflow.base import MigrationOperator, explained, reports_directory, require, run_of
from kafka_migration.airflow.opening import opened_context
from kafka_migration.airflow.submit import spark_master
from kafka_migration.airflow.trigger import StepTrigger
from kafka_migration.domain.controls import parse_rate
from kafka_migration.domain.errors import BadInput, NeedsRollback, Refused
from kafka_migration.domain.levels import Level
from kafka_migration.migration.joined import joined
from kafka_migration.plans.load import load_plan
from kafka_migration.plans.snapshot import Snapshot
from kafka_migration.steps.step import part_of
from kafka_migration.steps.table import step_named

if TYPE_CHECKING:
    from datetime import datetime

    from airflow.sdk import Context

    from kafka_migration.migration.context import Context as MigrationContext

#: What nothing brings back is not done later than so long after it was asked for: a DAG that is paused keeps its runs.
FINAL_SECONDS = 900.0


class StepOperator(MigrationOperator):
    """Runs one step of the workflow, and fails, or is tried again, by the exit code of its decision."""

    def __init__(self, *, step: str, **kwargs: Any) -> None:
        """``step`` is its name in the table."""
        super().__init__(**kwargs)
        self.step = step

    def options(self, context: Context) -> dict[str, Any]:
        """What the step is run with."""
        return {}

    def execute(self, context: Context) -> dict[str, Any]:
        """The facts of the decision."""
        return self.run(context)

    def run(self, context: Context) -> dict[str, Any]:
        """Run the step; its notes go to the task's log, and where the migration stands then, also after a failure, to
        the board."""
        try:
            found = self._run(context)
        except Exception:
            self._publish(context)
            raise
        self._publish(context)
        return found

    def _publish(self, context: Context) -> None:
        # Batches are many, and the trigger that watches the mirror sees them, too.
        if not step_named(self.step).batched:
            self.publish(context)

    def _run(self, context: Context) -> dict[str, Any]:
        from kafka_migration.steps import runner

        row, part = step_named(self.step), part_of(self.wave) + _batch(context)
        # A gate is asked before internal topics are made. Without one the state is there already, but a broker may not
        # show yet what was made a moment ago.
        # A teardown may follow a plan that was rejected, which leaves nothing on the target.
        is_check = row.name == "inventory_and_preflight"
        begins = row.gate is not None or not row.after or row.is_teardown
        # A fence that could not be lifted now may be in a minute, and producers wait for it.
        again = explained(retry=(NeedsRollback,) if row.is_teardown else ())
        with self.opened(context, make_state=not begins, to_check=is_check) as ctx, again:
            decision = runner.run(ctx, self.step, part=part, **self.options(context))
        return self.facts_of(decision)


class WaitOperator(StepOperator):
    """A step that waits. It holds no worker meanwhile: a trigger looks, and the task goes on with its decision."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Defer to the trigger, for as long as the plan gives the step."""
        self._wait(context)

    def _wait(self, context: Context) -> NoReturn:
        seconds = step_named(self.step).seconds(self.plan(context))
        gives_up_at = None if seconds is None else time.time() + seconds
        snapshot = self.snapshot(context)
        trigger = StepTrigger(
            step=self.step,
            packed=snapshot.pack(),
            digest=snapshot.digest,
            run_of_plan=run_of(context),
            plan_file=self.plan_file,
            wave=self.wave,
            gives_up_at=gives_up_at,
        )
        self.defer(trigger=trigger, method_name="resume")

    def resume(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Go on with the decision; where the step does something then, it proves once more what the trigger saw.

        A step that waits until it passes goes back to its trigger where another look may pass: a producer wrote again,
        the time was over, a cluster was away. What a person must settle fails the task at once.
        """
        row = step_named(self.step)
        if event["exit_code"]:
            self.publish(context)
        try:
            require(event["exit_code"], event["message"])
            self.log.info("%s", event["message"])
            return self.run(context) if row.writes else dict(event["facts"])
        except AirflowFailException:
            raise
        except AirflowException as error:
            if not row.until_it_passes:
                raise
            self.log.warning("waiting again: %s", error)
        return self._wait(context)


class BindingOperator(StepOperator):
    """A step that records which plan the run's tasks are bound to: there, with what state begins on the target; back,
    once something can go back."""

    def options(self, context: Context) -> dict[str, Any]:
        """The run, which the plan is recorded for."""
        return {"run_of_plan": run_of(context)}


class ReportOperator(StepOperator):
    """Writes the migration's report."""

    def options(self, context: Context) -> dict[str, Any]:
        """Where reports lie."""
        return {"reports": reports_directory()}


class SparkValidateOperator(StepOperator):
    """Compares source and target, with Spark in a process of its own."""

    def __init__(self, *, conn_id: str, by_form: bool = False, **kwargs: Any) -> None:
        """``conn_id`` names the Spark connection. ``by_form``: the DAG's form names topics and level, and asks for
        everything or for what is new. Within a migration all is validated, whatever its run was triggered with."""
        super().__init__(**kwargs)
        self.conn_id, self.by_form = conn_id, by_form

    def options(self, context: Context) -> dict[str, Any]:
        """What the form asks for."""
        form = context["params"] if self.by_form else {}
        return {
            "reports": reports_directory(),
            "spark_master": spark_master(self.conn_id, field="validation.spark_connection"),
            "topics": form.get("topics") or (),
            "level": Level(form["level"]) if form.get("level") else None,
            "full": bool(form.get("full")),
        }


class ListBatchesOperator(MigrationOperator):
    """Lists the groups to move, in batches: one mapped task moves one batch."""

    def __init__(self, *, step: str, **kwargs: Any) -> None:
        """``step`` is what moves them."""
        super().__init__(**kwargs)
        self.step = step

    def execute(self, context: Context) -> list[list[str]]:
        """The batches; none if the plan moves no group."""
        row = step_named(self.step)
        with self.opened(context, make_state=True) as ctx:
            return row.verbs.batches(row.seen(ctx))


class CutOverOperator(StepOperator):
    """Moves a batch of groups, there or back, each once the gate lets pass. One that was moved already is left as it
    is."""

    template_fields: Sequence[str] = ("groups",)

    def __init__(self, *, groups: Any, **kwargs: Any) -> None:
        """``groups`` is one batch."""
        super().__init__(**kwargs)
        self.groups = groups

    def options(self, context: Context) -> dict[str, Any]:
        """The batch, without groups that the plan does not select any more."""
        plan = self.plan(context)
        if left_out := [group for group in self.groups if not plan.groups.matches(group)]:
            self.log.info("not selected by the plan any more, and left as they are: %s", left_out)
        return {"groups": [group for group in self.groups if group not in left_out]}


def _batch(context: Context) -> str:
    """The suffix of this task's name in the journal: mapped tasks run side by side."""
    index = context["ti"].map_index
    return "" if index is None or index < 0 else f"[{index}]"


class PlanSnapshotOperator(BaseOperator):
    """Takes the plan's snapshot; all other tasks of the run work from it."""

    def __init__(self, *, plan_file: str, moves: bool = False, **kwargs: Any) -> None:
        """``plan_file`` is read when the task runs, not before. ``moves``: by tasks that were made from the waves that
        the plan names."""
        super().__init__(**kwargs)
        self.plan_file, self.moves = plan_file, moves

    def execute(self, context: Context) -> dict[str, str]:
        """Text and digest of the snapshot. Fails for good where waves are to have tasks that cannot be known yet."""
        with explained():
            plan = load_plan(Path(self.plan_file))
            if self.moves and plan.waves is not None and plan.waves.auto is not None:
                raise BadInput(
                    "the DAG has tasks for waves that the plan names, and computed ones show only while it runs",
                    file=self.plan_file,
                    field="waves.auto",
                    value=plan.waves.auto.model_dump(exclude_defaults=True),
                    remedy="name them: `waves PLAN --given` prints the computed waves as the section to put in its"
                    " place; or migrate by command (`run PLAN`)",
                )
            snapshot = Snapshot.take(plan)
        self.log.info("the run works from %s as it is now (%s)", self.plan_file, snapshot.digest)
        return snapshot.as_dict()


class MigrationInFlightOperator(ShortCircuitOperator):
    """Passes while the plan's migration is in flight, by the state on the target; skips what follows otherwise."""

    def __init__(self, *, plan_file: str, **kwargs: Any) -> None:
        """``plan_file`` is read when the task runs."""
        super().__init__(python_callable=self._in_flight, **kwargs)
        self.plan_file = plan_file

    def _in_flight(self) -> bool:
        from kafka_migration.link.flight import in_flight

        with explained(), opened_context(load_plan(self.plan_file), self.log) as ctx:
            return in_flight(ctx)


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
