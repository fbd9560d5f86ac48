"""The tail of a target partition, batch by batch: what explains it, and every way in which it can be unexplained."""

import random
from dataclasses import replace

import pytest

from kafka_migration.copy.driver.takeover import Fenced, Known, Overtaken, Stopped, Tail, fence_number
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.openings import Openings
from kafka_migration.domain.skips import Skip
from kafka_migration.domain.types import Halt, Identity, Position, TopicPartition
from kafka_migration.wire.batch import MAX_SEQUENCE, BatchHeader

US, WRITER = 77, Identity(77, 5)
FENCE_END = 21
OPENING = RunOpening(fence=5, records=0, source=1_000, target=FENCE_END, closes=20)
TP = TopicPartition("t", 0)


def _batch(
    base: int, count: int = 3, *, sequence: int | None = None, producer: int = US, epoch: int = 5
) -> BatchHeader:
    place = (base - FENCE_END) % MAX_SEQUENCE if sequence is None else sequence
    return BatchHeader(base, 61, 0, 2, 0, 0, count - 1, 0, 0, producer, epoch, place, count)


def _marker(base: int, *, producer: int = US, epoch: int = 6, transactional: bool = True) -> BatchHeader:
    return BatchHeader(base, 78, 0, 2, 0, 0x30 if transactional else 0x20, 0, 0, 0, producer, epoch, -1, 1)


def _tail(*headers: BatchHeader, verified: int = FENCE_END, openings: tuple[RunOpening, ...] = (OPENING,)) -> Tail:
    tail = Tail(Known(openings=openings, writer=WRITER, verified=verified), start=verified)
    for header in headers:
        tail.see(header, US)
    return tail


def _stopped(*headers: BatchHeader, **more: int) -> Stopped:
    stopped = _tail(*headers, **more).stopped  # type: ignore[arg-type]
    assert stopped is not None
    return stopped


def _resume(tail: Tail, marker: int, openings: tuple[RunOpening, ...] = (OPENING,)) -> tuple[Position, RunOpening]:
    assert tail.stopped is None, tail.stopped
    resumed = tail.resume(openings, fence=9, marker=marker, source_start=4)
    return resumed.position, resumed.opening


# -- explained ------------------------------------------------------------------------------------------------


def test_batches_of_the_link_at_their_places_are_progress():
    tail = _tail(_batch(21, 3), _batch(24, 5), _marker(29))
    assert _resume(tail, 29) == (
        Position(source=1_008, target=30, fence=9, records=0),
        RunOpening(fence=9, records=0, source=1_008, target=30, closes=29),
    )


def test_nothing_written_since_the_fence_goes_on_where_it_began():
    position, opening = _resume(_tail(_marker(21)), 21)
    assert (position.source, position.target, opening.closes) == (1_000, 22, 21)


def test_skip_that_the_position_stands_in_is_left_behind_and_nothing_is_known_of_the_epoch_before():
    opening = replace(OPENING, epoch=3)
    skips = [Skip(start=1_005, end=1_040, halt="DATA_LOSS", detail="", by="ada", at="", topic_key="")]
    for sent, source, epoch in ((8, 1_040, -1), (4, 1_004, 3)):
        tail = _tail(_batch(21, sent), _marker(21 + sent), openings=(opening,))
        resumed = tail.resume((opening,), fence=9, marker=21 + sent, source_start=4, skips=skips)
        assert (resumed.position.source, resumed.opening.source, resumed.opening.epoch) == (source, source, epoch)


@pytest.mark.parametrize(("told", "source"), [(8, 1_040), (7, 1_008)])
def test_skip_that_begins_behind_what_has_no_records_is_left_behind_as_well(told, source):
    """What was passed over (emptied batches, say) moved the position on, and no run of the offset map."""
    reached = Position(source=1_012, target=21 + told, fence=5, records=told)
    tail = Tail(Known(openings=(OPENING,), writer=WRITER, verified=FENCE_END, reached=reached), FENCE_END)
    for header in (_batch(21, 8), _marker(29)):
        tail.see(header, US)
    skips = [Skip(start=1_012, end=1_040, halt="DATA_LOSS", detail="", by="ada", at="", topic_key="")]
    assert tail.resume((OPENING,), fence=9, marker=29, source_start=4, skips=skips).position.source == source


def test_only_what_stands_above_the_verified_offset_is_judged():
    tail = _tail(_batch(24, 5), _marker(29), verified=24)
    assert _resume(tail, 29)[0].source == 1_008


def test_markers_of_fences_whose_authors_died_are_known_and_the_first_closes_the_data():
    tail = _tail(_batch(21, 3), _marker(24, epoch=6), _marker(25, epoch=7), _marker(26, epoch=9))
    position, opening = _resume(tail, 26)
    assert (position.source, position.target, opening.closes) == (1_003, 27, 24)


@pytest.mark.parametrize(
    ("start", "reached", "goes_on"),
    [
        (1_003, 1_050, 1_003),  # the source still has what follows its last record
        (1_040, 1_050, 1_050),  # of the markers that were passed some are gone
        (1_060, 1_050, 1_003),  # more is gone than was passed: that is for the fetch to find out
    ],
)
def test_what_retention_took_of_that_which_was_passed_over_is_no_loss(start, reached, goes_on):
    place = Position(source=reached, target=24, fence=OPENING.fence, records=3)
    tail = Tail(Known(openings=(OPENING,), writer=WRITER, verified=24, reached=place), 24)
    assert tail.see(_marker(24), US)
    resumed = tail.resume((OPENING,), fence=9, marker=24, source_start=start)
    assert resumed.position.source == goes_on
    further = Tail(Known(openings=(OPENING,), writer=WRITER, verified=24, reached=place), 24)
    assert further.see(_batch(24, 2), US)
    assert further.resume((OPENING,), fence=9, marker=26, source_start=start).position.source == 1_005


def test_partition_that_was_never_mirrored_begins_at_the_source_start_behind_known_markers():
    tail = Tail(Known(openings=(), writer=None, verified=0), 0)
    assert all(tail.see(header, US) for header in (_marker(0), _marker(1)))
    position, opening = _resume(tail, 1, ())
    assert position == Position(source=4, target=2, fence=9, records=0)
    assert opening.closes == 0


def test_sequences_that_wrapped_are_known_by_their_place():
    far = FENCE_END + MAX_SEQUENCE - 2
    tail = _tail(_batch(far, 5), _batch(far + 5, 1), _marker(far + 6), verified=far)
    assert _resume(tail, far + 6)[0].source == 1_000 + MAX_SEQUENCE + 4


@pytest.mark.parametrize(
    ("records", "source"), [(0, 1_000), (2, 1_002), (3, 1_010), (6, 1_013), (7, 1_050), (8, 1_051)]
)
def test_position_is_that_of_the_run_in_which_the_last_record_stands(records, source):
    openings = (
        OPENING,
        RunOpening(fence=5, records=3, source=1_010, target=FENCE_END + 3),
        RunOpening(fence=5, records=7, source=1_050, target=FENCE_END + 7),
    )
    tail = _tail(*([_batch(21, records)] if records else []), _marker(21 + records))
    assert _resume(tail, 21 + records, openings)[0].source == source


def test_opening_that_became_durable_after_the_fence_began_counts():
    """Read before the fence it would be missing, and its records taken for the run before: 1013 instead of 1103."""
    tail = _tail(_batch(21, 10), _batch(31, 3), _marker(34))
    late = RunOpening(fence=5, records=10, source=1_100, target=FENCE_END + 10)
    assert _resume(tail, 34, (OPENING, late))[0].source == 1_103


# -- unexplained ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "foreign",
    [
        _batch(24, producer=78),
        _batch(24, producer=-1, epoch=-1, sequence=-1),
        _batch(24, epoch=4),
        _batch(24, epoch=6),
        _marker(24, producer=78, transactional=False),
    ],
    ids=["other producer", "no producer", "earlier epoch", "later epoch", "other control record"],
)
def test_what_the_link_did_not_write_is_foreign(foreign):
    stopped = _stopped(_batch(21, 3), foreign, _marker(27))
    assert (stopped.reason, stopped.target_offset) == (Halt.FOREIGN_WRITER, 24)


@pytest.mark.parametrize("count", [0, 3])
def test_marker_of_a_transaction_that_wrote_nothing_here_is_passed_over(count):
    """As of a producer that its own fence has cut short: it aborts behind the cut, where the way back begins."""
    end = 21 + count
    tail = _tail(*([_batch(21, count)] if count else []), _marker(end, producer=78), _marker(end + 1))
    assert _resume(tail, end + 1) == (
        Position(source=1_000 + count, target=end + 2, fence=9, records=0),
        RunOpening(fence=9, records=0, source=1_000 + count, target=end + 2, closes=end),
    )
    assert not tail.shows(Identity(78, 6))


def test_own_batch_behind_a_marker_of_another_is_not_at_its_place():
    stopped = _stopped(_batch(21, 3), _marker(24, producer=78), _batch(25, sequence=3))
    assert (stopped.reason, stopped.target_offset) == (Halt.FOREIGN_WRITER, 25)


def test_own_batch_behind_a_marker_got_past_the_fence():
    stopped = _stopped(_batch(21, 3), _marker(24), _batch(25, sequence=3), _marker(28))
    assert (stopped.reason, stopped.target_offset) == (Halt.FOREIGN_WRITER, 25)


def test_any_record_in_a_partition_that_was_never_mirrored_is_foreign():
    tail = Tail(Known(openings=(), writer=None, verified=0), 0)
    assert not tail.see(_batch(0), US)
    assert tail.stopped is not None
    assert tail.stopped.reason is Halt.FOREIGN_WRITER


def test_batch_that_stands_twice_is_a_duplicate():
    stopped = _stopped(_batch(21, 3, sequence=0), _batch(24, 3, sequence=0))
    assert (stopped.reason, stopped.target_offset) == (Halt.DUPLICATED, 24)


def test_batch_accepted_without_the_one_before_it_leaves_a_hole():
    stopped = _stopped(_batch(21, 3, sequence=3))
    assert (stopped.reason, stopped.target_offset) == (Halt.LOG_REGRESSED, 21)
    assert "missing" in stopped.detail


@pytest.mark.parametrize("base", [25, 40])
def test_offsets_that_are_gone_from_the_log_halt(base):
    assert _stopped(_batch(21, 3), _batch(base)).reason is Halt.LOG_REGRESSED
    assert _stopped(_batch(21, 3), _marker(base)).reason is Halt.LOG_REGRESSED


def test_log_that_begins_above_what_is_verified_halts():
    assert _stopped(_marker(23)).target_offset == 23


def test_batch_that_reaches_over_the_verified_offset_halts():
    assert _stopped(_batch(21, 5), verified=24).reason is Halt.LOG_REGRESSED


def test_first_trouble_counts_and_nothing_behind_it_is_judged():
    tail = _tail(_batch(21), _batch(24, producer=1), _batch(27, sequence=0), _marker(30))
    assert tail.stopped is not None
    assert (tail.stopped.reason, tail.stopped.target_offset) == (Halt.FOREIGN_WRITER, 24)
    assert not tail.see(_marker(31), US)


@pytest.mark.parametrize("seed", range(40))
def test_log_with_anything_dropped_doubled_swapped_or_foreign_is_never_taken_for_progress(seed):
    chance = random.Random(seed)
    log, at = [], FENCE_END
    for _ in range(6):
        count = chance.randrange(1, 5)
        log.append(_batch(at, count))
        at += count
    harm = chance.choice(["drop", "double", "swap", "foreign"])
    n = chance.randrange(len(log) - 1)
    if harm == "drop":
        del log[n]
    elif harm == "double":
        log.insert(n, log[n])
    elif harm == "swap":
        log[n], log[n + 1] = log[n + 1], log[n]
    else:
        log[n] = _batch(0, log[n].records, producer=chance.choice([-1, 5]), epoch=chance.choice([0, 5]), sequence=0)
    # As a broker stores it: without gaps, whatever the sequences say.
    at, stored = FENCE_END, []
    for header in log:
        stored.append(
            _batch(
                at,
                header.records,
                sequence=header.base_sequence,
                producer=header.producer_id,
                epoch=header.producer_epoch,
            )
        )
        at += header.records
    assert _tail(*stored, _marker(at)).stopped is not None, harm


# -- all partitions of a fence --------------------------------------------------------------------------------


def _fenced(known: Known) -> Fenced:
    return Fenced(fence=9, identity=Identity(US, 9), markers={TP: 21}, tails={TP: Tail(known, 0)}, stopped={})


def test_fence_that_another_mirror_made_meanwhile_is_not_judged_by_what_was_known_before():
    before = Known(openings=(OPENING,), writer=WRITER, verified=FENCE_END)
    newer = RunOpening(fence=7, records=0, source=1_000, target=23, closes=21)
    after = Known(openings=(newer,), writer=Identity(US, 7), verified=23)
    with pytest.raises(Overtaken, match="t-0"):
        _fenced(before).resume({TP: after}, {})
    never = Known(openings=(), writer=None, verified=0)
    with pytest.raises(Overtaken):
        _fenced(never).resume({TP: after}, {})


def test_stopped_partitions_come_back_beside_those_that_go_on():
    before = Known(openings=(OPENING,), writer=WRITER, verified=FENCE_END)
    fenced = _fenced(before)
    fenced.tails[TP].see(_marker(21), US)
    gone = Stopped(reason=Halt.RECREATED, detail="", target_offset=0)
    outcome = Fenced(
        fence=9,
        identity=fenced.identity,
        markers=fenced.markers,
        tails=fenced.tails,
        stopped={TopicPartition("u", 0): gone},
    ).resume({TP: before}, {})
    assert outcome[TopicPartition("u", 0)] is gone
    assert not isinstance(outcome[TP], Stopped)


@pytest.mark.parametrize(
    ("fences", "identity", "number"),
    [
        ({}, Identity(US, 0), 0),
        ({3: Identity(US, 3)}, Identity(US, 5), 5),
        # Its 32,766 epochs are used up, or it was forgotten: another producer, that begins at 0.
        ({32_766: Identity(US, 32_766)}, Identity(US + 1, 0), 32_768),
        ({7: Identity(US, 7), 32_768: Identity(US + 1, 0)}, Identity(US + 1, 1), 32_769),
        ({32_800: Identity(US + 1, 32)}, Identity(US + 2, 0), 65_536),
    ],
)
def test_fences_are_numbered_in_order_whatever_producer_they_are_of(fences, identity, number):
    assert fence_number(fences, identity) == number > max(fences, default=-1)


@pytest.mark.parametrize(
    ("fences", "identity", "above", "number"),
    [
        ({}, Identity(US, 3), 2, 3),
        # The links topic was lost after a change of producer: what the offset map knows is newer than any epoch.
        ({}, Identity(US, 3), 32_771, 65_539),
        ({}, Identity(US, 9), 32_769, 32_777),
        ({1: Identity(US, 1)}, Identity(US, 2), 32_770, 65_538),
    ],
)
def test_fence_is_newer_than_what_the_offset_map_knows(fences, identity, above, number):
    assert fence_number(fences, identity, above=above) == number > above


@pytest.mark.parametrize("wraps", [0, 1, 2, 5])
@pytest.mark.parametrize(("shift", "halt"), [(-3, Halt.DUPLICATED), (3, Halt.LOG_REGRESSED)])
def test_what_a_wrong_sequence_means_is_the_same_however_often_sequences_wrapped(
    wraps: int, shift: int, halt: Halt
) -> None:
    at = FENCE_END + wraps * MAX_SEQUENCE + 1
    sequence = (1 + shift) % MAX_SEQUENCE
    assert _stopped(_batch(at, sequence=sequence), verified=at).reason is halt


# -- a log that lost its tail ---------------------------------------------------------------------------------

BEFORE = RunOpening(fence=3, records=0, source=500, target=10, closes=9)
GAP = RunOpening(fence=3, records=4, source=700, target=14)
HISTORY = Openings([BEFORE, GAP, OPENING])
WRITERS = {3: Identity(US, 3), 5: WRITER}


def _rewound(end: int, *headers: BatchHeader) -> Tail:
    known = Known(openings=(OPENING,), writer=WRITER, verified=30, history=HISTORY).rewound(WRITERS, 0, end)
    assert known is not None
    tail = Tail(known, 0)
    for header in headers:
        tail.see(header, US)
    return tail


def test_log_that_lost_records_of_the_newest_fence_goes_on_behind_those_it_has() -> None:
    tail = _rewound(24, _marker(20, epoch=5), _batch(21, 3), _marker(24, epoch=9))
    position, opening = _resume(tail, 24)
    assert (position.source, position.target, opening.closes) == (1_003, 25, 24)
    resumed = tail.resume((OPENING,), fence=9, marker=24, source_start=4)
    assert resumed.rewound_from == 30


def test_log_that_only_seemed_to_have_lost_records_is_not_said_to_have() -> None:
    tail = _rewound(24, _marker(20, epoch=5), _batch(21, 9), _marker(30, epoch=9))
    assert tail.resume((OPENING,), fence=9, marker=30, source_start=4).rewound_from == -1


@pytest.mark.parametrize(("kept", "source"), [(3, 503), (4, 700), (6, 702)])
def test_log_that_lost_the_newest_fence_itself_goes_on_with_the_runs_of_the_one_before(kept: int, source: int) -> None:
    theirs = replace(_batch(10, kept, sequence=0), producer_epoch=3)
    tail = _rewound(10 + kept, _marker(9, epoch=3), theirs, _marker(10 + kept, epoch=9))
    assert tail.stopped is None
    resumed = tail.resume(tail.known.openings, fence=9, marker=10 + kept, source_start=4)
    assert (resumed.position.source, resumed.opening.closes) == (source, 10 + kept)
    openings = Openings([*HISTORY, resumed.opening])
    found = openings.offset_map(source_end=resumed.position.source, target_end=resumed.position.target)
    assert [found.to_target(500 + n) for n in range(3)] == [10, 11, 12]
    assert found.records == kept, "what was lost is in the map no more"


@pytest.mark.parametrize(
    "first", [_batch(20, 3), _marker(20, epoch=4), _marker(20, producer=5, epoch=5), _marker(21, epoch=5)]
)
def test_log_in_which_the_fences_own_marker_is_gone_as_well_halts(first: BatchHeader) -> None:
    stopped = _rewound(24, first).stopped
    assert stopped is not None
    assert stopped.reason is Halt.LOG_REGRESSED


def test_foreign_records_in_what_is_left_of_a_log_halt_it() -> None:
    stopped = _rewound(24, _marker(20, epoch=5), _batch(21, 2), _batch(23, 1, producer=5)).stopped
    assert stopped is not None
    assert stopped.reason is Halt.FOREIGN_WRITER


def test_log_that_has_no_fence_left_cannot_be_rewound() -> None:
    known = Known(openings=(OPENING,), writer=WRITER, verified=30, history=HISTORY)
    assert known.rewound(WRITERS, 0, 9) is None
    assert known.rewound(WRITERS, 10, 15) is None, "its marker was deleted"
    assert known.rewound(WRITERS, 9, 15) is not None
    assert known.rewound({5: WRITER}, 0, 15) is None, "who wrote it is not known"


def _from_the_last(*headers: BatchHeader, verified: int = FENCE_END, opening: RunOpening = OPENING) -> Tail:
    tail = Tail(Known(openings=(opening,), writer=WRITER, verified=verified), start=0)
    for header in headers:
        tail.see(header, US)
    return tail


def test_batch_that_ends_where_all_was_confirmed_stands_where_it_was_written() -> None:
    tail = _from_the_last(_batch(25, 5), _batch(30, 2), _marker(32), verified=30)
    assert (tail.scan_from, tail.has_lost, _resume(tail, 32)[0].source) == (29, False, 1_011)
    nothing_since = _from_the_last(_marker(20, epoch=5), _marker(21))
    assert (nothing_since.scan_from, nothing_since.has_lost, _resume(nothing_since, 21)[0].source) == (20, False, 1_000)


def test_batch_that_was_compacted_away_since_it_was_confirmed_is_no_loss() -> None:
    assert _resume(_from_the_last(_batch(30, 2), _marker(32), verified=30), 32)[0].source == 1_011


@pytest.mark.parametrize(
    ("verified", "last"),
    [
        (30, _marker(29, epoch=6)),
        (30, _batch(25, 4)),
        (30, _batch(29, 1, epoch=4)),
        (FENCE_END, _marker(20, epoch=6)),
        (FENCE_END, _batch(20, 1)),
    ],
)
def test_log_that_is_as_long_as_before_by_markers_of_fences_that_came_to_nothing_has_lost_records(
    verified: int, last: BatchHeader
) -> None:
    tail = _from_the_last(last, _marker(verified, epoch=9), verified=verified)
    assert tail.has_lost
    assert tail.stopped is not None
    assert tail.stopped.reason is Halt.LOG_REGRESSED


def test_batch_of_somebody_else_where_the_links_last_one_stood_is_a_foreign_one() -> None:
    stopped = _from_the_last(_batch(29, 1, producer=5), verified=30).stopped
    assert stopped is not None
    assert stopped.reason is Halt.FOREIGN_WRITER


@pytest.mark.parametrize(
    ("fence", "scan_from"), [(Identity(US, 6), 30), (Identity(US, 7), 29), (Identity(US + 1, 6), 29)]
)
def test_fence_right_behind_the_writers_leaves_nothing_to_look_at_before_what_is_verified(
    fence: Identity, scan_from: int
) -> None:
    tail = _from_the_last(verified=30)
    tail.follows(fence)
    assert tail.scan_from == scan_from


def test_nothing_is_asked_of_what_stands_before_a_cut_or_before_the_log_begins() -> None:
    cut = replace(OPENING, closes=FENCE_END)
    assert cut.is_cut
    assert _from_the_last(_marker(FENCE_END), opening=cut).scan_from == FENCE_END
    assert Tail(Known(openings=(OPENING,), writer=WRITER, verified=30), start=30).scan_from == 30


@pytest.mark.parametrize(("epoch", "shown"), [(5, False), (6, True), (7, True)])
def test_marker_of_a_fence_or_of_a_later_one_shows_it(epoch: int, shown: bool) -> None:
    assert _tail(_batch(21, 3), _marker(24, epoch=epoch)).shows(Identity(US, 6)) is shown
    assert not _tail(_batch(21, 3), _marker(24, epoch=epoch)).shows(Identity(US + 1, 6))


def test_log_that_ends_right_behind_a_fences_marker_goes_on_behind_that_fence() -> None:
    later = RunOpening(fence=6, records=0, source=1_100, target=40, closes=39)
    history = Openings([OPENING, later])
    known = Known(openings=[later], writer=WRITER, verified=60, history=history)
    rewound = known.rewound({5: Identity(77, 5), 6: Identity(77, 6)}, 0, 40)
    assert rewound is not None
    assert (rewound.fence, rewound.verified, rewound.writer) == (6, 39, Identity(77, 6))
    before = known.rewound({5: Identity(77, 5), 6: Identity(77, 6)}, 0, 39)
    assert before is not None
    assert (before.fence, before.verified) == (5, FENCE_END - 1)
