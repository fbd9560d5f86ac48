"""What is measured at scale, each in a process of its own, so that its peak of memory is its own."""

from __future__ import annotations

import resource
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.scale_validation import validation_runs
from kafka_migration.copy.driver.runner import Ended
from kafka_migration.copy.orders import TaskOrders
from kafka_migration.domain import ledger
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.types import Position, TopicPartition
from kafka_migration.kafka.topic_log import Entry, TopicLog
from kafka_migration.state.link import LinkState, LinkTopic
from kafka_migration.state.store import MemoryStore


def measured(phase: str, plan: Path, runs: int) -> dict[str, Any]:
    """Run ``phase``: its facts, with ``seconds`` (imports apart), and ``peak_mb``, of this process (Spark's are not
    in it)."""
    return PHASES[phase](plan, runs) | {"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.perf_counter()
    found = work()
    return found, round(time.perf_counter() - began, 3)


def _inventory(plan: Path, _runs: int) -> dict[str, Any]:
    from kafka_migration.inventory import inventory
    from kafka_migration.migration.context import open_context
    from kafka_migration.plans.load import load_plan

    with open_context(load_plan(plan)) as ctx:
        found, seconds = _timed(lambda: inventory.take(ctx))
    partitions = sum(it.partitions for it in found.topics.values())
    return {"seconds": seconds, "topics": len(found.topics), "partitions": partitions, "groups": len(found.groups)}


def _preflight(plan: Path, _runs: int) -> dict[str, Any]:
    from kafka_migration.inventory import preflight
    from kafka_migration.migration.context import open_context
    from kafka_migration.plans.load import load_plan

    with open_context(load_plan(plan)) as ctx:
        found, seconds = _timed(lambda: preflight.check(ctx))
    return {"seconds": seconds, "open": found.gate.is_open, "blockers": [it.name for it in found.gate.blockers]}


def _create(plan: Path, _runs: int) -> dict[str, Any]:
    from kafka_migration.migration.context import open_context
    from kafka_migration.plans.load import load_plan
    from kafka_migration.topics import create

    with open_context(load_plan(plan), make_state=True) as ctx:
        found, seconds = _timed(lambda: create.apply(ctx))
        _, again = _timed(lambda: create.apply(ctx))
    return {"seconds": seconds, "again_seconds": again, "created": len(found.steps), "drift": len(found.drift)}


def _lag(plan: Path, _runs: int) -> dict[str, Any]:
    from kafka_migration.link.lag import LagMeter
    from kafka_migration.migration.context import open_context
    from kafka_migration.plans.load import load_plan

    with open_context(load_plan(plan)) as ctx:
        meter = LagMeter(ctx)
        _, first = _timed(meter.read)
        found, seconds = _timed(meter.read)
    return {"seconds": seconds, "first_seconds": first, "lag": found.total, "partitions": len(found.sample.lag)}


_TOLD_RECORDS, _TOLD_AT_ONCE = 2_000_000, 50_000


def _progress(plan: Path, _runs: int) -> dict[str, Any]:
    """What `status` and `lag` take once tasks have told their progress two million times, a partition a record (as they
    did before they packed it), and nothing of it was compacted."""
    from kafka_migration.link.lag import LagMeter
    from kafka_migration.migration.context import open_context
    from kafka_migration.overview import status
    from kafka_migration.plans.load import load_plan

    def look() -> tuple[float, float]:
        with open_context(load_plan(plan)) as ctx:
            _, of_status = _timed(lambda: status.read(ctx))
        with open_context(load_plan(plan)) as ctx:
            _, of_lag = _timed(LagMeter(ctx).read)
        return of_status, of_lag

    before = look()
    with (
        open_context(load_plan(plan), make_state=True) as ctx,
        TopicLog(ctx.target.connection.librdkafka(), ledger.PROGRESS_TOPIC) as log,
    ):
        positions = ctx.link.positions()
        values = [
            (
                f"{ctx.link.name}/{tp.topic}/{tp.partition}".encode(),
                ledger.encode(
                    {"f": at.fence, "n": at.records, "s": at.source, "t": at.target, "b": 0, "x": "run", "at": 0}
                ),
            )
            for tp, at in positions.items()
        ]
        for _ in range(0, _TOLD_RECORDS, _TOLD_AT_ONCE):
            log.append(values[n % len(values)] for n in range(_TOLD_AT_ONCE))
            ctx.link.progress()
            ctx.link.record_run({"state": "running", "at": ctx.stamp()})
        ctx.link.record_run({"state": "ended", "at": ctx.stamp(), "reason": "measured", "records": 0})
    of_status, of_lag = look()
    return {
        "records": _TOLD_RECORDS,
        "status_seconds": of_status,
        "status_before_seconds": before[0],
        "lag_seconds": of_lag,
        "lag_before_seconds": before[1],
    }


_IDLE_SECONDS = 30.0


@dataclass
class _Epochs:
    """A runner that keeps what it began."""

    inner: Any
    all: list[_Epoch] = field(default_factory=list)

    @property
    def slots(self) -> int | None:
        found: int | None = self.inner.slots
        return found

    def start(self, orders: list[TaskOrders]) -> _Epoch:
        self.all.append(_Epoch(self.inner.start(orders), time.perf_counter(), -_cpu_seconds()))
        return self.all[-1]

    def age(self) -> float:
        """Seconds since the first epoch began."""
        return time.perf_counter() - self.all[0].began if self.all else 0.0


@dataclass
class _Epoch:
    """An epoch, with when it began and ended, and the CPU seconds of driver, JVM and workers meanwhile."""

    inner: Any
    began: float
    cpu: float
    over_at: float = 0.0

    def is_done(self) -> bool:
        return bool(self.inner.is_done())

    def tasks(self) -> dict[int, bool]:
        return dict(self.inner.tasks())

    def abandon(self, why: Exception) -> None:
        self.inner.abandon(why)

    def ended(self) -> Ended:
        found: Ended = self.inner.ended()
        self.over_at = time.perf_counter()
        self.cpu += _cpu_seconds()
        return found


def _mirror(plan: Path, _runs: int) -> dict[str, Any]:
    """A first run that copies everything, then a second one with nothing to do, for ``_IDLE_SECONDS`` of its epoch."""
    from kafka_migration.copy.session import open_session
    from kafka_migration.copy.spark import SparkRunner
    from kafka_migration.migration.context import open_context
    from kafka_migration.plans.load import load_plan
    from kafka_migration.steps import mirror

    session = open_session("scale", master="local[2]", conf={"spark.ui.enabled": "false"})
    try:
        with open_context(load_plan(plan), make_state=True) as ctx:
            first, idle = _Epochs(SparkRunner(session)), _Epochs(SparkRunner(session))
            outcome, seconds = _timed(lambda: mirror.apply(ctx, first, until_caught_up=True))
            began = time.perf_counter()
            second = mirror.apply(ctx, idle, interrupted=lambda: idle.age() > _IDLE_SECONDS)
            ended = time.perf_counter()
    finally:
        session.stop()
    (epoch,) = idle.all
    return {
        "seconds": seconds,
        "records": outcome.records,
        "halted": len(outcome.halted),
        "first_epoch_seconds": round(first.all[0].over_at - first.all[0].began, 3),
        "idle_epochs": second.rounds,
        "idle_fence_seconds": round(epoch.began - began, 3),
        "idle_epoch_seconds": round(epoch.over_at - epoch.began, 3),
        "idle_end_seconds": round(ended - epoch.began - _IDLE_SECONDS, 3),
        "idle_cpu_share": round(epoch.cpu / (epoch.over_at - epoch.began), 3),
    }


def _cpu_seconds() -> float:
    """CPU time of this process and all below it, Spark's JVM and workers among them."""
    import psutil

    own = psutil.Process()
    total = 0.0
    for process in (own, *own.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


class _Written:
    """An offset map's topic as its reader sees it: ``runs`` openings of one partition, in order."""

    def __init__(self, link: str, topic: LinkTopic, runs: int) -> None:
        self._link, self._topic, self._runs, self._was_read = link, topic, runs, False

    def new_entries(self, _partitions: Collection[int] | None = None) -> Iterator[Entry]:
        if self._was_read:
            return
        self._was_read = True
        for n in range(self._runs):
            opening = opening_of(n)
            key = ledger.opening_key(self._link, self._topic.key, 0, opening)
            yield Entry(0, n, key, ledger.opening_value(opening))

    def close(self) -> None:
        """Nothing to give up."""


#: As of a source whose transactions hold three records and end with a marker.
RUN_RECORDS, RUN_OFFSETS = 3, 4


def opening_of(run: int) -> RunOpening:
    """Run number ``run``."""
    return RunOpening(
        fence=0,
        records=RUN_RECORDS * run,
        source=RUN_OFFSETS * run,
        target=1 + RUN_RECORDS * run,
        closes=0 if run == 0 else None,
    )


def _offset_map(_plan: Path, runs: int) -> dict[str, Any]:
    """Load a map through the state's own reader, then translate, both ways, all over it."""
    topic, tp = LinkTopic(name="t", source_id=uuid.uuid4(), target_id=uuid.uuid4()), TopicPartition("t", 0)
    log: Any = _Written("scale", topic, runs)
    told: Any = _Told(tp, runs)
    link = LinkState("scale", MemoryStore(), log, told)
    link.pin(source_cluster="s", target_cluster="t", topics=[topic], at="now")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found, seconds = _timed(lambda: link.offset_maps([tp])[tp])
    longest = 0.0
    asked = [runs * n // 1000 for n in range(1000)]
    for run in asked:
        for into in range(RUN_RECORDS):
            target, took = _timed_finely(lambda offset=RUN_OFFSETS * run + into: found.to_target(offset))  # type: ignore[misc]
            source, back = _timed_finely(lambda offset=target: found.to_source(offset))  # type: ignore[misc]
            if (target, source) != (1 + RUN_RECORDS * run + into, RUN_OFFSETS * run + into):
                raise RuntimeError(f"offset {RUN_OFFSETS * run + into} translates to {target}, and that to {source}")
            longest = max(longest, took, back)
    _, anew = _timed(lambda: link.offset_maps([tp])[tp].to_target(RUN_OFFSETS * (runs // 2)))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "runs": len(found),
        "load_seconds": seconds,
        "translate_longest_ms": round(longest * 1000, 3),
        "map_anew_and_translate_ms": round(anew * 1000, 3),
        "grown_mb": grown // 1024,
        "bytes_per_run": round(grown * 1024 / runs, 1),
    }


class _Told:
    """What tasks told of their progress: all of it is copied."""

    def __init__(self, tp: TopicPartition, runs: int) -> None:
        self._tp, self._runs = tp, runs

    def append(self, _entries: object) -> None:
        """Nothing else is told."""

    def new_entries(self) -> Iterator[Entry]:
        records = RUN_RECORDS * self._runs
        position = Position(source=RUN_OFFSETS * self._runs, target=1 + records, fence=0, records=records)
        for key, value in ledger.progress_records("scale", "0", {self._tp: ledger.Told(position, 0, "run", 0)}):
            yield Entry(0, 0, key, value)

    def close(self) -> None:
        """Nothing to give up."""


def _timed_finely(work: Callable[[], int]) -> tuple[int, float]:
    began = time.perf_counter()
    found = work()
    return found, time.perf_counter() - began


PHASES: dict[str, Callable[[Path, int], dict[str, Any]]] = {
    "inventory": _inventory,
    "preflight": _preflight,
    "create": _create,
    "mirror": _mirror,
    "lag": _lag,
    "progress": _progress,
    "offset_map": _offset_map,
    "validation_runs": validation_runs,
}
