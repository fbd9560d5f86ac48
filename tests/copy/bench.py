"""A link between two real clusters for tests of the mirror, and a runner that needs no Spark."""

import random
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from kafka_migration.copy.driver import fencing
from kafka_migration.copy.driver.mirror import Mirror, Settings
from kafka_migration.copy.driver.runner import Ended
from kafka_migration.copy.orders import Limits, TaskOrders
from kafka_migration.copy.task.task import run_task
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Receipt
from kafka_migration.state.link import LinkState, LinkTopic
from kafka_migration.wire.cluster import WireCluster
from kafka_migration.wire.selector import Selector
from tests.kafka_tools import ToSend, create_topics, read_all, topic_ids
from tests.proxy import Proxy


def scaled(factor: float) -> dict[str, Any]:
    """The times by which attempts outlive each other, all shorter by one factor: their ratios are those that ship."""
    shipped = Limits()
    names = ("lease_seconds", "answer_seconds", "closed_seconds")
    return {name: factor * getattr(shipped, name) for name in names}


#: Records of tests are years old, so every takeover from a mirror that died holds them back: for seconds, here.
BRIEF: dict[str, Any] = scaled(0.12)
#: Small batches stay alone besides, so that there are many requests to interfere with.
SHORT: dict[str, Any] = BRIEF | {"join_bytes": 0}


DATA_CLIENT = "mirror-data"
OPEN_ENDED = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}


class ThreadRound:
    """An epoch whose tasks are threads of this process."""

    def __init__(self, orders: list[TaskOrders]) -> None:
        self._receipts: list[Receipt] = []
        self._errors: dict[int, Exception] = {}
        self._abandoned: set[int] = set()
        self._threads = [
            threading.Thread(target=self._guarded, args=(at, share), daemon=True) for at, share in enumerate(orders)
        ]
        for thread in self._threads:
            thread.start()

    def _guarded(self, at: int, orders: TaskOrders) -> None:
        try:
            self._work(orders)
        except Exception as error:  # what the task died of
            self._errors[at] = error

    def _work(self, orders: TaskOrders) -> None:
        self._receipts.extend(run_task(orders))

    def is_done(self) -> bool:
        return all(self.tasks().values())

    def tasks(self) -> dict[int, bool]:
        return {at: at in self._abandoned or not thread.is_alive() for at, thread in enumerate(self._threads)}

    def abandon(self, why: Exception) -> None:
        self._abandoned |= {at for at, is_over in self.tasks().items() if not is_over}
        self._errors |= dict.fromkeys(self._abandoned, why)

    def ended(self) -> Ended:
        for at, thread in enumerate(self._threads):
            if at not in self._abandoned:
                thread.join()
        return Ended(receipts=self._receipts, failed=self._errors)


class ThreadRunner:
    """Runs epochs in threads, and keeps the orders it was given."""

    slots: int | None = None

    def __init__(self) -> None:
        self.orders: list[list[TaskOrders]] = []

    def start(self, orders: list[TaskOrders]) -> ThreadRound:
        self.orders.append(orders)
        return ThreadRound(orders)


@dataclass
class Bench:
    """Topics that exist on both sides, and a link that pins them."""

    link: LinkState
    topics: Mapping[str, int]
    source: str
    target: str

    def mirror(
        self,
        runner: Any = None,
        *,
        settings: Settings | None = None,
        source_through: Proxy | None = None,
        target_through: Proxy | None = None,
        **extra: Any,
    ) -> Mirror:
        """A mirror of this link; of its own connections (not those of its state) some go through a proxy."""
        return Mirror(
            link=extra.pop("link", self.link),
            source=_config(self.source, source_through),
            target=_config(self.target, target_through),
            runner=runner or ThreadRunner(),
            settings=settings or Settings(streams=2, epoch_seconds=5, limits=Limits(**BRIEF)),
            **extra,
        )

    def seal(self) -> Seal:
        """Seal the link, by connections of its own."""
        with closing(Selector()) as net, closing(WireCluster(net, _config(self.target, None), "target")) as cluster:
            return fencing.seal(self.link, cluster)


def _config(servers: str, through: Proxy | None) -> dict[str, Any]:
    mine: dict[str, Any] = {"bootstrap_servers": servers, "client_id": DATA_CLIENT}
    if through is None:
        return mine
    # As long as a client waits for a connection after some that failed: what a slow network does is the test's to say.
    return mine | {"proxy_url": through.url, "socket_connection_setup_timeout_ms": 36_000}


def records(count: int, partitions: int, seed: int) -> Iterator[ToSend]:
    """Records of all kinds: null and empty keys and values, headers, sizes, three years old."""
    chance = random.Random(seed)
    for n in range(count):
        yield ToSend(
            value=None if n % 97 == 0 else b"%d:" % n + chance.randbytes(chance.randrange(0, 120)) + b"x" * 80,
            key=None if n % 5 == 0 else (b"" if n % 7 == 0 else b"key-%d" % (n % 50)),
            partition=n % partitions,
            timestamp=1_700_000_000_000 + n,
            headers=[("h", b"v"), ("h", None), ("", b"")] if n % 3 == 0 else [],
        )


def assert_same(it: Bench) -> int:
    """Target equals source record by record, and every offset translates, both ways. How many records those are."""
    source, target, maps = read_all(it.source, it.topics), read_all(it.target, it.topics), it.link.offset_maps()
    count = 0
    for tp, rows in source.items():
        assert [r.without_offset() for r in target[tp]] == [r.without_offset() for r in rows], tp
        assert [maps[tp].to_target(r.offset) for r in rows] == [r.offset for r in target[tp]], tp
        assert [maps[tp].to_source(r.offset) for r in target[tp]] == [r.offset for r in rows], tp
        count += len(rows)
    return count


@contextmanager
def bench(
    source: str,
    target: str,
    topics: Mapping[str, int],
    *,
    config: Mapping[str, str] | None = None,
    target_config: Mapping[str, str] | None = None,
    source_brokers: list[int] | None = None,
    target_brokers: list[int] | None = None,
) -> Iterator[Bench]:
    """Create `topics` on both clusters (open-ended on the target, as the create phase does) and a link for them."""
    # The records of tests are years old: with the default retention a broker deletes them under a test's feet.
    create_topics(source, topics, {"retention.ms": "-1", **(config or {})}, brokers=source_brokers)
    create_topics(target, topics, {**OPEN_ENDED, **(target_config or {})}, brokers=target_brokers)
    source_ids, target_ids = topic_ids(source, topics), topic_ids(target, topics)
    link = LinkState.on_target(f"link-{uuid.uuid4().hex[:8]}", {"bootstrap.servers": target}, create=True)
    try:
        link.pin(
            source_cluster="source",
            target_cluster="target",
            topics=[LinkTopic(name=n, source_id=source_ids[n], target_id=target_ids[n]) for n in topics],
            at="2026-01-01T00:00:00+00:00",
        )
        yield Bench(link, topics, source, target)
    finally:
        link.close()
