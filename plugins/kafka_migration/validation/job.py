"""The validation's Spark application: from a request file to a result file. What spark_jobs/validate.py runs.

Credentials are looked up here, on the driver, and become options of Spark's Kafka source, or part of the pickled
function that tasks run: no command line, setting, event log or plan shows them (a test looks).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from kafka_migration.compare.digests import SOURCE, TARGET, DigestReport, to_line
from kafka_migration.compare.levels import run
from kafka_migration.compare.request import ValidationRequest
from kafka_migration.compare.session import open_session
from kafka_migration.copy.package import is_zipped, package_zip
from kafka_migration.copy.session import close_session
from kafka_migration.domain.errors import BadInput, MigrationError
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.lookup import find_connection

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
    wires = {side: cluster.kafka_python() for side, cluster in clusters.items()}
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
