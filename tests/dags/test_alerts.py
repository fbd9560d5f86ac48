"""Alerts through Airflow itself: a mail when a run fails, another when it takes too long, to a mail server's socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.airflow import EmbeddedAirflow
from demo.airflow_api import ENDED
from tests.dags.mail import MAIL, MailServer, serving, text_of
from tests.dags.test_dags import plan_document
from tests.waiting import wait_until

PATIENCE_SECONDS = 300

pytestmark = pytest.mark.timeout(3 * PATIENCE_SECONDS)


@pytest.fixture
def mail_server() -> Iterator[MailServer]:
    with serving() as server:
        yield server


def test_failed_run_and_one_that_takes_too_long_are_told_to_whom_the_plan_says(
    mail_server: MailServer, tmp_path: Path
) -> None:
    plans = tmp_path / "plans"
    plans.mkdir()
    # Nobody knows its clusters: the first task fails at once.
    plan = plan_document("lost", alerts={"notifiers": [MAIL], "validation_seconds": 1.0})
    (plans / "lost.yaml").write_text(yaml.safe_dump(plan), encoding="utf-8")
    airflow = EmbeddedAirflow(
        home=tmp_path / "airflow",
        plans_dir=plans,
        connections={"mail": mail_server.connection},
        start_timeout_seconds=PATIENCE_SECONDS,
    )

    def told() -> set[tuple[Any, Any, str]]:
        return {(it["To"], it["Subject"], text_of(it)) for it in mail_server.mails}

    with airflow:
        airflow.wait_for_dags(["validate_lost"], deadline_seconds=PATIENCE_SECONDS)
        assert airflow.api.import_errors() == {}
        airflow.api.unpause("validate_lost")
        run = airflow.api.trigger("validate_lost")
        airflow.api.wait(
            lambda: airflow.api.state("validate_lost", run) in ENDED, "it ended", deadline_seconds=PATIENCE_SECONDS
        )
        assert airflow.api.state("validate_lost", run) == "failed"
        expected = {
            ("oncall@example.org", f"validate_lost: {what}", "lost")
            for what in ("failed", "has not ended within 0:00:01")
        }
        wait_until(lambda: told() >= expected, "both are told", deadline_seconds=PATIENCE_SECONDS)
        assert told() == expected
