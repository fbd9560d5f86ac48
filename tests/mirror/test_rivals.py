"""Two mirrors of one link at the same time, which cut the source's records into different batches."""

import random
import threading
import uuid
from collections.abc import Iterator

import pytest

from kafka_migration.domain.errors import MigrationError, TakenOver
from kafka_migration.mirror import partition
from kafka_migration.mirror.epochs import Settings
from kafka_migration.mirror.orders import Limits, TaskOrders
from kafka_migration.state.link import LinkState
from kafka_migration.wire import codecs
from kafka_migration.wire.batch import BatchHeader, assemble, parse_header
from kafka_migration.wire.records import encode_records, raw_records
from tests.kafka_tools import produce
from tests.mirror.bench import SHORT, Bench, ThreadEpoch, ThreadRunner, assert_same, bench, records

RECORDS, PARTITIONS = 4_000, 3


@pytest.fixture
def topic() -> str:
    return f"rivals-{uuid.uuid4().hex[:8]}"


_splits = threading.local()


def _split(header: BatchHeader, batch: memoryview, chance: random.Random) -> Iterator[tuple[BatchHeader, memoryview]]:
    rows = list(raw_records(header, batch))
    while rows:
        kept = rows[: chance.randrange(1, 9)]
        rows = rows[len(kept) :]
        made = bytearray(
            assemble(
                attributes=header.codec,
                base_timestamp=header.base_timestamp,
                max_timestamp=header.base_timestamp + max(row.timestamp_delta for row in kept),
                count=len(kept),
                payload=codecs.compress(header.codec, encode_records(kept)),
                base_offset=header.base_offset + kept[0].offset_delta,
            )
        )
        made[12:16] = header.leader_epoch.to_bytes(4, "big")
        yield parse_header(made), memoryview(bytes(made))


class _Epoch(ThreadEpoch):
    def __init__(self, orders: list[TaskOrders], chance: random.Random) -> None:
        self._chance = chance
        super().__init__(orders)

    def _work(self, orders: TaskOrders) -> None:
        _splits.chance = self._chance
        super()._work(orders)


class Splitting(ThreadRunner):
    """Its tasks see every batch of the source cut into small ones, at places of their own."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._chance = random.Random(seed)

    def start(self, orders: list[TaskOrders]) -> ThreadEpoch:
        self.orders.append(orders)
        return _Epoch(orders, self._chance)


@pytest.mark.parametrize("seed", [1, 2])
def test_two_mirrors_with_different_batches_that_take_over_from_each_other_copy_every_record_once(
    source_cluster, target_cluster, topic, monkeypatch, seed
):
    real = partition.batches

    def batches(data: bytes) -> Iterator[tuple[BatchHeader, memoryview]]:
        chance = getattr(_splits, "chance", None)
        for header, batch in real(data):
            yield from [(header, batch)] if chance is None or not header.records else _split(header, batch, chance)

    monkeypatch.setattr(partition, "batches", batches)
    limits = Limits(throttle_bytes_per_second=150_000, progress_seconds=0.1, command_seconds=0.1, **SHORT)
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: PARTITIONS}) as it:
        produce(it.source, topic, records(RECORDS, PARTITIONS, seed), **{"batch.num.messages": 50})
        taken, wrong = list[str](), list[BaseException]()

        def again_and_again(name: str, splitting: bool) -> None:
            link = LinkState.on_target(it.link.name, {"bootstrap.servers": it.target})
            mine = Bench(link, it.topics, it.source, it.target)
            try:
                for turn in range(8):
                    runner = Splitting(seed * 100 + turn) if splitting else ThreadRunner()
                    settings = Settings(streams=2, epoch_seconds=3, limits=limits)
                    try:
                        mine.mirror(runner, settings=settings).run(until_caught_up=True)
                        return
                    except TakenOver:
                        taken.append(name)
            except MigrationError as error:
                wrong.append(error)
            finally:
                link.close()

        threads = [
            threading.Thread(target=again_and_again, args=(name, name == "splitting"), daemon=True)
            for name in ("plain", "splitting")
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(180)
        assert not wrong
        assert {"plain", "splitting"} >= set(taken)
        assert len(taken) > 2, "they took over from each other"
        assert it.mirror(settings=Settings(streams=2, limits=Limits(**SHORT))).run(until_caught_up=True).halted == ()
        assert assert_same(it) == RECORDS
