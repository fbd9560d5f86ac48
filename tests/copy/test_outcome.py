"""What is said of an epoch that was lost."""

import pytest

from kafka_migration.copy.driver.outcome import in_short, rounds_lost
from kafka_migration.domain.errors import CouldNotFindOut

JVM = """An error occurred while calling o55.collectToPython.
: org.apache.spark.SparkException: Job aborted
\tat org.apache.spark.scheduler.DAGScheduler
Caused by: java.io.EOFException: the worker is gone
\tat java.base/java.io.DataInputStream.readInt
"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (CouldNotFindOut("target: it does not answer", remedy="run the mirror again"), "target: it does not answer"),
        (RuntimeError(JVM), "RuntimeError: Caused by: java.io.EOFException: the worker is gone"),
        (ValueError(), "ValueError: "),
    ],
    ids=["ours", "a JVM's", "without a word"],
)
def test_one_line_says_of_what(error, said):
    assert in_short(error) == said
    assert said in rounds_lost(3, error).message
