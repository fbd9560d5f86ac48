"""A plan's alerts as Airflow has them: notifiers when a run fails, deadline alerts when a validation takes too long."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Public names, which Airflow's own stub leaves out.
from airflow.sdk import AsyncCallback, DeadlineAlert, DeadlineReference  # type: ignore[attr-defined]

from kafka_migration.domain.errors import BadInput
from kafka_migration.plans.folder import PlanFolder
from kafka_migration.plans.model import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.sdk import Context

    from kafka_migration.plans.alerts import Notifier


def on_failure(plan: Plan, dag_id: str) -> list[Callable[[Context], None]]:
    """What a DAG of ``plan`` tells when a run of it fails; see :func:`with_alerts` for a class that cannot be had."""
    values = _values(plan, dag_id, "failed")
    return [_class_of(it)(**it.filled(values)) for it in plan.alerts.notifiers if not _problem_with(it)]


def deadlines(plan: Plan, dag_id: str) -> list[DeadlineAlert]:
    """What the validation's DAG tells when a run of it takes longer than the plan says. Sent by the triggerer."""
    seconds = plan.alerts.validation_seconds
    if seconds is None:
        return []
    interval = timedelta(seconds=seconds)
    values = _values(plan, dag_id, f"has not ended within {interval}")
    return [
        DeadlineAlert(
            reference=DeadlineReference.DAGRUN_QUEUED_AT,
            interval=interval,
            callback=AsyncCallback(it.notifier, kwargs=it.filled(values)),
            name=f"{plan.name}-{at}",
        )
        for at, it in enumerate(plan.alerts.notifiers)
        if not _problem_with(it) and not _too_late_for(it, plan)
    ]


def with_alerts(folder: PlanFolder) -> PlanFolder:
    """``folder`` with what is wrong with the notifiers of its plans besides. Their DAGs stay: they only tell fewer."""
    problems = dict(folder.problems)
    for file, plan in folder.valid.items():
        for at, it in enumerate(plan.alerts.notifiers):
            if problem := _problem_with(it) or _too_late_for(it, plan):
                problems[file] = BadInput(
                    problem,
                    file=str(file),
                    field=f"alerts.notifiers[{at}]",
                    value=it.notifier,
                    remedy="install its provider where DAGs are parsed and where the triggerer runs, or correct it",
                )
    return replace(folder, problems=problems)


def _values(plan: Plan, dag_id: str, what: str) -> dict[str, str]:
    return {"migration": plan.name, "dag": dag_id, "what": what}


def _class_of(it: Notifier) -> Any:
    module, _, name = it.notifier.rpartition(".")
    return getattr(import_module(module), name)


def _problem_with(it: Notifier) -> str:
    try:
        _class_of(it)(**it.filled({"migration": "", "dag": "", "what": ""}))
    except (ImportError, AttributeError) as error:
        return f"this notifier cannot be had: {error}"
    except Exception as error:  # whatever a provider raises: it must not take the DAGs away
        return f"this notifier does not take these arguments: {error}"
    return ""


def _too_late_for(it: Notifier, plan: Plan) -> str:
    """Deadline alerts are sent by the triggerer, where a notifier must not block."""
    from airflow.sdk import BaseNotifier

    if plan.alerts.validation_seconds is None or _class_of(it).async_notify is not BaseNotifier.async_notify:
        return ""
    return "this notifier cannot tell of alerts.validation_seconds: it has no async_notify"
