"""The token endpoint's client: what it sends goes to the endpoint, and nowhere else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from kafka_migration.domain.errors import BadInput
from kafka_migration.kafka import sasl
from kafka_migration.kafka.sasl import ClientCredentialsTokens


class Redirecting(BaseHTTPRequestHandler):
    """Sends whoever comes on to /elsewhere, and notes what arrives there; with code 200 it hands out tokens."""

    code, arrived, given = 302, list[str | None](), list[int]()

    def do_POST(self) -> None:
        if self.code == 200:
            self.given.append(len(self.given))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"access_token": "token %d", "expires_in": 60}' % self.given[-1])
            return
        self.send_response(self.code)
        self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")  # type: ignore[attr-defined]
        self.end_headers()

    def do_GET(self) -> None:
        self.arrived.append(self.headers.get("Authorization"))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"access_token": "theirs", "expires_in": 60}')

    def log_message(self, *_said: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    Redirecting.arrived.clear()
    Redirecting.given.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as found:
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{found.server_port}/token"
        found.shutdown()
        thread.join()


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_redirect_is_refused_and_the_secret_goes_nowhere_else(
    server: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Redirecting, "code", code)
    tokens = ClientCredentialsTokens(url=server, client_id="mover", client_secret="s3cret")
    with pytest.raises(BadInput, match=f"redirects elsewhere .HTTP {code}."):
        tokens.token()
    assert Redirecting.arrived == []


def test_secret_goes_by_no_proxy_of_the_environment(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Redirecting, "code", 200)
    with ThreadingHTTPServer(("127.0.0.1", 0), Redirecting) as proxy:
        # Nobody answers there.
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.server_port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.setattr(sasl, "_TIMEOUT_SECONDS", 5.0)
        tokens = ClientCredentialsTokens(url=server, client_id="mover", client_secret="s3cret")
        assert tokens.token() == "token 0"


def test_token_is_renewed_before_it_expires_and_not_each_time(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(Redirecting, "code", 200)
    monkeypatch.setattr(sasl, "time", SimpleNamespace(monotonic=lambda: now[0]))
    tokens = ClientCredentialsTokens(url=server, client_id="mover", client_secret="s3cret")
    found = []
    # It is good for a minute.
    for now[0] in (1000.0, 1047.0, 1048.0, 1095.0, 1096.0):
        found.append(tokens.token())
    assert found == ["token 0", "token 0", "token 1", "token 1", "token 2"]
