"""A short version of `make kill-test`: one kill of each kind. And that what it counts, it would find."""

import pytest

from kafka_migration.domain.offset_map import OffsetMap, Run
from tests.kafka_tools import Row
from tests.soak.kill import VICTIMS, WRONG, differences, is_exact, run


@pytest.mark.soak
@pytest.mark.timeout(1500)  # two clusters of its own, and three starts of Spark
def test_mirror_killed_as_driver_worker_and_jvm_copies_every_record_once_in_order(tmp_path):
    result = run(records=200_000, kills=len(VICTIMS), seed=20_261, throttle=2_500_000, folder=tmp_path)
    assert result["killed"] == dict.fromkeys(VICTIMS, 1)
    assert {what: result[what] for what in WRONG} == dict.fromkeys(WRONG, 0)
    assert result["records"] == 200_000 - (10 + 11 + 12 + 13), "all but those deleted before the copy"


SOURCE = [Row(offset=n, key=b"", value=b"%d" % n, timestamp=n) for n in range(10)]


def target(*values: int) -> list[Row]:
    """These records of the source, one behind the other from offset 100 on."""
    return [Row(offset=100 + at, key=b"", value=b"%d" % n, timestamp=n) for at, n in enumerate(values)]


@pytest.mark.parametrize(
    ("copy", "length", "wrong"),
    [
        (target(*range(10)), 10, {}),
        (target(*range(9)), 10, {"lost": 1}),
        (target(*range(10), 9), 10, {"doubled": 1}),
        (target(0, *range(10)), 10, {"doubled": 1, "mistranslated": 9}),
        (target(0, 1, 2, 4, 3, 5, 6, 7, 8, 9), 10, {"reordered": 1, "mistranslated": 2}),
        (target(9, *range(9)), 10, {"reordered": 1, "mistranslated": 10}),
        (target(*range(9), 77), 10, {"lost": 1, "foreign": 1}),
        (target(*range(10)), 8, {"mistranslated": 1}),
    ],
)
def test_whatever_is_wrong_with_a_copy_is_counted(copy, length, wrong):
    offsets = OffsetMap([Run(0, 100, length)], source_end=length, target_end=100 + length)
    found = differences(SOURCE, copy, offsets)
    assert found == dict.fromkeys(WRONG, 0) | wrong
    assert is_exact(found) is (not wrong)


def test_partition_that_nothing_was_copied_of_is_lost_altogether():
    assert differences(SOURCE, [], None) == dict.fromkeys(WRONG, 0) | {"lost": 10}
