"""A mail server on a socket of this machine, and how a plan and Airflow are told of it."""

from __future__ import annotations

import email
import email.policy
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from typing import Any

from tests.dags.test_dags import SMTP

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


class MailServer(socketserver.ThreadingTCPServer):
    """As much of SMTP as a client needs that has a mail to deliver."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Mail)
        self.mails: list[EmailMessage] = []

    @property
    def connection(self) -> dict[str, Any]:
        """Airflow's connection ``mail``, in its JSON form."""
        extra = {"disable_ssl": True, "disable_tls": True, "retry_limit": 1}
        return {"conn_type": "smtp", "host": "127.0.0.1", "port": self.server_address[1], "extra": extra}

    @property
    def subjects(self) -> list[str]:
        return [str(it["Subject"]) for it in self.mails]


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


@contextmanager
def serving() -> Iterator[MailServer]:
    with MailServer() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def text_of(mail: EmailMessage) -> str:
    body = mail.get_body(("html", "plain"))
    assert body is not None
    return str(body.get_content()).strip()
