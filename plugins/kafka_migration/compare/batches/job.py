"""Batch level on Spark: every task compares some segments, and tells what it found as soon as it is done.

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
from kafka_migration.compare.digests import SOURCE, TARGET, SegmentOutcome
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
    heard: Callable[[list[SegmentOutcome]], None] = lambda _found: None,
    headers_only: bool = False,
) -> list[SegmentOutcome]:
    """Every segment of ``ranges``, compared. Never raises for what cannot be read: that is in its outcome.

    ``headers_only`` compares nothing: the outcomes hold attributes of the target's batches, which record level cannot
    see (:func:`.batch_segment.visible`).

    ``heard`` is called with what each share found, one call at a time.
    """
    slots = max(1, spark.sparkContext.defaultParallelism)
    work = _Work(spark, request, wires, secrets, headers_only)
    shares = list(_shares([tile for it in ranges for tile in tiles(it, request.segment_records)], slots))
    found: list[SegmentOutcome] = []
    # Twice as many as can run: a slot that becomes free need not wait for the driver.
    with ThreadPoolExecutor(max_workers=2 * slots) as pool:
        try:
            for done in as_completed([pool.submit(work.share, share) for share in shares]):
                outcomes = done.result()
                heard(outcomes)
                found += outcomes
        except BaseException:
            # Whoever heard is gone, or wants no more: nobody would know what the rest finds.
            pool.shutdown(wait=False, cancel_futures=True)
            spark.sparkContext.cancelJobGroup(request.id)
            raise
    return found


def _shares(every: Sequence[Tile], slots: int) -> Iterator[tuple[Tile, ...]]:
    """The segments in shares of about equal size: several small ones together, since each share is a job."""
    total = sum(it.source_end - it.source_start for _, it in every)
    most = min(_MOST_OFFSETS, max(_LEAST_OFFSETS, total // (slots * _SHARES_PER_SLOT)))
    share: list[Tile] = []
    size = 0
    for number, it in every:
        share.append((number, it))
        size += it.source_end - it.source_start
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
        lost = [failure(n, it, self._gone or self._unanswered[it.tp]) for n, it in segments if self._is_lost(it)]
        if lost:
            segments = tuple((n, it) for n, it in segments if not self._is_lost(it))
            return lost + (self.share(segments) if segments else [])
        orders = BatchOrders(
            segments=segments,
            committed=self._request.isolation == "read_committed",
            headers_only=self._headers_only,
            wires=self._wires,
        )
        context = self._spark.sparkContext
        try:
            context.setJobGroup(self._request.id, f"validation of {self._request.migration}: {len(segments)} segments")
            (answer,) = context.parallelize([0], 1).map(_task(orders)).collect()
            outcomes, unreachable, unanswered = answer
        except Exception as error:
            reason = reason_of(error, self._secrets)
            with self._lock:
                self._failed += 1
                if self._failed >= _MOST_FAILURES:
                    self._gone = f"not read: {self._failed} Spark jobs before it failed, the last with: {reason}"
            if len(segments) > 1:
                middle = len(segments) // 2
                return self.share(segments[:middle]) + self.share(segments[middle:])
            return [failure(number, it, reason) for number, it in segments]
        if unreachable:
            self._gone = hidden(unreachable, self._secrets)
        self._unanswered |= {TopicPartition(*tp): hidden(said, self._secrets) for tp, said in unanswered}
        found = [SegmentOutcome.from_dict(it) for it in outcomes]
        return [replace(it, failure=hidden(it.failure, self._secrets)) if it.failure else it for it in found]

    def _is_lost(self, it: PartitionRange) -> bool:
        """Whether nobody would answer: of the cluster, or of this partition."""
        return bool(self._gone) or it.tp in self._unanswered


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
        [it.as_dict() for it in found],
        unreachable,
        [((tp.topic, tp.partition), unanswered[tp]) for tp in unanswered],
    )


async def _each(
    orders: BatchOrders,
    clusters: Mapping[str, WireCluster],
    found: list[SegmentOutcome],
    unanswered: dict[TopicPartition, str],
) -> None:
    tps = {it.tp for _, it in orders.segments}
    for cluster in clusters.values():
        try:
            await cluster.wait_for_leaders(tps, deadline=time.monotonic() + _LEADER_SECONDS)
        except LeaderUnknown:
            # Of one partition: those of the others are known by now, and its own reader says what is missing.
            continue
    for number, it in orders.segments:
        if it.tp in unanswered:
            found.append(failure(number, it, unanswered[it.tp]))
            continue
        # Uncommitted: whatever stands on the target must be explained.
        target = Side(clusters[TARGET], it.tp, it.target_start, it.target_end, committed=False)
        try:
            if orders.headers_only:
                found.append(SegmentOutcome.of(number, it, HEADERS, target=await visible(it, target)))
                continue
            source = Side(
                clusters[SOURCE],
                it.tp,
                it.source_start,
                it.source_end,
                committed=orders.committed,
                left_out=it.left_out,
            )
            one, other, traits = await compare(it, source, target)
        except CannotRead as error:
            if isinstance(error, Unanswered):
                unanswered[it.tp] = error.message
            found.append(failure(number, it, error.message))
        else:
            found.append(SegmentOutcome.of(number, it, LEVEL, source=one, target=other, traits=traits))


def _fail_rest(orders: BatchOrders, found: list[SegmentOutcome], reason: str) -> None:
    done = len(found)
    found += [failure(number, it, reason) for number, it in orders.segments[done:]]


def failure(number: int, it: PartitionRange, reason: str) -> SegmentOutcome:
    """The outcome of a segment that could not be read."""
    return SegmentOutcome.of(number, it, LEVEL, failure=reason)
