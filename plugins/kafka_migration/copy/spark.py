"""Copy rounds as Spark jobs: one per stream, receipts back as rows.

Any master will do (local, standalone, YARN, Kubernetes). Credentials travel inside the pickled function, which Spark
neither logs nor shows; nothing of them is in the configuration, the command line or the plan.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from kafka_migration.copy.driver.runner import Ended
from kafka_migration.copy.orders import TaskOrders
from kafka_migration.domain.errors import CouldNotFindOut, MigrationError, as_data, from_data
from kafka_migration.domain.spark_worker import at_niceness, keep_imports
from kafka_migration.domain.types import Receipt

if TYPE_CHECKING:
    import pyarrow
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

#: Configs without which rule 1 of the exactly-once argument (one producer epoch, one attempt) would not hold.
REQUIRED_CONF = {
    "spark.task.maxFailures": "1",
    "spark.speculation": "false",
    "spark.python.worker.reuse": "true",
}
_UNSET = {"spark.task.maxFailures": "4"}
"""Spark's own default, where that is not what is required."""
_KINDS = {"str": "string", "float": "double", "int": "bigint"}
_COLUMNS = {f.name: _KINDS[str(f.type)] for f in fields(Receipt) if f.name != "executor"}
_SCHEMA = ", ".join(f"`{name}` {kind}" for name, kind in (*_COLUMNS.items(), ("error", "string")))
_WARM_SECONDS = 10.0


class SparkRound:
    """A copy round: each task is a Spark job of its own, so that one that dies takes no other with it."""

    def __init__(self, spark: SparkSession, orders: list[TaskOrders]) -> None:
        self._tasks = [TaskJob(spark, share, at) for at, share in enumerate(orders)]

    def is_done(self) -> bool:
        return all(task.is_done() for task in self._tasks)

    def tasks(self) -> dict[int, bool]:
        states = {at: task.is_over() for at, task in enumerate(self._tasks)}
        return {at: is_over for at, is_over in states.items() if is_over is not None}

    def abandon(self, why: Exception) -> None:
        for task in self._tasks:
            task.abandon(why)

    def ended(self) -> Ended:
        receipts: list[Receipt] = []
        failed: dict[int, Exception] = {}
        for at, task in enumerate(self._tasks):
            try:
                receipts += task.receipts()
            except Exception as error:
                failed[at] = error
        return Ended(receipts=receipts, failed=failed)


class TaskJob:
    """One task of a round as a Spark job, watched from a thread."""

    def __init__(self, spark: SparkSession, orders: TaskOrders, at: int) -> None:
        self._spark, self._orders = spark, orders
        self._rows: list[Any] = []
        self._error: BaseException | None = None
        self._abandoned: Exception | None = None
        self._group = f"{orders.link} round {orders.round_id} task {at}"
        self._thread = threading.Thread(target=self._work, name=self._group, daemon=True)
        self._thread.start()

    def is_done(self) -> bool:
        return self._abandoned is not None or not self._thread.is_alive()

    def abandon(self, why: Exception) -> None:
        """Have Spark kill it, unless it is done, and do not wait for that. What it reports from now on is nothing."""
        if not self.is_done():
            self._abandoned = why
            # From a thread of its own: a JVM that does not answer is one of the reasons.
            cancel = self._spark.sparkContext.cancelJobGroup
            threading.Thread(target=cancel, args=(self._group,), daemon=True).start()

    def is_over(self) -> bool | None:
        """True if any attempt of the task ended (a second one does not go on with it), None if it has not begun."""
        from py4j.protocol import Py4JError

        if self.is_done():
            return True
        try:
            found = [str(attempt.status()) != "RUNNING" for attempt in self._attempts()]
        except (Py4JError, OSError):
            # The JVM is gone, so the job is about to be.
            return None
        return any(found) if found else None

    def receipts(self) -> list[Receipt]:
        """Its receipts, with the executor that earned them. Raises what the task died of."""
        if self._abandoned is not None:
            raise self._abandoned
        self._thread.join()
        if self._error is not None:
            raise self._error
        receipts, executor = [], self._executor()
        for row in self._rows:
            values = row.asDict()
            error = values.pop("error")
            if error:
                raise _revive(error)
            receipts.append(Receipt(**values, executor=executor))
        return receipts

    def _work(self) -> None:
        try:
            self._spark.sparkContext.setJobGroup(self._group, self._group)
            self._rows = _rows_of(self._spark, _in_task(self._orders))
        except BaseException as error:
            self._error = error

    def _executor(self) -> str:
        return next((str(attempt.executorId()) for attempt in self._attempts()), "")

    def _attempts(self) -> Iterator[Any]:
        """What Spark's own status store knows of the task's attempts."""
        context = self._spark.sparkContext
        tracker = context.statusTracker()
        for job in tracker.getJobIdsForGroup(self._group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                attempts = context._jsc.sc().statusStore().taskList(stage, 0, 10_000)
                for at in range(attempts.length()):
                    yield attempts.apply(at)


class SparkRunner:
    """Runs copy rounds on a Spark session, which the caller owns."""

    def __init__(self, spark: SparkSession) -> None:
        conf = spark.sparkContext.getConf()
        for key, value in REQUIRED_CONF.items():
            found = conf.get(key, _UNSET.get(key, value))
            if found != value:
                raise MigrationError(
                    f"Spark runs with {key}={found}, the mirror needs {value}",
                    remedy=f"set {key}={value} in the Spark connection or session",
                )
        self._spark = spark
        self.slots = slots_of(spark.sparkContext)
        # Beside what the mirror does before its first round.
        self._warming = threading.Thread(target=_warm, args=(spark,), name="warm", daemon=True)
        self._warming.start()

    def start(self, orders: list[TaskOrders]) -> SparkRound:
        # Who gets no slot waits below, where that is seen.
        self._warming.join(_WARM_SECONDS)
        return SparkRound(self._spark, orders)


def _rows_of(spark: SparkSession, in_task: Any) -> list[Any]:
    """What one task gives back that runs ``in_task``, as a job of its own."""
    return spark.range(0, 1, 1, 1).mapInArrow(in_task, _SCHEMA).collect()


def _warm(spark: SparkSession) -> None:
    """Run a task that does nothing. Of the first one that ends, the JVM loads all that brings receipts back, for some
    tenths of a second; a round may end while producers are fenced, and wait for just that."""

    def nothing(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from kafka_migration.copy.spark import again

        for _ in batches:
            yield again(0)

    # What is wrong with the session is shown by the first round, in words.
    with suppress(Exception):
        _rows_of(spark, nothing)


def slots_of(context: SparkContext) -> int | None:
    """How many tasks a local master runs side by side; None for any other, whose executors come and go."""
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", str(context.master))
    if local is None:
        return None
    jvm: Any = context._jvm
    cores = jvm.java.lang.Runtime.getRuntime().availableProcessors() if local[1] == "*" else local[1] or 1
    return max(1, int(cores) // int(context.getConf().get("spark.task.cpus", "1") or 1))


def _in_task(orders: TaskOrders) -> Any:
    def copy(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from pyspark import TaskContext

        from kafka_migration.copy.spark import again, receipts_of

        context = TaskContext.get()
        attempt = 0 if context is None else context.attemptNumber()
        # One, of one row; read to its end, or Spark does not use this worker again.
        for _ in batches:
            yield again(attempt) if attempt else receipts_of(orders)

    return copy


def again(attempt: int) -> pyarrow.RecordBatch:
    """The refusal to run a task a second time: its first attempt may still write, under the same producer epoch.

    ``spark.task.maxFailures=1`` does not prevent it: an executor that is lost through no fault of the application
    (its worker died, was preempted or decommissioned) does not count as a failure.
    """
    error = CouldNotFindOut(f"Spark lost an executor and ran its task again (attempt {attempt})")
    return _as_batch([{**dict.fromkeys(_COLUMNS), "error": _preserve(error)}])


def receipts_of(orders: TaskOrders) -> pyarrow.RecordBatch:
    """Run one task's orders, in the worker; its receipts, or its error, as an Arrow batch."""
    from kafka_migration.copy.task.task import run_task

    # The collector would look through them in the midst of the copy, too.
    keep_imports()
    rows: list[dict[str, Any]]
    try:
        receipts = at_niceness(orders.limits.niceness, lambda: [*run_task(orders)])
        rows = [{**{name: getattr(receipt, name) for name in _COLUMNS}, "error": ""} for receipt in receipts]
    except MigrationError as error:
        rows = [{**dict.fromkeys(_COLUMNS), "error": _preserve(error)}]
    return _as_batch(rows)


def _as_batch(rows: list[dict[str, Any]]) -> pyarrow.RecordBatch:
    import pyarrow

    kinds = {"string": pyarrow.string(), "bigint": pyarrow.int64(), "double": pyarrow.float64()}
    schema = pyarrow.schema([(name, kinds[kind]) for name, kind in (*_COLUMNS.items(), ("error", "string"))])
    return pyarrow.RecordBatch.from_pylist(rows, schema=schema)


def _preserve(error: MigrationError) -> str:
    return json.dumps(as_data(error))


def _revive(text: str) -> MigrationError:
    """What a task has raised, from data alone: executors run on other machines, and this process holds more secrets."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return from_data(found if isinstance(found, dict) else {"kind": "", "text": text})
