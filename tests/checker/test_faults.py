"""Small histories, written by hand: what is a fault, and what only looks like one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from checker.logs import LeaderChange
from checker.verdict import Verdict, judge
from tests.checker.worlds import SOURCE, TARGET, TOPIC, Notes, Writer


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def verdict(notes: Notes, tmp_path: Path) -> Judge:
    return Judge(notes, tmp_path)


class Judge:
    """Decides about the notes once they are complete."""

    def __init__(self, notes: Notes, folder: Path) -> None:
        self._notes, self._folder = notes, folder

    def __call__(self, leaders: Sequence[LeaderChange] = ()) -> Verdict:
        return judge(self._notes.write(self._folder), leaders=leaders)

    def faults(self, leaders: Sequence[LeaderChange] = ()) -> dict[str, int]:
        return {fault.value: count for fault, count in self(leaders).findings.counts.items() if count}


def produced(notes: Notes, *values: str, cluster: str = SOURCE, first: int = 0, kind: str = "idempotent") -> Writer:
    """One producer, one key, partition 0, offsets in a row."""
    shop = notes.open("shop", cluster, kind=kind)
    for offset, value in enumerate(values, start=first):
        shop.sent(value, 0, offset, key="k")
    return shop


def reading(notes: Notes, *values: str, cluster: str = SOURCE, first: int = 0, group: str = "billing") -> Writer:
    """A member that gets these values of partition 0, at offsets in a row."""
    member = notes.open(f"{group}-member", cluster, group=group)
    member.assign(0)
    for offset, value in enumerate(values, start=first):
        member.got(value, 0, offset)
    return member


def finally_reading(notes: Notes, *values: str) -> None:
    final = notes.open("final", TARGET, final=True)
    final.assign(0)
    for offset, value in enumerate(values, start=100):
        final.got(value, 0, offset)
    final.note("close")


class TestLost:
    def test_record_that_readers_passed_and_nobody_got_is_lost_once_and_skipped_by_nobody(self, notes, verdict):
        produced(notes, "a", "b", "c")
        for group in ("billing", "search"):
            member = reading(notes, "a", group=group)
            member.got("c", 0, 2)
        assert verdict.faults() == {"lost": 1}

    def test_end_of_the_source_that_was_not_copied_is_lost_as_its_client_wrote_more_to_the_target(self, notes, verdict):
        produced(notes, "a", "b", "c")
        produced(notes, "d", cluster=TARGET, first=12)
        reading(notes, "a")
        reading(notes, "d", cluster=TARGET, first=12)
        assert verdict.faults() == {"lost": 2}

    def test_end_of_the_log_that_nobody_read_is_unseen_without_a_final_reader_and_lost_with_one(self, notes, verdict):
        produced(notes, "a", "b")
        reading(notes, "a")
        assert verdict.faults() == {}
        assert verdict().unseen == 1
        finally_reading(notes, "a")
        assert verdict.faults() == {"lost": 1}

    def test_records_below_where_a_final_reader_began_are_not_its_to_read(self, notes, verdict):
        produced(notes, "a", "b", cluster=TARGET)
        final = notes.open("final", TARGET, final=True)
        final.assign(0, position=1)
        final.got("b", 0, 1)
        final.note("close")
        assert verdict.faults() == {}

    def test_records_that_were_deleted_on_the_source_are_left_out_by_where_it_begins_there(self, notes, verdict):
        produced(notes, "a", "b", "c")
        finally_reading(notes, "b", "c")
        assert verdict.faults() == {"lost": 1}
        notes.files[-1].notes.pop()
        Writer(notes, notes.files[-1]).note("assign", cluster=SOURCE, partitions=[[TOPIC, 0, 1]])
        Writer(notes, notes.files[-1]).note("close")
        assert verdict.faults() == {}

    def test_values_of_a_committed_transaction_are_acknowledged_by_its_commit(self, notes, verdict):
        till = notes.open("till", SOURCE, kind="transactional")
        txn = till.begin()
        till.send("a", partition=0, txn=txn)
        till.end(txn, "committed")
        finally_reading(notes)
        assert verdict.faults() == {"lost": 1}


class TestTruncated:
    """An offset that was given twice: an acks=1 producer's record may have gone with its leader, if leaders changed."""

    @pytest.mark.parametrize(
        ("kind", "changed", "is_fault"),
        [
            ("acks=1", (TARGET, 0, 9), False),
            ("acks=1", None, True),
            ("acks=1", (SOURCE, 0, 9), True),
            ("acks=1", (TARGET, 30, 40), True),
            ("idempotent", (TARGET, 0, 9), True),
        ],
    )
    def test_record_whose_offset_went_to_another_is_lost_unless_acks_1_lost_it_with_its_leader(
        self, notes, verdict, kind, changed, is_fault
    ):
        notes.open("sensor", TARGET, kind=kind).sent("a", 0, 1)
        produced(notes, "b", "c", cluster=TARGET)
        finally_reading(notes, "b", "c")
        for at, receipt in enumerate(notes.files[-1].of("receipt")):
            receipt["offset"] = at
        leaders = _leaders(notes, *changed) if changed else ()
        assert verdict.faults(leaders) == ({"lost": 1, "inconsistent": 1} if is_fault else {})
        assert verdict(leaders).truncated == (not is_fault)

    @pytest.mark.parametrize(("end", "faults"), [(2, {}), (3, {"lost": 1})])
    def test_record_at_or_behind_the_end_that_brokers_gave_after_that_went_with_its_leader(
        self, notes, verdict, end, faults
    ):
        produced(notes, "a", "b")
        notes.open("sensor", SOURCE, kind="acks=1").sent("c", 0, 2)
        finally_reading(notes, "a", "b")
        (change,) = _leaders(notes, SOURCE, 0, 9)
        assert verdict.faults([replace(change, ends={(TOPIC, 0): end, (TOPIC, 1): 0})]) == faults

    def test_record_that_somebody_received_was_not_truncated(self, notes, verdict):
        notes.open("sensor", SOURCE, kind="acks=1").sent("a", 0, 1)
        produced(notes, "b", "c")
        reading(notes, "b", "a")
        leaders = _leaders(notes, SOURCE, 0, 9)
        assert verdict.faults(leaders)["inconsistent"] == 1
        assert verdict(leaders).truncated == 0

    def test_of_two_that_nobody_received_the_later_one_may_have_stayed(self, notes, verdict):
        sensor = notes.open("sensor", SOURCE, kind="acks=1")
        sensor.sent("a", 0, 1)
        sensor.sent("b", 0, 1)
        finally_reading(notes, "c")
        produced(notes, "c")
        leaders = _leaders(notes, SOURCE, 0, 9)
        assert verdict.faults(leaders) == {"lost": 1}
        assert verdict(leaders).truncated == 1


def _leaders(notes: Notes, cluster: str, began: int, ended: int) -> list[LeaderChange]:
    """Changed from and to so many seconds after the first note."""
    first = notes.files[0].notes[0]["wall"]
    return [LeaderChange(cluster=cluster, began=first + began * 10**9, ended=first + ended * 10**9)]


class TestUnknownOutcomes:
    @pytest.mark.parametrize("there", [True, False])
    def test_send_without_an_answer_may_be_there_or_not(self, notes, verdict, there):
        shop = produced(notes, "a")
        shop.send("b", key="k", partition=0)
        shop.sent("c", 0, 2, key="k")
        finally_reading(notes, *("abc" if there else "ac"))
        assert verdict.faults() == {}
        assert verdict().unknown == 1

    @pytest.mark.parametrize("values", ["ab", ""])
    def test_transaction_whose_commit_got_no_answer_may_be_there_or_not(self, notes, verdict, values):
        self._transaction(notes)
        finally_reading(notes, *values)
        assert verdict.faults() == {}
        assert verdict().unknown == 1

    def test_transaction_whose_commit_got_no_answer_is_torn_if_half_of_it_is_there(self, notes, verdict):
        self._transaction(notes)
        finally_reading(notes, "b")
        assert verdict.faults() == {"torn": 1, "lost": 1}

    @staticmethod
    def _transaction(notes: Notes) -> None:
        till = notes.open("till", SOURCE, kind="transactional")
        txn = till.begin()
        till.sent("a", 0, 100, txn=txn)
        till.sent("b", 0, 101, txn=txn)
        till.note("end", txn=txn, how="commit")

    def test_commit_of_offsets_without_an_answer_allows_both_continuations(self, notes, verdict):
        produced(notes, "a", "b")
        reading(notes, "a").commit(0, 1, None)
        reading(notes, "a", "b")
        assert verdict.faults() == {}
        assert (verdict().unknown, verdict().redelivered) == (1, 1)


class TestDoubled:
    def test_record_that_stands_twice_in_a_log_is_doubled_but_not_by_retries_of_acks_1(self, notes, verdict):
        produced(notes, "a")
        notes.open("sensor", SOURCE, kind="acks=1").sent("b", 0, 1)
        reading(notes, "a", "b", "b", "a")
        assert verdict.faults() == {"doubled": 1}
        assert verdict().retried == 1

    def test_record_that_was_copied_once_too_early_is_doubled_and_reorders_nothing(self, notes, verdict):
        produced(notes, "a", "b")
        notes.open("web", SOURCE, kind="idempotent").sent("c", 0, 2)
        reading(notes, "b", "c", "a", "b", "c", cluster=TARGET, first=9)
        assert verdict.faults() == {"doubled": 2}

    def test_copies_by_retries_of_acks_1_are_no_position_on_the_other_cluster(self, notes, verdict):
        # Twice on the source, at offsets 0 and 1: the group read the first, and nobody saw the first on the target.
        notes.open("sensor", SOURCE, kind="acks=1").sent("a", 0, 0)
        reading(notes, "a").commit(0, 1)
        reading(notes, "a", cluster=TARGET, first=11)
        assert verdict.faults() == {}

    def test_record_in_two_partitions_of_one_cluster_is_doubled(self, notes, verdict):
        produced(notes, "a")
        reading(notes, "a").got("a", 1, 0)
        assert verdict.faults() == {"doubled": 1}

    def test_uncommitted_record_may_come_again_after_a_rebalance_and_a_committed_one_may_not(self, notes, verdict):
        produced(notes, "a", "b")
        first = reading(notes, "a", "b")
        first.commit(0, 1)
        first.note("revoke", partitions=[[TOPIC, 0]])
        reading(notes, "a", "b")
        assert verdict.faults() == {"doubled": 1}
        assert verdict().redelivered == 1

    def test_commit_that_was_answered_after_the_partition_was_assigned_again_excuses_what_comes_again(
        self, notes, verdict
    ):
        produced(notes, "a")
        first = reading(notes, "a")
        first.note("commit", commit=1, positions=[[TOPIC, 0, 1]])
        second = notes.open("billing-other", SOURCE, group="billing")
        second.assign(0)
        first.note("committed", commit=1, outcome="ok")
        second.got("a", 0, 0)
        assert verdict.faults() == {}

    def test_group_that_begins_on_the_target_before_its_commit_on_the_source_is_moved_back(self, notes, verdict):
        produced(notes, "a", "b", "c")
        reading(notes, "a", "b", "c").commit(0, 3)
        reading(notes, "b", "c", cluster=TARGET, first=21)
        # Offset 21 is higher than 3: positions are compared by values.
        assert verdict.faults() == {"doubled": 2, "commits_backwards": 1}

    def test_group_that_goes_on_where_it_was_is_right_though_offsets_are_lower(self, notes, verdict):
        produced(notes, *"abcdef", first=500)
        reading(notes, *"abcdef", first=500).commit(0, 504)
        reading(notes, *"abcdef", cluster=TARGET, group="audit")
        reading(notes, "e", "f", cluster=TARGET, first=4).commit(0, 6)
        assert verdict.faults() == {}
        assert verdict().redelivered == 2


class TestCommitsBackwards:
    def test_commit_below_one_that_was_acknowledged_before_it_was_tried(self, notes, verdict):
        produced(notes, "a", "b")
        member = reading(notes, "a", "b")
        member.commit(0, 2)
        member.commit(0, 1)
        assert verdict.faults() == {"commits_backwards": 1}

    def test_commits_that_overlap_or_fail_are_in_no_order(self, notes, verdict):
        produced(notes, "a", "b")
        member = reading(notes, "a", "b")
        member.note("commit", commit=11, positions=[[TOPIC, 0, 2]])
        member.note("commit", commit=12, positions=[[TOPIC, 0, 1]])
        member.note("committed", commit=12, outcome="ok")
        member.note("committed", commit=11, outcome="ok")
        member.commit(0, 0, "failed")
        assert verdict.faults() == {}

    def test_offsets_of_a_transaction_count_once_it_is_committed(self, notes, verdict):
        produced(notes, "a", "b")
        worker = notes.open("worker", SOURCE, kind="transactional", group="billing")
        worker.assign(0)
        for number, outcome in ((2, "committed"), (1, "aborted"), (1, "committed")):
            txn = worker.begin()
            worker.note("commit", commit=100 + txn, positions=[[TOPIC, 0, number]], txn=txn)
            worker.end(txn, outcome)
        worker.got("a", 0, 0)
        assert verdict.faults() == {"commits_backwards": 1}

    def test_position_on_the_target_before_the_commit_on_the_source_without_any_receipt(self, notes, verdict):
        produced(notes, "a", "b")
        reading(notes, "a", "b").commit(0, 2)
        reading(notes, "a", "b", cluster=TARGET, first=7, group="audit")
        late = notes.open("billing-late", TARGET, group="billing")
        late.assign(0, position=8)
        assert verdict.faults() == {"commits_backwards": 1}


class TestReordered:
    def test_records_of_one_client_and_key_in_another_order_than_sent(self, notes, verdict):
        shop = notes.open("shop", SOURCE, kind="idempotent")
        for value, offset in (("a", 1), ("b", 0), ("c", 2)):
            shop.sent(value, 0, offset, key="k")
        reading(notes, "b", "a", "c")
        assert verdict.faults() == {"reordered": 1}

    def test_keys_of_one_client_and_records_of_several_are_in_no_order(self, notes, verdict):
        shop = notes.open("shop", SOURCE, kind="idempotent")
        shop.sent("a", 0, 3, key="k1")
        shop.sent("b", 0, 2, key="k2")
        notes.open("web", SOURCE, kind="idempotent").sent("c", 0, 1, key="k1")
        sensor = notes.open("sensor", SOURCE, kind="acks=1")
        sensor.sent("d", 0, 5, key="k")
        sensor.sent("e", 0, 4, key="k")
        reading(notes, "c", "b", "a", "e", "d", first=1)
        assert verdict.faults() == {}

    def test_client_that_was_restarted_writes_behind_what_was_acknowledged_before(self, notes, verdict):
        produced(notes, "a", first=1)
        produced(notes, "b", first=0)
        reading(notes, "b", "a")
        assert verdict.faults() == {"reordered": 1}

    def test_send_without_an_answer_may_arrive_behind_those_of_the_next_process(self, notes, verdict):
        produced(notes).send("a", key="k")
        produced(notes, "b", first=0)
        reading(notes, "b", "a")
        assert verdict.faults() == {}

    def test_processes_of_one_client_that_overlap_are_in_no_order(self, notes, verdict):
        first = produced(notes)
        produced(notes, "b", first=0)
        first.sent("a", 0, 1, key="k")
        reading(notes, "b", "a")
        assert verdict.faults() == {}

    def test_target_in_another_order_than_the_source(self, notes, verdict):
        for number, value in enumerate("abc"):
            notes.open(f"p{number}", SOURCE, kind="idempotent").sent(value, 0, number)
        reading(notes, "a", "c", "b", cluster=TARGET, first=70)
        assert verdict.faults() == {"reordered": 1}

    def test_consumer_that_jumps_back_without_a_rebalance(self, notes, verdict):
        produced(notes, "a", "b", "c")
        member = reading(notes, "a")
        member.got("c", 0, 2)
        member.got("b", 0, 1)
        assert verdict.faults() == {"reordered": 1}


class TestReadUncommitted:
    @pytest.mark.parametrize("end", ["aborted", None])
    @pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
    def test_value_of_an_aborted_or_never_committed_transaction(self, notes, verdict, end, isolation):
        till = notes.open("till", SOURCE, kind="transactional")
        txn = till.begin()
        till.sent("a", 0, 0, txn=txn)
        if end is not None:
            till.end(txn, end)
        reader = notes.open("audit", SOURCE, isolation=isolation)
        reader.got("a", 0, 0)
        assert verdict.faults() == ({"read_uncommitted": 1} if isolation == "read_committed" else {})

    def test_value_that_was_received_before_anybody_asked_to_commit_it(self, notes, verdict):
        till = notes.open("till", SOURCE, kind="transactional")
        txn = till.begin()
        till.sent("a", 0, 0, txn=txn)
        reading(notes, "a")
        till.end(txn, "committed")
        assert verdict.faults() == {"read_uncommitted": 1}


class TestTorn:
    def test_half_of_a_transaction_that_was_left_behind_on_the_source(self, notes, verdict):
        till = notes.open("till", SOURCE, kind="transactional")
        txn = till.begin()
        for offset, value in enumerate("abc"):
            till.sent(value, 0, offset, txn=txn)
        till.end(txn, "committed")
        reading(notes, *"abc")
        finally_reading(notes, "a", "c")
        assert verdict.faults() == {"torn": 1, "lost": 1}


class TestSkipped:
    def test_group_that_was_moved_too_far_skips_what_others_read(self, notes, verdict):
        produced(notes, *"abcde")
        reading(notes, *"abcde", group="audit")
        reading(notes, "a", "b").commit(0, 2)
        reading(notes, "e", cluster=TARGET, first=14)
        assert verdict.faults() == {"skipped": 2}

    def test_consumer_that_skips_within_a_span_what_its_group_had_read_in_another(self, notes, verdict):
        produced(notes, *"abc")
        reading(notes, *"abc")
        again = reading(notes, "a")
        again.got("c", 0, 2)
        assert verdict.faults() == {"skipped": 1}

    def test_start_at_a_noted_position_counts_from_there(self, notes, verdict):
        produced(notes, *"abc")
        reading(notes, *"abc", group="audit")
        member = notes.open("member", SOURCE, group="billing")
        member.assign(0, position=1)
        member.got("c", 0, 2)
        assert verdict.faults() == {"skipped": 1}

    def test_members_that_share_partitions_skip_nothing(self, notes, verdict):
        produced(notes, *"abcd")
        reading(notes, "a", "b").note("revoke", partitions=[[TOPIC, 0]])
        reading(notes, "c", "d", first=2)
        assert verdict.faults() == {}


class TestPhantom:
    def test_value_that_nobody_sent_counts_once_however_many_got_it(self, notes, verdict):
        produced(notes, "a")
        for group in ("billing", "search"):
            reading(notes, "a", "ghost", group=group)
        assert verdict.faults() == {"phantom": 1}


class TestInconsistent:
    def test_two_readers_of_one_offset_got_different_values(self, notes, verdict):
        shop = produced(notes)
        for value in "ab":
            shop.note("ack", seq=shop.send(value, key=value), partition=0, offset=None)
        reading(notes, "a")
        reading(notes, "b", group="search")
        assert verdict.faults() == {"inconsistent": 1}

    def test_record_in_another_partition_on_the_target(self, notes, verdict):
        produced(notes, "a")
        notes.open("audit", TARGET).got("a", 1, 5)
        assert verdict.faults() == {"inconsistent": 1}

    def test_record_with_another_key_than_it_was_sent_with(self, notes, verdict):
        produced(notes, "a")
        notes.open("audit", TARGET).got("a", 0, 5, key="other")
        assert verdict.faults() == {"inconsistent": 1}


class TestPauses:
    def test_pause_is_less_what_the_client_itself_took_to_stop_and_to_start(self, notes, verdict):
        shop = produced(notes, "a")
        begin = shop.note("stop")["mono"]
        notes.now += 400_000_000
        stopped = shop.note("close")["mono"]
        notes.now += 5_000_000_000
        started = notes.now
        notes.now += 300_000_000
        shop = notes.open("shop", TARGET, kind="idempotent", started=started)
        ready = shop.note("ready")["mono"]
        shop.sent("b", 0, 9, key="k")
        reading(notes, "a", "b", cluster=TARGET, first=8)
        whole = notes.files[1].of("ack")[0]["mono"] - notes.files[0].of("ack")[0]["mono"]
        expected = round((whole - (stopped - begin) - (ready - started)) / 1e6, 1)
        assert verdict().pauses_ms["producers"] == {"p50": expected, "p99": expected, "max": expected}
        assert 5000 < expected < 5010

    def test_client_that_changes_clusters_while_it_runs_pauses_as_well(self, notes, verdict):
        shop = produced(notes, "a")
        seq = shop.send("b", key="k")
        notes.now += 250_000_000
        shop.note("ack", seq=seq, partition=0, offset=7, cluster=TARGET)
        reading(notes, "a", "b", cluster=TARGET, first=6)
        assert verdict().pauses_ms["producers"]["max"] == 252.0
        assert verdict.faults() == {}

    def test_members_that_have_other_names_on_the_target_pause_as_a_group(self, notes, verdict):
        produced(notes, "a", "b")
        for name, cluster, value, offset in (("m1", SOURCE, "a", 0), ("m2", TARGET, "b", 5)):
            notes.now += 1_000_000_000
            notes.open(name, cluster, group="billing").got(value, 0, offset)
        pause = verdict().pauses_ms["consumers"]["max"]
        assert pause is not None
        assert 1000 < pause < 1005

    def test_clocks_of_two_machines_give_no_pause(self, notes, verdict):
        produced(notes, "a")
        produced(notes, "b", cluster=TARGET)
        notes.files[1].opened["clock"] = "another"
        reading(notes, "a")
        assert verdict().pauses_ms["producers"]["max"] is None
