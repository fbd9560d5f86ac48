"""Whether two readers that share no code agree: short stretches of what record level read, once more by Spark's source.

Of about a hundredth of the segments, and of every kind of batch that the source has. Both read the same stretches;
where their digests are not the same, one of them is wrong, so the segment is not equal, and not different either.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_migration.compare.digests import SOURCE, TARGET, Digest, SegmentOutcome
from kafka_migration.compare.faults import reason_of
from kafka_migration.compare.orders import Orders
from kafka_migration.compare.records.spark_source import Connections, digests
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.segments import cut, split_bounds
from kafka_migration.domain.hiding import hidden
from kafka_migration.domain.levels import stratified
from kafka_migration.domain.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Of all segments, as far as a validation's sample is not smaller.
_SHARE = 0.01
#: Source offsets of a stretch.
_OFFSETS = 10_000
#: A cleaner, or what expires, may come between two readings.
_TRIES = 3

#: How log lines are written.
Log = Callable[[str], None]


def confirmed(
    spark: SparkSession,
    request: ValidationRequest,
    outcomes: Sequence[SegmentOutcome],
    orders: Orders,
    connections: Connections,
    *,
    secrets: Collection[str] = (),
    log: Log = lambda _text: None,
) -> list[SegmentOutcome]:
    """``outcomes`` of record level; those have a ``failure`` where Spark's source read otherwise than we do.

    Never raises for what cannot be read: that is a failure, too.
    """
    chosen = stretches(request, outcomes)
    failed: dict[tuple[TopicPartition, int], str] = {}
    for group in _one_a_partition(chosen):
        failed |= _disagreeing(spark, request, group, orders, connections, secrets)
    if chosen:
        offsets = sum(one.source_end - one.source_start for one in chosen)
        log(
            f"{offsets:,} offsets in {len(chosen)} places were read again by Spark's Kafka source:"
            + (f" it disagrees in {len(failed)}" if failed else " it agrees")
        )
    return [replace(one, failure=one.failure or failed.get((one.tp, one.segment), "")) for one in outcomes]


def stretches(request: ValidationRequest, outcomes: Sequence[SegmentOutcome]) -> list[PartitionRange]:
    """What is read again: drawn by the request's seed from segments that hold records, so that every trait of their
    batches is in it, and topics take turns."""
    share = min(_SHARE, request.sample)
    able = sorted((one for one in outcomes if one.source.rows and not one.failure), key=_place)
    if not share or not able:
        return []
    chance = random.Random(request.seed)
    chosen = stratified(
        chance,
        able,
        max(1, round(share * len(able))),
        topic=lambda one: one.topic,
        traits=lambda one: one.traits,
    )
    whole = {range_.tp: range_ for range_ in request.ranges}
    return [_stretch(whole[one.tp], one, chance) for one in sorted(chosen, key=_place)]


def _place(outcome: SegmentOutcome) -> tuple[str, int, int]:
    return outcome.topic, outcome.partition, outcome.start


def _stretch(whole: PartitionRange, one: SegmentOutcome, chance: random.Random) -> PartitionRange:
    start = chance.randint(one.start, max(one.start, one.end - _OFFSETS))
    end = min(one.end, start + _OFFSETS)
    low = one.target_start if start == one.start else split_bounds(whole, start)[0]
    high = one.target_end if end == one.end else split_bounds(whole, end)[0]
    return cut(whole, start, end, low, max(low, high))


def _one_a_partition(chosen: Sequence[PartitionRange]) -> list[list[PartitionRange]]:
    """A frame of Spark's source reads one range of a partition."""
    groups: list[list[PartitionRange]] = []
    seen: dict[TopicPartition, int] = {}
    for one in chosen:
        at = seen[one.tp] = seen.get(one.tp, -1) + 1
        if at == len(groups):
            groups.append([])
        groups[at].append(one)
    return groups


def _disagreeing(
    spark: SparkSession,
    request: ValidationRequest,
    wanted: Sequence[PartitionRange],
    orders: Orders,
    connections: Connections,
    secrets: Collection[str],
) -> dict[tuple[TopicPartition, int], str]:
    """Why a stretch proves nothing, by partition and segment."""
    from kafka_migration.compare.records.task import obey  # which needs numpy and Arrow

    left, failed = list(wanted), dict[tuple[TopicPartition, int], str]()
    for _ in range(_TRIES):
        failed = {}
        # Here, in the driver: little is read.
        ours = {one.tp: one for one in obey(orders, [(0, stretch) for stretch in left]).outcomes}
        try:
            theirs = digests(spark, request, left, connections)
        except Exception as error:
            reason = f"not read by Spark's Kafka source: {reason_of(error, secrets)}"
            return {(one.tp, one.source_start // request.segment_records): reason for one in left}
        for one in left:
            mine = ours[one.tp]
            why = hidden(mine.failure, secrets) or " and ".join(
                f"of the {side} we read {_text(found)}, and Spark's Kafka source {_text(other)}"
                for side, found, other in (
                    (SOURCE, mine.source, theirs[one.tp, SOURCE]),
                    (TARGET, mine.target, theirs[one.tp, TARGET]),
                )
                if not _agree(found, other)
            )
            if why:
                place = one.tp, one.source_start // request.segment_records
                failed[place] = f"two readers disagree at source offsets {one.source}: {why}"
        left = [one for one in left if (one.tp, one.source_start // request.segment_records) in failed]
        if not left:
            break
    return failed


def _agree(ours: Digest, theirs: Digest) -> bool:
    """Of a stretch; where the Java client could not decode names of headers, as far as counts show."""
    counts = [(one.rows, one.bytes, one.misplaced) for one in (ours, theirs)]
    return counts[0] == counts[1] and (bool(theirs.unclear) or ours.text == theirs.text)


def _text(digest: Digest) -> str:
    return f"{digest.rows} records ({digest.text})"
