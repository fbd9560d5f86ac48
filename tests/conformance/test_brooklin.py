"""What LinkedIn's Brooklin tests of its mirror maker (linkedin/brooklin, datastream-kafka-connector,
TestKafkaMirrorMakerConnectorTask and TestKafkaMirrorMakerConnector), demanded of this mirror: what fails holds back its
own partition only, and nothing is sent a second time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_migration.domain.types import Halt, TopicPartition
from kafka_migration.steps import controls
from tests.conformance.scene import Scene, scene
from tests.kafka_tools import ToSend, delete_topic, produce, read_all, set_topic_config
from tests.waiting import wait_until


@pytest.fixture
def it(source_cluster: Any, target_cluster: Any) -> Iterator[Scene]:
    with scene(source_cluster, target_cluster) as found:
        yield found


def _values(it: Scene, tp: TopicPartition) -> list[bytes | None]:
    return [row.value for row in read_all(it.target, {tp.topic: it.topics[tp.topic]})[tp]]


def test_record_that_cannot_be_sent_holds_back_its_partition_until_it_can_and_none_is_sent_twice(it: Scene) -> None:
    """TestKafkaMirrorMakerConnectorTask.testAutoPauseOnSendFailure, testAutoPauseAndResumeOnSendFailure and
    testAutoPauseOnSendError: the third of five events fails, the partition pauses, is resumed, and seven events arrive,
    since the first two come again. Here five do, and a neighbour was never held."""
    topic = it.make("orders", 2)
    failing, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    it.begin()
    set_topic_config(it.target, topic, {"max.message.bytes": "2000"})
    large = random.Random(1).randbytes(5_000)
    rows = [ToSend(b"%d" % n if n != 2 else large, b"key-%d" % n, 0) for n in range(5)]
    produce(it.source, topic, rows, **{"batch.num.messages": 1, "linger.ms": 0})
    with it.mirroring() as live:
        wait_until(lambda: failing in it.ctx.link.halts(), "it halts")
        assert it.ctx.link.halts()[failing].reason == Halt.REFUSED
        assert _values(it, failing) == [b"0", b"1"]
        it.write(topic, 10, partitions=[other.partition])
        wait_until(lambda: len(_values(it, other)) == 10, "the other one goes on")
        set_topic_config(it.target, topic, {"max.message.bytes": "1000000"})
        (done,) = controls.resume_halted(it.ctx, at=[(failing, 2)], by="ada")
        assert done.given_up == 0
        it.until_caught_up()
    assert live.error is None
    assert _values(it, failing) == [row.value for row in rows]
    assert it.ctx.link.skips() == {}
    assert it.assert_same() == 15


@pytest.mark.parametrize("copied", [True, False], ids=["idle", "with records to copy"])
def test_source_topic_that_is_deleted_halts_alone_and_what_was_copied_stays(it: Scene, copied: bool) -> None:
    """TestKafkaMirrorMakerConnectorTask.testDeleteSourceTopic and
    TestKafkaMirrorMakerConnector.testConsumptionUnaffectedByDeleteTopic: the other topic goes on. Here the deleted one
    is named besides, as nobody knows of what was not copied any more, and its copy is whole up to where it stood."""
    deleted, other = it.make("yummy", 1), it.make("salty", 1)
    gone = TopicPartition(deleted, 0)
    it.begin()
    with it.mirroring() as live:
        for name in (deleted, other):
            it.write(name, 100)
        it.until_caught_up()
        if not copied:
            it.write(deleted, 50_000, first=100)
        delete_topic(it.source, deleted)
        it.write(other, 100, first=100)
        wait_until(lambda: len(_values(it, TopicPartition(other, 0))) == 200, "the other goes on")
        wait_until(lambda: gone in it.ctx.link.halts(), "the deleted one halts")
        assert live.thread.is_alive()
    assert live.error is None
    halt = it.ctx.link.halts()[gone]
    assert (halt.reason, set(it.ctx.link.halts())) == (Halt.TOPIC_MISSING, {gone})
    values = _values(it, gone)
    assert values == [b"%d" % n for n in range(len(values))]
    assert halt.source_offset == len(values)
    assert len(values) == 100 if copied else len(values) >= 100
