"""Fetching record batches, as they are stored, from the leader of many partitions at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kafka.protocol.consumer import FetchRequest

from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.cluster import NO_TOPIC_ID, WireCluster

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID = 1, 3, 100, 103
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER = 74, 75, 6
_NO_SESSION = -1
_IDS_SINCE = 13


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one fetch says of one partition. ``records`` are raw batches; ends are -1 where an error hides them.

    ``diverging_end`` is set when the leader's log ends before our position at ``last_epoch``: it was truncated.
    ``aborted`` are the aborted transactions among them, by producer id and first offset; only asked for ``committed``.
    """

    partition: TopicPartition
    error: int
    records: bytes | memoryview
    high_watermark: int
    last_stable_offset: int
    log_start: int
    diverging_end: int | None
    aborted: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class FetchFrom:
    """Where to fetch one partition: ``offset``, at most about ``max_bytes``, and the leader epoch of what was read
    last (-1 if unknown), by which the broker recognises a truncated log."""

    partition: TopicPartition
    offset: int
    max_bytes: int
    last_epoch: int = -1


async def fetch(
    cluster: WireCluster,
    node: int,
    wanted: Iterable[FetchFrom],
    *,
    max_wait_ms: int,
    max_bytes: int,
    min_bytes: int = 1,
    committed: bool = False,
) -> list[Fetched]:
    """One fetch request to ``node`` for partitions that it leads. Raises kafka-python's errors on trouble.

    The broker fills its response in the order of ``wanted``, up to ``max_bytes`` (a first batch always fits). With
    ``committed`` it ends before the first open transaction (KIP-98).

    Topic ids are used where both sides have them (see :meth:`WireCluster.topic_id`): a recreated topic is then told
    apart (error 100), while by name it would be read on as if it were the same.
    """
    # A topic stands there once for each row of its partitions, as in Kafka's own consumer: all of a topic's partitions
    # at the place of its first would put the last of them before those of other topics whose turn it is.
    topics: list[tuple[str, list[Any]]] = []
    for want in wanted:
        leader = cluster.leaders.get(want.partition)
        entry = FetchRequest.FetchTopic.FetchPartition(
            partition=want.partition.partition,
            current_leader_epoch=leader.epoch if leader else -1,
            fetch_offset=want.offset,
            last_fetched_epoch=want.last_epoch,
            log_start_offset=-1,
            partition_max_bytes=want.max_bytes,
        )
        if not topics or topics[-1][0] != want.partition.topic:
            topics.append((want.partition.topic, []))
        topics[-1][1].append(entry)
    ids = {name: cluster.topic_id(name) for name, _ in topics}
    by_id = all(topic_id != NO_TOPIC_ID for topic_id in ids.values())
    request = FetchRequest(
        max_version=FetchRequest.max_version if by_id else _IDS_SINCE - 1,
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=int(committed),
        session_id=0,
        session_epoch=_NO_SESSION,
        topics=[FetchRequest.FetchTopic(topic=name, topic_id=ids[name], partitions=parts) for name, parts in topics],
        forgotten_topics_data=[],
        rack_id="",
    )
    response = await cluster.send(request, node, timeout_ms=cluster.request_timeout_ms + max_wait_ms)
    names = {topic_id: name for name, topic_id in ids.items()}
    return list(_answers(response, names if by_id else {}))


def _answers(response: Any, names: dict[Any, str]) -> Iterator[Fetched]:
    for topic in response.responses:
        # Brokers that know ids may still answer by name (fetch before v13).
        name = names.get(topic.topic_id) or topic.topic
        for part in topic.partitions:
            diverging = getattr(part, "diverging_epoch", None)
            end = getattr(diverging, "end_offset", -1) if diverging is not None else -1
            yield Fetched(
                partition=TopicPartition(name, part.partition_index),
                error=part.error_code or response.error_code,
                records=part.records or b"",
                high_watermark=part.high_watermark,
                last_stable_offset=part.last_stable_offset,
                log_start=part.log_start_offset if part.log_start_offset is not None else -1,
                diverging_end=end if end >= 0 else None,
                aborted=tuple((it.producer_id, it.first_offset) for it in part.aborted_transactions or ()),
            )
