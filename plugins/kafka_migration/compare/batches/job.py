"""Batch level on Spark: every task compares some segments, and answers with what it found as soon as it is done.

One Spark job for each share of segments, several at a time: what a share found is known when it ends, whatever becomes
of the others, and a task that dies takes no other's work with it. Credentials travel inside the pickled function, which
Spark neither logs nor shows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import kafka.errors as kafka_errors

from kafka_migration.compare.batches.segment import compare, visible
from kafka_migration.compare.batches.side import CannotRead, Side, Unanswered
from kafka_migration.compare.digests import SOURCE, TARGET, OnRead, SegmentOutcome
from kafka_migration.compare.faults import reason_of
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.segments import tiles
from kafka_migration.domain.errors import ClusterUnreachable, MigrationError
from kafka_migration.domain.hiding import hidden
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.cluster import LeaderUnknown, WireCluster
from kafka_migration.wire.selector import Selector

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEVEL, HEADERS = "batch", "headers"
_MOST_OFFSETS, _LEAST_OFFSETS = 1_000_000, 20_000
_SHARES_PER_SLOT = 4
_MOST_FAILURES = 24
_LEADER_SECONDS = 30.0

Tile = tuple[int, PartitionRange]
Answer = tuple[list[dict[str, Any]], str, list[tuple[tuple[str, int], str]]]
#: Properties of kafka-python's connections, by side. They hold secrets.
Wires = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOrders:
    """One task's share: segments, by number, and how the clusters are reached. Holds credentials: never printed.

    ``headers_only``: nothing is compared, the target's batches are looked at for attributes."""

    segments: tuple[Tile, ...]
    committed: bool
    headers_only: bool
    wires: Wires = field(repr=False)


def run(
    spark: SparkSession,
    request: ValidationRequest,
    ranges: Sequence[PartitionRange],
    wires: Wires,
    *,
    secrets: Collection[str] = (),
    on_read: OnRead = lambda _found: None,
    headers_only: bool = False,
) -> list[SegmentOutcome]:
    """Every segment of ``ranges``, compared. Never raises for what cannot be read: that is in its outcome.

    ``headers_only`` compares nothing: the outcomes hold attributes of the target's batches, which record level cannot
    see (:func:`.segment.visible`). ``on_read`` is called with what each share found, one call at a time.
    """
    slots = max(1, spark.sparkContext.defaultParallelism)
    work = _Work(spark, request, wires, secrets, headers_only)
    shares = list(_shares([tile for range_ in ranges for tile in tiles(range_, request.segment_records)], slots))
    found: list[SegmentOutcome] = []
    # Twice as many as can run: a slot that becomes free need not wait for the driver.
    with ThreadPoolExecutor(max_workers=2 * slots) as pool:
        try:
            for done in as_completed([pool.submit(work.share, share) for share in shares]):
                outcomes = done.result()
                on_read(outcomes)
                found += outcomes
        except BaseException:
            # Whoever waited is gone, or wants no more: nobody would know what the rest finds.
            pool.shutdown(wait=False, cancel_futures=True)
            spark.sparkContext.cancelJobGroup(request.id)
            raise
    return found


def _shares(every: Sequence[Tile], slots: int) -> Iterator[tuple[Tile, ...]]:
    """The segments in shares of about equal size: several small ones together, since each share is a job."""
    total = sum(tile.source_end - tile.source_start for _, tile in every)
    most = min(_MOST_OFFSETS, max(_LEAST_OFFSETS, total // (slots * _SHARES_PER_SLOT)))
    share: list[Tile] = []
    size = 0
    for number, tile in every:
        share.append((number, tile))
        size += tile.source_end - tile.source_start
        if size >= most:
            yield tuple(share)
            share, size = [], 0
    if share:
        yield tuple(share)


class _Work:
    """Jobs of one request. Failures are counted: after so many the cluster is the trouble, not a segment."""

    def __init__(
        self,
        spark: SparkSession,
        request: ValidationRequest,
        wires: Wires,
        secrets: Collection[str],
        headers_only: bool,
    ) -> None:
        self._spark, self._request, self._secrets, self._wires = spark, request, secrets, wires
        self._headers_only = headers_only
        self._lock, self._failed, self._gone = threading.Lock(), 0, ""
        self._unanswered: dict[TopicPartition, str] = {}

    def share(self, segments: tuple[Tile, ...]) -> list[SegmentOutcome]:
        """Have a share compared by a task. One that fails as a whole is halved, until what breaks it stands alone."""
        # Asked once: other shares find meanwhile what is lost.
        doubts = [(segment, self._why_lost(segment[1])) for segment in segments]
        lost = [failure(*segment, why) for segment, why in doubts if why]
        left = tuple(segment for segment, why in doubts if not why)
        if not left:
            return lost
        try:
            outcomes, unreachable, unanswered = self._on_spark(left)
        except Exception as error:
            reason = reason_of(error, self._secrets)
            self._count_failure(reason)
            if len(left) == 1:
                return [*lost, failure(*left[0], reason)]
            middle = len(left) // 2
            return [*lost, *self.share(left[:middle]), *self.share(left[middle:])]
        if unreachable:
            self._gone = hidden(unreachable, self._secrets)
        self._unanswered |= {TopicPartition(*tp): hidden(why, self._secrets) for tp, why in unanswered}
        found = [SegmentOutcome.from_dict(outcome) for outcome in outcomes]
        return [*lost, *(replace(outcome, failure=hidden(outcome.failure, self._secrets)) for outcome in found)]

    def _on_spark(self, segments: tuple[Tile, ...]) -> Answer:
        orders = BatchOrders(
            segments=segments,
            committed=self._request.isolation == "read_committed",
            headers_only=self._headers_only,
            wires=self._wires,
        )
        context = self._spark.sparkContext
        context.setJobGroup(self._request.id, f"validation of {self._request.migration}: {len(segments)} segments")
        answers: list[Answer] = context.parallelize([0], 1).map(_task(orders)).collect()
        return answers[0]

    def _count_failure(self, reason: str) -> None:
        with self._lock:
            self._failed += 1
            if self._failed >= _MOST_FAILURES:
                self._gone = f"not read: {self._failed} Spark jobs before it failed, the last with: {reason}"

    def _why_lost(self, tile: PartitionRange) -> str:
        """Why nobody would answer, of the cluster or of this partition; empty if they may."""
        return self._gone or self._unanswered.get(tile.tp, "")


def _task(orders: BatchOrders) -> Callable[[int], Answer]:
    def work(_index: int) -> Answer:
        from kafka_migration.compare.batches.job import obey

        return obey(orders)

    return work


def obey(orders: BatchOrders) -> Answer:
    """Compare the segments of ``orders``, in the worker: outcomes as JSON types, what cluster is out of reach, and the
    partitions whose leaders do not answer, with why."""
    net = Selector()
    sides = {role: WireCluster(net, orders.wires[role], role) for role in (SOURCE, TARGET)}
    found: list[SegmentOutcome] = []
    unanswered: dict[TopicPartition, str] = {}
    unreachable = ""
    try:
        for cluster in sides.values():
            cluster.connect()
        net.run(lambda: _each(orders, sides, found, unanswered))
    except ClusterUnreachable as error:
        unreachable = error.message
        _fail_rest(orders, found, error.message)
    except (MigrationError, kafka_errors.KafkaError) as error:
        _fail_rest(orders, found, getattr(error, "message", None) or repr(error))
    finally:
        for cluster in sides.values():
            cluster.close()
        net.close()
    return (
        [outcome.as_dict() for outcome in found],
        unreachable,
        [((tp.topic, tp.partition), unanswered[tp]) for tp in unanswered],
    )


async def _each(
    orders: BatchOrders,
    clusters: Mapping[str, WireCluster],
    found: list[SegmentOutcome],
    unanswered: dict[TopicPartition, str],
) -> None:
    tps = {tile.tp for _, tile in orders.segments}
    for cluster in clusters.values():
        try:
            await cluster.wait_for_leaders(tps, deadline=time.monotonic() + _LEADER_SECONDS)
        except LeaderUnknown:
            # Of one partition: those of the others are known by now, and its own reader names what is missing.
            continue
    for number, tile in orders.segments:
        if tile.tp in unanswered:
            found.append(failure(number, tile, unanswered[tile.tp]))
            continue
        # Uncommitted: whatever stands on the target must be explained.
        target = Side(clusters[TARGET], tile.tp, tile.target_start, tile.target_end, committed=False)
        try:
            if orders.headers_only:
                found.append(SegmentOutcome.of(number, tile, HEADERS, target=await visible(tile, target)))
                continue
            source = Side(
                clusters[SOURCE],
                tile.tp,
                tile.source_start,
                tile.source_end,
                committed=orders.committed,
                left_out=tile.left_out,
            )
            one, other, traits = await compare(tile, source, target)
        except CannotRead as error:
            if isinstance(error, Unanswered):
                unanswered[tile.tp] = error.message
            found.append(failure(number, tile, error.message))
        else:
            found.append(SegmentOutcome.of(number, tile, LEVEL, source=one, target=other, traits=traits))


def _fail_rest(orders: BatchOrders, found: list[SegmentOutcome], reason: str) -> None:
    done = len(found)
    found += [failure(number, tile, reason) for number, tile in orders.segments[done:]]


def failure(number: int, tile: PartitionRange, reason: str) -> SegmentOutcome:
    """The outcome of a segment that could not be read."""
    return SegmentOutcome.of(number, tile, LEVEL, failure=reason)
