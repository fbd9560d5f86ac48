"""Alerts of single tasks: who is notified, of what, and how often of a task that is tried again and again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.smtp.notifications.smtp import SmtpNotifier

from kafka_migration.airflow import alerts
from kafka_migration.domain.errors import CouldNotFindOut, Refused
from kafka_migration.plans.model import Plan

SMTP = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"
SUBJECT = {"to": "oncall@example.org", "subject": "{dag}: {what}"}


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The subjects of the mails that Airflow's own notifier would send, templates filled in."""
    found: list[str] = []
    monkeypatch.setattr(SmtpNotifier, "notify", lambda self, _context: found.append(self.subject))
    return found


@pytest.fixture
def plan(make_plan: Callable[..., Plan]) -> Plan:
    return make_plan(alerts={"notifiers": [{"notifier": SMTP, "arguments": SUBJECT}]})


def context(
    *, task: str = "mirror", tries: int = 1, most: int = 1000, index: int = -1, ran: float = 5, why: object = None
) -> Any:
    ti = SimpleNamespace(
        dag_id="migrate_played",
        task_id=task,
        map_index=index,
        try_number=tries,
        max_tries=most,
        start_date=datetime.now(UTC) - timedelta(seconds=ran),
    )
    return {"ti": ti, "task": SimpleNamespace(retries=1000), "exception": why}


def call(callbacks: list[alerts.TaskAlert], **of: Any) -> None:
    for callback in callbacks:
        callback(context(**of))


def test_failed_task_is_named_with_its_batch_and_the_first_line_of_why(plan: Plan, sent: list[str]) -> None:
    call(alerts.on_task_failure(plan), task="cut_over", index=3, why=RuntimeError("2 groups were not moved:\nx: no"))
    assert sent == ["migrate_played: cut_over[3] failed: 2 groups were not moved:"]


def test_names_of_groups_are_no_template_and_no_markup_of_an_alert(plan: Plan, sent: list[str]) -> None:
    call(alerts.on_task_failure(plan), why=RuntimeError("group {{ 6 * 7 }}{% if 1 %} <b>"))
    assert sent == ["migrate_played: mirror failed: group (( 6 * 7 ))(% if 1 %) \u2039b\u203a"]


def test_secret_that_stands_in_an_error_is_not_sent(
    plan: Plan, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow.sdk.log.redact", lambda text: text.replace("sesame", "***"))
    call(alerts.on_task_failure(plan), why=RuntimeError("password sesame is wrong"))
    assert sent == ["migrate_played: mirror failed: password *** is wrong"]


def test_mirror_that_keeps_dying_alerts_at_a_growing_interval_and_then_hourly(plan: Plan, sent: list[str]) -> None:
    for tries in range(1, 1001):
        call(alerts.on_retry(plan), tries=tries, why=RuntimeError(f"ended at try {tries}"))
    assert [int(subject.rpartition(" ")[2]) for subject in sent] == [1, 2, 4, 8, *range(12, 1001, 12)]
    assert sent[0] == "migrate_played: mirror died, and is tried again: ended at try 1"


def test_death_after_an_hour_alerts_whatever_the_try(plan: Plan, sent: list[str]) -> None:
    call(alerts.on_retry(plan), tries=3, ran=3599)
    assert sent == []
    call(alerts.on_retry(plan), tries=3, ran=3601)
    assert len(sent) == 1


def test_task_that_was_cleared_counts_its_tries_anew(plan: Plan, sent: list[str]) -> None:
    # As Airflow keeps it: cleared after try 6, so 1,000 more tries are allowed.
    call(alerts.on_retry(plan), tries=7, most=1006)
    assert len(sent) == 1
    call(alerts.on_retry(plan), tries=9, most=1006)
    assert len(sent) == 1


def test_question_that_nobody_answers_is_brought_to_mind_at_a_growing_interval(plan: Plan, sent: list[str]) -> None:
    for asked in range(1, 10):
        for alert in alerts.on_question(plan):
            # In one try, for days: it has not died once in a while.
            alert(context(task="approve_plan", ran=100_000) | {"asked": asked})
    assert sent == ["migrate_played: approve_plan waits for an answer"] * 4
    for tries in range(2, 10):
        call(alerts.on_question(plan), task="approve_plan", tries=tries)
    assert len(sent) == 7, "evidence that changed is asked about in a try of its own"


def asked_anew(cause: Exception | None, **of: Any) -> Any:
    error = RuntimeError(f"approve_plan: {cause}")
    error.__cause__ = cause
    return {"task": "approve_plan", "why": error, **of}


def test_every_answer_that_is_refused_alerts_since_another_one_is_needed(plan: Plan, sent: list[str]) -> None:
    for tries in range(1, 8):
        call(alerts.on_refused_answer(plan), **asked_anew(Refused("bob is none of them"), tries=tries))
    assert sent == ["migrate_played: approve_plan asks again: approve_plan: bob is none of them"] * 7


def test_question_that_cannot_be_asked_alerts_at_a_growing_interval_and_one_without_an_answer_not_twice(
    plan: Plan, sent: list[str]
) -> None:
    for tries in range(1, 8):
        call(alerts.on_refused_answer(plan), **asked_anew(CouldNotFindOut("target: no answer"), tries=tries))
    assert len(sent) == 3, "tries 1, 2 and 4"
    # The next question alerts by itself.
    call(alerts.on_refused_answer(plan), **asked_anew(None))
    assert len(sent) == 3


def test_notifier_that_cannot_be_had_keeps_no_other_from_its_alert(
    make_plan: Callable[..., Plan], sent: list[str]
) -> None:
    missing = {"notifier": "airflow.providers.nobody.notifications.x.XNotifier"}
    notifiers = [missing, {"notifier": SMTP, "arguments": SUBJECT}]
    call(alerts.on_task_failure(make_plan(alerts={"notifiers": notifiers})))
    assert len(sent) == 1


def test_plan_without_notifiers_has_no_alerts(make_plan: Callable[..., Plan]) -> None:
    plan = make_plan()
    assert alerts.on_task_failure(plan) == alerts.on_retry(plan) == alerts.on_question(plan) == []


def needs(plan: Plan, what: str = "needs a person: halted: t-0", remedy: str = "see `status`") -> bool:
    """As the mirror's trigger sends it."""
    ti = SimpleNamespace(dag_id="migrate_played", task_id="mirror")
    return alerts.notify(plan, {"ti": ti}, ti.dag_id, what, remedy=remedy)


def test_what_needs_a_person_is_sent_with_remedy_and_the_address_of_its_page(
    make_plan: Callable[..., Plan], sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/")
    arguments = {"to": "oncall@example.org", "subject": "{what} | {remedy} | {link}"}
    assert needs(make_plan(alerts={"notifiers": [{"notifier": SMTP, "arguments": arguments}]}))
    page = "https://airflow.example/kafka-migration/migrate_played/"
    assert sent == [f"needs a person: halted: t-0 | see `status` | {page}"]


def test_names_in_what_needs_a_person_and_in_its_remedy_are_no_template_and_one_line(
    make_plan: Callable[..., Plan], sent: list[str]
) -> None:
    arguments = {"to": "oncall@example.org", "subject": "{what}. {remedy}"}
    plan = make_plan(alerts={"notifiers": [{"notifier": SMTP, "arguments": arguments}]})
    assert needs(plan, "group {{ 6 * 7 }}\rruns twice", "stop <b>{{ 1 }}")
    assert sent == ["group (( 6 * 7 ))\\rruns twice. stop \u2039b\u203a(( 1 ))"]


def test_remedy_of_an_error_of_ours_is_sent_with_the_failure(make_plan: Callable[..., Plan], sent: list[str]) -> None:
    arguments = {"to": "oncall@example.org", "subject": "{what}. {remedy}"}
    plan = make_plan(alerts={"notifiers": [{"notifier": SMTP, "arguments": arguments}]})
    error = RuntimeError("no")
    error.__cause__ = Refused("no", remedy="do {{ this }}")
    call(alerts.on_task_failure(plan), why=error)
    assert sent == ["mirror failed: no. do (( this ))"]


def test_service_that_does_not_answer_ends_no_task_and_keeps_no_other_from_its_alert(
    make_plan: Callable[..., Plan], sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def notify(self: Any, _context: Any) -> None:
        if "away" in self.subject:
            raise ConnectionError("refused")
        sent.append(self.subject)

    monkeypatch.setattr(SmtpNotifier, "notify", notify)
    away, there = ({"notifier": SMTP, "arguments": {"to": "a@x", "subject": s}} for s in ("away", "there"))
    assert needs(make_plan(alerts={"notifiers": [away, there]}))
    assert sent == ["there"]
    assert not needs(make_plan(alerts={"notifiers": [away]}))
