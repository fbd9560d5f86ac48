"""An HTTP server that stands for what a company stops and starts its consumers with."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from kafka_migration.groups.hooks import ALLOWED_URLS


class HookServer:
    """Listens on a free port of 127.0.0.1. ``calls`` are (verb, cluster, phase, group), in order."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.calls: list[tuple[str, str, str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.answer: tuple[int, bytes] = (200, b"done")
        self.location = ""
        self._actions: dict[tuple[str, str], Callable[[str], object]] = {}
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer._handle(self)

            def do_GET(self) -> None:
                outer._handle(self)

            def log_message(self, *_: Any) -> None:
                """Tests read ``calls`` instead."""

        self._server, self._scheme = ThreadingHTTPServer(("127.0.0.1", 0), Handler), "https" if tls else "http"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def on(self, verb: str, cluster: str, action: Callable[[str], object]) -> None:
        """Call ``action`` with the group when its consumers are to be stopped or started on ``cluster``."""
        self._actions[verb, cluster] = action

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    @property
    def environ(self) -> dict[str, str]:
        """The administrator's permission to call it."""
        return {ALLOWED_URLS: self.url}

    @property
    def consumers(self) -> dict[str, Any]:
        """The section of a plan whose hooks call this server."""
        return {
            verb: [{"http": {"url": f"{self.url}/{verb}/{{cluster}}/{{phase}}/{{group}}"}}]
            for verb in ("stop", "start")
        }

    def act(self, verb: str, cluster: str, phase: str, group: str) -> None:
        """Do what a call asks for."""
        self.calls.append((verb, cluster, phase, group))
        action = self._actions.get((verb, cluster))
        if action is not None:
            action(group)

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        verb, cluster, phase, group = (unquote(part) for part in request.path.split("/")[1:])
        self.headers.append(dict(request.headers))
        self.act(verb, cluster, phase, group)
        code, body = self.answer
        request.send_response(code)
        request.send_header("Content-Length", str(len(body)))
        if self.location:
            request.send_header("Location", self.location)
        request.end_headers()
        request.wfile.write(body)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
