"""The thin client of Airflow's API, against a small server that answers as Airflow does; and the demo's approver."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from demo.airflow_api import AirflowApi, AirflowError, Approval
from demo.airflow_approver import DemoApprover
from tests.waiting import wait_until


class Server:
    """Answers by method and path; keeps what it was asked. ``tokens`` says which bearer tokens hold."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.answers: dict[tuple[str, str], Callable[[], tuple[int, Any]]] = {}
        self.tokens = {"token-1"}
        self.issued = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                status, answer = outer.answer(self.command, self.path.partition("?")[0], body, self.headers)
                sent = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            do_GET = do_POST = do_PATCH = handle_any  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def answer(self, method: str, path: str, body: Any, headers: Any) -> tuple[int, Any]:
        if path == "/auth/token":
            self.issued += 1
            return 201, {"access_token": f"token-{self.issued}"}
        if path == "/api/v2/monitor/health":
            return 200, self.answers[method, path]()[1]
        if headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            return 401, {"detail": "no"}
        self.asked.append((method, path, body))
        return self.answers.get((method, path), lambda: (404, {"detail": "nothing here"}))()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    it = Server()
    yield it
    it.close()


@pytest.fixture
def api(server: Server) -> Iterator[AirflowApi]:
    it = AirflowApi(server.url, user="admin", password="secret", timeout_seconds=5)
    yield it
    it.close()


def test_token_that_expired_is_renewed_once(server, api):
    server.answers["GET", "/api/v2/dags"] = lambda: (200, {"dags": [{"dag_id": "b"}, {"dag_id": "a"}]})
    assert api.dag_ids() == ["a", "b"]
    server.tokens = {"token-2"}
    assert api.dag_ids() == ["a", "b"]
    server.tokens = set()
    with pytest.raises(AirflowError, match="401"):
        api.dag_ids()


def test_error_of_airflow_names_request_and_answer(api):
    with pytest.raises(AirflowError, match=r"GET /dags/d/dagRuns/r: 404 .*nothing here"):
        api.state("d", "r")


def test_server_that_is_gone_is_an_error_of_ours_after_some_tries():
    api = AirflowApi("http://127.0.0.1:9", user="admin", password="secret", timeout_seconds=1)
    with pytest.raises(AirflowError, match="no answer"):
        api.dag_ids()


def test_write_is_awaited_for_longer_than_an_answer_to_read_takes(server):
    """While another writer holds Airflow's database: tried again, it might be done twice."""
    with closing(AirflowApi(server.url, user="admin", password="secret", timeout_seconds=0.2)) as hasty:
        release = threading.Event()
        server.answers["PATCH", "/api/v2/dags/d"] = lambda: (200 if release.wait(30) else 500, {})
        timer = threading.Timer(0.6, release.set)
        timer.start()
        hasty.unpause("d")
        timer.join()
    assert server.asked == [("PATCH", "/api/v2/dags/d", {"is_paused": False})]


def test_wait_in_vain_shows_how_airflow_is_and_what_it_printed_last(server, tmp_path):
    server.answers["GET", "/api/v2/monitor/health"] = lambda: (200, {"scheduler": {"status": "unhealthy"}})
    printed = tmp_path / "standalone.log"
    printed.write_text("scheduler | database is locked\n")
    api = AirflowApi(server.url, user="admin", password="secret", log_file=printed)
    with closing(api), pytest.raises(AirflowError) as error:
        api.wait(lambda: False, "the run ended", deadline_seconds=0)
    assert "not within 0 s: the run ended" in str(error.value)
    assert "'scheduler': 'unhealthy'" in str(error.value)
    assert str(error.value).endswith("scheduler | database is locked")


def test_run_started_by_hand_has_no_logical_date(server, api):
    server.answers["POST", "/api/v2/dags/d/dagRuns"] = lambda: (200, {"dag_run_id": "manual__1"})
    assert api.trigger("d", {"topics": ["t"]}) == "manual__1"
    assert server.asked[-1][2] == {"logical_date": None, "conf": {"topics": ["t"]}}


def test_mapped_tasks_are_told_apart(server, api):
    tasks = [
        {"task_id": "report", "map_index": -1, "state": None},
        {"task_id": "cut_over", "map_index": 0, "state": "success"},
        {"task_id": "cut_over", "map_index": 1, "state": "running"},
    ]
    server.answers["GET", "/api/v2/dags/d/dagRuns/r/taskInstances"] = lambda: (200, {"task_instances": tasks})
    assert api.task_states("d", "r") == {"report": None, "cut_over[0]": "success", "cut_over[1]": "running"}


class Gate:
    """A gate of a played DAG: asked, until it is answered."""

    def __init__(self, server: Server) -> None:
        self.state, self.heartbeat, self.answers = "awaiting_input", datetime(2030, 1, 1, tzinfo=UTC), list[Any]()
        path = "/api/v2/dags/d/dagRuns/r/taskInstances/approve_plan/-1/hitlDetails"
        server.answers["GET", "/api/v2/dags/d/dagRuns/~/hitlDetails"] = lambda: (
            200,
            {"hitl_details": [self._detail()]},
        )
        server.answers["PATCH", path] = lambda: self._answer(server.asked[-1][2])
        health = lambda: (200, {"scheduler": {"latest_scheduler_heartbeat": self.heartbeat.isoformat()}})  # noqa: E731
        server.answers["GET", "/api/v2/monitor/health"] = health

    def _detail(self) -> dict[str, Any]:
        task = {"dag_id": "d", "dag_run_id": "r", "task_id": "approve_plan", "map_index": -1, "state": self.state}
        return {"task_instance": task, "subject": "?", "body": "evidence", "options": ["Approve", "Reject"]}

    def _answer(self, body: Any) -> tuple[int, Any]:
        self.answers.append(body["chosen_options"])
        self.state = "success"
        return 200, {}


def test_question_whose_task_has_ended_waits_for_nobody(server, api):
    gate = Gate(server)
    expected = Approval(
        dag_id="d",
        run_id="r",
        task_id="approve_plan",
        map_index=-1,
        subject="?",
        body="evidence",
        options=("Approve", "Reject"),
    )
    assert api.pending_approvals("d") == [expected]
    gate.state = "failed"
    assert api.pending_approvals("d") == []


def test_approver_answers_once_after_its_delay(server, api):
    gate = Gate(server)
    began = time.monotonic()
    with DemoApprover(api, "d", delay_seconds=1.0) as approver:
        wait_until(lambda: gate.answers, "an answer")
    assert gate.answers == [["Approve"]]
    assert time.monotonic() - began >= 1.0
    assert [it.task_id for it in approver.answered] == ["approve_plan"]


def test_approver_waits_for_the_scheduler_to_have_heard_that_the_task_is_parked(server, api):
    gate = Gate(server)
    gate.heartbeat = datetime(2020, 1, 1, tzinfo=UTC)
    with DemoApprover(api, "d", delay_seconds=0.1):
        seen = len(server.asked)
        wait_until(lambda: len(server.asked) > seen + 3, "some looks")
        assert not gate.answers
        gate.heartbeat = datetime(2030, 1, 1, tzinfo=UTC)
        wait_until(lambda: gate.answers, "an answer")


def test_approver_bears_an_airflow_that_does_not_answer(server, api):
    told: list[str] = []
    gate = Gate(server)
    busy = server.answers.pop(("GET", "/api/v2/dags/d/dagRuns/~/hitlDetails"))
    with DemoApprover(api, "d", delay_seconds=0.1, log=told.append):
        wait_until(lambda: told, "trouble is told")
        server.answers["GET", "/api/v2/dags/d/dagRuns/~/hitlDetails"] = busy
        wait_until(lambda: gate.answers, "an answer")
