"""The validate phase as a command runs it, but on one Spark session and in one process: hundreds of validations would
else spend their time on starting."""

import contextlib
import io
import json
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafka_migration.compare import expectations
from kafka_migration.compare.launch import Expectations
from kafka_migration.compare.session import open_session
from kafka_migration.copy.package import ship
from kafka_migration.domain.levels import Level
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.migration.context import Context
from kafka_migration.plans.load import restore_plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.store import MemoryStore, SegmentStore
from kafka_migration.validation import validate
from kafka_migration.validation.job import read_request, run, write_json


class Validator:
    """Validates topics of two clusters, at the level that a plan has by default. `link` is what the mirror left."""

    def __init__(self, session: Any, source: str, target: str, folder: Path, log: Callable[[str], None]) -> None:
        self._session, self._folder, self._log = session, folder, log
        self._connections = {side: {"bootstrap.servers": one} for side, one in (("source", source), ("target", target))}
        self._wires = {side: {"bootstrap_servers": one} for side, one in (("source", source), ("target", target))}
        self._clusters: dict[str, Any] = {
            side: Cluster(side, ClusterConnection(f"mutation_{side}", one))  # type: ignore[arg-type]
            for side, one in self._connections.items()
        }

    def validate(
        self,
        link: Any,
        topics: Mapping[str, int],
        *,
        segment_records: int,
        kept: SegmentStore | None = None,
        level: Level | None = None,
        full: bool = False,
    ) -> validate.Validation:
        """One validation of topics (name to partition count) at `level`, or at the default one; what is in `kept` was
        found equal before."""
        name = f"mutation-{uuid.uuid4().hex[:8]}" if kept is None else "mutation"
        plan = restore_plan(
            {
                "version": 1,
                "name": name,
                "source": "mutation_source",
                "target": "mutation_target",
                "topics": {"include": sorted(topics)},
                "validation": {"segment_records": segment_records},
            }
        )
        journal = Journal(MemoryStore(), name)
        for topic, count in topics.items():
            journal.record("topic", topic, {"created": True, "spec": {"partitions": count}})
        store = SegmentStore() if kept is None else kept
        ctx = Context(plan=plan, journal=journal, link=link, segments=store, log=self._log, **self._clusters)
        # No topic was made by the phase that makes them: there is nothing that they could be held against.
        return validate.apply(
            ctx,
            reports=self._folder,
            tools=validate.Tools(run=self._run, suite=_suite, consumers=lambda _ctx: {}),
            level=level,
            full=full,
        )

    def _run(self, asked: Path, answer: Path) -> None:
        request = read_request(asked)
        write_json(answer, run(self._session, request, self._connections, self._wires, log=self._log).as_dict())


def _suite(table: Path, directory: Path, _environ: Mapping[str, str]) -> Expectations:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        found = expectations.validate(json.loads(table.read_text()), directory)
    return Expectations(success=found["success"], failed=tuple(found["failed"]))


@contextmanager
def validator(
    source: str, target: str, *, session: Any = None, log: Callable[[str], None] = lambda _text: None
) -> Iterator[Validator]:
    """One that has a Spark session of its own, unless it is given one."""
    own = (
        None
        if session is not None
        else open_session("mutation", master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    )
    if own is not None:
        # Batch level's tasks are Python of ours.
        ship(own.sparkContext)
    try:
        with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
            yield Validator(session or own, source, target, Path(folder), log)
    finally:
        if own is not None:
            own.stop()
