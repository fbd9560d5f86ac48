"""How long an epoch lasts: while there is a backlog as long as the plan says, and on and on once there is none."""

import pytest

from kafka_migration.domain.types import Position, TopicPartition
from kafka_migration.mirror.pace import Pace

ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def _at(source: int) -> Position:
    return Position(source=source, target=source + 1, fence=0, records=source)


@pytest.mark.parametrize(
    ("end", "told", "is_caught_up"),
    [
        (100_000, 100_000, True),
        (104_000, 100_000, True),  # a second's worth, on its way
        (500_000, 100_000, False),
        (900, 0, True),
        (50_000, 0, False),
    ],
)
def test_backlog_is_more_than_what_is_copied_in_some_seconds(end, told, is_caught_up):
    now = [0.0]
    pace = Pace({ONE: _at(0), OTHER: _at(7)}, clock=lambda: now[0])
    now[0] = 20.0
    assert pace.is_caught_up({ONE: end, OTHER: 7}, {ONE: _at(told)}) is is_caught_up


def test_late_word_of_an_earlier_epoch_is_no_backlog():
    assert Pace({ONE: _at(90_000)}).is_caught_up({ONE: 90_000}, {ONE: _at(10)})
