"""What is tried with a partition that hinders again and again, and when that has an end: without any broker."""

import random

import pytest

from kafka_migration.copy.driver.quarantine import Quarantine
from kafka_migration.domain.types import TopicPartition
from tests.copy.clock import Clock

ALL = [TopicPartition("t", n) for n in range(13)]
TP = ALL[0]


@pytest.fixture
def clock() -> Clock:
    return Clock(0.0)


@pytest.fixture
def quarantine(clock: Clock) -> Quarantine:
    return Quarantine(patience_seconds=60, clock=clock)


def test_batch_without_a_clear_answer_is_sent_alone_from_the_second_time_on_and_rests_longer_each_time(
    quarantine: Quarantine,
) -> None:
    assert (quarantine.unsettled(TP, 5, "gone"), quarantine.alone) == (0.0, set())
    rests = [quarantine.unsettled(TP, 5, "gone") for _ in range(8)]
    assert rests == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert quarantine.alone == {TP}


def test_batch_is_hopeless_after_several_times_and_a_while_and_not_before(quarantine: Quarantine, clock: Clock) -> None:
    for _ in range(20):
        quarantine.unsettled(TP, 5, "the connection was closed")
    assert quarantine.hopeless(TP, 5) == ""
    clock.now = 61
    assert quarantine.hopeless(TP, 6) == "", "it went on"
    why = quarantine.hopeless(TP, 5)
    assert "at source offset 5 got no clear answer 20 times within 61 s" in why
    assert "the connection was closed" in why
    assert quarantine.hopeless(TP, 5) == "", "whoever lifts the halt has it tried anew"


def test_answers_about_a_broker_have_a_batch_rest_for_seconds_and_are_never_its_fault(
    quarantine: Quarantine, clock: Clock
) -> None:
    rests = [quarantine.unsettled(TP, 5, "no such topic", is_passing=True) for _ in range(8)]
    assert rests == [0.0, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0]
    clock.now += 1_000
    assert (quarantine.hopeless(TP, 5), quarantine.alone) == ("", set())


def test_few_times_are_not_hopeless_however_long_they_take(quarantine: Quarantine, clock: Clock) -> None:
    for _ in range(4):
        quarantine.unsettled(TP, 5, "gone")
    clock.now = 10_000
    assert quarantine.hopeless(TP, 5) == ""


def test_partition_that_moved_begins_anew(quarantine: Quarantine, clock: Clock) -> None:
    for _ in range(20):
        quarantine.unsettled(TP, 5, "gone")
    clock.now = 100
    assert quarantine.unsettled(TP, 6, "gone") == 0.0
    assert quarantine.hopeless(TP, 6) == ""


@pytest.mark.parametrize("seed", range(20))
def test_one_that_kills_its_task_is_found_by_halves_and_nobody_else(quarantine: Quarantine, seed: int) -> None:
    killer = random.Random(seed).choice(ALL)
    found, deaths = quarantine.died(ALL), 1
    for _ in range(40):
        if found is not None:
            break
        assert killer in quarantine.suspects
        assert quarantine.tried | quarantine.resting().keys() == quarantine.suspects
        if killer in quarantine.tried:
            found, deaths = quarantine.died(quarantine.tried), deaths + 1
        else:
            quarantine.survived(quarantine.tried)
    assert found == killer
    assert deaths <= 8
    assert not quarantine.suspects


def test_suspects_that_are_copied_after_all_are_none_any_more(quarantine: Quarantine) -> None:
    quarantine.died(ALL[:2])
    quarantine.survived(quarantine.tried)
    quarantine.survived(quarantine.tried)
    assert (quarantine.suspects, quarantine.tried, dict(quarantine.resting())) == (set(), set(), {})


def test_others_that_had_not_moved_either_when_a_suspect_dies_are_no_suspects(quarantine: Quarantine) -> None:
    quarantine.died(ALL[:4])
    quarantine.died([*quarantine.tried, *ALL[6:]])
    assert quarantine.suspects == {ALL[0], ALL[1]}


def test_one_that_stood_beside_others_when_its_task_died_is_proved_only_by_deaths_alone(quarantine: Quarantine) -> None:
    assert quarantine.died(ALL[:2]) is None
    assert [quarantine.died([TP]), quarantine.died([TP])] == [None, None]
    assert quarantine.died([TP]) == TP
