"""The token endpoint's client: what it sends goes to the endpoint, and nowhere else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kafka_migration.clusters.oauth import ClientCredentialsTokens
from kafka_migration.domain.errors import BadInput


class Redirecting(BaseHTTPRequestHandler):
    """Sends whoever comes on to /elsewhere, and notes what arrives there."""

    code, arrived = 302, list[str | None]()

    def do_POST(self) -> None:
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
