"""Epochs as Spark jobs: one task per stream, receipts back as rows.

Any master will do (local, standalone, YARN, Kubernetes). Credentials travel inside the pickled function, which Spark
neither logs nor shows; nothing of them is in the configuration, the command line or the plan.
"""

from __future__ import annotations

import gc
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.errors import CouldNotFindOut, MigrationError, as_data, from_data
from kafka_migration.domain.types import Receipt
from kafka_migration.mirror.orders import TaskOrders

if TYPE_CHECKING:
    import pyarrow
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

#: Settings without which rule 1 of the exactly-once argument (one producer epoch, one attempt) would not hold.
REQUIRED_CONF = {
    "spark.task.maxFailures": "1",
    "spark.speculation": "false",
    "spark.python.worker.reuse": "true",
}
_UNSET = {"spark.task.maxFailures": "4"}
"""What Spark does where nobody set anything else, if that is not what is required."""
_COLUMNS = {
    name: "string" if name in ("topic", "stand", "halt", "detail") else "bigint"
    for name in (f.name for f in fields(Receipt))
    if name != "executor"
}
_SCHEMA = ", ".join(f"`{name}` {kind}" for name, kind in (*_COLUMNS.items(), ("task", "int"), ("error", "string")))


class SparkEpoch:
    """An epoch that runs as a Spark job, watched from a thread."""

    def __init__(self, spark: SparkSession, orders: list[TaskOrders]) -> None:
        self._spark, self._orders = spark, orders
        self._rows: list[Any] = []
        self._error: BaseException | None = None
        self._group = f"{orders[0].link} epoch {orders[0].epoch}"
        self._thread = threading.Thread(target=self._work, name=self._group, daemon=True)
        self._thread.start()

    def is_done(self) -> bool:
        """True once the job has ended."""
        return not self._thread.is_alive()

    def tasks(self) -> dict[int, bool]:
        """The tasks that have begun. One of which any attempt ended has: a second one does not go on with it."""
        from py4j.protocol import Py4JError

        found: dict[int, bool] = {}
        try:
            for task in self._tasks():
                index, is_over = int(task.index()), str(task.status()) != "RUNNING"
                found[index] = found.get(index, False) or is_over
        except (Py4JError, OSError):
            # The JVM is gone, so the job is about to be.
            return {}
        return found

    def receipts(self) -> list[Receipt]:
        """All receipts, with the executors that earned them. Raises what a task raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        executors = self._executors()
        receipts = []
        for row in self._rows:
            values = row.asDict()
            error, task = values.pop("error"), values.pop("task")
            if error:
                raise _revive(error)
            receipts.append(Receipt(**values, executor=executors.get(task, "")))
        return receipts

    def _work(self) -> None:
        try:
            context = self._spark.sparkContext
            context.setJobGroup(self._group, self._group)
            tasks = len(self._orders)
            frame = self._spark.range(0, tasks, 1, tasks).mapInArrow(_in_task(self._orders), _SCHEMA)
            self._rows = frame.collect()
        except BaseException as error:
            self._error = error

    def _executors(self) -> dict[int, str]:
        """Which executor ran which task."""
        return {int(task.index()): str(task.executorId()) for task in self._tasks()}

    def _tasks(self) -> Iterator[Any]:
        """What Spark's own status store knows of the tasks' attempts."""
        context = self._spark.sparkContext
        tracker = context.statusTracker()
        for job in tracker.getJobIdsForGroup(self._group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                tasks = context._jsc.sc().statusStore().taskList(stage, 0, 10_000)
                for at in range(tasks.length()):
                    yield tasks.apply(at)


class SparkRunner:
    """Runs epochs on a Spark session, which the caller owns."""

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

    def start(self, orders: list[TaskOrders]) -> SparkEpoch:
        """Begin an epoch."""
        return SparkEpoch(self._spark, orders)


def slots_of(context: SparkContext) -> int | None:
    """How many tasks a local master runs side by side; None for any other, whose executors come and go."""
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", str(context.master))
    if local is None:
        return None
    jvm: Any = context._jvm
    cores = jvm.java.lang.Runtime.getRuntime().availableProcessors() if local[1] == "*" else local[1] or 1
    return max(1, int(cores) // int(context.getConf().get("spark.task.cpus", "1") or 1))


def _in_task(orders: list[TaskOrders]) -> Any:
    def copy(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from pyspark import TaskContext

        from kafka_migration.mirror.spark import again, receipts_of

        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            yield again(context.attemptNumber())
            return
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield receipts_of(orders[task], task)

    return copy


def again(attempt: int) -> pyarrow.RecordBatch:
    """The refusal to run a task a second time: its first attempt may still write, under the same producer epoch.

    ``spark.task.maxFailures=1`` does not prevent it: an executor that is lost through no fault of the application
    (its worker died, was preempted or decommissioned) does not count as a failure.
    """
    error = CouldNotFindOut(f"Spark lost an executor and ran its task again (attempt {attempt})")
    return _as_batch([{**dict.fromkeys(_COLUMNS), "task": -1, "error": _preserve(error)}])


def receipts_of(orders: TaskOrders, task: int) -> pyarrow.RecordBatch:
    """Run one task's orders, in the worker; its receipts, or its error, as an Arrow batch."""
    from kafka_migration.mirror.task import run_task

    # What the worker has imported is never garbage: the collector would look through it in the midst of the copy.
    gc.collect()
    gc.freeze()
    rows: list[dict[str, Any]]
    try:
        rows = [
            {
                **{name: getattr(receipt, name) for name in _COLUMNS},
                "task": task,
                "error": "",
            }
            for receipt in run_task(orders)
        ]
    except MigrationError as error:
        rows = [{**dict.fromkeys(_COLUMNS), "task": task, "error": _preserve(error)}]
    return _as_batch(rows)


def _as_batch(rows: list[dict[str, Any]]) -> pyarrow.RecordBatch:
    import pyarrow

    kinds = {"string": pyarrow.string(), "bigint": pyarrow.int64(), "int": pyarrow.int32()}
    schema = pyarrow.schema(
        [(name, kinds[kind]) for name, kind in (*_COLUMNS.items(), ("task", "int"), ("error", "string"))]
    )
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
