"""How long an epoch lasts: while there is a backlog as long as the plan says, and on and on once there is none."""

import pytest

from kafka_migration.domain.types import Position, TopicPartition
from kafka_migration.mirror.pace import Pace

ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def _at(source: int) -> Position:
    return Position(source=source, target=source + 1, fence=0, records=source)


@pytest.mark.parametrize(
    ("end", "told", "is_to_end"),
    [
        (100_000, 100_000, False),
        (104_000, 100_000, False),  # a second's worth, on its way
        (500_000, 100_000, True),
        (1_900, 1_000, False),
        (50_000, 1_000, True),
        (50_000, 0, False),
    ],
)
def test_backlog_is_more_than_what_is_copied_in_some_seconds(end, told, is_to_end):
    now = [0.0]
    pace = Pace({ONE: _at(0), OTHER: _at(7)}, 15.0, clock=lambda: now[0])
    pace.see({ONE: _at(told)})
    now[0] = 20.0
    assert pace.is_to_end({ONE: end, OTHER: 7}, {ONE: _at(told)}) is is_to_end


@pytest.mark.parametrize(("began", "is_to_end"), [(1.0, True), (7.0, True), (14.0, False)])
def test_epoch_whose_tasks_begin_late_goes_on(began, is_to_end):
    now = [0.0]
    pace = Pace({ONE: _at(0)}, 15.0, clock=lambda: now[0])
    pace.see({})
    for now[0] in (began, 15.0):
        pace.see({ONE: _at(1_000)})
    assert pace.is_to_end({ONE: 50_000}, {ONE: _at(1_000)}) is is_to_end


def test_late_word_of_an_earlier_epoch_is_no_backlog():
    pace = Pace({ONE: _at(90_000)}, 0.0)
    pace.see({ONE: _at(10)})
    assert not pace.is_to_end({ONE: 90_000}, {ONE: _at(10)})
