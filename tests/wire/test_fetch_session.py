"""Fetches in a session with a real broker: what is named, what is answered, what happens once the session is gone."""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from demo.brokers import EmbeddedKafka
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.batch import batches
from kafka_migration.wire.fetch import FetchSession
from kafka_migration.wire.fetch_request import Fetched, FetchFrom, FetchOptions, LeanFetchRequest
from kafka_migration.wire.lean import TopicIds
from tests.kafka_tools import ToSend, create_topics, delete_topic, produce
from tests.wire.made import Wire, wired

_PARTITIONS = 4
FETCH_SESSION_ID_NOT_FOUND = 70


class Reader:
    """Reads a topic through one session, and keeps what its requests named."""

    def __init__(self, wire: Wire, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wire, self.topic = wire, topic
        self.node = wire.cluster.leaders[TopicPartition(topic, 0)].node
        self.session = FetchSession(wire.cluster, self.node)
        self.offsets = dict.fromkeys(range(_PARTITIONS), 0)
        self.named: list[set[int]] = []
        init = LeanFetchRequest.__init__

        def noted(
            request: LeanFetchRequest,
            wanted: Sequence[tuple[str, Sequence[tuple[FetchFrom, int]]]],
            ids: TopicIds,
            options: FetchOptions,
            forgotten: Sequence[TopicPartition] = (),
        ) -> None:
            init(request, wanted, ids, options, forgotten)
            self.named.append({want.partition.partition for _, parts in wanted for want, _ in parts})

        monkeypatch.setattr(LeanFetchRequest, "__init__", noted)

    def fetch(self, partitions: Iterable[int] = range(_PARTITIONS), *, wait_ms: int = 5_000) -> dict[int, Fetched]:
        wanted = [FetchFrom(TopicPartition(self.topic, n), self.offsets[n], 1_000_000) for n in partitions]
        options: dict[str, Any] = {"max_wait_ms": wait_ms, "max_bytes": 10**7, "committed": True}
        found = self.wire.net.run(lambda: self.session.fetch(wanted, **options))
        answers = {answer.partition.partition: answer for answer in found}
        for n, answer in answers.items():
            self.offsets[n] = max([self.offsets[n], *(header.next_offset for header, _ in batches(answer.records))])
        return answers

    def write(self, partition: int) -> None:
        produce(self.wire.cluster.servers, self.topic, [ToSend(b"v", partition=partition)])


@pytest.fixture
def reader(source_cluster: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    topic = f"session-{uuid.uuid4().hex[:8]}"
    create_topics(source_cluster.bootstrap_servers, {topic: _PARTITIONS})
    produce(source_cluster.bootstrap_servers, topic, [ToSend(b"v", partition=n % _PARTITIONS) for n in range(40)])
    with wired(source_cluster.bootstrap_servers, topic) as wire:
        yield Reader(wire, topic, monkeypatch)


def test_after_the_first_only_what_changed_is_named_and_only_news_are_answered(reader: Reader) -> None:
    while any(offset < 10 for offset in reader.offsets.values()):
        reader.fetch()
    assert reader.named[0] == {0, 1, 2, 3}
    reader.write(2)
    assert reader.fetch().keys() == {2}
    assert reader.offsets == {0: 10, 1: 10, 2: 11, 3: 10}
    reader.write(3)
    assert reader.fetch().keys() == {3}
    assert reader.named[-1] == {2}


def test_where_nobody_had_anything_the_next_response_tells_of_everyone(reader: Reader) -> None:
    while any(offset < 10 for offset in reader.offsets.values()):
        reader.fetch()
    assert not any(answer.records for answer in reader.fetch(wait_ms=10).values())
    found = reader.fetch(wait_ms=10)
    assert {n: answer.last_stable_offset for n, answer in found.items()} == {0: 10, 1: 10, 2: 10, 3: 10}
    assert reader.named[-1] == {0, 1, 2, 3}


def test_what_is_not_wanted_any_more_leaves_the_session_and_may_come_back(reader: Reader) -> None:
    while any(offset < 10 for offset in reader.offsets.values()):
        reader.fetch()
    reader.write(1)
    reader.write(2)
    assert reader.fetch([0, 2, 3]).keys() == {2}
    reader.write(2)
    assert reader.fetch([0, 2, 3]).keys() == {2}
    assert reader.named[-1] == {2}
    assert reader.fetch().keys() == {1}
    assert reader.offsets == {0: 10, 1: 11, 2: 12, 3: 10}


def test_after_who_leads_was_asked_every_partition_is_named_with_the_epoch_of_its_leader(reader: Reader) -> None:
    while any(offset < 10 for offset in reader.offsets.values()):
        reader.fetch()
    reader.write(1)
    reader.fetch()
    reader.wire(type(reader.wire.cluster).refresh, [reader.topic])
    reader.write(0)
    assert reader.session.begins
    reader.fetch()
    assert reader.named[-1] == {0, 1, 2, 3}
    assert reader.offsets == {0: 11, 1: 11, 2: 10, 3: 10}


def test_session_that_the_broker_evicted_begins_anew_and_loses_nothing(reader: Reader) -> None:
    while any(offset < 10 for offset in reader.offsets.values()):
        reader.fetch()
    reader.write(1)
    reader.fetch()
    twin = FetchSession(reader.wire.cluster, reader.node)
    twin._id = reader.session._id
    twin.close()
    reader.write(0)
    reader.fetch()
    assert reader.offsets == {0: 11, 1: 11, 2: 10, 3: 10}
    assert reader.named[-2:] == [{1}, {0, 1, 2, 3}]


def test_closed_session_is_gone_from_the_broker(reader: Reader) -> None:
    reader.fetch()
    closed = reader.session._id
    reader.session.close()
    options = FetchOptions(max_wait_ms=10, min_bytes=1, max_bytes=10**6, committed=True, session=(closed, 2))
    request = LeanFetchRequest([], TopicIds({}), options)
    assert reader.wire(type(reader.wire.cluster).send, request, reader.node).error == FETCH_SESSION_ID_NOT_FOUND
    assert reader.session.begins
    while any(offset < 10 for offset in reader.offsets.values()):
        reader.fetch()


def test_partition_with_an_error_is_told_each_time_and_so_is_every_other(reader: Reader) -> None:
    reader.wire.cluster.pinned[reader.topic] = reader.wire.cluster.topic_ids[reader.topic]
    while any(offset < 10 for offset in reader.offsets.values()):
        reader.fetch()
    delete_topic(reader.wire.cluster.servers, reader.topic)
    for _ in range(3):
        found = reader.fetch(wait_ms=500)
        assert found.keys() == {0, 1, 2, 3}
        assert all(answer.error for answer in found.values())
    assert reader.named[-1] == {0, 1, 2, 3}
