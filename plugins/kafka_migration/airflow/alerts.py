"""A plan's alerts as Airflow has them: notifiers when a run or one of its tasks fails, when a task dies and is tried
again, and when an approval waits; deadline alerts when a validation takes too long.

A task's failure alerts by itself: a run fails only once no task is unfinished, and the mirror goes on for weeks.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Public names, which Airflow's own stub leaves out.
from airflow.sdk import AsyncCallback, BaseNotifier, DeadlineAlert, DeadlineReference  # type: ignore[attr-defined]

from kafka_migration.domain.errors import BadInput, MigrationError, Refused
from kafka_migration.plans.folder import PlanFolder
from kafka_migration.plans.model import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.sdk import Context

    from kafka_migration.plans.alerts import Notifier


_LOG = logging.getLogger(__name__)
#: A try that ran for so long is not one of many deaths in a row.
_NO_DEATH_IN_A_ROW = timedelta(hours=1)
#: About an hour of tries, once they are five minutes apart.
_EVERY = 12
_MOST_CHARACTERS = 300
_MARKUP = str.maketrans({"{": "(", "}": ")", "<": "\u2039", ">": "\u203a"})


def on_failure(plan: Plan, dag_id: str) -> list[Callable[[Context], None]]:
    """What a DAG of ``plan`` tells when a run of it fails; see :func:`with_alerts` for a class that cannot be had."""
    made = (_made(it, it.filled(migration=plan.name, dag=dag_id, what="failed")) for it in plan.alerts.notifiers)
    return [notifier for notifier, _ in made if notifier is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAlert:
    """What Airflow calls with a task's context: tells each notifier of ``plan`` that the task ``has`` (failed, say).

    Notifiers are made when it is called, since only then is it known which task it was, and why. ``is_moderated``: of a
    task that is tried again and again, tries 1, 2, 4, 8 and then every twelfth alert, and each that ran for an hour.
    ``of_ours``: only what this library refused or could not find out alerts, and each refusal does.
    """

    plan: Plan
    has: str
    is_moderated: bool = False
    of_ours: bool = False

    def __call__(self, context: Context) -> None:
        ti: Any = context["ti"]
        cause = getattr(context.get("exception"), "__cause__", None)
        if self.of_ours and not isinstance(cause, MigrationError):
            return
        if self.is_moderated and not (_is_due(context) or (self.of_ours and isinstance(cause, Refused))):
            return
        index = "" if ti.map_index in (None, -1) else f"[{ti.map_index}]"
        why = _plain(str(context.get("exception") or ""))
        what = f"{ti.task_id}{index} {self.has}{f': {why}' if why else ''}"
        for it in self.plan.alerts.notifiers:
            notifier, problem = _made(it, it.filled(migration=self.plan.name, dag=ti.dag_id, what=what))
            if notifier is None:
                _LOG.warning("%s: %s", it.notifier, problem)
            else:
                notifier(context)


def on_task_failure(plan: Plan) -> list[TaskAlert]:
    """Of every task: it has failed for good, and a person has to act."""
    return _alerts(TaskAlert(plan=plan, has="failed"))


def on_retry(plan: Plan) -> list[TaskAlert]:
    """Of a task that is tried again and again: it has died."""
    return _alerts(TaskAlert(plan=plan, has="died, and is tried again", is_moderated=True))


def on_question(plan: Plan) -> list[TaskAlert]:
    """Of a task that asks a person: it waits, also when nobody has answered the question before in time."""
    return _alerts(TaskAlert(plan=plan, has="waits for an answer", is_moderated=True))


def on_asked_anew(plan: Plan) -> list[TaskAlert]:
    """Of a task that asks a person: an answer was refused, so it waits for another one, or it cannot ask."""
    return _alerts(TaskAlert(plan=plan, has="asks anew", is_moderated=True, of_ours=True))


def _alerts(alert: TaskAlert) -> list[TaskAlert]:
    return [alert] if alert.plan.alerts.notifiers else []


def _is_due(context: Context) -> bool:
    number, lasted = attempt(context), datetime.now(UTC) - context["ti"].start_date
    return bool(number in (1, 2, 4, 8) or number % _EVERY == 0 or lasted >= _NO_DEATH_IN_A_ROW)


def attempt(context: Context) -> int:
    """Which try of its task this is, counted from 1 since the task was cleared."""
    ti: Any = context["ti"]
    # Airflow counts on when a task is cleared, and raises the most tries by those that were made before.
    before: int = max(0, ti.max_tries - context["task"].retries)
    return max(1, int(ti.try_number) - before)


def _plain(text: str) -> str:
    """The first line of ``text`` without secrets, and without what notifiers would take for a template or markup.

    It may hold names from the clusters, and Airflow's templates know connections.
    """
    from airflow.sdk.log import redact  # type: ignore[attr-defined]  # public, and left out of its stub

    line = str(redact(text.partition("\n")[0])).translate(_MARKUP)
    return line if len(line) <= _MOST_CHARACTERS else f"{line[:_MOST_CHARACTERS]}..."


def deadlines(plan: Plan, dag_id: str) -> list[DeadlineAlert]:
    """What the validation's DAG tells when a run of it takes longer than the plan says. Sent by the triggerer."""
    seconds = plan.alerts.validation_seconds
    if seconds is None:
        return []
    interval = timedelta(seconds=seconds)
    found = []
    for at, it in enumerate(plan.alerts.notifiers):
        arguments = it.filled(migration=plan.name, dag=dag_id, what=f"has not ended within {interval}")
        notifier, _ = _made(it, arguments)
        if notifier is not None and _tells_late(notifier):
            callback = AsyncCallback(it.notifier, kwargs=arguments)
            queued = DeadlineReference.DAGRUN_QUEUED_AT
            found.append(DeadlineAlert(queued, interval, callback, name=f"{plan.name}-{at}"))
    return found


def with_alerts(folder: PlanFolder) -> PlanFolder:
    """``folder`` with what is wrong with the notifiers of its plans besides. Their DAGs stay: they only tell fewer."""
    problems = dict(folder.problems)
    for file, plan in folder.valid.items():
        for at, it in enumerate(plan.alerts.notifiers):
            notifier, problem = _made(it, it.filled(migration=plan.name, dag="", what=""))
            if notifier is not None and plan.alerts.validation_seconds is not None and not _tells_late(notifier):
                problem = "this notifier cannot send alerts.validation_seconds: it has no async_notify"
            if problem:
                problems[file] = BadInput(
                    problem,
                    file=str(file),
                    field=f"alerts.notifiers[{at}]",
                    value=it.notifier,
                    remedy="install its provider where DAGs are parsed and where the triggerer runs, or correct it",
                )
    return replace(folder, problems=problems)


def _made(it: Notifier, arguments: dict[str, Any]) -> tuple[Any, str]:
    """The notifier, or None and why it cannot be had."""
    module, _, name = it.notifier.rpartition(".")
    try:
        return getattr(import_module(module), name)(**arguments), ""
    except (ImportError, AttributeError) as error:
        return None, f"this notifier cannot be had: {error}"
    except Exception as error:  # whatever a provider raises: it must not take the DAGs away
        return None, f"this notifier does not take these arguments: {error}"


def _tells_late(notifier: Any) -> bool:
    """Whether it can send deadline alerts: the triggerer does, where a notifier must not block."""
    return type(notifier).async_notify is not BaseNotifier.async_notify
