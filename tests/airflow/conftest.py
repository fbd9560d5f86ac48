"""Operators outside Airflow: a home of their own, a task's context in a few lines, and phases that are played."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.plans.load import restore_plan
from kafka_migration.plans.model import Plan
from kafka_migration.plans.snapshot import Snapshot, write_plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.store import MemoryStore, SegmentStore
from tests.airflow_home import use_own_airflow_home

use_own_airflow_home()

PASSWORD = "not-to-be-seen-4711"


@dataclass
class Opened:
    """How contexts were opened, and what they share: one journal, one link."""

    plan: Plan
    store: MemoryStore = field(default_factory=MemoryStore)
    link: Any = None
    made_state: list[bool] = field(default_factory=list)
    #: How often state was made by a context that had been opened without.
    made_later: int = 0
    told: list[str] = field(default_factory=list)

    @property
    def journal(self) -> Journal:
        return Journal(self.store, self.plan.name)


def connection(conn_id: str) -> ClusterConnection:
    return ClusterConnection(
        conn_id,
        {
            "bootstrap.servers": "127.0.0.1:1",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "migrator",
            "sasl.password": PASSWORD,
        },
    )


@pytest.fixture(autouse=True)
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where tasks write: nothing of a test lies in the checkout."""
    folder = tmp_path / "reports"
    monkeypatch.setenv("KAFKA_MIGRATION_REPORTS_DIR", str(folder))
    return folder


@pytest.fixture(autouse=True)
def board(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whose page was written by tasks, in order; and the triggers that keep one up to date, while they do."""
    from kafka_migration.overview import board

    found: list[str] = []

    @contextmanager
    def publishing(plan: Plan, *_: Any) -> Iterator[None]:
        found.append(f"{plan.name} from now on")
        yield
        found.append(f"{plan.name} until now")

    monkeypatch.setattr(board, "publish", lambda plan, *_: found.append(plan.name))
    monkeypatch.setattr(board, "publishing", publishing)
    return found


@pytest.fixture
def make_plan() -> Callable[..., Plan]:
    """A plan with the given sections."""

    def make(**sections: object) -> Plan:
        document = {"version": 1, "name": "played", "source": "k_source", "target": "k_target"}
        return restore_plan({**document, "topics": {"include": ["t"]}, "groups": {"include": [".*"]}, **sections})

    return make


HandOn = Callable[[Plan], str]


@pytest.fixture
def hand_on(task_context: dict[str, Any], tmp_path: Path) -> HandOn:
    """Has the first task of the run take a snapshot of a plan, and gives the plan's file."""

    def hand_on(plan: Plan) -> str:
        task_context["ti"].handed_on = Snapshot.take(plan).as_dict()
        return str(write_plan(plan, tmp_path))

    return hand_on


@pytest.fixture
def plan_file(make_plan: Callable[..., Plan], hand_on: HandOn) -> str:
    """The file of the plan that the run works by."""
    return hand_on(make_plan())


@pytest.fixture
def opened(make_plan: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Contexts are opened on nothing; what is in them is played."""
    from kafka_migration.migration import context

    found = Opened(make_plan())

    @contextmanager
    def open_context(
        plan: Plan, *, log: Any = None, dry_run: bool = False, make_state: bool = False, to_check: bool = False
    ) -> Iterator[Any]:
        found.made_state.append(make_state)

        def make_later() -> Any:
            found.made_later += 1
            return found.journal, found.link, SegmentStore()

        def both(text: str) -> None:
            found.told.append(text)
            if log is not None:
                log(text)

        yield context.Context(
            plan=plan,
            source=SimpleNamespace(connection=connection("k_source"), groups=list),  # type: ignore[arg-type]
            target=SimpleNamespace(connection=connection("k_target"), cluster_id=lambda: "t"),  # type: ignore[arg-type]
            journal=found.journal,
            link=found.link,
            log=both,
            on_make_state=None if make_state else make_later,
        )

    monkeypatch.setattr(context, "open_context", open_context)
    return found


@pytest.fixture
def task_context() -> dict[str, Any]:
    """What a task is executed with, as far as ours look at it."""
    ti = SimpleNamespace(
        dag_id="migrate_played",
        run_id="manual__2030-01-01T00:00:00+00:00",
        map_index=-1,
        try_number=1,
        max_tries=1000,
        handed_on=None,
    )
    ti.xcom_pull = lambda task_ids: ti.handed_on if task_ids == "take_snapshot" else None
    return {
        "task": SimpleNamespace(retries=1000),
        "ti": ti,
        "task_instance": SimpleNamespace(id="ti", map_index=-1),
        "params": {},
    }
