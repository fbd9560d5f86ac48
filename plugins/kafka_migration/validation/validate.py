"""The validate step: pin both clusters, have Spark digest what is pinned, judge, and let a second suite judge, too.

Reads only. What is pinned first is the source's end; the mirror must then reach it, since before that nobody knows
where its record stands on the target. The topics may grow meanwhile: that is not looked at.
"""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_migration.compare.explain.log import open_logs
from kafka_migration.compare.launch import Expectations, Runner, local_runner, run_expectations
from kafka_migration.compare.result import Equality, ValidationResult
from kafka_migration.compare.summary import Limits, summary
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import BadInput, CouldNotFindOut, Refused
from kafka_migration.domain.levels import Level
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups import parity
from kafka_migration.kafka.lookup import stated, variable_of
from kafka_migration.link import reverse
from kafka_migration.migration.reports import Place, local_site, made, write_text
from kafka_migration.topics import handling
from kafka_migration.topics.declared import mirrored
from kafka_migration.validation.comparison import Comparison
from kafka_migration.validation.explain import OpenLogs, drilled
from kafka_migration.validation.job import write_json
from kafka_migration.validation.pins import Pins, pin
from kafka_migration.validation.record import accounted
from kafka_migration.validation.segments import Segments

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

_NOT_ASKED = Expectations(success=False, failed=("the suite was not asked yet",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What a validation works with. ``run`` submits the Spark job (None: in a process of its own, here); ``suite``
    judges a summary file, and writes Data Docs into a directory; ``logs`` are read where something differs;
    ``consumers`` is what stands beside the verdict."""

    run: Runner | None = None
    suite: Callable[[Path, Path, Mapping[str, str]], Expectations] = run_expectations
    logs: OpenLogs = open_logs
    consumers: Callable[[Context], Mapping[str, Any]] = parity.section


_TOOLS = Tools()


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """How it ended: our result, the suite's answer, and where the Data Docs are.

    ``topic_ids`` are the ids on source and target of each topic that was compared, and its handler, if it has one: a
    verdict is not of a name.
    ``consumers`` is what consumers depend on besides records (:func:`parity.section`), which is not in the verdict.
    """

    result: ValidationResult
    expectations: Expectations
    folder: Place
    is_partial: bool = False
    topic_ids: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    consumers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> Equality:
        """Ours, but never EQUAL unless the suite agrees."""
        ours = self.result.verdict
        return ours if ours is not Equality.EQUAL or self.expectations.success else Equality.INCONCLUSIVE

    @property
    def exit_code(self) -> int:
        """0 equal; 1 different; 3 could not be found out."""
        return self.verdict.exit_code

    def as_dict(self, *, with_segments: bool = True) -> dict[str, Any]:
        """JSON types only. ``data_docs`` is relative to the folder of the plan's reports."""
        return {
            **self.result.as_dict(with_segments=with_segments),
            "verdict": str(self.verdict),
            "passed": self.verdict is Equality.EQUAL,
            "topic_ids": {name: list(ids) for name, ids in self.topic_ids.items()},
            "summary": self.result.summary(),
            "expectations": {"success": self.expectations.success, "failed": list(self.expectations.failed)},
            "data_docs": "data_docs/index.html",
            "consumers": dict(self.consumers),
        }

    @property
    def data_docs(self) -> Place:
        """The Data Docs' first page: one site for all runs of a plan, so that whoever opens it sees the last one."""
        return (self.folder.parent if self.is_partial else self.folder) / "data_docs" / "index.html"


def apply(
    ctx: Context,
    *,
    spark_master: str | None = None,
    reports: Place = Path("reports"),
    topics: Collection[str] = (),
    level: Level | None = None,
    full: bool = False,
    pins: Pins | None = None,
    tools: Tools = _TOOLS,
) -> Validation:
    """Validate the migration's topics, or those of ``topics``, and record the verdict.

    At ``level``, or at the plan's. What an earlier validation found equal, and still stands as it stood, is not read
    again, unless ``full``. What is found is kept segment by segment: after a kill the next run goes on from there.

    Spark runs on ``spark_master`` (None: this machine), in a process of its own, unless ``tools`` submit it elsewhere.
    ``pins`` of an earlier run have the same offsets compared again. With a reverse link's context, what was written on
    the target since the cut is compared with the source: "source" is then where that link copies from, the target.
    Result and Data Docs go below ``reports``, in a folder named after the plan; in a dry run nowhere, and nothing is
    recorded. A validation of some topics is recorded apart, so that it never opens a gate for the others.

    Raises Refused if nothing is mirrored, or no reverse link has begun, BadInput for an unknown topic or missing jars,
    CouldNotFindOut if the Spark job ended without an answer. What could not be read is no error but INCONCLUSIVE, and
    exit code 3.
    """
    is_back = ctx.direction is Direction.REVERSE
    if not topics:
        ctx.require_whole("a validation of all topics")
    if is_back:
        reverse.check(ctx)
        # What is kept of segments is the forward link's; on the way back there is little to read, and all of it is.
        ctx = replace(ctx, segments=ctx.segments.apart())
    partitions = _partitions(ctx, topics)
    # Before anything is pinned: what is found must not be of a topic that is recreated meanwhile.
    handling.require(ctx, names := sorted({tp.topic for tp in partitions}))
    ids = handling.topic_ids(ctx, names)
    id, level = str(uuid.uuid4()), level or Level(ctx.plan.validation.level)
    segments = Segments(ctx, ids, run=id, full=full, level=level)
    run = tools.run or _local(ctx, spark_master, segments.line)
    pins = pins or pin(ctx, partitions)
    with ExitStack() as stack:
        if ctx.dry_run:
            reports = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafka-migration-")))
        folder = made(reports / ctx.plan.name)
        if is_back:
            folder = made(folder / "reverse")
        if topics:
            folder = made(folder / "partial")
        account = stack.enter_context(accounted(ctx, id, topics))
        segments.differs = account.differs
        comparison = Comparison(ctx=ctx, id=id, pins=pins, segments=segments, level=level, run=run, logs=tools.logs)
        result = comparison.result()
        found = Validation(
            result=result, expectations=_NOT_ASKED, folder=folder, is_partial=bool(topics), topic_ids=ids
        )
        if result.verdict is not Equality.EQUAL:
            # Before it is known what differs: that takes its time, and a gate that is open must not stay so meanwhile.
            account.ends(found)
        ranges = tuple(comparison.ranges.values())
        result = replace(result, partitions=drilled(ctx, ranges, result.partitions, tools.logs))
        ctx.log(result.summary())
        found = replace(found, result=result)
        found = replace(
            found, expectations=_expected(ctx, found, tools), consumers={} if is_back else tools.consumers(ctx)
        )
        if result.verdict is Equality.EQUAL and not found.expectations.success:
            ctx.log(f"the Great Expectations suite contradicts: {'; '.join(found.expectations.failed)}")
        if not ctx.dry_run:
            write_text(folder / "validation.json", json.dumps({**found.as_dict(), "pins": pins.as_dict()}))
        account.ends(found)
    return found


def _local(ctx: Context, spark_master: str | None, log: Callable[[str], None]) -> Runner:
    environ = {**os.environ, **connection_variables(ctx)}
    secrets = ctx.source.connection.secrets() | ctx.target.connection.secrets()
    return local_runner(environ, master=spark_master, secrets=secrets, log=log)


def _expected(ctx: Context, found: Validation, tools: Tools) -> Expectations:
    plan = ctx.plan.validation
    limits = Limits(age_seconds=plan.reread_seconds, pinned_seconds=plan.max_age_seconds)
    with tempfile.TemporaryDirectory(prefix="kafka-migration-") as work, local_site(found.data_docs.parent) as site:
        table = Path(work) / "summary.json"
        write_json(table, summary(found.result, now=ctx.clock.now(), limits=limits, is_partial=found.is_partial))
        try:
            return tools.suite(table, site, os.environ)
        except CouldNotFindOut as error:
            # What we found stands, and must close the gates that an earlier verdict has opened.
            return Expectations(success=False, failed=(error.message,))


def connection_variables(ctx: Context) -> dict[str, str]:
    """Both clusters' connections as the Spark job looks for them. Holds secrets: for a process's environment only."""
    clusters = {ctx.plan.source: ctx.source, ctx.plan.target: ctx.target}
    return {variable_of(conn_id): stated(cluster.connection.properties) for conn_id, cluster in clusters.items()}


def _partitions(ctx: Context, topics: Collection[str]) -> list[TopicPartition]:
    ours = sorted(mirrored(ctx))
    if ctx.direction is Direction.REVERSE:
        # One that had no cut when the reverse link began is not mirrored back.
        ours = [name for name in ours if name in ctx.link.topics()]
    if not ours:
        raise Refused(
            f"migration {ctx.plan.name} mirrors nothing yet, so there is nothing to validate",
            remedy="run `create` and `mirror` first",
        )
    unknown = sorted(set(topics) - set(ours))
    if unknown:
        raise BadInput(
            f"this migration does not mirror {', '.join(unknown)}",
            field="topics",
            value=list(topics),
            remedy=f"choose from {listed(ours)}",
        )
    names = sorted(topics) or ours
    source, target = ctx.origin.topics(names), ctx.destination.topics(names)
    for side, found in ((ctx.direction.origin, source), (ctx.direction.destination, target)):
        missing = set(names) - found.keys()
        if missing:
            raise Refused(
                f"{side}: topics of this migration are missing: {listed(sorted(missing))}",
                remedy="find out who removed them; `check` shows the inventory as it is now",
            )
    return [tp for name in names for tp in source[name].topic_partitions]
