"""The validation's Spark application: from a request file to a result file. What spark_jobs/validate.py runs.

Credentials are looked up here, on the driver, and become options of Spark's Kafka source, or part of the pickled
function that tasks run: no command line, setting, event log or plan shows them (a test looks).

How closely both clusters are compared is the request's level:

=========  ===========================================================================================================
level      what is read
=========  ===========================================================================================================
batch      batches as bytes, decoded only where both sides' differ in structure
           (:mod:`kafka_migration.compare.batches.segment`)
record     every record, through Spark's own Kafka source, which shares no code with the mirror
           (:mod:`kafka_migration.compare.records.reader`); and the headers of the target's batches, which no consumer
           sees
sampled    batch level everywhere; record level again where that found a difference, and on a random share of segments
=========  ===========================================================================================================
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_migration.compare.batches import job as batch_job
from kafka_migration.compare.digests import SOURCE, TARGET, DigestReport, OnRead, SegmentOutcome, to_line
from kafka_migration.compare.records import job as record_job
from kafka_migration.compare.records.reader import Connections
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.segments import cut
from kafka_migration.compare.session import open_session
from kafka_migration.copy.package import is_zipped, package_zip
from kafka_migration.copy.session import close_session
from kafka_migration.domain.errors import BadInput, MigrationError
from kafka_migration.domain.levels import Level, sample_size, stratified
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.lookup import find_connection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: So many source offsets are read at record level in the time that Spark takes to plan another read.
_MOST_BETWEEN = 100_000
_MOST_BYTES_BETWEEN = 32 << 20
#: JVM properties that are secret as a whole, whatever of the connection stands in them.
_SECRET = frozenset({"sasl.jaas.config", "ssl.keystore.key", "ssl.key.password"})


def main(arguments: Sequence[str]) -> int:
    """The command line of the Spark application. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="spark_jobs/validate.py", description="Digest what a request asks for.")
    parser.add_argument("request", type=Path, help="the request, as the validate phase wrote it")
    parser.add_argument("result", type=Path, help="where to write the digests")
    parser.add_argument("--master", help="the Spark master, unless spark-submit names it (default: local[*])")
    options = parser.parse_args(arguments)
    try:
        report = answer(read_request(options.request), master=options.master)
    except MigrationError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    write_json(options.result, report.as_dict())
    return 0


def answer(request: ValidationRequest, *, master: str | None = None) -> DigestReport:
    """Run ``request`` on a Spark session of its own. Raises BadInput for an unknown connection or missing jars."""
    clusters = {SOURCE: find_connection(request.source), TARGET: find_connection(request.target)}
    connections = {side: cluster.jvm() for side, cluster in clusters.items()}
    wires = {side: {**one.kafka_python(), "topic_names": request.names(side)} for side, one in clusters.items()}
    session = open_session(
        f"kafka-migration validation {request.migration}",
        master=master,
        system_properties=_system_properties(clusters.values()),
    )
    secrets = {secret for cluster in clusters.values() for secret in cluster.secrets()}
    secrets |= {properties[name] for properties in connections.values() for name in _SECRET & properties.keys()}
    try:
        if not is_zipped():
            # Batch level's tasks are Python of ours, which executors have from here or from --py-files.
            session.sparkContext.addPyFile(str(package_zip()))
        return run(
            session,
            request,
            connections,
            wires,
            secrets=secrets,
            log=lambda text: print(text, flush=True),
            on_read=lambda found: print(to_line(found), flush=True),
        )
    finally:
        close_session(session)


def _system_properties(clusters: Iterable[ClusterConnection]) -> dict[str, str]:
    """Those of both, joined: the JVM takes a list of allowed token endpoints, separated by commas."""
    found: dict[str, list[str]] = {}
    for cluster in clusters:
        for name, value in cluster.jvm_system_properties().items():
            found.setdefault(name, []).append(value)
    return {name: ",".join(dict.fromkeys(values)) for name, values in found.items()}


def read_request(path: Path) -> ValidationRequest:
    """The request in ``path``. Raises BadInput if it is not one."""
    try:
        return ValidationRequest.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"not a validation request: {error}", file=str(path), remedy="let `validate` write it, or run that"
        ) from error


def write_json(path: Path, value: object) -> None:
    """Write ``value`` in one step: who reads it sees all of it or nothing."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(value), encoding="utf-8")
    os.replace(part, path)


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
            second = _again(request, found, chosen, on_records, on_read)
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


def _again(
    request: ValidationRequest,
    outcomes: Sequence[SegmentOutcome],
    chosen: Sequence[SegmentOutcome],
    on_records: Callable[..., list[SegmentOutcome]],
    on_read: OnRead,
) -> list[SegmentOutcome]:
    """Record level's outcomes of ``chosen``, and of what stands between them. What could not be read together is read
    by itself, and of what stands between nothing is said then."""
    ranges = _ranges_of(request, with_between(outcomes, chosen))
    spans = {(range_.tp, range_.source_start, range_.source_end) for range_ in ranges}

    def counting(new: Iterable[SegmentOutcome]) -> list[SegmentOutcome]:
        return [one for one in new if not one.failure or (one.tp, one.start, one.end) in spans]

    read = on_records(ranges=ranges, on_read=lambda new: on_read(counting(new)))
    counted = counting(read)
    failed = set(map(_place, read)) - set(map(_place, counted))
    apart = [range_ for one in chosen if _place(one) in failed for range_ in _ranges_of(request, [one])]
    return counted + (on_records(ranges=apart, on_read=on_read) if apart else [])


def with_between(outcomes: Iterable[SegmentOutcome], chosen: Iterable[SegmentOutcome]) -> list[SegmentOutcome]:
    """``chosen``, and what little stands between two of them: to read on costs less than to begin another read. Never
    over what could not be read."""
    wanted = set(map(_place, chosen))
    found: list[SegmentOutcome] = []
    between: list[SegmentOutcome] = []
    before: SegmentOutcome | None = None
    # Whether all since the last chosen one may be read with it.
    is_open = False
    for one in sorted(outcomes, key=_place):
        if before is None or (one.tp, one.start) != (before.tp, before.end):
            is_open = False
        before = one
        if _place(one) in wanted:
            found += [*between, one] if is_open else [one]
            between, is_open = [], True
            continue
        between.append(one)
        offsets, size = sum(each.end - each.start for each in between), sum(each.source.bytes for each in between)
        if one.failure or offsets > _MOST_BETWEEN or size > _MOST_BYTES_BETWEEN:
            is_open = False
        if not is_open:
            between = []
    return found


def _ranges_of(request: ValidationRequest, chosen: Sequence[SegmentOutcome]) -> list[PartitionRange]:
    """``chosen`` in ranges: a range for those that stand side by side, since each one of a partition is a read."""
    found: list[PartitionRange] = []
    whole: PartitionRange | None = None
    for segment in chosen:
        last = found[-1] if found else None
        if (
            whole is not None
            and last is not None
            and (last.tp, last.source_end, last.target_end) == (segment.tp, segment.start, segment.target_start)
            and segment.end <= whole.source_end
        ):
            found[-1] = cut(whole, last.source_start, segment.end, last.target_start, segment.target_end)
            continue
        (whole,) = (
            range_
            for range_ in request.ranges
            if range_.tp == segment.tp and range_.source_start <= segment.start and segment.end <= range_.source_end
        )
        found.append(cut(whole, segment.start, segment.end, segment.target_start, segment.target_end))
    return found


def _place(outcome: SegmentOutcome) -> tuple[str, int, int]:
    return outcome.topic, outcome.partition, outcome.start
