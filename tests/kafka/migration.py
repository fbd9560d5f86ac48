"""A migration between two labs, for the phases that look at clusters and create topics: in memory, or real."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.migration.context import Context, SystemClock
from kafka_migration.plans.load import restore_plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.link import LinkState
from kafka_migration.state.store import MemoryStore
from tests.kafka.labs import FakeLab, Lab, RealLab


class Killed(BaseException):
    """The process dies here. Not an Exception: nothing in the library may catch it."""


class Clock:
    """Time that passes when somebody sleeps; ``while_asleep`` is what happens meanwhile."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.while_asleep: Callable[[], None] = lambda: None

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.while_asleep()
        self.seconds += seconds


class Bombs:
    """Dies at the ``at``-th thing that is made durable: journal entries and changes of the target, before or after."""

    def __init__(self, at: int | None = None) -> None:
        self.at, self.passed = at, 0

    def tick(self) -> None:
        if self.at is not None and self.passed == self.at:
            raise Killed
        self.passed += 1


class BombedStore(MemoryStore):
    """A journal's store that dies around its writes."""

    bombs = Bombs()

    def put(self, key: str, value: dict[str, Any]) -> None:
        self.bombs.tick()
        super().put(key, value)
        self.bombs.tick()

    def delete(self, key: str) -> None:
        self.bombs.tick()
        super().delete(key)
        self.bombs.tick()


class Watched:
    """A cluster that notes what changes it, and dies around it."""

    #: The cluster's own, unless a test sets another.
    connection: ClusterConnection

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster
        self.bombs = Bombs()
        self.changes: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def create_topics(self, specs: Any, *, dry_run: bool = False) -> None:
        wanted = list(specs)
        if dry_run:
            self._cluster.create_topics(wanted, dry_run=True)
            return
        self._change("create " + " ".join(it.name for it in wanted), lambda: self._cluster.create_topics(wanted))

    def alter_configs(self, topic: str, **changes: Any) -> None:
        self._change(f"alter {topic}", lambda: self._cluster.alter_configs(topic, **changes))

    def commit(self, group: str, offsets: Any) -> None:
        self._change(f"commit {group}", lambda: self._cluster.commit(group, offsets))

    def _change(self, what: str, do: Callable[[], None]) -> None:
        self.bombs.tick()
        self.changes.append(what)
        do()
        self.bombs.tick()


class Migration:
    """Two labs, a plan for everything that begins with this migration's prefix, and a journal."""

    def __init__(self, source: Lab, target: Lab, clock: Any) -> None:
        self.source_lab, self.target_lab, self.clock = source, target, clock
        target.prefix = source.prefix
        self.source, self.target = Watched(source.cluster), Watched(target.cluster)
        self.store = BombedStore()
        self.told: list[str] = []
        self.name = source.prefix

    @property
    def is_real(self) -> bool:
        return isinstance(self.source_lab, RealLab)

    def plan(self, **fields: Any) -> Any:
        return restore_plan(
            {
                "version": 1,
                "name": self.name,
                "source": "kafka_source",
                "target": "kafka_target",
                "topics": {"include": [rf"{self.name}\..*"]},
                "groups": {"include": [rf"{self.name}\..*"]},
                **fields,
            }
        )

    def ctx(self, *, dry_run: bool = False, migration: str = "", **fields: Any) -> Context:
        """A context as a new process has it: what it knows of the past is in the journal."""
        return Context(
            plan=self.plan(**fields),
            source=self.source,  # type: ignore[arg-type]
            target=self.target,  # type: ignore[arg-type]
            journal=Journal(self.store, migration or self.name),
            link=LinkState(self.name, MemoryStore(), None, None),
            clock=self.clock,
            log=self.told.append,
            dry_run=dry_run,
        )

    @property
    def journal(self) -> Journal:
        return Journal(self.store, self.name)

    def produce(self, topic: str, partition: int, records: int, *, timestamp: int | None = None) -> None:
        then = int(self.clock.now().timestamp() * 1000) if timestamp is None else timestamp
        self.source_lab.produce(TopicPartition(topic, partition), records, timestamp=then)

    @contextmanager
    def dying_at(self, at: int) -> Iterator[None]:
        """Die at the ``at``-th durable thing."""
        bombs = Bombs(at)
        self.store.bombs = self.target.bombs = bombs
        try:
            yield
        finally:
            self.store.bombs = self.target.bombs = Bombs()

    def explicit(self, topic: str) -> dict[str, str]:
        """Explicit settings of a topic of the target."""
        configs = self.target.topic_configs([topic])[topic]
        return {name: it.value for name, it in configs.items() if it.is_explicit}


def migrations(request: pytest.FixtureRequest) -> Iterator[Migration]:
    """For a fixture with the parameters ``fake`` and ``real``."""
    if request.param == "fake":
        yield Migration(FakeLab("source"), FakeLab("target"), Clock())
        return
    source = RealLab(request.getfixturevalue("source_cluster").bootstrap_servers, "source")
    target = RealLab(request.getfixturevalue("target_cluster").bootstrap_servers, "target")
    yield Migration(source, target, SystemClock())
    source.close()
    target.close()


def counted(limit: int = 500) -> Iterator[int]:
    """0, 1, 2, … for trying one more place to die at, with an end to it."""
    yield from itertools.islice(itertools.count(), limit)
    raise AssertionError(f"still dying after {limit} places")
