"""The supervisor: owns every client process of a run, and does what the workload and the plan's hooks ask for.

    python -m demo.clients.supervisor RUN_DIRECTORY SOCKET

Hooks for producers call it by HTTP, on loopback: POST /stop-producers/CLUSTER and /start-producers/CLUSTER.

A hook ends long before the members that it starts, so it cannot be their parent; and a member must not outlive the
run. Hence one process in between: it starts and ends members on request, over a Unix socket, and everything that it
started ends with it. It signals only processes that it started itself and has not yet reaped: no pid is looked up.
"""

import json
import os
import secrets
import socketserver
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from demo.brokers.process import BrokerError
from demo.clients.control import CONTROL_FILE, HOOK_TOKEN_VARIABLE, ControlError
from demo.clients.fleet import MODULE, Client, Group, end_all
from demo.clients.moving import PRELOAD
from demo.clients.moving_java import JavaProducers
from demo.clients.scenarios import SCENARIOS, ProducerSpec
from demo.clients.settings import ClusterName, cluster_name
from demo.clients.termination import Termination
from demo.notes import RunDirectory, write_json

PRODUCER_END_SECONDS = 90.0
POLL_SECONDS = 0.1

Answer = dict[str, Any]


class Supervisor:
    """All clients of one run. Methods may be called from several threads; those of one group wait for each other."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._settings = run.settings()
        self._scenario = SCENARIOS[self._settings.scenario]
        self._groups = {spec.name: Group(run, spec) for spec in self._scenario.groups}
        self._cluster: ClusterName = "source"
        self._java = JavaProducers(run) if any(spec.java for spec in self._scenario.producers) else None
        self._producers: list[Client] = []
        self._producing = threading.Lock()
        self._requests: dict[str, Callable[[Answer], str]] = {
            "preload": self._preload,
            "start-producers": self._start_producers,
            "stop-producers": self._stop_producers,
            "start-group": lambda request: self._group(request).start(
                _cluster(request), revive=bool(request.get("revive"))
            ),
            "stop-group": lambda request: self._group(request).stop(
                _cluster(request), for_good=bool(request.get("for_good"))
            ),
            "status": lambda _: "",
        }

    def answer(self, request: Answer) -> Answer:
        """Do what is asked for, and tell how it went and what runs now."""
        try:
            if request.get("do") not in self._requests:
                raise ControlError(f"unknown request {request.get('do')!r}; known: {', '.join(self._requests)}.")
            message = self._requests[request["do"]](request)
        except (ControlError, BrokerError) as error:
            return {"ok": False, "message": str(error)}
        status = self.status()
        if request["do"] != "status":
            write_json(self._run.path / "state.json", status)
        return {"ok": True, "message": message, "status": status}

    def status(self) -> Answer:
        """Every client and group as JSON."""
        groups = {name: group.status() for name, group in self._groups.items()}
        producers = [client.describe() for client in self._producers]
        failures = [client["failure"] for client in producers if client["failure"]]
        for group in groups.values():
            failures += group["failures"]
        return {"groups": groups, "producers": producers, "failures": failures}

    def shut_down(self) -> None:
        """End everything; members still commit and leave, producers still flush."""
        clients = [client for group in self._groups.values() for client in group.clients]
        end_all(clients + self._producers, grace_seconds=10.0, kill=True)

    def _group(self, request: Answer) -> Group:
        name = request.get("group")
        if name not in self._groups:
            raise ControlError(f"unknown group {name!r}; the workload has {', '.join(self._groups)}.")
        return self._groups[name]

    def _preload(self, _: Answer) -> str:
        with self._producing:
            if self._scenario.producers:
                loaders = [self._moving(ProducerSpec(name=PRELOAD, kind="idempotent", topics=()), "source")]
            else:
                loaders = [self._producer("preload", index) for index in range(self._settings.preloaders)]
            # librdkafka gives a record up after a minute without answer, so this ends.
            while any(loader.alive() for loader in loaders):
                time.sleep(POLL_SECONDS)
            self._refuse_failures(loaders)
            return f"preloaded by {len(loaders)} producers"

    def _start_producers(self, request: Answer) -> str:
        cluster = _cluster({"cluster": "source", **request})
        with self._producing:
            if any(client.alive() for client in self._producers):
                if cluster != self._cluster:
                    raise ControlError(f"producers run on the {self._cluster}: stop them before they start elsewhere.")
                return f"producers run on the {cluster} already"
            self._cluster = cluster
            if self._scenario.producers:
                # Side by side: to wait for the others is not a client's own time to start.
                with ThreadPoolExecutor(len(self._scenario.producers)) as pool:
                    live = list(pool.map(lambda spec: self._moving(spec, cluster), self._scenario.producers))
            else:
                live = [self._producer("live", index) for index in range(self._settings.producers)]
            return f"started {len(live)} producers on the {cluster}"

    def _stop_producers(self, request: Answer) -> str:
        with self._producing:
            # A repetition of a hook, when they have moved already.
            if _cluster({"cluster": self._cluster, **request}) != self._cluster:
                return f"producers run on the {self._cluster}"
            late = end_all(self._producers, grace_seconds=PRODUCER_END_SECONDS, kill=False)
            if late:
                raise ControlError(f"{late} did not end within {PRODUCER_END_SECONDS} s of SIGTERM; see their logs.")
            self._refuse_failures(self._producers)
            return "producers ended"

    def _producer(self, kind: str, index: int) -> Client:
        name = f"{'preload' if kind == 'preload' else 'producer'}-{index + 1}"
        client = Client(
            name=name,
            command=[*MODULE, "demo.clients.producers", str(self._run.path), name, kind, str(index)],
            notes=self._run.producer_notes(name),
            log=self._run.logs / f"{name}.log",
        )
        self._producers.append(client)
        return client

    def _moving(self, spec: ProducerSpec, cluster: ClusterName) -> Client:
        # Each process notes in a file of its own.
        turn = str(1 + sum(client.name == spec.name for client in self._producers))
        begun_ns = time.monotonic_ns()
        command = [*MODULE, "demo.clients.moving", str(self._run.path), spec.name, cluster, turn, str(begun_ns)]
        if spec.java and self._java is not None:
            command = self._java.command(spec, cluster, turn, begun_ns)
        client = Client(
            name=spec.name,
            command=command,
            notes=self._run.producer_notes(f"{spec.name}-{turn}"),
            log=self._run.logs / f"{spec.name}-{turn}.log",
        )
        self._producers.append(client)
        return client

    @staticmethod
    def _refuse_failures(clients: list[Client]) -> None:
        failures = [failure for client in clients if (failure := client.failure())]
        if failures:
            raise ControlError("\n".join(failures))


def _cluster(request: Answer) -> ClusterName:
    try:
        return cluster_name(request.get("cluster"))
    except ValueError as error:
        raise ControlError(str(error)) from error


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, address: str, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        super().__init__(address, _Handler)


class _Handler(socketserver.StreamRequestHandler):
    """One request a connection: a line of JSON, answered by a line of JSON."""

    server: _Server

    def handle(self) -> None:
        line = self.rfile.readline()
        if not line:
            return
        answer = self.server.supervisor.answer(json.loads(line))
        self.wfile.write(json.dumps(answer).encode() + b"\n")


class _HookServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, supervisor: Supervisor, token: str) -> None:
        self.supervisor, self.token = supervisor, token
        super().__init__(("127.0.0.1", 0), _HookHandler)


class _HookHandler(BaseHTTPRequestHandler):
    """Any answer but 200 has in its body what was wrong."""

    server: _HookServer

    def do_POST(self) -> None:
        verb, _, cluster = self.path.strip("/").partition("/")
        code, message = 404, "no such call"
        if not secrets.compare_digest(self.headers.get("Authorization", ""), f"Bearer {self.server.token}"):
            code, message = 403, "not with this token"
        elif verb in ("stop-producers", "start-producers"):
            answer = self.server.supervisor.answer({"do": verb, "cluster": cluster})
            code, message = 200 if answer["ok"] else 409, answer["message"]
        self.send_response(code)
        self.end_headers()
        self.wfile.write(message.encode())

    def log_message(self, *_: Any) -> None:
        """Nobody reads that."""


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM, then end every client."""
    directory, address = arguments
    termination = Termination().install()
    run = RunDirectory(Path(directory))
    supervisor = Supervisor(run)
    hooks = _HookServer(supervisor, os.environ[HOOK_TOKEN_VARIABLE])
    with _Server(address, supervisor) as server, hooks:
        for one in (server, hooks):
            threading.Thread(target=one.serve_forever, daemon=True).start()
        # Written last: who finds it finds a supervisor that answers.
        known = {"socket": address, "hooks": f"http://127.0.0.1:{hooks.server_port}", "pid": os.getpid()}
        write_json(run.path / CONTROL_FILE, known)
        while not termination.asked:
            time.sleep(POLL_SECONDS)
        server.shutdown()
        (run.path / CONTROL_FILE).unlink(missing_ok=True)
        supervisor.shut_down()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
