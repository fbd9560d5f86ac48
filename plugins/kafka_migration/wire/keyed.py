"""Keyed records in our internal topics, written and read by tasks on the wire layer."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator

import kafka.errors as kafka_errors

from kafka_migration.domain.codes import TOPIC_AUTHORIZATION_FAILED
from kafka_migration.domain.errors import CouldNotFindOut, NotAuthorized, reason_of
from kafka_migration.domain.ledger import place_of
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.batch import batches
from kafka_migration.wire.cluster import WireCluster, code_name
from kafka_migration.wire.fetch import fetch
from kafka_migration.wire.fetch_request import FetchFrom
from kafka_migration.wire.produce import Append
from kafka_migration.wire.records import keyed_batch, keyed_records

log = logging.getLogger(__name__)

_BATCH_BYTES = 500_000
"""Half of what brokers take by default in one batch (message.max.bytes)."""
_THROTTLED_SECONDS = 10.0
_Entries = list[tuple[bytes, bytes | None]]


class KeyedAppender:
    """Writes keyed records to one internal topic, durably (acks=all).

    Not idempotent: after trouble a record may stand there twice, which keyed records of a compacted topic bear.
    """

    def __init__(self, cluster: WireCluster, topic: str, *, partitions: int) -> None:
        self.cluster, self.topic, self.partitions = cluster, topic, partitions

    async def put(self, entries: Iterable[tuple[bytes, bytes | None]], *, deadline: float) -> None:
        """Write all ``entries``; they are durable when this returns. Raises CouldNotFindOut at ``deadline``."""
        pending: dict[TopicPartition, _Entries] = {}
        for key, value in entries:
            tp = TopicPartition(self.topic, place_of(self.topic, key, self.partitions))
            pending.setdefault(tp, []).append((key, value))
        problem = "no leader"
        while pending:
            if not pending.keys() <= self.cluster.leaders.keys():
                await self.cluster.wait_for_leaders(pending, deadline=deadline)
            for node, group in self.cluster.by_leader(pending).items():
                problem = await self._append(node, group, pending) or problem
            if throttled := self.cluster.throttled_seconds(pending):
                # The broker answers, and holds us back for longer than the write itself takes.
                deadline = max(deadline, time.monotonic() + throttled + _THROTTLED_SECONDS)
            if not pending:
                return
            if time.monotonic() > deadline:
                raise CouldNotFindOut(
                    f"{self.cluster.role}: topic {self.topic} cannot be written: {problem}",
                    remedy=f"check that the partitions of {self.topic} have a leader and enough in-sync replicas, then"
                    " run this again",
                )
            if problem != "no leader":
                await self.cluster.net.sleep(0.05)

    async def _append(self, node: int, group: list[TopicPartition], pending: dict[TopicPartition, _Entries]) -> str:
        """Write the first entries of each partition of ``group``, and take them from ``pending``; why some were not
        written, or "".
        """
        chunk = {tp: _first(pending[tp]) for tp in group}
        now = int(time.time() * 1000)
        request = Append(self.cluster, node, {tp: keyed_batch(c, timestamp=now) for tp, c in chunk.items()})
        try:
            answers = await request.answers()
        except kafka_errors.KafkaError as error:
            if not request.was_not_sent:
                # The broker may be gone for good, and another one lead.
                self.cluster.forget_leaders(group)
            return reason_of(error)
        problem = ""
        for answer in answers:
            tp = answer.partition
            if answer.error == TOPIC_AUTHORIZATION_FAILED:
                raise NotAuthorized(self.cluster.role, "Write", f"topic {self.topic}")
            if answer.error:
                problem = code_name(answer.error)
                self.cluster.forget_leaders([tp])
                continue
            pending[tp] = pending[tp][len(chunk[tp]) :]
            if not pending[tp]:
                del pending[tp]
        return problem


def _first(entries: _Entries) -> _Entries:
    """The entries that fit one batch, at least one."""
    size = 0
    for count, (key, value) in enumerate(entries):
        size += len(key) + len(value or b"") + 32
        if size > _BATCH_BYTES and count:
            return entries[:count]
    return entries


class KeyedTail:
    """Follows one partition of an internal topic from an offset on, without ever blocking the loop for long.

    ``is_current``: the last poll saw everything that was durable when it began.
    """

    def __init__(self, cluster: WireCluster, partition: TopicPartition, offset: int) -> None:
        self.cluster, self.partition, self.offset = cluster, partition, offset
        self.is_current = False

    async def poll(self) -> list[tuple[bytes | None, bytes | None]]:
        """What has come since the last poll. Trouble means an empty answer; the next poll asks again."""
        self.is_current = False
        leader = self.cluster.leaders.get(self.partition)
        if leader is None:
            try:
                await self.cluster.refresh([self.partition.topic], timeout=5.0)
            except CouldNotFindOut as error:
                log.info("%s cannot be followed: %s", self.partition, error.message)
            return []
        if self.cluster.throttled_seconds([self.partition]):
            return []
        want = FetchFrom(self.partition, self.offset, 1024 * 1024)
        try:
            answers = await fetch(self.cluster, leader.node, [want], max_wait_ms=0, max_bytes=1024 * 1024)
        except kafka_errors.KafkaError:
            self.cluster.forget_leaders([self.partition])
            return []
        out: list[tuple[bytes | None, bytes | None]] = []
        for answer in answers:
            if answer.error:
                self.cluster.forget_leaders([self.partition])
            out.extend(self._read(answer.records))
            self.is_current = not answer.error and self.offset >= answer.high_watermark
        return out

    def _read(self, records: bytes | memoryview) -> Iterator[tuple[bytes | None, bytes | None]]:
        for header, batch in batches(records):
            if header.next_offset <= self.offset:
                continue
            since, self.offset = self.offset, header.next_offset
            if not header.is_control:
                yield from keyed_records(batch, since=since)
