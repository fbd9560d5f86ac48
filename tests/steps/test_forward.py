"""Records of stragglers forwarded to the target on real brokers: each once, although the process dies on the way."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from confluent_kafka import Producer

from kafka_migration.domain.errors import Refused, TakenOver
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka import forwarding
from kafka_migration.kafka.errors import UnknownTopic
from kafka_migration.kafka.forwarding import Forwarder
from kafka_migration.link import reverse, stragglers
from kafka_migration.steps import mirror
from tests.copy.bench import ThreadRunner, records
from tests.copy.test_reverse import sealed
from tests.kafka_tools import produce, read_all


class Died(BaseException):
    """What no code of ours expects, as no process expects SIGKILL."""


def straggle(source: str, topic: str) -> list[tuple[Any, ...]]:
    """Write two batches and, between them, a transaction that is aborted, to partition 0; returns what counts."""
    rows: list[tuple[Any, ...]] = [
        (
            b"k%d" % n if n else None,
            b"v%d" % n if n != 1 else None,
            1_600_000_000_000 + n,
            [("h", b"%d" % n), ("h", None)],
        )
        for n in range(5)
    ]

    def write(producer: Producer, some: list[tuple[Any, ...]]) -> None:
        for key, value, timestamp, headers in some:
            producer.produce(topic, value, key, 0, timestamp=timestamp, headers=headers)
        producer.flush()

    plain = Producer({"bootstrap.servers": source, "linger.ms": 50})
    write(plain, rows[:3])
    aborted = Producer({"bootstrap.servers": source, "transactional.id": f"{topic}.app"})
    aborted.init_transactions()
    aborted.begin_transaction()
    write(aborted, [(b"a", b"aborted", 1, [])] * 2)
    aborted.abort_transaction()
    write(plain, rows[3:])
    return rows


def test_records_of_a_straggler_arrive_once_each_though_the_process_dies_and_another_takes_over(
    source_cluster: Any, target_cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    topic = f"late-{uuid.uuid4().hex[:8]}.orders"
    monkeypatch.setattr(forwarding, "_RECORDS", 2)
    first = TopicPartition(topic, 0)
    with sealed(source, target, topic) as (_, uncached):
        assert uncached.on_open_link is not None
        ctx = replace(uncached, on_open_link=cache(uncached.on_open_link))
        back = reverse.arm(ctx)
        produce(target, topic, records(20, 2, seed=2))
        mirror.apply(back, ThreadRunner(), until_caught_up=True)
        before = read_all(target, {topic: 2})
        rows = straggle(source, topic)
        (stray,) = stragglers.look(ctx)
        assert (stray.tp, stray.records) == (first, 7)

        with monkeypatch.context() as patch:
            # In the middle of a transaction: nobody aborts it, and the next one ends it.
            patch.setattr(Forwarder, "_abort", lambda _self: None)
            patch.setattr(stragglers, "_stored", die)
            patch.setattr(ctx.target, "ends", hears_late(ctx.target.ends))
            with pytest.raises(Died):
                stragglers.forward(ctx, by="ada")
        copied = Forwarder.commit

        def dies_behind(*args: Any) -> None:
            copied(*args)
            raise Died

        with monkeypatch.context() as patch:
            patch.setattr(Forwarder, "commit", dies_behind)
            with pytest.raises(Died):
                stragglers.forward(ctx, by="ada")
        assert len(read_all(target, {topic: 2})[first]) == len(before[first]) + 2

        earlier = stragglers._forwarder(ctx, [stray])
        earlier.take_over()
        (decision,) = stragglers.forward(ctx, by="ada", reason="orders")
        with pytest.raises(TakenOver):
            earlier.commit(first, [], b"key", lambda _: b"")

        after = read_all(target, {topic: 2})
        assert after[TopicPartition(topic, 1)] == before[TopicPartition(topic, 1)]
        assert after[first][: len(before[first])] == before[first]
        new = after[first][len(before[first]) :]
        assert [(row.key, row.value, row.timestamp, [*row.headers]) for row in new] == rows
        assert (decision["records"], decision["end"]) == (5, stray.end)
        assert decision["target"] == {"first": new[0].offset, "last": new[-1].offset}
        assert (stragglers.look(ctx), stragglers.forward(ctx, by="bob")) == ((), ())
        assert not stragglers.is_forwarding(ctx)

        # Too large for the topic, which is named with its place; the other partition is not held up by what was done.
        ctx.target.alter_configs(topic, set={"max.message.bytes": "2000"})
        large = Producer({"bootstrap.servers": source})
        large.produce(topic, noise(4_000), None, 1)
        large.flush()
        (late,) = stragglers.look(ctx)
        with pytest.raises(Refused, match=rf"{topic}-1, source offset {late.start} \([\d,]+ bytes\)"):
            stragglers.forward(ctx, by="ada")
        assert [one.tp for one in stragglers.give_up(ctx, stragglers.look(ctx), by="ada")] == [late.tp]
        assert not stragglers.is_forwarding(ctx)


def hears_late(ends: Callable[..., Any]) -> Callable[..., Any]:
    """``ends`` of a broker that knows nothing yet of the topic that was just created, when it is asked first."""
    asked: list[object] = []

    def late(tps: Any, **options: Any) -> Any:
        if forwarding._STATE in tps and not asked:
            asked.append(tps)
            raise UnknownTopic("Describe on partition: does not exist", remedy="")
        return ends(tps, **options)

    return late


def die(*_: object) -> bytes:
    raise Died


def noise(size: int) -> bytes:
    """What cannot be compressed."""
    return b"".join(uuid.uuid4().bytes for _ in range(size // 16))
