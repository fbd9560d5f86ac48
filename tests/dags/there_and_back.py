"""Clients of a plan with two waves go to the target by its DAG `migrate_`, and come back by its DAG `rollback_`, while
producers write; on real clusters with authorizers, with mirrors on Spark; judged by clients' own notes.

The task that switches producers is taken away by a person while the fence stands, and cleared afterwards. A command of
its own (make airflow-check), for its five minutes; `make test` has the same steps by command on brokers, and their
operators without a scheduler.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil
import pytest

from demo.airflow import EmbeddedAirflow
from demo.airflow_api import ENDED
from demo.airflow_approver import DemoApprover
from kafka_migration.link.switched import SwitchState
from tests.dags.patience import PATIENCE_SECONDS
from tests.dags.shop import Shop, airflow_of, opened
from tests.waiting import wait_until

TAKEN_AWAY = "switch_producers"
WRITERS = {"User:web", "User:till", "User:pay"}

pytestmark = pytest.mark.timeout(2 * PATIENCE_SECONDS)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with opened(tmp_path) as made:
        yield made


@pytest.fixture
def airflow(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedAirflow]:
    with airflow_of(shop, tmp_path_factory.mktemp("airflow")) as started:
        yield started


class Run:
    """A run of a DAG, all of whose questions are answered with yes."""

    def __init__(self, airflow: EmbeddedAirflow, dag: str) -> None:
        self.api, self.dag = airflow.api, dag
        airflow.wait_for_dags([dag], deadline_seconds=PATIENCE_SECONDS)
        self.api.unpause(dag)
        self.id = self.api.trigger(dag)

    def tasks(self) -> dict[str, str | None]:
        return self.api.task_states(self.dag, self.id)

    def wait(self, task: str, state: str) -> None:
        self.api.wait(
            lambda: self.tasks().get(task) == state,
            f"{task} is {state}",
            deadline_seconds=PATIENCE_SECONDS,
            unless=self.failed,
        )

    def take_away(self) -> None:
        """As a person who marks a task as failed."""
        path = f"/dags/{self.dag}/dagRuns/{self.id}/taskInstances/{TAKEN_AWAY}"
        self.api.call("PATCH", path, json={"new_state": "failed"})

    def failed(self) -> str:
        """The log of a task that has failed, but for the one that was taken away."""
        found = self.api.task_instances(self.dag, self.id)
        bad = [task for task in found if task["state"] == "failed" and task["task_id"] != TAKEN_AWAY]
        return "\n".join(f"{task['task_id']} failed:\n{self._log(task)}" for task in bad)

    def _log(self, task: dict[str, Any]) -> str:
        return self.api.log(
            self.dag, self.id, task["task_id"], try_number=task["try_number"], map_index=task["map_index"]
        )

    def require_success(self) -> None:
        self.api.wait(
            lambda: self.api.state(self.dag, self.id) in ENDED,
            f"{self.dag} ends",
            deadline_seconds=PATIENCE_SECONDS,
            unless=self.failed,
        )
        assert self.api.state(self.dag, self.id) == "success", self.tasks()


class StandsStill:
    """The mirror of an Airflow, which may be suspended until the end."""

    def __init__(self, airflow: EmbeddedAirflow) -> None:
        self._airflow = airflow
        self._suspended: list[psutil.Process] = []

    def suspend(self) -> None:
        for process in psutil.Process(self._airflow.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if any("spark_jobs/mirror.py" in word for word in process.cmdline()):
                    self._suspended += [process, *process.children(recursive=True)]
        for process in self._suspended:
            process.suspend()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for process in self._suspended:
            process.resume()


def test_clients_go_there_by_waves_and_back_by_the_dags_and_a_task_taken_away_leaves_no_fence(
    shop: Shop, airflow: EmbeddedAirflow
) -> None:
    there = Run(airflow, f"migrate_{shop.name}")
    with DemoApprover(there.api, there.dag) as people:
        with StandsStill(airflow) as mirror:
            # The switch has to wait for what producers have just written.
            shop.befalls = mirror.suspend
            there.wait(TAKEN_AWAY, "running")
            wait_until(lambda: shop.denials("source") >= WRITERS, "the fence stands", deadline_seconds=PATIENCE_SECONDS)
            there.take_away()
            there.wait("lift_fence", "success")
        assert not shop.denials("source")
        shop.all_live()
        there.api.clear(there.dag, there.id, [TAKEN_AWAY])
        there.require_success()
    assert [question.task_id for question in people.answered] == [
        "approve_plan",
        "wave_first.approve_cutover",
        "wave_second.approve_cutover",
        "approve_producers",
    ]
    moved = [call[3].rpartition(".")[2] for call in shop.hooks.calls if call[:3] == ("start", "target", "cutover")]
    assert moved == ["ledger", "billing"]
    assert shop.record().state is SwitchState.DONE
    assert not shop.denials("target")
    shop.all_live()
    report = shop.folder / "reports" / shop.name / "report.json"
    report.unlink()
    back = Run(airflow, f"rollback_{shop.name}")
    with DemoApprover(back.api, back.dag) as people:
        back.require_success()
    assert [question.task_id for question in people.answered] == ["approve_rollback"]
    assert shop.denials("target") >= WRITERS
    assert not shop.denials("source")
    shop.all_live()
    assert json.loads(report.read_text()), "written anew at the end of the way back"
    verdict = shop.judged("source")
    assert verdict.faults == 0, verdict.findings.examples
    assert verdict.exit_code == 0, verdict.summary()
