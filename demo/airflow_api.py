"""What the demo and the tests ask of Airflow's REST API: runs, tasks, approvals. A thin client, with its own errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from demo.brokers.process import tail
from demo.errors import DemoError

ENDED = ("success", "failed")
_POLL_SECONDS = 1.0
_DATABASE_TRIES = 10
_READ_TRIES = 4
#: A write that nobody answers is not tried again, and waits for the database: on SQLite, one writer may hold it for as
#: long as the others' connections bear (`demo/airflow.py`).
DATABASE_SECONDS = 120.0
_WRITE_SECONDS = DATABASE_SECONDS + 60


class AirflowError(DemoError):
    """Airflow did not do as told, or did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A gate that waits for a person. ``body`` is Markdown: the evidence."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    subject: str
    body: str
    options: tuple[str, ...]


class AirflowApi:
    """Airflow's public API, as one of its users. Connections are kept; ``close`` gives them up."""

    def __init__(
        self, base_url: str, *, user: str, password: str, timeout_seconds: float = 30.0, log_file: Path | None = None
    ) -> None:
        """Nothing is asked yet. ``log_file``, what Airflow prints, is shown where a wait was in vain."""
        self.base_url = base_url
        self._credentials = {"username": user, "password": password}
        self._log_file = log_file
        # trust_env would send requests for 127.0.0.1 to a proxy.
        self._http = httpx.Client(base_url=base_url, timeout=timeout_seconds, trust_env=False)

    def close(self) -> None:
        """Give up connections."""
        self._http.close()

    def health(self) -> dict[str, str | None]:
        """The status of every part of Airflow, by name. Raises httpx.HTTPError while nothing listens."""
        answer = self._http.get("/api/v2/monitor/health")
        answer.raise_for_status()
        return {name: part.get("status") for name, part in answer.json().items()}

    def scheduler_heartbeat(self) -> datetime | None:
        """When the scheduler last finished a round, UTC; None before its first."""
        at = self._http.get("/api/v2/monitor/health").json()["scheduler"].get("latest_scheduler_heartbeat")
        return None if at is None else datetime.fromisoformat(at)

    def token(self) -> str:
        """A bearer token for this user."""
        answer = self._http.post("/auth/token", json=self._credentials, timeout=_WRITE_SECONDS)
        if answer.is_error:
            raise AirflowError(f"{self.base_url} gave no token: {answer.status_code}. Check user and password.")
        return str(answer.json()["access_token"])

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request as this user; a token that expired is renewed once. The answer may be an error.

        Reading is tried again when nothing answers in time: a busy machine is no reason to give a migration up.

        Raises:
            AirflowError: nothing answered.
        """
        tries = _READ_TRIES if method == "GET" else 1
        if method != "GET":
            options.setdefault("timeout", _WRITE_SECONDS)
        while True:
            tries -= 1
            try:
                return self._request_with_token(method, path, options)
            except httpx.TransportError as error:
                if not tries:
                    raise AirflowError(f"Airflow: {method} {path}: no answer ({error!r})") from error
                time.sleep(_POLL_SECONDS)

    def _request_with_token(self, method: str, path: str, options: Mapping[str, Any]) -> httpx.Response:
        for _ in range(2):
            if "Authorization" not in self._http.headers:
                self._http.headers["Authorization"] = f"Bearer {self.token()}"
            answer = self._http.request(method, path, **options)
            if answer.status_code != httpx.codes.UNAUTHORIZED:
                break
            del self._http.headers["Authorization"]
        return answer

    def call(self, method: str, path: str, **options: Any) -> Any:
        """The JSON answer to a request below /api/v2. What the database turned down is asked for again.

        Raises:
            AirflowError: it answered with an error.
        """
        answer = self.request(method, f"/api/v2{path}", **options)
        for _ in range(_DATABASE_TRIES):
            # SQLite turns down at once who would write behind what another has written since: nothing of it was done.
            if answer.status_code != httpx.codes.INTERNAL_SERVER_ERROR or "Database error" not in answer.text:
                break
            time.sleep(_POLL_SECONDS)
            answer = self.request(method, f"/api/v2{path}", **options)
        if answer.is_error:
            raise AirflowError(f"Airflow: {method} {path}: {answer.status_code} {answer.text[:500]}")
        return answer.json() if answer.content else None

    # -- DAGs and runs ----------------------------------------------------------------------------------------

    def dag_ids(self) -> list[str]:
        """Every DAG that Airflow has parsed."""
        return sorted(dag["dag_id"] for dag in self.call("GET", "/dags", params={"limit": 1000})["dags"])

    def import_errors(self) -> dict[str, str]:
        """What Airflow could not parse: the message, by file."""
        return {e["filename"]: e["stack_trace"] for e in self.call("GET", "/importErrors")["import_errors"]}

    def unpause(self, dag_id: str) -> None:
        """Let the DAG's runs and schedule go."""
        self.call("PATCH", f"/dags/{dag_id}", json={"is_paused": False})

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Start a run by hand; its id."""
        body = {"logical_date": None, "conf": dict(conf or {})}
        return str(self.call("POST", f"/dags/{dag_id}/dagRuns", json=body)["dag_run_id"])

    def state(self, dag_id: str, run_id: str) -> str:
        """A run's state: queued, running, success, failed."""
        return str(self.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Every task instance of a run, as the API shows it."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances"
        found: list[dict[str, Any]] = self.call("GET", path, params={"limit": 1000})["task_instances"]
        return found

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """The state of every task; a mapped one is ``task[index]``. None: not looked at yet."""
        return {
            t["task_id"] if t["map_index"] < 0 else f"{t['task_id']}[{t['map_index']}]": t["state"]
            for t in self.task_instances(dag_id, run_id)
        }

    def clear(self, dag_id: str, run_id: str, task_ids: Iterable[str], *, only_failed: bool = False) -> None:
        """Run tasks, and what comes after them, again."""
        body = {
            "dry_run": False,
            "dag_run_id": run_id,
            "task_ids": list(task_ids),
            "include_downstream": True,
            "only_failed": only_failed,
            "reset_dag_runs": True,
        }
        self.call("POST", f"/dags/{dag_id}/clearTaskInstances", json=body)

    def log(self, dag_id: str, run_id: str, task_id: str, *, try_number: int = 1, map_index: int = -1) -> str:
        """A task's log, one event a line, with what was raised below it."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}"
        content = self.call("GET", path, params={"map_index": map_index, "full_content": True})["content"]
        return "\n".join(it if isinstance(it, str) else _said(it) for it in content)

    def wait(
        self,
        condition: Callable[[], object],
        what: str,
        *,
        deadline_seconds: float,
        unless: Callable[[], str] = lambda: "",
    ) -> None:
        """Return once ``condition()`` is true.

        Raises:
            AirflowError: not within the deadline, or ``unless()`` says why it never will be.
        """
        deadline = time.monotonic() + deadline_seconds
        while not condition():
            why = unless()
            if why:
                raise AirflowError(f"waiting for {what}: {why}")
            if time.monotonic() > deadline:
                raise AirflowError(f"not within {deadline_seconds:g} s: {what}; {self._circumstances()}")
            time.sleep(_POLL_SECONDS)

    def _circumstances(self) -> str:
        """Whether each part of Airflow is well, and what they printed last."""
        try:
            health = str(self.health())
        except httpx.HTTPError as error:
            health = f"no answer ({error})"
        printed = "" if self._log_file is None else f"; {self._log_file} ends with:\n{tail(self._log_file, lines=60)}"
        return f"health: {health}{printed}"

    # -- approvals --------------------------------------------------------------------------------------------

    def pending_approvals(self, dag_id: str = "~") -> list[Approval]:
        """Gates that wait for an answer, of one DAG or of all."""
        path = f"/dags/{dag_id}/dagRuns/~/hitlDetails"
        details = self.call("GET", path, params={"response_received": "false", "limit": 100})["hitl_details"]
        # A failed or cleared task leaves its question behind: nobody waits for that answer.
        return [_approval(it) for it in details if it["task_instance"]["state"] in ("awaiting_input", "deferred")]

    def answer(self, approval: Approval, option: str) -> None:
        """Answer a gate as this user."""
        path = (
            f"/dags/{approval.dag_id}/dagRuns/{approval.run_id}/taskInstances/{approval.task_id}"
            f"/{approval.map_index}/hitlDetails"
        )
        self.call("PATCH", path, json={"chosen_options": [option], "params_input": {}})


def _said(event: Mapping[str, Any]) -> str:
    raised = [f"{it['exc_type']}: {it['exc_value']}" for it in event.get("error_detail") or ()]
    return "\n".join([str(event.get("event", "")), *raised])


def _approval(detail: Mapping[str, Any]) -> Approval:
    task = detail["task_instance"]
    return Approval(
        dag_id=task["dag_id"],
        run_id=task["dag_run_id"],
        task_id=task["task_id"],
        map_index=task["map_index"],
        subject=detail["subject"],
        body=detail.get("body") or "",
        options=tuple(detail["options"]),
    )
