"""The schedule is the seed's alone, fair, and within what a cluster can bear."""

from collections import Counter
from itertools import pairwise

import pytest

from tests.chaos.schedule import HEAVY, KINDS, OF_BROKERS, SELDOM, SIDES, rounds


def test_same_seed_gives_the_same_schedule_and_another_seed_another_one():
    assert rounds(7, 20) == rounds(7, 20)
    assert rounds(7, 20) != rounds(8, 20)


def test_longer_run_begins_as_a_shorter_one_of_the_same_seed():
    assert rounds(7, 50)[:5] == rounds(7, 5)


@pytest.mark.parametrize("seed", range(20))
def test_fifty_rounds_have_every_kind_three_times_and_both_sides_of_each_that_has_sides(seed):
    faults = [fault for it in rounds(seed, 50) for fault in it.faults]
    assert min(Counter(fault.kind for fault in faults)[kind] for kind in KINDS) >= 3
    for kind in ("rolling_restart", "leader_moves", "cut_request", "cut_response", "slow_network"):
        assert {fault.side for fault in faults if fault.kind == kind} == set(SIDES)


@pytest.mark.parametrize("seed", range(12))
def test_kinds_that_take_more_than_a_minute_fall_in_every_twelfth_round_instead_of_another_one(seed):
    found = rounds(seed, 50)
    numbers = [it.number for it in found if any(fault.kind in SELDOM for fault in it.faults)]
    assert len(numbers) in (4, 5)
    assert {later - number for number, later in pairwise(numbers)} == {12}
    assert {sum(fault.kind in HEAVY for fault in it.faults) for it in found} == {1}


def test_kind_that_is_seldom_falls_in_every_round_if_it_is_asked_for_alone():
    found = rounds(1, 3, kinds=["freeze_long"])
    assert [[fault.kind for fault in it.faults] for it in found] == [["freeze_long"]] * 3


def test_round_has_each_kind_once_and_as_many_that_take_long_as_asked_for():
    for it in rounds(3, 50, heavy=2, light=3):
        kinds = [fault.kind for fault in it.faults]
        assert len(kinds) == len(set(kinds)) == 5
        assert sum(kind in HEAVY for kind in kinds) == 2
        assert it.replicas == 3 or not OF_BROKERS & set(kinds)
        assert it.replicas in (1, 3)


def test_single_brokers_are_not_taken_away():
    faults = [fault for it in rounds(3, 20, brokers=1) for fault in it.faults]
    assert {fault.kind for fault in faults} == set(KINDS) - OF_BROKERS
    assert {it.replicas for it in rounds(3, 20, brokers=1)} == {1}


def test_only_the_kinds_asked_for_are_scheduled():
    found = rounds(1, 3, kinds=["rivals", "quota"])
    assert [sorted(fault.kind for fault in it.faults) for it in found] == [["quota", "rivals"]] * 3


@pytest.mark.parametrize(
    ("kinds", "brokers", "why"), [(["nap"], 3, "unknown faults: nap"), (["leader_moves"], 1, "none of leader_moves")]
)
def test_faults_that_do_not_exist_or_cannot_be_done_are_refused(kinds, brokers, why):
    with pytest.raises(ValueError, match=why):
        rounds(1, 1, kinds=kinds, brokers=brokers)
