"""What only a real cluster shows: many at once, threads, transactions; and the table of errors."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer
from confluent_kafka import TopicPartition as RdTopicPartition

from kafka_migration.domain.errors import (
    AuthenticationFailed,
    BadInput,
    ClusterUnreachable,
    CouldNotFindOut,
    MigrationError,
    NotAuthorized,
)
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.kafka import topics
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.errors import (
    Asked,
    BrokerRefused,
    GroupBusy,
    NoAuthorizer,
    NotSupported,
    TopicExists,
    UnknownTopic,
    translated,
)
from kafka_migration.kafka.types import CommittedOffset
from tests.kafka.labs import RealLab
from tests.waiting import wait_until


def test_ends_of_hundreds_of_partitions_are_asked_for_at_once(real_lab: RealLab) -> None:
    name = real_lab.topic("many", partitions=200)
    tps = [TopicPartition(name, p) for p in range(200)]
    real_lab.produce(tps[199], 3, timestamp=1)
    ends = real_lab.cluster.ends(tps)
    assert set(ends) == set(tps)
    assert ends[tps[199]] == PartitionEnds(start=0, end=3)
    assert sum(it.end for it in ends.values()) == 3


def test_end_for_committed_readers_says_what_lies_behind_an_open_transaction(real_lab: RealLab) -> None:
    name = real_lab.topic("undecided")
    tp = TopicPartition(name, 0)
    real_lab.produce(tp, 4, timestamp=1)
    producer = Producer({"bootstrap.servers": real_lab.servers, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"x", partition=0)
    assert producer.flush(30) == 0
    real_lab.produce(tp, 2, timestamp=1)
    assert real_lab.cluster.ends([tp]) == {tp: PartitionEnds(start=0, end=7)}
    found = real_lab.cluster.ends([tp], committed=True)[tp]
    assert (found, found.high_watermark) == (PartitionEnds(start=0, end=4, undecided=3), 7)
    producer.abort_transaction(30)
    wait_until(
        lambda: real_lab.cluster.ends([tp], committed=True)[tp] == PartitionEnds(start=0, end=8), "it is decided"
    )


def test_one_cluster_serves_many_threads(real_lab: RealLab) -> None:
    name = real_lab.topic("threads")
    tp = TopicPartition(name, 0)

    async def ask() -> list[object]:
        calls = [
            lambda: real_lab.cluster.ends([tp]),
            real_lab.cluster.groups,
            lambda: real_lab.cluster.group_state(real_lab.name("g")),
            lambda: real_lab.cluster.topics([name]),
            lambda: real_lab.cluster.disk_use([tp]),
        ]
        answers: list[object] = await asyncio.gather(*(asyncio.to_thread(call) for call in calls * 5))
        return answers

    answers = asyncio.run(ask())
    assert len(answers) == 25
    assert answers[0] == {tp: PartitionEnds(start=0, end=0)}


def test_commit_inside_an_open_transaction_is_waited_for(real_lab: RealLab) -> None:
    name, group = real_lab.topic("offsets"), real_lab.name("stable")
    tp = TopicPartition(name, 0)
    real_lab.produce(tp, 10, timestamp=1)
    real_lab.cluster.commit(group, {tp: CommittedOffset(offset=2)})
    servers = {"bootstrap.servers": real_lab.servers}
    producer = Producer({**servers, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    consumer = Consumer({**servers, "group.id": group})
    producer.send_offsets_to_transaction([RdTopicPartition(name, 0, 7)], consumer.consumer_group_metadata(), 30)
    consumer.close()
    # Who only looks is not held up by it, nor are other groups.
    others = [group, real_lab.name("another")]
    assert real_lab.cluster.committed_of(others, is_stable=False) == {
        group: {tp: CommittedOffset(offset=2)},
        others[1]: {},
    }
    found: list[object] = []
    asking = threading.Thread(target=lambda: found.append(real_lab.cluster.committed(group)))
    asking.start()
    # A moment in which an answer would be the one from before the transaction.
    asking.join(0.5)
    assert found == []
    producer.commit_transaction(30)
    asking.join(30)
    assert found == [{tp: CommittedOffset(offset=7)}]


def test_share_group_is_told_by_its_protocol_and_members(real_lab: RealLab) -> None:
    name, group = real_lab.topic("shared"), real_lab.name("share")
    consumer = ShareConsumer({"bootstrap.servers": real_lab.servers, "group.id": group, "log_level": 0})
    consumer.subscribe([name])

    def is_stable() -> bool:
        consumer.poll(0.1)
        return bool(real_lab.cluster.group_state(group).state == "Stable")

    wait_until(is_stable, "the share group is stable")
    state = real_lab.cluster.group_state(group)
    assert (state.protocol, [it.topics for it in state.members]) == ("share", [frozenset({name})])
    assert real_lab.cluster.groups()[group].protocol == "share"
    assert real_lab.cluster.committed(group) == {}
    consumer.close()
    wait_until(lambda: real_lab.cluster.group_state(group).is_empty, "the share group is empty")


def test_closed_cluster_opens_again_when_asked(real_lab: RealLab) -> None:
    before = real_lab.cluster.cluster_id()
    real_lab.cluster.groups()
    real_lab.cluster.close()
    assert real_lab.cluster.cluster_id() == before
    assert isinstance(real_lab.cluster.groups(), dict)


def test_property_that_librdkafka_refuses_is_bad_input() -> None:
    connection = ClusterConnection("odd", {"bootstrap.servers": "one:9092", "socket.timeout.ms": "1"})
    with Cluster("source", connection) as cluster, pytest.raises(BadInput) as caught:
        cluster.cluster_id()
    assert caught.value.file == "connection odd"
    assert "socket.timeout.ms" in str(caught.value)


def test_representation_hides_secrets() -> None:
    properties = {
        "bootstrap.servers": "one:9092",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "hunter22",
    }
    assert "hunter22" not in repr(Cluster("source", ClusterConnection("c", properties)))


@pytest.mark.parametrize(
    ("code", "kind", "exit_code"),
    [
        (-195, ClusterUnreachable, 3),
        (-185, ClusterUnreachable, 3),
        (-169, AuthenticationFailed, 3),
        (58, AuthenticationFailed, 3),
        (29, NotAuthorized, 1),
        (30, NotAuthorized, 1),
        (31, NotAuthorized, 1),
        (53, NotAuthorized, 1),
        (35, NotSupported, 3),
        (54, NoAuthorizer, 3),
        (3, UnknownTopic, 3),
        (36, TopicExists, 1),
        (25, GroupBusy, 1),
        (68, GroupBusy, 1),
        (38, BrokerRefused, 1),
        (40, BrokerRefused, 1),
        (44, BrokerRefused, 1),
        (16, CouldNotFindOut, 3),
        (-1, CouldNotFindOut, 3),
    ],
)
def test_each_code_becomes_the_error_that_says_what_to_do(
    code: int, kind: type[MigrationError], exit_code: int
) -> None:
    asked = Asked(role="target", servers="one:9092", operation="Create", resource="topic t")
    error = translated(asked, code=code, name="NAME", text="what was said")
    assert type(error) is kind
    assert error.exit_code == exit_code
    assert "target" in error.message


def test_topic_that_a_broker_does_not_know_yet_is_asked_for_again_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [UnknownTopic("not yet", remedy=""), UnknownTopic("not yet", remedy=""), {"made": {}}]

    def asked(*_: object) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, UnknownTopic):
            raise answer
        return answer

    with Cluster("target", ClusterConnection("c", {"bootstrap.servers": "127.0.0.1:9"})) as cluster:
        monkeypatch.setattr(cluster, "_configs", asked)
        assert cluster.topic_configs(["made"]) == {"made": {}}
        monkeypatch.setattr(topics, "_KNOWN_SECONDS", 0.3)
        answers += [UnknownTopic("there is none", remedy="")] * 10
        with pytest.raises(UnknownTopic, match="there is none"):
            cluster.topic_configs(["none"])
