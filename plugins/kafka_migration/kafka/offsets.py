"""Log ends and timestamps of partitions: thousands in one call, never a request per partition."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from confluent_kafka import IsolationLevel
from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import OffsetSpec
from kafka.protocol.consumer import ListOffsetsRequest

from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.kafka import topics
from kafka_migration.kafka.clients import Clients
from kafka_migration.kafka.errors import UnknownTopic
from kafka_migration.kafka.types import TimeSpan

_NEWEST_SINCE = 7
_UNTIMED = 43
"""UNSUPPORTED_FOR_MESSAGE_FORMAT: records of format v0 (before Kafka 0.10) have no timestamps."""
_WHEN: Any = OffsetSpec  # its methods carry no types


def ends(
    clients: Clients, tps: Iterable[TopicPartition], *, committed: bool, skip_starts_of: Container[TopicPartition] = ()
) -> dict[TopicPartition, PartitionEnds]:
    """Log start offset and end of each partition: the high watermark, or the last stable offset if ``committed``. The
    start of partitions in ``skip_starts_of`` is not asked for: 0."""
    wanted = list(tps)
    # The start first: it only grows, and never past an end that is read later.
    starts = _list(clients, [tp for tp in wanted if tp not in skip_starts_of], _WHEN.earliest(), committed=False)
    # The high watermark before the last stable offset: what is still below the former then is held by a transaction,
    # and not merely newer.
    marks = _list(clients, wanted, _WHEN.latest(), committed=False) if committed else {}
    finishes = _list(clients, wanted, _WHEN.latest(), committed=committed)
    found = {}
    for tp in wanted:
        start, end = starts[tp][0] if tp in starts else 0, finishes[tp][0]
        if start > end:
            raise CouldNotFindOut(
                f"{clients.role}: {tp} ends at {end}, before its start at {start}",
                remedy="the topic was recreated or truncated just now; look at it, then try again",
            )
        found[tp] = PartitionEnds(start=start, end=end, undecided=max(0, marks[tp][0] - end) if committed else 0)
    return found


def time_spans(clients: Clients, tps: Iterable[TopicPartition]) -> dict[TopicPartition, TimeSpan]:
    """Timestamps of each partition's first record and of its newest, which brokers tell from Kafka 3.0 on (KIP-734)."""
    wanted = list(tps)
    first = _list(clients, wanted, _WHEN.for_timestamp(0), committed=False, passing=_UNTIMED)
    newest: dict[TopicPartition, tuple[int, int]] = {}
    if clients.raw().supports(ListOffsetsRequest, _NEWEST_SINCE):
        # Older brokers would take the question for one about a time before all others, and tell the oldest.
        newest = _list(clients, wanted, _WHEN.max_timestamp(), committed=False, passing=_UNTIMED)
    nothing = (-1, -1)
    return {
        tp: TimeSpan(earliest=_known(first.get(tp, nothing)[1]), latest=_known(newest.get(tp, nothing)[1]))
        for tp in wanted
    }


def first_since(clients: Clients, tps: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
    """The offset of each partition's first record whose timestamp is ``timestamp`` (milliseconds) or later; where
    there is none, the last stable offset. Partitions whose records have no times are left out."""
    wanted = list(tps)
    # The ends first: a record that is written in between is younger, and would be passed over.
    finishes = _list(clients, wanted, _WHEN.latest(), committed=True)
    found = _list(clients, wanted, _WHEN.for_timestamp(timestamp), committed=True, passing=_UNTIMED)
    return {tp: offset if offset >= 0 else finishes[tp][0] for tp, (offset, _) in found.items()}


def _known(timestamp: int) -> int | None:
    return timestamp if timestamp >= 0 else None


def _list(
    clients: Clients, tps: list[TopicPartition], spec: Any, *, committed: bool, passing: int = 0
) -> dict[TopicPartition, tuple[int, int]]:
    """(offset, timestamp) per partition, asked of the leaders in one request each; partitions that answer with the
    error code ``passing`` are left out."""
    if not tps:
        return {}
    isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    request = {RdTopicPartition(tp.topic, tp.partition): spec for tp in tps}
    try:
        found = clients.call_each(
            clients.asked("Describe", "partition"),
            lambda admin, seconds: admin.list_offsets(request, isolation_level=isolation, request_timeout=seconds),
            name=lambda it: f"{it.topic}-{it.partition}",
            on_error=lambda _it, error: bool(passing) and error.code() == passing,
        )
    except UnknownTopic:
        # librdkafka calls a topic unknown that the principal may not describe; the cluster itself knows better.
        topics.describe(clients, sorted({tp.topic for tp in tps}))
        raise
    return {TopicPartition(it.topic, it.partition): (info.offset, info.timestamp) for it, info in found.items()}
