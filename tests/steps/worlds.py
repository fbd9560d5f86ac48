"""Two clusters, a mirror between them and consumers: in memory, or real. The scenarios are the same on both.

The mirror is not run here: a topic is filled on both clusters alike, and its offset map is said. What is tested is
what cutover makes of the map, and of groups that live, rest, come back or never committed.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import AdminClient

from kafka_migration.domain.controls import Controls, Pause
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.types import Position, TopicPartition, TopicSpec
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.types import CommittedOffset
from kafka_migration.migration.context import Context, SystemClock
from kafka_migration.plans.load import restore_plan
from kafka_migration.plans.model import Plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.link import LinkTopic
from kafka_migration.state.store import MemoryStore, Store
from tests.fakes.cluster import FakeCluster
from tests.waiting import wait_until

#: Where a source log starts, so that source and target offsets differ by it.
START = 10

SIDES = ("source", "target")


class FakeClock:
    """Time that passes when somebody sleeps. ``at`` has something happen meanwhile."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._serial = itertools.count()

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self._seconds)

    def monotonic(self) -> float:
        return self._seconds

    def sleep(self, seconds: float) -> None:
        until = self._seconds + seconds
        while self._events and self._events[0][0] <= until:
            self._seconds, _, happen = self._events.pop(0)
            happen()
        self._seconds = until

    def at(self, seconds: float, happen: Callable[[], object]) -> None:
        """Have ``happen`` called ``seconds`` from now."""
        self._events.append((self._seconds + seconds, next(self._serial), happen))
        self._events.sort(key=lambda event: event[:2])


@dataclass
class Link:
    """What cutover asks of the link's state."""

    maps: dict[TopicPartition, OffsetMap] = field(default_factory=dict)
    halted: dict[TopicPartition, Any] = field(default_factory=dict)
    #: When the mirror last said something; None: it has ended.
    last_word: Callable[[], datetime] | None = None
    pause: Pause | None = None
    is_stored: bool = True
    is_sealed: bool = False
    name: str = "moving"

    def offset_maps(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, OffsetMap]:
        wanted = self.maps.keys() if partitions is None else partitions
        return {tp: self.maps[tp] for tp in wanted if tp in self.maps}

    def topics(self) -> dict[str, Any]:
        unknown = uuid.UUID(int=0)
        names = sorted({tp.topic for tp in self.maps})
        return {name: LinkTopic(name=name, source_id=unknown, target_id=unknown) for name in names}

    def positions(self) -> dict[TopicPartition, Position]:
        return {
            tp: Position(source=it.source_end, target=it.target_end, fence=0, records=it.records)
            for tp, it in self.maps.items()
        }

    def progress(self) -> dict[TopicPartition, Any]:
        return {}

    def seal(self) -> Any:
        return SimpleNamespace(ends=dict.fromkeys(self.maps, 0), is_complete=self.is_sealed)

    def run(self) -> dict[str, Any]:
        if self.last_word is None:
            return {"state": "ended", "at": "2030-01-01T00:00:00+00:00"}
        return {"state": "running", "at": self.last_word().isoformat()}

    def extras(self) -> dict[TopicPartition, Any]:
        return {}

    def skips(self) -> dict[TopicPartition, Any]:
        return {}

    def halts(self) -> dict[TopicPartition, Any]:
        return dict(self.halted)

    def controls(self) -> Controls:
        return Controls(pause=self.pause)

    def halt(self, tp: TopicPartition, reason: str) -> None:
        self.halted[tp] = SimpleNamespace(reason=reason, detail="")


class World:
    """What the two worlds share. Names are unique, so that tests share real clusters."""

    is_real: bool
    source: Any
    target: Any
    clock: Any
    #: Seconds that commits must rest, and that waits take; real ones are kept short.
    rest, wait, watch = 2.0, 20.0, 60.0

    def __init__(self) -> None:
        self.name = f"w{uuid.uuid4().hex[:8]}"
        self.store: Store = MemoryStore()
        self.link = Link(last_word=self._now)
        #: The reverse link.
        self.back = Link(last_word=self._now)
        self.told: list[str] = []

    def _now(self) -> datetime:
        return self.clock.now()  # type: ignore[no-any-return]

    def cluster(self, side: str) -> Any:
        return self.source if side == "source" else self.target

    def group(self, name: str) -> str:
        return f"{self.name}.{name}"

    def topic(self, name: str, *, partitions: int = 1, records: int = 100, mirrored: int | None = None) -> str:
        """A topic of the plan: its source log starts at START, its target log at 0; ``mirrored`` offsets are copied."""
        full = f"{self.name}.{name}"
        upto = records if mirrored is None else mirrored
        self._fill("source", full, partitions, records, START)
        self._fill("target", full, partitions, upto - START, 0)
        for partition in range(partitions):
            self.mirror(TopicPartition(full, partition), upto)
        return full

    def foreign_topic(self, name: str, *, records: int = 50) -> str:
        """A topic of the source that the plan does not select."""
        full = f"{self.name}-foreign.{name}"
        self._fill("source", full, 1, records, 0)
        return full

    def mirror(self, tp: TopicPartition, upto: int) -> None:
        """The offset map says that the source is copied up to ``upto``."""
        runs = [Run(START, 0, upto - START)] if upto > START else []
        self.link.maps[tp] = OffsetMap(runs, source_end=max(upto, START), target_end=max(0, upto - START))

    def cut(self, tp: TopicPartition, written: int, *, back: int | None = None) -> int:
        """The forward link is sealed, and so many records are written on the target; the first of their offsets. Of
        them ``back`` (all, without) are mirrored back, behind the marker of a fence on the source."""
        forward = self.link.maps[tp]
        self.more("target", tp, 1 + written)
        self.more("source", tp, 1 + written)
        self.mirror_back(tp, written if back is None else back)
        return forward.target_end + 1

    def mirror_back(self, tp: TopicPartition, records: int) -> None:
        """The reverse link's map shows so many records."""
        here, there = self.link.maps[tp].source_end + 1, self.link.maps[tp].target_end + 1
        runs = [Run(there, here, records)] if records else []
        end = here + records if records else here - 1
        self.back.maps[tp] = OffsetMap(runs, source_end=there + records, target_end=end)

    def commit(self, side: str, group: str, offsets: dict[TopicPartition, int], metadata: str = "") -> None:
        """Commits of a group without members."""
        commits = {tp: CommittedOffset(offset=offset, metadata=metadata) for tp, offset in offsets.items()}

        def write() -> bool:
            try:
                self.cluster(side).commit(group, commits)
            except CouldNotFindOut:
                # The first group of a new cluster: its coordinator is only just elected.
                return False
            return True

        wait_until(write, f"{group} has committed on the {side}")

    def committed(self, side: str, group: str) -> dict[TopicPartition, int]:
        return {tp: it.offset for tp, it in self.cluster(side).committed(group).items()}

    def plan(self, **fields: Any) -> Plan:
        sections = {
            "cutover": {"rest_seconds": self.rest, "watch_seconds": self.watch},
            "consumers": {"wait_seconds": self.wait},
        }
        for section, values in sections.items():
            fields[section] = values | fields.get(section, {})
        return restore_plan(
            {
                "version": 1,
                "name": "moving",
                "source": "a",
                "target": "b",
                "topics": {"include": [rf"{self.name}\..*"]},
                "groups": {"include": [rf"{self.name}\..*"]},
                **fields,
            }
        )

    def ctx(self, *, dry_run: Any = False, **fields: Any) -> Context:
        """A context as a new process would have it: everything that is remembered comes from the store."""
        return Context(
            plan=self.plan(**fields),
            source=self.source,
            target=self.target,
            journal=Journal(self.store, "moving"),
            link=self.link,  # type: ignore[arg-type]
            # No third link has begun.
            on_open_link=lambda _direction, generation: self.back if generation == 1 else Link(),  # type: ignore[arg-type,return-value]
            clock=self.clock,
            log=self.told.append,
            dry_run=dry_run,
        )

    # What differs:

    def _fill(self, side: str, topic: str, partitions: int, end: int, start: int) -> None:
        raise NotImplementedError

    def join(self, side: str, group: str, topics: Iterable[str]) -> Callable[[], None]:
        """An idle consumer joins; returns how it leaves."""
        raise NotImplementedError

    def go_on(self, side: str, group: str, tp: TopicPartition, offset: int) -> None:
        """A consumer of the group commits ``offset``; it is no member when this returns."""
        self.commit(side, group, {tp: offset})

    def more(self, side: str, tp: TopicPartition, records: int) -> None:
        """Records are written."""
        raise NotImplementedError

    def later(self, seconds: float, happen: Callable[[], object]) -> None:
        raise NotImplementedError

    @contextmanager
    def restless(self, side: str, group: str, tp: TopicPartition) -> Iterator[None]:
        """Meanwhile, a client that is no member commits for the group, on and on."""
        raise NotImplementedError
        yield

    def close(self) -> None:
        """Stop what this world started."""


class FakeWorld(World):
    """In memory; time passes when somebody sleeps."""

    is_real = False

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target, self.clock = FakeCluster("source"), FakeCluster("target"), FakeClock()

    def _fill(self, side: str, topic: str, partitions: int, end: int, start: int) -> None:
        cluster = self.cluster(side)
        cluster.add_topic(topic, partitions=partitions)
        for partition in range(partitions):
            cluster.append(TopicPartition(topic, partition), end)
            cluster.delete_records(TopicPartition(topic, partition), start)

    def join(self, side: str, group: str, topics: Iterable[str]) -> Callable[[], None]:
        cluster = self.cluster(side)
        member = cluster.join(group, topics, client_id="shop")
        return lambda: cluster.leave(group, member)

    def more(self, side: str, tp: TopicPartition, records: int) -> None:
        self.cluster(side).append(tp, records)

    def later(self, seconds: float, happen: Callable[[], object]) -> None:
        self.clock.at(seconds, happen)

    @contextmanager
    def restless(self, side: str, group: str, tp: TopicPartition) -> Iterator[None]:
        running = True

        def again(offset: int) -> None:
            if running:
                self.cluster(side).consumer_commits(group, tp, offset)
                self.clock.at(self.rest / 4, lambda: again(offset + 1))

        again(START + 1)
        yield
        running = False


class RealWorld(World):
    """Two real clusters, real consumers, real time."""

    is_real = True
    rest, wait, watch = 0.3, 6.0, 6.0

    def __init__(self, source_servers: str, target_servers: str) -> None:
        super().__init__()
        self.servers = {"source": source_servers, "target": target_servers}
        self.source, self.target = (
            Cluster(side, ClusterConnection(conn_id=side, properties={"bootstrap.servers": servers}))  # type: ignore[arg-type]
            for side, servers in self.servers.items()
        )
        self.clock = SystemClock()
        self._leaving: list[Callable[[], None]] = []
        self._timers: list[threading.Timer] = []

    def _fill(self, side: str, topic: str, partitions: int, end: int, start: int) -> None:
        self.cluster(side).create_topics([TopicSpec(name=topic, partitions=partitions, replication_factor=1)])
        for partition in range(partitions):
            self.more(side, TopicPartition(topic, partition), end)
        if start:
            properties = {"bootstrap.servers": self.servers[side]}
            places = [RdTopicPartition(topic, partition, start) for partition in range(partitions)]
            # Named: without a reference it would be gone before it has answered.
            admin = AdminClient({**properties})
            for future in admin.delete_records(places).values():
                future.result(30)

    def join(self, side: str, group: str, topics: Iterable[str]) -> Callable[[], None]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers[side],
                "group.id": group,
                "client.id": "shop",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        stopping = threading.Event()

        def live() -> None:
            consumer.subscribe(list(topics))
            while not stopping.is_set():
                consumer.poll(0.05)
            consumer.close()

        thread = threading.Thread(target=live)
        thread.start()

        def leave() -> None:
            stopping.set()
            thread.join()

        self._leaving.append(leave)
        cluster = self.cluster(side)
        wait_until(lambda: cluster.group_state(group).state == "Stable", f"{group} is stable")
        return leave

    def more(self, side: str, tp: TopicPartition, records: int) -> None:
        producer = Producer({"bootstrap.servers": self.servers[side]})
        for _ in range(records):
            producer.produce(tp.topic, b"x", partition=tp.partition)
        if producer.flush(30):
            raise AssertionError(f"{tp} could not be filled")

    def later(self, seconds: float, happen: Callable[[], object]) -> None:
        timer = threading.Timer(seconds, happen)
        timer.start()
        self._timers.append(timer)

    @contextmanager
    def restless(self, side: str, group: str, tp: TopicPartition) -> Iterator[None]:
        stopping = threading.Event()
        self.commit(side, group, {tp: START + 1})

        def again() -> None:
            offset = START + 2
            while not stopping.wait(self.rest / 4):
                self.commit(side, group, {tp: offset})
                offset += 1

        thread = threading.Thread(target=again)
        thread.start()
        yield
        stopping.set()
        thread.join()

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()
            timer.join()
        for leave in self._leaving:
            leave()
        self.source.close()
        self.target.close()
