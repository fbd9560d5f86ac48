"""What a plan may say of alerts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_migration.plans.alerts import Notifier
from kafka_migration.plans.problems import Problem

SMTP = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"

BAD: dict[str, tuple[Any, str, str]] = {
    "any class": ({"notifiers": [{"notifier": "os.system"}]}, "notifiers[0].notifier", "not a notifier"),
    "any module": (
        {"notifiers": [{"notifier": "my.notifications.Notifier"}]},
        "notifiers[0].notifier",
        "not a notifier",
    ),
    "not one of the notifiers": (
        {"notifiers": [{"notifier": "airflow.providers.smtp.hooks.smtp.SmtpHook"}]},
        "notifiers[0].notifier",
        "not a notifier",
    ),
    "no class": ({"notifiers": [{"arguments": {}}]}, "notifiers[0].notifier", "required"),
    "secret": (
        {"notifiers": [{"notifier": SMTP, "arguments": {"password": "x"}}]},
        "notifiers[0].arguments.password",
        "a secret must not stand in a plan",
    ),
    "template": (
        {"notifiers": [{"notifier": SMTP, "arguments": {"subject": "{{ conn.kafka_source.extra }}"}}]},
        "notifiers[0].arguments.subject",
        "a template could send a secret away",
    ),
    "template in a list": (
        {"notifiers": [{"notifier": SMTP, "arguments": {"to": ["a@x", "{% for it in var %}"]}}]},
        "notifiers[0].arguments.to",
        "a template could send a secret away",
    ),
    "file": (
        {"notifiers": [{"notifier": SMTP, "arguments": {"files": ["/proc/self/environ"]}}]},
        "notifiers[0].arguments.files",
        "a file could send a secret away",
    ),
    "path": (
        {"notifiers": [{"notifier": SMTP, "arguments": {"body_path": "/proc/self/environ"}}]},
        "notifiers[0].arguments.body_path",
        "a file could send a secret away",
    ),
    "template's name": (
        {"notifiers": [{"notifier": SMTP, "arguments": {"html_template": "/proc/self/environ"}}]},
        "notifiers[0].arguments.html_template",
        "a file could send a secret away",
    ),
    "attachment": (
        {"notifiers": [{"notifier": SMTP, "arguments": {"Attachments": ["/proc/self/environ"]}}]},
        "notifiers[0].arguments.Attachments",
        "a file could send a secret away",
    ),
    "file that is sent along": (
        {"notifiers": [{"notifier": SMTP, "arguments": {"attach": "/opt/airflow/approval.key"}}]},
        "notifiers[0].arguments.attach",
        "a file could send a secret away",
    ),
    "another place": (
        {"notifiers": [{"notifier": SMTP, "arguments": {"base_url": "https://elsewhere.example/"}}]},
        "notifiers[0].arguments.base_url",
        "another address would get the connection's secret",
    ),
    "proxy": (
        {"notifiers": [{"notifier": SMTP, "arguments": {"proxy": "http://elsewhere.example:1"}}]},
        "notifiers[0].arguments.proxy",
        "another address would get the connection's secret",
    ),
    "connection of a cluster": (
        {"notifiers": [{"notifier": SMTP, "arguments": {"smtp_conn_id": "KAFKA_TARGET"}}]},
        "notifiers[0].arguments.smtp_conn_id",
        "the connection of something else",
    ),
    "approval key": (
        {"notifiers": [{"notifier": SMTP, "arguments": {"smtp_conn_id": "kafka_migration_approvals"}}]},
        "notifiers[0].arguments.smtp_conn_id",
        "the connection of something else",
    ),
    "credentials": (
        {"notifiers": [{"notifier": SMTP, "arguments": {"webhook": "https://me:x@hooks.example/1"}}]},
        "notifiers[0].arguments.webhook",
        "credentials in a URL",
    ),
    "nested": (
        {"notifiers": [{"notifier": SMTP, "arguments": {"to": {"a": "b"}}}]},
        "notifiers[0].arguments.to",
        "plain",
    ),
    "nobody": ({"validation_seconds": 60.0}, "validation_seconds", "there are no notifiers"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_alert_is_refused_where_it_stands(case: str, problems_of: Callable[..., tuple[Problem, ...]]) -> None:
    alerts, field, message = BAD[case]
    problems = problems_of(alerts=alerts)
    assert [it.field for it in problems] == [f"alerts.{field}"]
    assert message in problems[0].message
    assert problems[0].remedy
    assert "'x'" not in str(problems[0])


def test_placeholders_are_replaced_in_texts_and_what_else_is_in_braces_stays() -> None:
    notifier = Notifier(
        notifier=SMTP,
        arguments={
            "to": ("a@x", "{migration}@x"),
            "subject": "{dag}: {what} {other}",
            "port": 3,
            "html": "{link} {remedy}",
        },
    )
    known = {"migration": "shop", "dag": "validate_shop", "what": "{dag} failed", "remedy": "{what}", "link": "/shop"}
    assert notifier.filled(**known) == {
        "to": ["a@x", "shop@x"],
        "subject": "validate_shop: {dag} failed {other}",
        "port": 3,
        "html": "/shop {what}",
    }


def test_arguments_of_the_services_themselves_are_taken() -> None:
    slack = "airflow.providers.slack.notifications.slack.SlackNotifier"
    arguments = {"slack_conn_id": "slack", "text": "{dag}: {what}", "channel": "#oncall", "unfurl_links": False}
    assert Notifier(notifier=slack, arguments=arguments).connections == {"slack_conn_id": "slack"}
