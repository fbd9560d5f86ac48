"""Producers to the target, back to the source, and to the target again, on real brokers, with a mirror each way: every
record stands on both clusters, once, in the order in which it was sent."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafka_migration.approvals.cutover import CutoverGate
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.types import TopicPartition
from kafka_migration.link import lifecycle, reverse
from kafka_migration.link.heartbeat import mirror_state
from kafka_migration.migration.context import Context, open_context
from kafka_migration.plans.load import restore_plan
from kafka_migration.plans.model import Plan
from kafka_migration.steps import mirror, rollback, switch
from kafka_migration.topics import create
from tests.copy.bench import ThreadRunner
from tests.kafka_tools import ToSend, create_topics, produce, read_all
from tests.waiting import wait_until

OWN = {"retention.ms": "86400000"}


class Shop:
    """A plan of two partitions, whose producers are stopped and started by the test."""

    def __init__(self, source: str, target: str) -> None:
        self.source, self.target = source, target
        self.topic = f"there-{uuid.uuid4().hex[:8]}.orders"
        self.sent: dict[TopicPartition, list[bytes]] = {TopicPartition(self.topic, n): [] for n in range(2)}
        self.plan: Plan = restore_plan(
            {
                "version": 1,
                "name": self.topic.partition(".")[0],
                "source": "here",
                "target": "there",
                "topics": {"include": [self.topic.replace(".", r"\.")]},
                "approvals": {"cutover": False},
                "producers": {
                    "fence": {"kind": "none", "window_seconds": 0.5, "deadline_seconds": 60},
                    "switch_seconds": 200,
                    "patience_seconds": 300,
                },
            }
        )

    def write(self, servers: str, count: int) -> None:
        """Records of long ago."""
        for tp, sent in self.sent.items():
            new = [f"{tp.partition}-{len(sent) + n}".encode() for n in range(count)]
            sent.extend(new)
            produce(servers, self.topic, [ToSend(value, partition=tp.partition, timestamp=1) for value in new])

    @contextmanager
    def mirrors(self, *, back: bool = False) -> Iterator[None]:
        """A mirror beside the test, until it is drained or told to stop."""
        ended: list[BaseException | None] = []
        stop = threading.Event()

        def run() -> None:
            try:
                with open_context(self.plan, make_state=True) as opened:
                    ctx = reverse.arm(opened) if back else opened
                    mirror.apply(ctx, ThreadRunner(), interrupted=stop.is_set)
            except BaseException as error:
                ended.append(error)
                raise
            ended.append(None)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            wait_until(lambda: ended or self.look(back=back)[0] == "running", "the mirror runs")
            yield
        finally:
            stop.set()
            thread.join(120)
        assert ended == [None]

    def look(self, *, back: bool = False) -> tuple[str, Context]:
        with open_context(self.plan) as ctx:
            seen = ctx.reverse() if back else ctx
            return mirror_state(seen)[0], seen

    def retention(self) -> dict[str, str | None]:
        with open_context(self.plan) as ctx:
            found = ctx.source.topic_configs([self.topic])[self.topic]
            return {name: found[name].value for name in OWN if found[name].is_explicit}

    def has_all(self, servers: str) -> bool:
        """Whether a cluster has what was sent: once, and in order."""
        found = read_all(servers, {self.topic: 2})
        return {tp: [row.value for row in rows] for tp, rows in found.items()} == self.sent

    def check(self) -> None:
        assert self.has_all(self.source)
        assert self.has_all(self.target)


@pytest.fixture
def shop(source_cluster, target_cluster, monkeypatch: pytest.MonkeyPatch) -> Shop:
    found = Shop(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers)
    for conn_id, servers in (("HERE", found.source), ("THERE", found.target)):
        connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": servers}}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id}", json.dumps(connection))
    monkeypatch.setattr(CutoverGate, "ask", lambda _gate: "open")
    create_topics(found.source, {found.topic: 2}, OWN)
    return found


def test_producers_go_to_the_target_back_and_there_again_and_no_record_is_lost_doubled_or_moved(shop: Shop) -> None:
    shop.write(shop.source, 5)
    with open_context(shop.plan, make_state=True) as ctx:
        create.apply(ctx)
    with shop.mirrors(), open_context(shop.plan) as ctx:
        decision = switch.run(ctx)
        assert decision.exit_code == 0, decision.message
    shop.write(shop.target, 6)
    with open_context(shop.plan) as ctx, pytest.raises(Refused, match="sealed"):
        mirror.apply(ctx, ThreadRunner())

    with shop.mirrors(back=True):
        assert shop.retention() == {"retention.ms": "-1"}
        with open_context(shop.plan) as ctx:
            assert rollback.apply(ctx).exit_code == 0
            shop.write(shop.target, 3)
            decision = switch.run(reverse.way_back(ctx))
            assert decision.exit_code == 0, decision.message
    assert shop.retention() == OWN
    shop.check()
    shop.write(shop.source, 4)

    with shop.mirrors(), open_context(shop.plan) as ctx:
        assert (ctx.direction, ctx.generation) == (Direction.FORWARD, 2)
        assert lifecycle.read(ctx) == {shop.topic: TopicState.MIRRORING}
        shop.write(shop.source, 2)
        decision = switch.run(ctx)
        assert decision.exit_code == 0, decision.message
        assert lifecycle.read(ctx) == {shop.topic: TopicState.SERVED}
    shop.check()
    shop.write(shop.target, 2)
    with shop.mirrors(back=True), open_context(shop.plan) as ctx:
        back = ctx.reverse()
        assert (back.direction, back.generation) == (Direction.REVERSE, 2)
        wait_until(lambda: shop.has_all(shop.source), "what was written on the target goes back by the second way back")
    shop.check()
