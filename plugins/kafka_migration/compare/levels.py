"""How closely both clusters are compared, and the one way to have it done.

=========  ===========================================================================================================
level      what is read
=========  ===========================================================================================================
batch      batches as bytes, decoded only where both sides' differ in structure (:mod:`.batches.segment`)
record     every record, through Spark's own Kafka source, which shares no code with the mirror
           (:mod:`.records.reader`); and the headers of the target's batches, which no consumer sees
sampled    batch level everywhere; record level again where that found a difference, and on a random share of segments
=========  ===========================================================================================================
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kafka_migration.compare.batches import job as batch_job
from kafka_migration.compare.digests import DigestReport, OnRead, SegmentOutcome
from kafka_migration.compare.records import job as record_job
from kafka_migration.compare.records.reader import Connections
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.segments import cut
from kafka_migration.domain.levels import Level, sample_size, stratified
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Level", "run", "sample"]


def run(
    spark: SparkSession,
    request: ValidationRequest,
    connections: Connections,
    wires: batch_job.Wires,
    *,
    secrets: Collection[str] = (),
    log: Callable[[str], None] = lambda _text: None,
    on_read: OnRead = lambda _found: None,
) -> DigestReport:
    """Answer ``request`` at its level. Never raises for what cannot be read: that is in the report.

    ``connections`` are JVM clients' properties by side, ``wires`` kafka-python's. ``on_read`` is called with segments
    as soon as they were read, ``log`` with lines for people; ``secrets`` stay out of all messages.
    """
    began = time.monotonic()
    by_record = [range_ for range_ in request.ranges if request.by_record(range_)]
    by_batch = [range_ for range_ in request.ranges if not request.by_record(range_)]
    on_batches = partial(batch_job.run, spark, request, wires=wires, secrets=secrets)
    on_records = partial(record_job.outcomes, spark, request, connections=connections, secrets=secrets, log=log)
    found = on_batches(ranges=by_batch, on_read=on_read) if by_batch else []
    second: list[SegmentOutcome] = []
    if request.level is Level.SAMPLED:
        chosen = sample(found, seed=request.seed, share=request.sample, twice=frozenset(request.twice))
        if chosen:
            shown = listed(f"{one.tp} {one.start}..{one.end}" for one in chosen)
            log(
                f"reading {len(chosen)} of {len(found)} segments again, record by record (seed {request.seed}): {shown}"
            )
            second = on_records(ranges=_ranges_of(request, chosen), on_read=on_read)
    if by_record:
        headers = on_batches(ranges=by_record, headers_only=True)
        read = on_records(ranges=by_record, on_read=lambda new: on_read(with_headers(new, headers)))
        found += with_headers(read, headers)
    seconds = round(time.monotonic() - began, 3)
    return DigestReport.of(request.id, found, seconds=seconds, second=second)


def with_headers(outcomes: Sequence[SegmentOutcome], headers: Sequence[SegmentOutcome]) -> list[SegmentOutcome]:
    """``outcomes`` of record level, with what the headers of the target's batches show of the same segments."""
    of_segment: dict[tuple[TopicPartition, int], SegmentOutcome] = {}
    for header in headers:
        place = header.tp, header.segment
        of_segment[place] = _both(of_segment[place], header) if place in of_segment else header
    return [
        _both(outcome, of_segment[outcome.tp, outcome.segment])
        if (outcome.tp, outcome.segment) in of_segment
        else outcome
        for outcome in outcomes
    ]


def _both(outcome: SegmentOutcome, header: SegmentOutcome) -> SegmentOutcome:
    return replace(outcome, failure=outcome.failure or header.failure, target=outcome.target + header.target)


def sample(
    outcomes: Sequence[SegmentOutcome], *, seed: str, share: float, twice: Collection[tuple[str, int, int]] = ()
) -> list[SegmentOutcome]:
    """Which of ``outcomes`` are read again at record level: those that differ, those of ``twice``, and a random share
    of the others, 20 at the least, in which every trait of batches and, as far as it reaches, every topic is. The same
    ``seed`` chooses the same, whatever order they came in."""
    must: list[SegmentOutcome] = []
    others: list[SegmentOutcome] = []
    for outcome in sorted(outcomes, key=_place):
        if outcome.failure:
            continue
        if not outcome.is_same or (outcome.topic, outcome.partition, outcome.segment) in twice:
            must.append(outcome)
        elif outcome.source.rows:
            others.append(outcome)
    chosen = stratified(
        random.Random(seed),
        others,
        sample_size(len(others), share),
        topic=lambda outcome: outcome.topic,
        traits=lambda outcome: outcome.traits,
    )
    return sorted([*must, *chosen], key=_place)


def _ranges_of(request: ValidationRequest, chosen: Sequence[SegmentOutcome]) -> list[PartitionRange]:
    """A range for each of ``chosen``."""
    found = []
    for segment in chosen:
        (whole,) = (
            range_
            for range_ in request.ranges
            if range_.tp == segment.tp and range_.source_start <= segment.start and segment.end <= range_.source_end
        )
        found.append(cut(whole, segment.start, segment.end, segment.target_start, segment.target_end))
    return found


def _place(outcome: SegmentOutcome) -> tuple[str, int, int]:
    return outcome.topic, outcome.partition, outcome.start
