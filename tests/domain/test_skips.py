"""Skips only ever go forward."""

import pytest

from kafka_migration.domain.skips import Skip, goes_on_at


def skip(start: int, end: int) -> Skip:
    return Skip(start=start, end=end, halt="DATA_LOSS", detail="", by="ada", at="", topic_key="t")


def test_position_within_a_skip_goes_on_behind_it():
    assert [goes_on_at([skip(10, 40)], at) for at in (9, 10, 39, 40, 41)] == [9, 40, 40, 40, 41]


def test_skips_that_meet_are_left_behind_together():
    assert goes_on_at([skip(40, 50), skip(10, 40), skip(60, 70)], 12) == 50


@pytest.mark.parametrize(("start", "end"), [(5, 5), (6, 5), (-1, 5)])
def test_skip_that_goes_nowhere_or_back_cannot_be(start: int, end: int):
    with pytest.raises(ValueError, match="goes forward"):
        skip(start, end)
