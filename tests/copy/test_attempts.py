"""What crosses the border to Spark's workers: receipts and errors whole, and never a second attempt."""

import pickle
from dataclasses import fields
from unittest.mock import MagicMock

import pyarrow
import pyspark
import pytest

from kafka_migration.copy import spark
from kafka_migration.copy.orders import Limits, TaskOrders
from kafka_migration.copy.task import task
from kafka_migration.domain.errors import CouldNotFindOut, MigrationError, NotAuthorized
from kafka_migration.domain.types import Receipt

RECEIPT = Receipt(
    topic="t",
    partition=3,
    fence=7,
    source_start=10,
    source_end=20,
    continues=18,
    target_start=2**40,
    target_end=2**40 + 8,
    records=8,
    bytes=80,
    batches=2,
    source_epoch=4,
    stand="halted",
    halt="CORRUPT",
    detail="grüße",
    lands_seconds=45.5,
)


SECRETS = {"bootstrap_servers": "b:9092", "sasl_plain_password": "hunter2"}
ORDERS = TaskOrders(
    link="l",
    round_id=1,
    seconds=1.0,
    commands_from=0,
    assignments=(),
    limits=Limits(),
    source=SECRETS,
    target=SECRETS,
)


class Attempt:
    """Spark's context of a task."""

    def __init__(self, number: int) -> None:
        self._number = number

    def attemptNumber(self) -> int:  # noqa: N802 - Spark's name
        return self._number


def _rows() -> list[dict[str, object]]:
    frame = pyarrow.RecordBatch.from_pydict({"id": [0]})
    return [row for batch in spark._in_task(ORDERS)(iter([frame])) for row in batch.to_pylist()]


def test_receipt_comes_back_as_it_was_sent(monkeypatch):
    monkeypatch.setattr(task, "run_task", lambda orders: [RECEIPT])
    monkeypatch.setattr(pyspark.TaskContext, "get", lambda: Attempt(0))
    (row,) = _rows()
    assert row.pop("error") == ""
    assert Receipt(**row) == RECEIPT  # type: ignore[arg-type]
    assert set(row) == {f.name for f in fields(Receipt)} - {"executor"}


def test_error_of_a_task_comes_back_whole(monkeypatch):
    def fail(orders: object) -> list[Receipt]:
        raise NotAuthorized("source", "Read", "topic t")

    monkeypatch.setattr(task, "run_task", fail)
    (row,) = _rows()
    again = spark._revive(str(row["error"]))
    assert isinstance(again, NotAuthorized)
    assert again.resource == "topic t"


def test_second_attempt_of_a_task_copies_nothing_and_is_left_to_a_fence(monkeypatch):
    """Spark makes one in spite of spark.task.maxFailures=1 if an executor is lost through no fault of its own."""

    def copy(orders: object) -> list[Receipt]:
        pytest.fail("two attempts would write under one producer epoch")

    monkeypatch.setattr(task, "run_task", copy)
    monkeypatch.setattr(pyspark.TaskContext, "get", lambda: Attempt(1))
    (row,) = _rows()
    error = spark._revive(str(row["error"]))
    assert isinstance(error, CouldNotFindOut)
    assert "attempt 1" in error.message


@pytest.mark.parametrize(
    ("conf", "wrong"),
    [
        (spark.REQUIRED_CONF, ""),
        ({"spark.task.maxFailures": "1"}, ""),
        ({}, "maxFailures=4"),
        ({"spark.task.maxFailures": "2"}, "maxFailures=2"),
        ({"spark.task.maxFailures": "1", "spark.speculation": "true"}, "speculation=true"),
    ],
)
def test_session_that_would_run_a_task_again_is_refused_also_where_nobody_set_anything(
    conf: dict[str, str], wrong: str
) -> None:
    session = MagicMock()
    session.sparkContext.getConf().get = lambda key, default=None: conf.get(key, default)
    session.sparkContext.master = "spark://somewhere:7077"
    if not wrong:
        assert spark.SparkRunner(session).slots is None
        return
    with pytest.raises(MigrationError, match=wrong):
        spark.SparkRunner(session)


def test_orders_show_no_credentials_and_survive_a_process_boundary():
    assert "hunter2" not in repr(ORDERS)
    assert pickle.loads(pickle.dumps(ORDERS)) == ORDERS
