"""Alerts through Airflow itself: a mail when a run fails, another when it takes too long, to a mail server's socket."""

from __future__ import annotations

import email
import email.policy
import socketserver
import threading
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.airflow import EmbeddedAirflow
from demo.airflow_api import ENDED
from tests.dags.test_dags import SMTP, plan_document
from tests.waiting import wait_until

MAIL = {
    "notifier": SMTP,
    "arguments": {
        "smtp_conn_id": "mail",
        "from_email": "us@example.org",
        "to": ["oncall@example.org"],
        "subject": "{dag}: {what}",
        "html_content": "{migration}",
    },
}
PATIENCE_SECONDS = 300

pytestmark = pytest.mark.timeout(3 * PATIENCE_SECONDS)


class MailServer(socketserver.ThreadingTCPServer):
    """As much of SMTP as a client needs that has a mail to deliver."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Mail)
        self.mails: list[EmailMessage] = []


class _Mail(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self._say("220 ready")
        while line := self.rfile.readline().strip():
            if line.upper() == b"DATA":
                self._say("354 go on")
                lines = iter(self.rfile.readline, b".\r\n")
                mail = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
                assert isinstance(mail, EmailMessage)
                self.server.mails.append(mail)  # type: ignore[attr-defined]
            self._say("221 bye" if line.upper() == b"QUIT" else "250 fine")

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())


@pytest.fixture
def mail_server() -> Iterator[MailServer]:
    with MailServer() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_failed_run_and_one_that_takes_too_long_are_told_to_whom_the_plan_says(mail_server, tmp_path: Path):
    plans = tmp_path / "plans"
    plans.mkdir()
    # Nobody knows its clusters: the first task fails at once.
    plan = plan_document("lost", alerts={"notifiers": [MAIL], "validation_seconds": 1.0})
    (plans / "lost.yaml").write_text(yaml.safe_dump(plan), encoding="utf-8")
    extra = {"disable_ssl": True, "disable_tls": True, "retry_limit": 1}
    mail = {"conn_type": "smtp", "host": "127.0.0.1", "port": mail_server.server_address[1], "extra": extra}
    airflow = EmbeddedAirflow(
        home=tmp_path / "airflow", plans_dir=plans, connections={"mail": mail}, start_timeout_seconds=PATIENCE_SECONDS
    )

    def told() -> set[tuple[Any, Any, str]]:
        return {(it["To"], it["Subject"], _text(it)) for it in mail_server.mails}

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


def _text(mail: EmailMessage) -> str:
    body = mail.get_body(("html", "plain"))
    assert body is not None
    return str(body.get_content()).strip()
