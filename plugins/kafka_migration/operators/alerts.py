"""A plan's alerts as Airflow has them: notifiers when a run fails, deadline alerts when a validation takes too long."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Public names, which Airflow's own stub leaves out.
from airflow.sdk import AsyncCallback, BaseNotifier, DeadlineAlert, DeadlineReference  # type: ignore[attr-defined]

from kafka_migration.domain.errors import BadInput
from kafka_migration.plans.folder import PlanFolder
from kafka_migration.plans.model import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.sdk import Context

    from kafka_migration.plans.alerts import Notifier


def on_failure(plan: Plan, dag_id: str) -> list[Callable[[Context], None]]:
    """What a DAG of ``plan`` tells when a run of it fails; see :func:`with_alerts` for a class that cannot be had."""
    made = (_made(it, it.filled(migration=plan.name, dag=dag_id, what="failed")) for it in plan.alerts.notifiers)
    return [notifier for notifier, _ in made if notifier is not None]


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
                problem = "this notifier cannot tell of alerts.validation_seconds: it has no async_notify"
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
