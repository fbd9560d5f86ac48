"""Whether two readers that share no code agree: short stretches of what record level read, once more by Spark's source.

Of about a hundredth of the segments, and of every kind of batch that the source has. Both read the same stretches;
where their digests are not the same, one of them is wrong, so the segment is not equal, and not different either.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from kafka_migration.compare.digests import SOURCE, TARGET, Digest, SegmentOutcome
from kafka_migration.compare.faults import reason_of
from kafka_migration.compare.orders import Orders
from kafka_migration.compare.records.spark_source import Connections, digests
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.segments import cut, split_bounds
from kafka_migration.domain.hiding import hidden
from kafka_migration.domain.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Of all segments, as far as a validation's sample is not smaller.
_SHARE = 0.01
#: Source offsets of a stretch.
_OFFSETS = 10_000
#: A cleaner, or what expires, may come between two readings.
_TRIES = 3
DISAGREE = "two readers disagree"
#: After so many failed jobs the cluster is the trouble, or what the JVM knows of it.
_MOST_FAILURES = 6

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
    budget = [_MOST_FAILURES]
    for group in _one_a_partition(chosen):
        failed |= _disagreeing(spark, request, group, orders, connections, secrets, budget)
    if chosen:
        offsets = sum(one.source_end - one.source_start for one in chosen)
        log(
            f"{offsets:,} offsets in {len(chosen)} places were read again by Spark's Kafka source:"
            + (f" it disagrees, or cannot read them, in {len(failed)}" if failed else " it agrees")
        )
    # What differs is DIFFERENT, whoever else can read it.
    return [
        replace(one, failure=one.failure or failed.get((one.tp, one.segment), "")) if one.is_same else one
        for one in outcomes
    ]


def stretches(request: ValidationRequest, outcomes: Sequence[SegmentOutcome]) -> list[PartitionRange]:
    """What is read again: drawn by the request's seed from segments that hold records, so that every trait of their
    batches is in it, and topics take turns."""
    share = min(_SHARE, request.sample)
    able = sorted((one for one in outcomes if one.source.rows and not one.failure), key=attrgetter("place"))
    if not share or not able:
        return []
    chance = random.Random(request.seed)
    chosen = stratified(chance, able, max(1, round(share * len(able))))
    ranges: dict[TopicPartition, list[PartitionRange]] = {}
    for range_ in request.ranges:
        ranges.setdefault(range_.tp, []).append(range_)
    found = []
    for one in sorted(chosen, key=attrgetter("place")):
        # Several of a partition may be asked for, around what an earlier validation found equal.
        whole = next(
            range_ for range_ in ranges[one.tp] if range_.source_start <= one.start and one.end <= range_.source_end
        )
        stretch = _stretch(whole, one, chance)
        if not (stretch.left_out or stretch.target_left_out):
            # Spark's source would read what is left out, too: it may be damaged.
            found.append(stretch)
    return found


def stratified(chance: random.Random, outcomes: Sequence[SegmentOutcome], size: int) -> list[SegmentOutcome]:
    """``size`` of ``outcomes``, drawn by ``chance``: every trait that any of them has is in the sample, if need be in
    more than ``size``, and the topics take turns, so that a large one does not fill it alone."""
    waiting: dict[str, list[SegmentOutcome]] = {}
    chosen: list[SegmentOutcome] = []
    covered = 0
    for one in chance.sample(outcomes, len(outcomes)):
        if one.traits & ~covered:
            covered |= one.traits
            chosen.append(one)
        else:
            waiting.setdefault(one.topic, []).append(one)
    seen = {one.topic for one in chosen}
    turns = deque(sorted(waiting, key=lambda name: name in seen))
    while len(chosen) < size and turns:
        name = turns.popleft()
        chosen.append(waiting[name].pop())
        if waiting[name]:
            turns.append(name)
    return chosen


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
    budget: list[int],
) -> dict[tuple[TopicPartition, int], str]:
    """Why a stretch proves nothing, by partition and segment. ``budget`` is how many more jobs may fail."""
    from kafka_migration.compare.task import obey  # which needs numpy and Arrow

    left = list(wanted)
    failed: dict[tuple[TopicPartition, int], str] = {}
    for _ in range(_TRIES):
        # Here, in the driver: little is read.
        ours = {one.tp: one for one in obey(orders, [(0, stretch) for stretch in left]).outcomes}
        if all(one.failure for one in ours.values()):
            return {_key(request, one): hidden(ours[one.tp].failure, secrets) for one in left}
        try:
            theirs = digests(spark, request, left, connections)
        except Exception as error:
            budget[0] -= 1
            if len(left) > 1 and budget[0] > 0:
                middle = len(left) // 2
                halves = (left[:middle], left[middle:])
                parts = [_disagreeing(spark, request, half, orders, connections, secrets, budget) for half in halves]
                return parts[0] | parts[1]
            reason = f"not read by Spark's Kafka source: {reason_of(error, secrets)}"
            failed = {_key(request, one): reason for one in left}
            if budget[0] <= 0:
                break
            continue
        failed = {_key(request, one): why for one in left if (why := _difference(ours[one.tp], one, theirs, secrets))}
        left = [one for one in left if _key(request, one) in failed]
        if not left:
            break
    return failed


def _key(request: ValidationRequest, stretch: PartitionRange) -> tuple[TopicPartition, int]:
    return stretch.tp, stretch.source_start // request.segment_records


def _difference(
    mine: SegmentOutcome,
    stretch: PartitionRange,
    theirs: Mapping[tuple[TopicPartition, str], Digest],
    secrets: Collection[str],
) -> str:
    """Why the readers do not agree on a stretch; empty if they do."""
    if mine.failure:
        return hidden(mine.failure, secrets)
    why = " and ".join(
        f"of the {side} we read {_text(found)}, and Spark's Kafka source {_text(other)}"
        for side, found, other in (
            (SOURCE, mine.source, theirs[stretch.tp, SOURCE]),
            (TARGET, mine.target, theirs[stretch.tp, TARGET]),
        )
        if not _agree(found, other)
    )
    return why and f"{DISAGREE} at source offsets {stretch.source}: {why}"


def _agree(ours: Digest, theirs: Digest) -> bool:
    """Of a stretch; where the Java client could not decode names of headers, as far as counts show."""
    counts = [(one.rows, one.bytes, one.misplaced) for one in (ours, theirs)]
    return counts[0] == counts[1] and (bool(theirs.unclear) or ours.text == theirs.text)


def _text(digest: Digest) -> str:
    return f"{digest.rows} records ({digest.text})"
