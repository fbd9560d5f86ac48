"""Each fault that a migration can do, made up in notes, is found and counted as what it is."""

from pathlib import Path

import pytest

from demo.accounting import account, main
from demo.notes_reader import AccountingError
from tests.demo.made_up_notes import GROUP, LOG_START, NOT_ACKNOWLEDGED, OTHER_TOPIC, MadeUpRun

FAULTS = ("records_lost", "records_processed_twice", "order_violations")


@pytest.fixture
def made_up(tmp_path: Path) -> MadeUpRun:
    return MadeUpRun(tmp_path / "run")


def faults(made_up: MadeUpRun) -> tuple[int, int, int]:
    group = made_up.account()
    return group["records_lost"], group["records_processed_twice"], group["order_violations"]


def test_everything_processed_once_over_both_clusters_counts_no_fault(made_up: MadeUpRun) -> None:
    first, second = made_up.produce(0, range(10, 30)), made_up.produce(1, range(10, 20), producer="producer-2")
    made_up.consume(first[:12], cluster="source")
    made_up.consume(second[:1], cluster="source", member="member-2-1")
    made_up.consume(first[12:], cluster="target", member="member-2-2")
    made_up.consume(second[1:], cluster="target")
    assert account(made_up.run.path) == {
        "records_produced": 30,
        "records_processed": 30,
        "records_lost": 0,
        "records_processed_twice": 0,
        "order_violations": 0,
        "groups": {
            GROUP: {
                "records_produced": 30,
                "records_processed": 30,
                "records_lost": 0,
                "records_processed_twice": 0,
                "order_violations": 0,
                "on_source": 13,
                "on_target": 17,
                "pause_ms": None,
            }
        },
        "pauses_ms": {"consumers": {"p50": None, "p99": None, "max": None}},
    }


def test_records_that_nobody_noted_are_lost(made_up: MadeUpRun) -> None:
    ids = made_up.produce(0, range(10, 20))
    made_up.consume(ids[:4])
    made_up.consume(ids[6:9], cluster="target")
    assert faults(made_up) == (3, 0, 0)


def test_group_without_any_notes_has_lost_everything(made_up: MadeUpRun) -> None:
    made_up.produce(0, range(10, 20))
    assert faults(made_up) == (10, 0, 0)


def test_target_that_repeats_the_end_of_the_source_is_processed_twice_not_out_of_order(made_up: MadeUpRun) -> None:
    ids = made_up.produce(0, range(10, 20))
    made_up.consume(ids[:6])
    made_up.consume(ids[3:], cluster="target")
    assert faults(made_up) == (0, 3, 0)


def test_record_noted_three_times_counts_two_too_many(made_up: MadeUpRun) -> None:
    ids = made_up.produce(0, range(10, 12))
    made_up.consume([ids[0], ids[1], ids[1], ids[1]])
    assert faults(made_up) == (0, 2, 0)


def test_record_below_the_starting_commit_is_processed_twice(made_up: MadeUpRun) -> None:
    ids = made_up.produce(0, range(LOG_START + 5))
    made_up.consume(ids[LOG_START - 2 :])
    group = made_up.account()
    assert group["records_produced"] == 5
    assert faults(made_up) == (0, 2, 0)


def test_deleted_beginning_is_owed_by_nobody(made_up: MadeUpRun) -> None:
    ids = made_up.produce(0, range(LOG_START + 5))
    made_up.consume(ids[LOG_START:])
    assert faults(made_up) == (0, 0, 0)
    assert account(made_up.run.path)["records_produced"] == LOG_START + 5


def test_swapped_records_of_a_partition_are_one_order_violation(made_up: MadeUpRun) -> None:
    ids = made_up.produce(0, range(10, 16))
    made_up.consume([ids[0], ids[2], ids[1], *ids[3:]])
    assert faults(made_up) == (0, 0, 1)


def test_order_is_that_of_offsets_whatever_order_producers_numbered_in(made_up: MadeUpRun) -> None:
    one = made_up.produce(0, (10, 13), producer="producer-1")
    two = made_up.produce(0, (12, 11), producer="producer-2")
    made_up.consume([one[0], two[1], two[0], one[1]])
    assert faults(made_up) == (0, 0, 0)


def test_records_of_different_partitions_may_come_in_any_order(made_up: MadeUpRun) -> None:
    one, two = made_up.produce(0, range(10, 14)), made_up.produce(1, range(10, 14))
    made_up.consume([two[0], one[0], one[1], two[1], two[2], two[3], one[2], one[3]])
    assert faults(made_up) == (0, 0, 0)


def test_partition_handed_to_and_fro_between_members_is_in_order_by_time(made_up: MadeUpRun) -> None:
    ids = made_up.produce(0, range(10, 19))
    made_up.consume(ids[:3], member="member-1-1")
    made_up.consume(ids[3:6], member="member-2-1")
    made_up.consume(ids[6:], member="member-1-1")
    assert faults(made_up) == (0, 0, 0)


def test_member_that_goes_on_behind_another_is_out_of_order(made_up: MadeUpRun) -> None:
    ids = made_up.produce(0, range(10, 19))
    made_up.consume(ids[:3], member="member-1-1")
    made_up.consume(ids[6:], cluster="target", member="member-2-1")
    made_up.consume(ids[3:6], cluster="target", member="member-1-2")
    assert faults(made_up) == (0, 0, 3)


def test_record_read_from_another_partition_than_produced_to_is_an_order_violation(made_up: MadeUpRun) -> None:
    ids = made_up.produce(0, range(10, 14))
    made_up.consume(ids[:3])
    made_up.consume(ids[3:], partition=1)
    assert faults(made_up) == (0, 0, 1)


def test_record_never_acknowledged_may_be_processed_or_not(made_up: MadeUpRun) -> None:
    ids = made_up.produce(0, (10, NOT_ACKNOWLEDGED, NOT_ACKNOWLEDGED, 12))
    made_up.consume([ids[0], ids[2], ids[3]])
    assert faults(made_up) == (0, 0, 0)
    assert made_up.account()["records_produced"] == 2


def test_record_never_acknowledged_but_processed_twice_is_counted(made_up: MadeUpRun) -> None:
    ids = made_up.produce(0, (10, NOT_ACKNOWLEDGED))
    made_up.consume([*ids, ids[1]])
    assert faults(made_up) == (0, 1, 0)


def test_topic_that_a_group_does_not_read_is_not_owed(made_up: MadeUpRun) -> None:
    made_up.produce(0, range(10, 20), topic=OTHER_TOPIC)
    ids = made_up.produce(0, range(10, 12))
    made_up.consume(ids)
    assert faults(made_up) == (0, 0, 0)
    assert made_up.account()["records_produced"] == 2


def test_sums_are_those_of_the_groups(made_up: MadeUpRun) -> None:
    ids = made_up.produce(0, range(10, 20))
    made_up.consume([*ids[:2], ids[1], ids[4], ids[3]])
    whole = account(made_up.run.path)
    assert [whole[name] for name in FAULTS] == [6, 1, 1]
    assert whole["records_processed"] == 5


def test_record_that_no_producer_sent_gives_no_account(made_up: MadeUpRun) -> None:
    made_up.produce(0, range(10, 12))
    made_up.consume(["producer-1-0", "producer-1-2"])
    with pytest.raises(AccountingError, match="producer-1-2"):
        made_up.account()


def test_record_of_an_unknown_producer_gives_no_account(made_up: MadeUpRun) -> None:
    made_up.produce(0, range(10, 12))
    made_up.consume(["producer-9-0"])
    with pytest.raises(AccountingError, match="producer-9-0"):
        made_up.account()


@pytest.mark.parametrize("record_id", ["nonsense", "producer-1-x", "producer-1--1"])
def test_id_that_is_none_gives_no_account(made_up: MadeUpRun, record_id: str) -> None:
    made_up.produce(0, range(10, 12))
    made_up.consume([record_id])
    with pytest.raises(AccountingError):
        made_up.account()


def test_partition_that_does_not_exist_gives_no_account(made_up: MadeUpRun) -> None:
    ids = made_up.produce(0, range(10, 12))
    made_up.consume(ids, partition=7)
    with pytest.raises(AccountingError, match="partitions"):
        made_up.account()


def test_producer_that_did_not_end_in_order_gives_no_account(made_up: MadeUpRun) -> None:
    made_up.produce(0, range(10, 12))
    made_up.end_producer("producer-1", ended=False)
    with pytest.raises(AccountingError, match="producer-1 has not said"):
        made_up.account()


def test_producer_whose_notes_miss_a_record_gives_no_account(made_up: MadeUpRun) -> None:
    made_up.produce(0, range(10, 12))
    notes = made_up.run.producer_notes("producer-1")
    notes.write_text("".join(notes.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(AccountingError, match="1 of their records"):
        made_up.account()


def test_two_records_at_one_offset_give_no_account(made_up: MadeUpRun) -> None:
    made_up.produce(0, (10, 11))
    made_up.produce(0, (11,), producer="producer-2")
    with pytest.raises(AccountingError, match="same offset"):
        made_up.account()


def test_notes_that_end_within_a_line_give_no_account(made_up: MadeUpRun) -> None:
    made_up.consume(made_up.produce(0, range(10, 12)))
    notes = made_up.run.member_notes(GROUP, "source", "member-1-1")
    notes.write_text(notes.read_text()[:-4])
    with pytest.raises(AccountingError, match="within a line"):
        made_up.account()


@pytest.mark.parametrize(("processed", "code"), [(10, 0), (9, 1)])
def test_command_exits_with_one_when_a_record_is_lost(made_up: MadeUpRun, processed: int, code: int) -> None:
    made_up.consume(made_up.produce(0, range(10, 20))[:processed])
    assert main([str(made_up.run.path)]) == code


def test_command_exits_with_three_when_it_cannot_be_told(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 3


def test_pause_is_what_remains_of_the_gap_without_the_members_own_stop_and_start(made_up: MadeUpRun) -> None:
    ids = made_up.produce(0, range(10, 20))
    made_up.consume(ids[:4], member="member-1-1")
    last = made_up.now_ns
    made_up.live_through("member-1-1", cluster="source", begun=0, assigned=1, asked=last + 5, left=last + 200)
    made_up.consume(ids[4:], cluster="target", member="member-1-2", after_ns=10_000_000)
    first = last + 10_000_000 + 1_000
    made_up.live_through("member-1-2", cluster="target", begun=first - 3_000_000, assigned=first - 1_000_000)
    # Of the gap of 10.001 ms, the member took 195 ns to leave and 2 ms to start.
    assert made_up.pause_ms() == pytest.approx(10.001 - 0.000_195 - 2.0)
    assert account(made_up.run.path)["pauses_ms"]["consumers"]["max"] == 8.0


def test_pause_does_not_count_the_stop_of_an_attempt_that_was_given_up(made_up: MadeUpRun) -> None:
    ids = made_up.produce(0, range(10, 20))
    made_up.consume(ids[:2], member="member-1-1")
    given_up = made_up.now_ns
    made_up.live_through("member-1-1", cluster="source", begun=0, assigned=1, asked=given_up, left=given_up + 100)
    made_up.consume(ids[2:4], member="member-1-2", after_ns=1_000_000)
    last = made_up.now_ns
    made_up.live_through("member-1-2", cluster="source", begun=0, assigned=1, asked=last, left=last + 500_000)
    made_up.consume(ids[4:], cluster="target", member="member-1-3", after_ns=2_000_000)
    made_up.live_through("member-1-3", cluster="target", begun=last + 1_000_000, assigned=last + 1_500_000)
    assert made_up.pause_ms() == pytest.approx(2.001 - 0.5 - 0.5)


def test_group_that_never_reached_the_target_has_no_pause(made_up: MadeUpRun) -> None:
    made_up.consume(made_up.produce(0, range(10, 20)))
    made_up.live_through("member-1-1", cluster="source", begun=0, assigned=1)
    assert made_up.pause_ms() is None
