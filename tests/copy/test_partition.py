"""One partition's copy without any I/O: what may be sent, what an answer means, and what stops it."""

import random
import struct
import uuid
from dataclasses import replace

import crc32c
import pytest

from kafka_migration.copy.orders import JOIN_BYTES, Assignment, Limits
from kafka_migration.copy.task.partition import PartitionCopy, Prepared, Stand
from kafka_migration.domain.handlers import Record
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.types import Halt, Position, TopicPartition
from kafka_migration.wire.batch import MAX_SEQUENCE, parse_header, verify_crc
from kafka_migration.wire.cluster import Leader
from kafka_migration.wire.fetch_request import Fetched
from kafka_migration.wire.produce_request import Appended
from tests.wire.logs import marker, thinned
from tests.wire.made import made_batch

TP = TopicPartition("t", 0)
FENCE_END = 8
LEADER = Leader(1, 3)


def _copy(
    *,
    source: int = 100,
    records: int = 0,
    continues: int | None = None,
    limits: Limits | None = None,
    armed: bool = True,
    **more: object,
):
    assignment = Assignment(
        partition=TP,
        position=Position(source=source, target=FENCE_END + records, fence=5, records=records),
        continues=source if continues is None else continues,
        fence_end=FENCE_END,
        closes=6,
        topic_key="key",
        producer_id=77,
        producer_epoch=5,
        source_topic_id=uuid.UUID(int=1),
        target_topic_id=uuid.UUID(int=2),
        **{"join_bytes": 0, "source_epoch": 3, **more},  # type: ignore[arg-type]
    )
    copy = PartitionCopy(assignment, limits or Limits())
    copy.leader = LEADER
    copy.armed_by = LEADER if armed else None
    return copy


def _fetched(*batches: bytes, **more: object) -> Fetched:
    fields = {"error": 0, "high_watermark": 0, "last_stable_offset": 0, "log_start": 0, "diverging_end": None, **more}
    return Fetched(partition=TP, records=b"".join(batches), **fields)  # type: ignore[arg-type]


def _batch(base_offset: int, count: int = 3, **more: object) -> bytes:
    return made_batch([b"%d" % n for n in range(count)], base_offset=base_offset, **more)  # type: ignore[arg-type]


def _emptied(base_offset: int, last: int, *, leader_epoch: int = 3) -> bytes:
    """What compaction leaves of a batch whose records are all gone."""
    batch = bytearray(made_batch([], base_offset=base_offset, leader_epoch=leader_epoch))
    struct.pack_into(">i", batch, 23, last - base_offset)
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    return bytes(batch)


def test_slow_handler_has_the_records_that_it_manages_queued_and_the_rest_fetched_again():
    copy, log, seen = _copy(), [thinned(100, [0, 2, 3], 4), _batch(105, 2)], list[int]()

    def handle(record: Record) -> Record | None:
        seen.append(record.offset)
        return None if record.offset == 102 else record

    copy.handle, taken = handle, []
    for end in (101, 103, 105, 106, 107):
        taken.append([(run.source, run.records) for run in copy.take(_fetched(*log), handling_seconds=0)])
        assert (copy.halting, copy.fetch_offset) == (None, end)
    assert seen == [100, 102, 103, 105, 106]
    assert taken == [[], [], [(103, 1)], [(105, 2)], []]
    assert [prepared.source_start for prepared in copy.queue] == [100, 103, 105, 106]
    assert (copy.is_dear, copy.has_runs_ahead) == (True, True)


def _send(copy: PartitionCopy) -> Prepared:
    assert copy.sendable is not None
    return copy.sent()


def _ok(copy: PartitionCopy, prepared: Prepared, at: int | None = None) -> None:
    place = FENCE_END + prepared.records_before if at is None else at
    copy.answered(prepared, Appended(TP, 0, place, ""))


def _error(copy: PartitionCopy, prepared: Prepared, code: int) -> None:
    copy.answered(prepared, Appended(TP, code, -1, "why"))


# -- the usual way --------------------------------------------------------------------------------------------


def test_fetched_batches_are_sent_in_order_as_the_links_own_and_confirmed_where_they_belong():
    copy = _copy()
    assert copy.take(_fetched(_batch(100, 3), _batch(103, 2))) == []
    sent = [_send(copy), _send(copy)]
    headers = [parse_header(prepared.data) for prepared in sent]
    assert [(h.producer_id, h.producer_epoch, h.base_sequence, h.base_offset) for h in headers] == [
        (77, 5, 0, 0),
        (77, 5, 3, 0),
    ]
    for header, prepared in zip(headers, sent, strict=True):
        verify_crc(header, memoryview(prepared.data))
    _ok(copy, sent[0])
    assert copy.position == Position(source=103, target=11, fence=5, records=3)
    _ok(copy, sent[1])
    receipt = copy.receipt()
    assert (receipt.source_start, receipt.source_end, receipt.continues) == (100, 105, 105)
    assert (receipt.target_start, receipt.target_end, receipt.records, receipt.batches) == (8, 13, 5, 2)
    assert (receipt.stand, receipt.source_epoch) == (Stand.RUN, 3)


def test_sequence_goes_on_from_the_records_since_the_fence_and_wraps():
    copy = _copy(records=MAX_SEQUENCE - 2)
    copy.take(_fetched(_batch(100, 5), _batch(105, 1)))
    first, second = _send(copy), _send(copy)
    assert [parse_header(p.data).base_sequence for p in (first, second)] == [MAX_SEQUENCE - 2, 3]
    _ok(copy, first)
    _ok(copy, second)
    assert (copy.stand, copy.records) == (Stand.RUN, MAX_SEQUENCE + 4)


def test_batch_around_the_position_is_trimmed_and_what_lies_before_it_left_out():
    copy = _copy(source=101)
    copy.take(_fetched(_batch(90, 4), _batch(100, 3), _batch(103, 1)))
    first = _send(copy)
    assert (first.source_start, first.source_end, first.records, first.openings) == (101, 103, 2, ())
    assert copy.fetch_offset == 104


def test_batch_that_comes_again_in_a_later_answer_is_taken_once():
    copy = _copy()
    copy.take(_fetched(_batch(100, 3)))
    copy.take(_fetched(_batch(100, 3), _batch(103, 1)))
    assert [p.source_start for p in copy.queue] == [100, 103]


def test_partition_stops_fetching_when_its_queue_is_full_and_past_its_end():
    copy = _copy(limits=Limits(partition_queue_bytes=1), until=105)
    assert copy.wants_fetch
    copy.take(_fetched(_batch(100, 3)))
    assert not copy.wants_fetch
    _ok(copy, _send(copy))
    assert copy.wants_fetch
    copy.take(_fetched(_batch(103, 3), _batch(106, 3)))
    assert [p.source_start for p in copy.queue] == [103], "nothing that begins behind the end"
    assert not copy.is_done
    _ok(copy, _send(copy))
    assert copy.is_done
    assert copy.position.source == 106, "a batch is not cut at the end"


# -- one in flight until the first success --------------------------------------------------------------------


def test_one_request_is_in_flight_until_the_first_success():
    copy = _copy(armed=False, limits=Limits(in_flight_requests=3))
    copy.take(_fetched(*(_batch(100 + n, 1) for n in range(6))))
    first = _send(copy)
    assert copy.sendable is None
    _ok(copy, first)
    _send(copy), _send(copy), _send(copy)
    assert copy.sendable is None, "never more than the limit"


def test_refused_first_batch_does_not_open_the_window():
    copy = _copy(armed=False)
    copy.take(_fetched(_batch(100, 1), _batch(101, 1)))
    _error(copy, _send(copy), 19)
    assert (copy.stand, copy.sendable) == (Stand.UNSETTLED, None)


@pytest.mark.parametrize("other", [Leader(2, 9), Leader(1, 9)])
def test_new_leader_gets_one_request_until_it_has_confirmed_one_itself(other):
    """It may know nothing of the producer, and then would take any batch after one that it refused."""
    copy = _copy(limits=Limits(in_flight_requests=3))
    copy.take(_fetched(*(_batch(100 + n, 1) for n in range(6))))
    _ok(copy, _send(copy))
    under_way = _send(copy)
    copy.leader = other
    assert copy.sendable is None, "one is under way to the leader before"
    _ok(copy, under_way)
    first = _send(copy)
    assert copy.sendable is None
    _ok(copy, first)
    _send(copy), _send(copy)
    assert copy.sendable is not None


# -- answers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("at", "reason"), [(9, Halt.FOREIGN_WRITER), (7, Halt.LOG_REGRESSED), (0, Halt.LOG_REGRESSED)])
def test_success_at_another_place_halts(at, reason):
    copy = _copy()
    copy.take(_fetched(_batch(100)))
    _ok(copy, _send(copy), at)
    assert (copy.stand, copy.halt, copy.position.records) == (Stand.HALTED, reason, 0)
    assert f"landed at {at}, it belongs at 8" in copy.detail


@pytest.mark.parametrize(
    ("answer", "halt", "said"),
    [
        ((1_700_000_000_000, 2), Halt.ALTERED, "the target gave source offsets 100 to 103 the timestamp 1700000000000"),
        ((-1, 5), Halt.LOG_REGRESSED, "log began at 4, and begins at 5 now"),
        ((-1, 4), "", ""),
        ((-1, -1), "", ""),
    ],
)
def test_success_that_altered_records_or_tells_of_deleted_ones_halts(answer, halt, said):
    copy = _copy(target_start=4)
    copy.take(_fetched(_batch(100)))
    copy.answered(_send(copy), Appended(TP, 0, FENCE_END, "", *answer))
    assert (copy.halt, said in copy.detail) == (halt, True)
    assert copy.position.records == (0 if halt else 3)


def test_later_batch_accepted_although_the_one_before_it_was_not_halts():
    copy = _copy()
    copy.take(_fetched(_batch(100, 3), _batch(103, 3)))
    _, second = _send(copy), _send(copy)
    _ok(copy, second)
    assert (copy.stand, copy.halt) == (Stand.HALTED, Halt.FOREIGN_WRITER)


@pytest.mark.parametrize("code", [47, 90])
def test_fenced_answer_means_taken_over(code):
    copy = _copy()
    copy.take(_fetched(_batch(100)))
    _error(copy, _send(copy), code)
    assert (copy.stand, copy.halt) == (Stand.TAKEN_OVER, "")


@pytest.mark.parametrize("code", [10, 18, 32, 43, 44, 76, 87])
def test_batch_refused_for_good_halts_with_the_brokers_reason(code):
    copy = _copy()
    copy.take(_fetched(_batch(100, 1)))
    _error(copy, _send(copy), code)
    assert (copy.stand, copy.halt) == (Stand.HALTED, Halt.REFUSED)
    assert f"({code}) why; the next one begins at source offset 101" in copy.detail


@pytest.mark.parametrize("code", [3, 6, 7, 13, 19, 20, 45, 46, 56, 59, 100])
def test_any_other_error_leaves_the_partition_to_a_fence(code):
    copy = _copy()
    copy.take(_fetched(_batch(100, 1), _batch(101, 1), _batch(102, 1)))
    first, second = _send(copy), _send(copy)
    _error(copy, first, code)
    assert (copy.stand, copy.sendable, copy.wants_fetch, copy.is_done) == (Stand.UNSETTLED, None, False, False)
    _ok(copy, second)  # accepted all the same: only a fence tells what that means
    assert (copy.stand, copy.halt, copy.records, copy.is_done) == (Stand.UNSETTLED, "", 0, True)
    assert copy.position == copy.assignment.position


@pytest.mark.parametrize(("code", "unclear"), [(7, 0), (19, 0), (6, 0), (3, 0), (56, 0), (45, 1), (59, 1)])
def test_answer_that_says_nothing_of_a_passing_state_counts_as_unclear(code: int, unclear: int) -> None:
    """Of a batch that never gets a clear answer the driver has an end (docs/mirror.md); a broker's state passes."""
    copy = _copy()
    copy.take(_fetched(_batch(100)))
    _error(copy, _send(copy), code)
    assert copy.receipt().unclear == unclear


def test_lost_answer_leaves_the_partition_to_a_fence_and_a_late_one_changes_nothing():
    copy = _copy()
    copy.take(_fetched(_batch(100)))
    prepared = _send(copy)
    copy.unanswered(prepared, "timed out")
    assert (copy.stand, copy.detail) == (Stand.UNSETTLED, "timed out")
    _ok(copy, prepared)
    copy.unanswered(prepared, "again")
    assert (copy.stand, copy.detail, copy.records) == (Stand.UNSETTLED, "timed out", 0)


def test_answers_after_a_halt_change_nothing():
    copy = _copy()
    copy.take(_fetched(_batch(100, 1), _batch(101, 1)))
    first, second = _send(copy), _send(copy)
    _ok(copy, first, 0)
    _error(copy, second, 47)
    assert (copy.stand, copy.halt, copy.is_done) == (Stand.HALTED, Halt.LOG_REGRESSED, True)


def test_batch_that_the_connection_did_not_take_is_sent_again_as_it_was():
    copy = _copy()
    copy.take(_fetched(_batch(100, 1), _batch(101, 1)))
    first = _send(copy)
    with pytest.raises(ValueError, match="sent last"):
        copy.not_sent(copy.queue[0])
    copy.not_sent(first)
    assert not copy.in_flight
    assert _send(copy) is first
    assert copy.queued_bytes == len(copy.queue[0].data)


# -- gaps and openings ----------------------------------------------------------------------------------------


def test_batch_behind_a_gap_waits_until_its_opening_is_durable():
    copy = _copy()
    openings = copy.take(_fetched(_batch(100, 3), _batch(110, 2), _batch(112, 1), _batch(120, 1)))
    assert openings == [
        RunOpening(fence=5, records=3, source=110, target=FENCE_END + 3, epoch=3),
        RunOpening(fence=5, records=6, source=120, target=FENCE_END + 6, epoch=3),
    ]
    _ok(copy, _send(copy))
    assert copy.sendable is None
    copy.openings_are_durable(openings[:1])
    _ok(copy, _send(copy))
    _ok(copy, _send(copy))
    assert copy.sendable is None
    copy.openings_are_durable(openings[1:])
    _ok(copy, _send(copy))
    assert copy.position == Position(source=121, target=FENCE_END + 7, fence=5, records=7)


def test_gap_before_the_first_record_of_a_fence_closes_the_fences_before():
    (opening,) = _copy().take(_fetched(_batch(104)))
    assert opening == RunOpening(fence=5, records=0, source=104, target=FENCE_END, closes=6, epoch=3)


def test_position_behind_a_gap_that_was_never_opened_needs_an_opening():
    (opening,) = _copy(source=100, records=4, continues=95).take(_fetched(_batch(100)))
    assert (opening.records, opening.source) == (4, 100)


def test_emptied_batches_are_passed_over_and_the_next_one_begins_a_run():
    copy = _copy()
    (opening,) = copy.take(
        _fetched(_batch(100, 3), _emptied(103, 109), _emptied(110, 119, leader_epoch=4), _batch(120))
    )
    assert opening == RunOpening(fence=5, records=3, source=120, target=FENCE_END + 3, epoch=3)
    _ok(copy, _send(copy))
    assert (copy.position.source, copy.continues) == (120, 103), "nothing is left to copy up to there"
    copy.openings_are_durable([opening])
    _ok(copy, _send(copy))
    assert (copy.position.source, copy.receipt().continues) == (123, 123)


def test_emptied_batches_alone_move_the_position_to_the_end():
    copy = _copy(until=120)
    copy.take(_fetched(_emptied(100, 109), _emptied(110, 119, leader_epoch=9)))
    assert (copy.position.source, copy.position.records, copy.receipt().continues) == (120, 0, 100)
    assert copy.is_done
    assert copy.receipt().source_epoch == 9
    assert copy.last_epoch == 9, "or the source's leader would take our position for one that it lost"


def test_emptied_batch_behind_one_in_flight_is_passed_with_it():
    copy = _copy()
    copy.take(_fetched(_batch(100, 3)))
    prepared = _send(copy)
    copy.take(_fetched(_emptied(103, 109, leader_epoch=4)))
    assert (copy.position.source, copy.receipt().source_epoch) == (100, 3)
    _ok(copy, prepared)
    assert (copy.position.source, copy.continues) == (110, 103)
    assert copy.receipt().source_epoch == 4, "or the next epoch asks for 110 as of 3, which ended at 103: truncated"


def test_damaged_batch_that_claims_to_be_empty_is_corruption():
    damaged = bytearray(_batch(100, 3))
    struct.pack_into(">i", damaged, 57, 0)
    copy = _copy()
    copy.take(_fetched(bytes(damaged)))
    copy.settle_halt()
    assert (copy.halt, copy.fetch_offset) == (Halt.CORRUPT, 100)


def test_queue_dropped_with_runs_written_ahead_needs_a_fence():
    copy = _copy()
    openings = copy.take(_fetched(_batch(100, 3), _batch(110, 2)))
    copy.openings_are_durable(openings)
    _ok(copy, _send(copy))
    copy.drop_queue()
    assert (copy.stand, copy.position.source) == (Stand.UNSETTLED, 103)
    assert "written ahead" in copy.detail


def test_queue_dropped_without_any_needs_none():
    copy = _copy()
    copy.take(_fetched(_batch(100, 3), _batch(103, 2)))
    in_flight = _send(copy)
    copy.drop_queue()
    _ok(copy, in_flight)
    assert (copy.stand, copy.position.source, copy.queued_bytes, copy.is_done) == (Stand.RUN, 103, 0, False)


# -- what stops it --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("obstacle", "reason"),
    [
        (_batch(103)[:-1] + b"\x55", Halt.CORRUPT),
        (struct.pack(">qi", 103, 3) + _batch(103)[12:], Halt.CORRUPT),
    ],
)
def test_obstacle_halts_once_everything_before_it_is_copied_and_nothing_behind_it_is(obstacle, reason):
    copy = _copy()
    copy.take(_fetched(_batch(100, 3), obstacle, _batch(106, 3)))
    assert not copy.wants_fetch
    copy.settle_halt()
    assert copy.stand is Stand.RUN
    prepared = _send(copy)
    copy.settle_halt()
    assert copy.stand is Stand.RUN
    _ok(copy, prepared)
    copy.settle_halt()
    assert (copy.stand, copy.halt, copy.position.source) == (Stand.HALTED, reason, 103)
    assert "at source offset 103" in copy.detail
    assert copy.take(_fetched(_batch(103, 3))) == []
    assert copy.is_done
    assert copy.receipt().halt == reason


def test_thinned_batch_is_sent_once_all_of_its_runs_are_durable():
    copy = _copy()
    openings = copy.take(_fetched(_batch(100, 2), thinned(102, [1, 2, 5], 9), _batch(112)))
    assert [(it.records, it.source, it.target) for it in openings] == [
        (2, 103, FENCE_END + 2),
        (4, 107, FENCE_END + 4),
        (5, 112, FENCE_END + 5),
    ]
    _ok(copy, _send(copy))
    assert copy.position.source == 102
    copy.openings_are_durable(openings[:1])
    assert copy.sendable is None, "only the first of its two runs is durable"
    copy.openings_are_durable(openings)
    _ok(copy, _send(copy))
    receipt = copy.receipt()
    assert (receipt.source_end, receipt.continues, receipt.records) == (112, 108, 5)


def test_position_behind_the_last_record_of_a_thinned_batch_passes_over_the_rest_of_it():
    copy = _copy(source=106)
    copy.take(_fetched(thinned(100, [1, 5], 9)))
    assert (copy.position.source, copy.fetch_offset, list(copy.queue)) == (110, 110, [])


def test_markers_and_aborted_transactions_move_the_position_and_the_next_batch_begins_a_run():
    copy = _copy()
    who = (9, 0)
    aborted = _batch(103, attributes=0x10)
    aborted = aborted[:43] + struct.pack(">qh", *who) + aborted[53:]
    aborted = aborted[:17] + struct.pack(">I", crc32c.crc32c(aborted[21:])) + aborted[21:]
    (opening,) = copy.take(
        _fetched(_batch(100, 3), aborted, marker(106, who, commit=False), _batch(107), aborted=((9, 103),))
    )
    assert (opening.records, opening.source) == (3, 107)
    _ok(copy, _send(copy))
    assert (copy.position.source, copy.receipt().continues) == (107, 103)


def test_nothing_said_twice_below_the_end_may_be_passed_over():
    copy = _copy(source=100)
    assert copy.found_nothing(_fetched(last_stable_offset=108)) is None, "once may be an accident"
    assert copy.found_nothing(_fetched(last_stable_offset=110)) is None, "another end is another question"
    assert copy.found_nothing(_fetched(last_stable_offset=110)) == 110
    assert copy.position.source == 100, "a broker may be late with what it has elsewhere"
    copy.pass_over_nothing(110)
    assert (copy.position.source, copy.fetch_offset, copy.last_epoch) == (110, 110, -1)
    assert copy.found_nothing(_fetched(last_stable_offset=110)) is None
    (opening,) = copy.take(_fetched(_batch(110)))
    assert (opening.source, opening.records) == (110, 0)


def test_what_came_after_all_is_not_passed_over():
    copy = _copy(source=100)
    for _ in range(2):
        copy.found_nothing(_fetched(last_stable_offset=110))
    copy.take(_fetched(_batch(100, 3), last_stable_offset=110))
    copy.pass_over_nothing(110)
    assert (copy.fetch_offset, copy.position.source) == (103, 100)


def test_what_waits_at_the_source_is_not_passed_over():
    held = [True]
    copy = _copy(source=100)
    copy._is_held = lambda _timestamp: held[0]
    for _ in range(2):
        copy.found_nothing(_fetched(last_stable_offset=110))
    copy.take(_fetched(_batch(100, 3), last_stable_offset=110))
    copy.pass_over_nothing(110)
    assert (copy.fetch_offset, copy.position.source) == (100, 100)
    # Records were seen there: two answers without any have to come after that.
    held[0] = False
    assert copy.found_nothing(_fetched(last_stable_offset=110)) is None


def test_source_that_lost_what_was_copied_halts():
    copy = _copy(source_epoch=7)
    assert copy.last_epoch == 7
    copy.take(_fetched(diverging_end=40))
    copy.settle_halt()
    assert (copy.halt, copy.position.source) == (Halt.TRUNCATED, 100)


def test_unclear_answer_before_an_obstacle_is_settled_by_a_fence_first():
    copy = _copy()
    copy.take(_fetched(_batch(100, 3), _batch(103)[:-1] + b"\x55"))
    copy.unanswered(_send(copy), "lost")
    copy.settle_halt()
    assert (copy.stand, copy.halt) == (Stand.UNSETTLED, "")


@pytest.mark.parametrize("changes", [{"fence_end": 9}, {"continues": 101}])
def test_assignment_that_contradicts_itself_is_refused(changes):
    with pytest.raises(ValueError, match="t-0"):
        replace(_copy().assignment, **changes)


# -- everything at once ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_a_confirmed_position_is_what_the_target_holds(seed):
    """A broker that appends, refuses or loses answers by chance: whatever is confirmed stands there, in order."""
    chance = random.Random(seed)
    copy = _copy(armed=False, limits=Limits(in_flight_requests=chance.randrange(1, 5), partition_queue_bytes=900))
    log: list[int] = []  # source offsets by target place
    source, broken = 100, False
    while copy.stand is Stand.RUN and source < 180:
        if copy.wants_fetch:
            source += chance.choice([0, 0, 0, 4])
            count = chance.randrange(1, 5)
            batch = _batch(source, count) if chance.random() < 0.9 else _emptied(source, source + count - 1)
            copy.openings_are_durable(copy.take(_fetched(batch)))
            source += count
        while copy.sendable is not None and chance.random() < 0.8:
            copy.sent()
        while copy.in_flight and chance.random() < 0.7:
            prepared = copy.in_flight[0]
            accepted = not broken and chance.random() < 0.97
            if accepted and prepared.records_before == len(log):
                log.extend(range(prepared.source_start, prepared.continues))
                if chance.random() < 0.02:
                    copy.unanswered(prepared, "lost")
                else:
                    _ok(copy, prepared)
            else:
                broken = True
                _error(copy, prepared, 45)
    position = copy.position
    confirmed = log[: position.records]
    assert len(confirmed) == position.records
    assert all(offset < position.source for offset in confirmed)
    assert all(offset >= position.source for offset in log[position.records :])


def test_small_neighbours_are_sent_as_one_batch_in_their_place():
    copy = _copy(join_bytes=JOIN_BYTES)
    (opening,) = copy.take(_fetched(_batch(100, 1), _batch(101, 2), _batch(103, 1), _batch(110, 1)))
    assert (opening.source, opening.records) == (110, 4), "a gap in it is a run of its own"
    assert copy.sendable is None
    copy.openings_are_durable([opening])
    sent = _send(copy)
    assert (sent.source_start, sent.source_end, sent.continues, sent.records, sent.joined) == (100, 111, 111, 5, 4)


@pytest.mark.parametrize("code", [10, 18])
def test_joined_batch_that_is_too_large_for_the_target_makes_smaller_joints_after_a_fence(code):
    copy = _copy(join_bytes=JOIN_BYTES)
    copy.take(_fetched(_batch(100, 1), _batch(101, 1)))
    sent = _send(copy)
    _error(copy, sent, code)
    assert copy.stand is Stand.UNSETTLED
    assert copy.receipt().join_bytes == len(sent.data) // 2
    again = _copy(join_bytes=copy.receipt().join_bytes)
    again.take(_fetched(_batch(100, 1), _batch(101, 1)))
    assert [it.joined for it in again.queue] == [1, 1]


@pytest.mark.parametrize("code", [10, 18])
def test_batch_of_the_source_that_is_too_large_for_the_target_is_split_after_a_fence(code):
    copy = _copy()
    copy.take(_fetched(_batch(100, 4)))
    sent = _send(copy)
    _error(copy, sent, code)
    assert (copy.stand, copy.receipt().most_bytes) == (Stand.UNSETTLED, len(sent.data) // 2)
    again = _copy(most_bytes=copy.receipt().most_bytes)
    assert again.take(_fetched(_batch(100, 4))) == [], "one run goes on"
    assert [(it.source_start, it.source_end, it.records) for it in again.queue] == [
        (100, 101, 1),
        (101, 102, 1),
        (102, 103, 1),
        (103, 104, 1),
    ]


@pytest.mark.parametrize("code", [10, 18])
def test_record_that_is_too_large_for_the_target_halts(code):
    copy = _copy(join_bytes=JOIN_BYTES)
    copy.take(_fetched(_batch(100, 1)))
    _error(copy, _send(copy), code)
    assert (copy.stand, copy.halt) == (Stand.HALTED, Halt.REFUSED)


def test_new_leader_epoch_of_the_source_begins_a_run_and_is_written_ahead():
    copy = _copy()
    openings = copy.take(_fetched(_batch(100, 3), _batch(103, 3, leader_epoch=4), _batch(106, 3, leader_epoch=4)))
    assert [(o.source, o.records, o.epoch) for o in openings] == [(103, 3, 4)]
    first = _send(copy)
    assert first.records_before == 0
    assert copy.sendable is None, "not before its epoch is durable"
    copy.openings_are_durable(openings)
    assert copy.sendable is not None


def test_what_may_not_be_sent_yet_is_fetched_again_later_and_no_run_is_written_ahead_for_it():
    young, held = 1_800_000_000_000, [True]
    copy = _copy(source=10)
    copy._is_held = lambda timestamp: held[0] and timestamp < young
    batches = _fetched(_batch(10, timestamp=young), _batch(20, timestamp=young - 1_000), _batch(30, timestamp=young))
    assert [opening.source for opening in copy.take(batches)] == []
    assert ([prepared.source_start for prepared in copy.queue], copy.fetch_offset) == ([10], 13)
    assert not copy.wants_fetch
    _send(copy)
    assert not copy.has_runs_ahead
    held[0] = False
    assert copy.wants_fetch
    later = _fetched(_batch(20, timestamp=young - 1_000), _batch(30, timestamp=young))
    assert [opening.source for opening in copy.take(later)] == [20, 30]
    assert copy.fetch_offset == 33
