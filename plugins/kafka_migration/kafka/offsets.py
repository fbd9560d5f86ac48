"""Log ends, timestamps and leader epochs of partitions: thousands in one call, never a request per partition."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from confluent_kafka import IsolationLevel
from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import OffsetSpec
from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import MetadataRequest

from kafka_migration.domain.codes import UNSUPPORTED_FOR_MESSAGE_FORMAT
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.kafka.errors import UnknownTopic
from kafka_migration.kafka.topics import TopicCalls
from kafka_migration.kafka.types import EpochEnd, TimeSpan

_NEWEST_SINCE = 7
_UNTIMED = UNSUPPORTED_FOR_MESSAGE_FORMAT
"""Records of format v0 (before Kafka 0.10) have no timestamps."""
_EPOCHS_SINCE, _METADATA_EPOCHS_SINCE = 2, 7
"""Versions: of the request, from which on brokers compare with the leader's epoch; of metadata, with leader epochs."""
_CONSUMER, _UNKNOWN = -1, -1
_WHEN: Any = OffsetSpec  # its methods carry no types


class OffsetCalls(TopicCalls):
    """The ends of partitions' logs, and what stands where in them."""

    def ends(
        self, tps: Iterable[TopicPartition], committed: bool = False, skip_starts_of: Container[TopicPartition] = ()
    ) -> dict[TopicPartition, PartitionEnds]:
        """Log start offset and end of each partition, thousands in one call: the high watermark, or with
        ``committed`` the last stable offset, and what lies behind it. Of partitions in ``skip_starts_of`` the start is
        not asked for, and is 0: a question less where nobody reads the answer. Raises UnknownTopic if one does not
        exist."""
        wanted = list(tps)
        # The start first: it only grows, and never past an end that is read later.
        starts = self._list([tp for tp in wanted if tp not in skip_starts_of], _WHEN.earliest(), committed=False)
        # The high watermark before the last stable offset: what is still below the former then is held by a
        # transaction, and not merely newer.
        marks = self._list(wanted, _WHEN.latest(), committed=False) if committed else {}
        finishes = self._list(wanted, _WHEN.latest(), committed=committed)
        found = {}
        for tp in wanted:
            start, end = starts[tp][0] if tp in starts else 0, finishes[tp][0]
            if start > end:
                raise CouldNotFindOut(
                    f"{self._clients.role}: {tp} ends at {end}, before its start at {start}",
                    remedy="the topic was recreated or truncated just now; look at it, then try again",
                )
            found[tp] = PartitionEnds(start=start, end=end, undecided=max(0, marks[tp][0] - end) if committed else 0)
        return found

    def time_spans(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, TimeSpan]:
        """Timestamps of each partition's first record and of its newest. None where the cluster reports none: the
        newest before Kafka 3.0 (KIP-734), and both of records in a format without times."""
        wanted = list(tps)
        first = self._list(wanted, _WHEN.for_timestamp(0), committed=False, passing=_UNTIMED)
        newest: dict[TopicPartition, tuple[int, int]] = {}
        if self._clients.raw().supports(ListOffsetsRequest, _NEWEST_SINCE):
            # Older brokers would take the question for one about a time before all others, and return the oldest.
            newest = self._list(wanted, _WHEN.max_timestamp(), committed=False, passing=_UNTIMED)
        nothing = (-1, -1)
        return {
            tp: TimeSpan(earliest=_known(first.get(tp, nothing)[1]), latest=_known(newest.get(tp, nothing)[1]))
            for tp in wanted
        }

    def first_since(self, tps: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """The offset of each partition's first record that is as young as ``timestamp`` (milliseconds), or younger;
        where there is none, the last stable offset. Partitions of records without times are left out."""
        wanted = list(tps)
        # The ends first: a record that is written in between is younger, and would be passed over.
        finishes = self._list(wanted, _WHEN.latest(), committed=True)
        found = self._list(wanted, _WHEN.for_timestamp(timestamp), committed=True, passing=_UNTIMED)
        return {tp: offset if offset >= 0 else finishes[tp][0] for tp, (offset, _) in found.items()}

    def _list(
        self, tps: list[TopicPartition], spec: Any, *, committed: bool, passing: int = 0
    ) -> dict[TopicPartition, tuple[int, int]]:
        """(offset, timestamp) per partition, asked of the leaders in one request each; partitions that answer with the
        error code ``passing`` are left out."""
        if not tps:
            return {}
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        request = {RdTopicPartition(tp.topic, tp.partition): spec for tp in tps}
        try:
            found = self._clients.call_each(
                self._clients.asked("Describe", "partition"),
                lambda admin, seconds: admin.list_offsets(request, isolation_level=isolation, request_timeout=seconds),
                name=lambda tp: f"{tp.topic}-{tp.partition}",
                on_error=lambda _tp, error: bool(passing) and error.code() == passing,
            )
        except UnknownTopic:
            # librdkafka calls a topic unknown that the principal may not describe; the cluster itself knows better.
            self.topics(sorted({tp.topic for tp in tps}))
            raise
        return {TopicPartition(tp.topic, tp.partition): (info.offset, info.timestamp) for tp, info in found.items()}

    def log_epochs(self, asked: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, EpochEnd]:
        """Of each partition, where the leader epoch asked for ends (None: the current one, which ends with the log). By
        it, whoever read a log before recognises whether it still stands (KIP-101, 320).

        Where that epoch is unknown, the newest one before it is returned. Partitions without a leader, and all of
        brokers before Kafka 2.0, are left out. Needs Describe on the topics.
        """
        raw = self._clients.raw()
        if not asked or not (
            raw.supports(OffsetForLeaderEpochRequest, _EPOCHS_SINCE)
            and raw.supports(MetadataRequest, _METADATA_EPOCHS_SINCE)
        ):
            return {}

        async def ask() -> dict[TopicPartition, EpochEnd]:
            found = {}
            for leader, topics in (await self._epochs_by_leader(asked)).items():
                request = OffsetForLeaderEpochRequest(
                    replica_id=_CONSUMER,
                    topics=[
                        OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=name, partitions=partitions)
                        for name, partitions in topics.items()
                    ],
                )
                for topic in (await raw.send(request, leader)).topics:
                    for end in topic.partitions:
                        raw.require(self._clients.asked("Describe", f"topic {topic.topic}"), end.error_code)
                        if end.leader_epoch >= 0:
                            tp = TopicPartition(topic.topic, end.partition)
                            found[tp] = EpochEnd(epoch=end.leader_epoch, end=end.end_offset)
            return found

        return raw.run(self._clients.asked("Describe", "partition (leader epochs)"), ask)

    async def _epochs_by_leader(self, asked: Mapping[TopicPartition, int | None]) -> dict[int, dict[str, list[Any]]]:
        """Whom to ask for which epochs: by leader and topic."""
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in sorted({tp.topic for tp in asked})],
            allow_auto_topic_creation=False,
            max_version=9,
        )
        raw = self._clients.raw()
        by_leader: dict[int, dict[str, list[Any]]] = {}
        for topic in (await raw.send(request, None)).topics:
            raw.require(self._clients.asked("Describe", f"topic {topic.name}"), topic.error_code)
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                if tp not in asked or partition.leader_id < 0:
                    continue
                epoch = asked[tp]
                wanted = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition(
                    partition=tp.partition,
                    current_leader_epoch=_UNKNOWN,
                    leader_epoch=partition.leader_epoch if epoch is None else epoch,
                )
                by_leader.setdefault(partition.leader_id, {}).setdefault(tp.topic, []).append(wanted)
        return by_leader


def _known(timestamp: int) -> int | None:
    return timestamp if timestamp >= 0 else None
