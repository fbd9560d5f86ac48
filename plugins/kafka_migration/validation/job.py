"""Digests of everything asked for, whatever part of it can be read: one Spark job, and narrower ones where it failed.

A read that fails says nothing about the partitions beside the one that broke it. So what failed is halved and read
again, until what cannot be read stands alone and is reported by partition; the rest is digested all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from kafka_migration.validation.digests import DigestReport, ReadFailure, SegmentDigest
from kafka_migration.validation.reader import Connections, digests
from kafka_migration.validation.request import PartitionRange, ValidationRequest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: After so many failed jobs the cluster is the trouble, not a partition; each may cost a minute of waiting.
_MOST_FAILURES = 24
_LONGEST_REASON = 600


def run(
    spark: SparkSession,
    request: ValidationRequest,
    connections: Connections,
    *,
    secrets: Collection[str] = (),
    tell: Callable[[str], None] = lambda _text: None,
) -> DigestReport:
    """Answer ``request``. Never raises for what cannot be read: that is in the report. ``secrets`` stay out of it."""
    began = time.monotonic()
    segments: list[SegmentDigest] = []
    failures: list[ReadFailure] = []
    waiting = [list(request.ranges)] if request.ranges else []
    reads = failed = 0
    while waiting:
        ranges = waiting.pop()
        if failed >= _MOST_FAILURES:
            failures += _failures(ranges, f"not read: {failed} Spark jobs before it failed")
            continue
        group = f"{request.id} read {reads}"
        reads += 1
        try:
            spark.sparkContext.setJobGroup(group, f"validation of {request.migration}: {len(ranges)} partitions")
            segments += digests(spark, request, ranges, connections)
        except Exception as error:
            failed += 1
            reason = reason_of(error, secrets)
            tell(f"a read of {len(ranges)} partitions failed: {reason}")
            if len(ranges) > 1 and _failed_in_a_task(spark, group):
                middle = len(ranges) // 2
                waiting += [ranges[middle:], ranges[:middle]]
            else:
                failures += _failures(ranges, reason)
    return DigestReport(
        id=request.id,
        segments=tuple(segments),
        failures=tuple(failures),
        seconds=round(time.monotonic() - began, 3),
    )


def reason_of(error: BaseException, secrets: Collection[str] = ()) -> str:
    """The root of a Spark error in one line, without secrets."""
    cause = getattr(error, "java_exception", None) or getattr(getattr(error, "_origin", None), "java_exception", None)
    text = f"{type(error).__name__}: {error}"
    if cause is not None:
        while cause.getCause() is not None:
            cause = cause.getCause()
        text = str(cause.toString())
    line = " ".join(_without_trace(text).split())
    for secret in sorted(secrets, key=len, reverse=True):
        line = line.replace(secret, "<hidden>")
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]}…"


def _without_trace(text: str) -> str:
    """A task's failure reaches the driver as text, with the trace of the executor: the innermost cause counts."""
    lines = text.splitlines()
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    if causes:
        return causes[-1]
    return "\n".join(line for line in lines if not line.startswith("\tat "))


def _failed_in_a_task(spark: SparkSession, group: str) -> bool:
    """Whether executors failed, rather than the driver, whom every narrower job would fail the same way.

    The error itself does not tell: Spark unwraps it.
    """
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    return any(job is not None and str(job.status) == "FAILED" for job in jobs)


def _failures(ranges: Sequence[PartitionRange], reason: str) -> list[ReadFailure]:
    return [ReadFailure(topic=it.topic, partition=it.partition, reason=reason) for it in ranges]
