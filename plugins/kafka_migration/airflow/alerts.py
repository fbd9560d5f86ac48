"""A plan's alerts as Airflow has them: notifiers when a run or one of its tasks fails, when a task dies and is tried
again, and when an approval waits; deadline alerts when a validation takes too long.

A task's failure alerts by itself: a run fails only once no task is unfinished, and the mirror goes on for weeks.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from airflow.configuration import conf

# Public names, which Airflow's own stub leaves out.
from airflow.sdk import AsyncCallback, BaseNotifier, DeadlineAlert, DeadlineReference  # type: ignore[attr-defined]

from kafka_migration.airflow.links import PREFIX
from kafka_migration.domain.errors import BadInput, MigrationError, Refused
from kafka_migration.domain.printable import in_one_line
from kafka_migration.plans.folder import PlanFolder
from kafka_migration.plans.model import Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow.sdk import Context

    from kafka_migration.plans.alerts import Notifier


_LOG = logging.getLogger(__name__)
#: A try that ran for so long is not one of many deaths in a row.
NO_DEATH_IN_A_ROW = timedelta(hours=1)
#: About an hour of tries, once they are five minutes apart.
_EVERY = 12
_MOST_CHARACTERS = 500
_MARKUP = str.maketrans({"{": "(", "}": ")", "<": "\u2039", ">": "\u203a"})


def on_failure(plan: Plan, dag_id: str) -> list[Callable[[Context], None]]:
    """The notifiers of a DAG of ``plan`` when a run fails; :func:`with_alerts` reports those that cannot be loaded."""
    made = (_made(wanted, plan, dag_id, "failed") for wanted in plan.alerts.notifiers)
    return [notifier for notifier, _ in made if notifier is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAlert:
    """What Airflow calls with a task's context: notifies by each notifier of ``plan`` that the task ``has`` ("failed").

    Notifiers are made when it is called, since only then is it known which task it was, and why. ``is_moderated``: of a
    task that is tried again and again, tries 1, 2, 4, 8 and then every twelfth alert, and each that ran for an hour.
    ``of_ours``: only what this library refused or could not find out alerts, and each refusal does.
    """

    plan: Plan
    has: str
    is_moderated: bool = False
    of_ours: bool = False

    def __call__(self, context: Context) -> None:
        if self._is_wanted(context):
            self._send(context)

    def of_death(self, context: Context, why: str, *, deaths: int, lasted: timedelta) -> None:
        """Of what a task that goes on has started: it died after it ``lasted`` so long, ``deaths`` times in a row."""
        if _is_due(deaths, lasted):
            self._send({**context, "exception": why})

    def _send(self, context: Context) -> None:
        ti: Any = context["ti"]
        index = "" if ti.map_index in (None, -1) else f"[{ti.map_index}]"
        error = context.get("exception") or ""
        why = str(error).partition("\n")[0]
        what = f"{ti.task_id}{index} {self.has}{f': {why}' if why else ''}"
        cause = getattr(error, "__cause__", None)
        remedy = cause.remedy if isinstance(cause, MigrationError) else ""
        notify(self.plan, cast("Mapping[str, Any]", context), ti.dag_id, what, remedy=remedy)

    def _is_wanted(self, context: Context) -> bool:
        cause = getattr(context.get("exception"), "__cause__", None)
        if self.of_ours and not isinstance(cause, MigrationError):
            return False
        if not self.is_moderated:
            return True
        asked = context.get("asked")
        # A question waits for long without having died.
        lasted = datetime.now(UTC) - context["ti"].start_date if asked is None else timedelta(0)
        number = attempt(context) + int(str(asked or 1)) - 1
        return _is_due(number, lasted) or (self.of_ours and isinstance(cause, Refused))


def notify(plan: Plan, context: Mapping[str, Any], dag_id: str, what: str, *, remedy: str = "") -> bool:
    """Send ``what`` happened by each notifier of ``plan``. Returns whether one of them has sent it.

    One that cannot be loaded, or whose service does not answer, keeps no other from it, and ends no task.
    """
    is_sent = False
    for wanted in plan.alerts.notifiers:
        notifier, problem = _made(wanted, plan, dag_id, _plain(what), remedy=_plain(remedy))
        if notifier is not None:
            try:
                notifier(dict(context))
            except Exception as error:
                problem = f"not sent: {type(error).__name__}: {_plain(str(error))}"
            else:
                is_sent = True
        if problem:
            _LOG.warning("%s: %s", wanted.notifier, problem)
    return is_sent


def on_task_failure(plan: Plan) -> list[TaskAlert]:
    """Of every task: it has failed for good, and a person has to act."""
    return _alerts(TaskAlert(plan=plan, has="failed"))


def on_retry(plan: Plan) -> list[TaskAlert]:
    """Of a task that is tried again and again: it has died."""
    return _alerts(TaskAlert(plan=plan, has="died, and is tried again", is_moderated=True))


def on_question(plan: Plan) -> list[TaskAlert]:
    """Of a task that asks a person: it waits, also when nobody has answered the question before in time."""
    return _alerts(TaskAlert(plan=plan, has="waits for an answer", is_moderated=True))


def on_refused_answer(plan: Plan) -> list[TaskAlert]:
    """Of a task that asks a person: an answer was refused, so it waits for another one, or it cannot ask."""
    return _alerts(TaskAlert(plan=plan, has="asks again", is_moderated=True, of_ours=True))


def _alerts(alert: TaskAlert) -> list[TaskAlert]:
    return [alert] if alert.plan.alerts.notifiers else []


def _is_due(number: int, lasted: timedelta) -> bool:
    return number in (1, 2, 4, 8) or number % _EVERY == 0 or lasted >= NO_DEATH_IN_A_ROW


def attempt(context: Context) -> int:
    """Which try of its task this is, counted from 1 since the task was cleared."""
    return max(1, int(context["ti"].try_number) - tries_before(context))


def tries_before(context: Context) -> int:
    """How many tries were made before the task was cleared last, by whatever way."""
    ti: Any = context["ti"]
    # Airflow counts on when a task is cleared, and raises the most tries by those that were made before.
    return max(0, int(ti.max_tries) - (context["task"].retries or 0))


def _plain(text: str) -> str:
    """``text`` in one line, without secrets, and without what notifiers would take for a template or markup.

    It may hold names from the clusters, and Airflow's templates know connections.
    """
    from airflow.sdk.log import redact  # type: ignore[attr-defined]  # public, and left out of its stub

    line = in_one_line(str(redact(text))).translate(_MARKUP)
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}..."


def deadlines(plan: Plan, dag_id: str) -> list[DeadlineAlert]:
    """The alerts of the validation's DAG when a run takes longer than the plan allows. Sent by the triggerer."""
    seconds = plan.alerts.validation_seconds
    if seconds is None:
        return []
    interval = timedelta(seconds=seconds)
    found = []
    for at, wanted in enumerate(plan.alerts.notifiers):
        what = f"has not ended within {interval}"
        notifier, _ = _made(wanted, plan, dag_id, what)
        if notifier is not None and _sends_deadlines(notifier):
            callback = AsyncCallback(wanted.notifier, kwargs=_arguments(wanted, plan, dag_id, what, ""))
            queued = DeadlineReference.DAGRUN_QUEUED_AT
            found.append(DeadlineAlert(queued, interval, callback, name=f"{plan.name}-{at}"))
    return found


def with_alerts(folder: PlanFolder) -> PlanFolder:
    """``folder``, with the problems of its plans' notifiers added. The DAGs stay: they only notify less."""
    problems = dict(folder.problems)
    for file, plan in folder.valid.items():
        for at, wanted in enumerate(plan.alerts.notifiers):
            notifier, problem = _made(wanted, plan, "", "")
            if notifier is not None and plan.alerts.validation_seconds is not None and not _sends_deadlines(notifier):
                problem = "this notifier cannot send alerts.validation_seconds: it has no async_notify"
            if problem:
                problems[file] = BadInput(
                    problem,
                    file=str(file),
                    field=f"alerts.notifiers[{at}]",
                    value=wanted.notifier,
                    remedy="install its provider where DAGs are parsed and where the triggerer runs, or correct it",
                )
    return replace(folder, problems=problems)


def _arguments(wanted: Notifier, plan: Plan, dag_id: str, what: str, remedy: str) -> dict[str, Any]:
    link = f"{conf.get('api', 'base_url', fallback='').rstrip('/')}{PREFIX}/{dag_id}/"
    return wanted.filled(migration=plan.name, dag=dag_id, what=what, remedy=remedy, link=link)


def _made(wanted: Notifier, plan: Plan, dag_id: str, what: str, *, remedy: str = "") -> tuple[Any, str]:
    """The notifier, or None and why there is none."""
    module, _, name = wanted.notifier.rpartition(".")
    try:
        return getattr(import_module(module), name)(**_arguments(wanted, plan, dag_id, what, remedy)), ""
    except (ImportError, AttributeError) as error:
        return None, f"this notifier cannot be loaded: {error}"
    except Exception as error:  # whatever a provider raises: it must not take the DAGs away
        return None, f"this notifier does not take these arguments: {error}"


def _sends_deadlines(notifier: Any) -> bool:
    """Whether it can send deadline alerts: the triggerer sends them, and a notifier must not block it."""
    return type(notifier).async_notify is not BaseNotifier.async_notify
