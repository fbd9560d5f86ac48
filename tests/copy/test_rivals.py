"""Two mirrors of one link at the same time, which cut the source's records into different batches."""

import random
import threading
import uuid
from dataclasses import replace

import pytest

from kafka_migration.copy.driver.mirror import Settings
from kafka_migration.copy.orders import Limits
from kafka_migration.domain.errors import MigrationError, TakenOver
from kafka_migration.state.link import LinkState
from tests.copy.bench import BRIEF, Bench, assert_same, bench, records
from tests.kafka_tools import produce

RECORDS, PARTITIONS = 4_000, 3


@pytest.fixture
def topic() -> str:
    return f"rivals-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("seed", [1, 2])
def test_two_mirrors_with_different_batches_that_take_over_from_each_other_copy_every_record_once(
    source_cluster, target_cluster, topic, seed
):
    limits = Limits(throttle_bytes_per_second=150_000, progress_seconds=0.1, command_seconds=0.1, **BRIEF)
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: PARTITIONS}) as it:
        produce(it.source, topic, records(RECORDS, PARTITIONS, seed), **{"batch.num.messages": 7})
        taken, wrong = list[str](), list[BaseException]()

        def again_and_again(name: str) -> None:
            chance = random.Random(f"{name} {seed}")
            link = LinkState.on_target(it.link.name, {"bootstrap.servers": it.target})
            mine = Bench(link, it.topics, it.source, it.target)
            try:
                for _ in range(8):
                    # Each run cuts the records at places of its own: alone, or up to so many bytes joined.
                    mine_only = replace(limits, join_bytes=chance.choice([0, 3_000, 11_000, 50_000]))
                    settings = Settings(streams=2, epoch_seconds=3, limits=mine_only)
                    try:
                        mine.mirror(settings=settings).run(until_caught_up=True)
                        return
                    except TakenOver:
                        taken.append(name)
            except MigrationError as error:
                wrong.append(error)
            finally:
                link.close()

        threads = [threading.Thread(target=again_and_again, args=(name,), daemon=True) for name in ("one", "other")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(180)
        assert not wrong
        assert set(taken) == {"one", "other"}
        assert len(taken) > 2, "they took over from each other"
        assert it.mirror(settings=Settings(streams=2, limits=Limits(**BRIEF))).run(until_caught_up=True).halted == ()
        assert assert_same(it) == RECORDS
