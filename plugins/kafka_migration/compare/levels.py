"""How closely both clusters are compared, and the one way to have it done.

=========  ===========================================================================================================
level      what is read
=========  ===========================================================================================================
batch      batches as bytes, decoded only where both sides' differ in structure (:mod:`.batch_segment`)
record     every record, through Spark's own Kafka source, which shares no code with the mirror (:mod:`.reader`); and
           the headers of the target's batches, which no consumer sees
sampled    batch level everywhere; record level again where that found a difference, and on a random share of segments
=========  ===========================================================================================================
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_migration.compare.batches import job as batch_job
from kafka_migration.compare.digests import DigestReport, SegmentOutcome
from kafka_migration.compare.records import job
from kafka_migration.compare.records.reader import Connections
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.segments import cut
from kafka_migration.domain.levels import Level, sample_size, stratified
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
    tell: Callable[[str], None] = lambda _text: None,
    heard: job.Heard = lambda _found: None,
) -> DigestReport:
    """Answer ``request`` at its level. Never raises for what cannot be read: that is in the report.

    ``connections`` are JVM clients' properties by side, ``wires`` kafka-python's. ``heard`` is told of every segment as
    soon as it was read; ``secrets`` stay out of all that is said.
    """
    began = time.monotonic()
    by_record = [it for it in request.ranges if request.by_record(it)]
    by_batch = [it for it in request.ranges if not request.by_record(it)]
    found = batch_job.run(spark, request, by_batch, wires, secrets=secrets, heard=heard) if by_batch else []
    second: list[SegmentOutcome] = []
    chosen = []
    if request.level is Level.SAMPLED:
        chosen = sample(found, seed=request.seed, share=request.sample, twice=frozenset(request.twice))
    if chosen:
        tell(
            f"reading {len(chosen)} of {len(found)} segments again, record by record"
            f" (seed {request.seed}): {', '.join(f'{it.tp} {it.start}..{it.end}' for it in chosen[:5])}"
            f"{', …' if len(chosen) > 5 else ''}"
        )
        second = job.outcomes(
            spark, request, _ranges_of(request, chosen), connections, secrets=secrets, tell=tell, heard=heard
        )
    if by_record:
        headers = batch_job.run(spark, request, by_record, wires, secrets=secrets, headers_only=True)
        read = job.outcomes(
            spark,
            request,
            by_record,
            connections,
            secrets=secrets,
            tell=tell,
            heard=lambda new: heard(with_headers(new, headers)),
        )
        found += with_headers(read, headers)
    return DigestReport.of(request.id, found, seconds=_since(began), second=second)


def with_headers(outcomes: Sequence[SegmentOutcome], headers: Sequence[SegmentOutcome]) -> list[SegmentOutcome]:
    """``outcomes`` of record level, with what the headers of the target's batches say of the same segments."""
    said: dict[tuple[TopicPartition, int], SegmentOutcome] = {}
    for it in headers:
        before = said.get((it.tp, it.segment), it)
        said[it.tp, it.segment] = replace(it, target=before.target + it.target, failure=before.failure or it.failure)
    return [_with_header(it, said.get((it.tp, it.segment))) for it in outcomes]


def _with_header(it: SegmentOutcome, header: SegmentOutcome | None) -> SegmentOutcome:
    if header is None:
        return it
    return replace(it, failure=it.failure or header.failure, target=it.target + header.target)


def sample(
    outcomes: Sequence[SegmentOutcome], *, seed: str, share: float, twice: Collection[tuple[str, int, int]] = ()
) -> list[SegmentOutcome]:
    """Which of ``outcomes`` are read again at record level: those that differ, those of ``twice``, and a random share
    of the others, 20 at the least, in which every trait of batches and, as far as it reaches, every topic is. The same
    ``seed`` chooses the same, whatever order they came in."""
    must: list[SegmentOutcome] = []
    others: list[SegmentOutcome] = []
    for it in sorted(outcomes, key=_place):
        if it.failure:
            continue
        if not it.is_same or (it.topic, it.partition, it.segment) in twice:
            must.append(it)
        elif it.source.rows:
            others.append(it)
    chosen = stratified(
        random.Random(seed),
        others,
        sample_size(len(others), share),
        topic=lambda it: it.topic,
        traits=lambda it: it.traits,
    )
    return sorted([*must, *chosen], key=_place)


def _ranges_of(request: ValidationRequest, chosen: Sequence[SegmentOutcome]) -> list[PartitionRange]:
    """A range for each of ``chosen``."""
    found = []
    for it in chosen:
        (whole,) = (
            range_
            for range_ in request.ranges
            if range_.tp == it.tp and range_.source_start <= it.start and it.end <= range_.source_end
        )
        found.append(cut(whole, it.start, it.end, it.target_start, it.target_end))
    return found


def _place(it: SegmentOutcome) -> tuple[str, int, int]:
    return it.topic, it.partition, it.start


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)
