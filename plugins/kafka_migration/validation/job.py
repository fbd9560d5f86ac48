"""The validation's Spark application: from a request file to a result file. What spark_jobs/validate.py runs.

Credentials are looked up here, on the driver, and become options of Spark's Kafka source, or part of the pickled
function that tasks run: no command line, setting, event log or plan shows them (a test looks).

How closely both clusters are compared is the request's level:

=========  ===========================================================================================================
level      what is read
=========  ===========================================================================================================
batch      batches as bytes, decoded only where both sides' differ in structure
           (:mod:`kafka_migration.compare.batches`)
record     every record, and a little of it once more by Spark's own Kafka source
           (:mod:`kafka_migration.compare.records.confirm`)
=========  ===========================================================================================================

Both are read by a reader that shares no code with the mirror (:mod:`kafka_migration.compare.reader.side`). Compacted
logs, and topics with handlers, are read at record level always.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kafka.errors import KafkaError

from kafka_migration.compare import job as reading
from kafka_migration.compare.digests import SOURCE, TARGET, DigestReport, OnRead, SegmentOutcome, to_line
from kafka_migration.compare.orders import Orders, Wires
from kafka_migration.compare.reading import SHORT_SECONDS
from kafka_migration.compare.records.compacted import outcomes
from kafka_migration.compare.records.confirm import DISAGREE, confirmed
from kafka_migration.compare.records.spark_source import Connections
from kafka_migration.compare.request import ValidationRequest
from kafka_migration.compare.session import open_session
from kafka_migration.copy.package import ship, ship_handlers
from kafka_migration.copy.session import close_session
from kafka_migration.domain.errors import BadInput, MigrationError
from kafka_migration.domain.levels import Level
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.lookup import find_connection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: So long it is looked for who leads the source's partitions.
_LEADER_SECONDS = 5.0
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
        ship(session.sparkContext)
        ship_handlers(session.sparkContext, [range_.handler for range_ in request.ranges if range_.handler])
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
    wires: Wires,
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
    orders = {
        level: Orders(level=level, committed=request.isolation == "read_committed", seconds=SHORT_SECONDS, wires=wires)
        for level in Level
    }
    read = partial(reading.run, spark, request, leaders=_leaders(request, wires), secrets=secrets, log=log)
    by_key = [range_ for range_ in request.ranges if range_.by_key]
    found: list[SegmentOutcome] = []
    for level in Level:
        ranges = [range_ for range_ in request.ranges if not range_.by_key and request.read_level(range_) is level]
        if ranges:
            found += read(ranges, orders[level], on_read=on_read)
    if by_key:
        found += outcomes(spark, request, by_key, orders[Level.RECORD], secrets=secrets, on_read=on_read, log=log)
    by_record = [one for one in found if one.level == Level.RECORD]
    if by_record:
        agreed = confirmed(spark, request, by_record, orders[Level.RECORD], connections, secrets=secrets, log=log)
        # They were kept as they were found. A reader that errs once is trusted with none of what it read.
        if doubted := [one for one, before in zip(agreed, by_record, strict=True) if one.failure != before.failure]:
            wrong = any(one.failure.startswith(DISAGREE) for one in doubted)
            on_read([replace(one, failure=one.failure or DISAGREE) for one in agreed] if wrong else doubted)
        found = [*(one for one in found if one.level != Level.RECORD), *agreed]
    seconds = round(time.monotonic() - began, 3)
    return DigestReport(id=request.id, outcomes=tuple(found), seconds=seconds)


def _leaders(request: ValidationRequest, wires: Wires) -> dict[TopicPartition, int]:
    """Who leads the source's partitions; nobody, where that cannot be found out: then tasks find out why."""
    # Numpy and Arrow are for those who read.
    from kafka_migration.compare.task import clients

    with suppress(MigrationError, KafkaError), clients({SOURCE: wires[SOURCE]}, seconds=_LEADER_SECONDS) as found:
        return found[SOURCE].leaders({range_.topic for range_ in request.ranges}, _LEADER_SECONDS)
    return {}
