"""What a leader's word about the source's log is worth before a partition halts for it: without any broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_migration.copy.orders import Assignment, Limits
from kafka_migration.copy.rate_limit import RateLimit
from kafka_migration.copy.task import intake
from kafka_migration.copy.task.intake import Intake
from kafka_migration.copy.task.loop import Loop
from kafka_migration.copy.task.partition import PartitionCopy
from kafka_migration.domain.codes import NOT_LEADER, OFFSET_OUT_OF_RANGE
from kafka_migration.domain.errors import AuthenticationFailed
from kafka_migration.domain.types import Halt, Position, TopicPartition
from kafka_migration.wire.cluster import EARLIEST, Leader
from kafka_migration.wire.fetch_request import Fetched
from tests.wire.made import made_batch

TP = TopicPartition("t", 0)
#: What was copied last was written under the fifth leader.
EPOCH = 5
CUT = Fetched(
    partition=TP, error=0, records=b"", high_watermark=40, last_stable_offset=40, log_start=0, diverging_end=40
)
OUT_OF_RANGE = replace(CUT, error=OFFSET_OUT_OF_RANGE, diverging_end=None)
GOOD = replace(CUT, diverging_end=None, high_watermark=100, last_stable_offset=100)


class Source:
    """A source whose log holds 0 to 40, or 200 to 300, led by whom the test says."""

    def __init__(self, epoch: int, *, log: tuple[int, int]) -> None:
        self.leaders, self.moves, self._log = {TP: Leader(1, epoch)}, 0, log
        self.reported, self.asked = list[dict[str, Any]](), 0
        self.manager = SimpleNamespace(throttled_seconds=lambda _node: 0.0)

    async def reports(self, _topics: Any) -> list[dict[str, Any]]:
        """What brokers report; nothing where only the one that is cut off answers."""
        return self.reported

    async def list_offsets(self, tps: Any, when: int, **_: Any) -> dict[TopicPartition, int]:
        self.asked += 1
        return dict.fromkeys(tps, self._log[0] if when == EARLIEST else self._log[1])


class World:
    def __init__(self, leader_epoch: int, log: tuple[int, int] = (0, 40)) -> None:
        at = Position(source=100, target=100, fence=0, records=100)
        assignment = Assignment(
            partition=TP,
            position=at,
            continues=100,
            fence_end=0,
            closes=0,
            topic_key="t",
            producer_id=1,
            producer_epoch=0,
            source_topic_id=uuid.UUID(int=1),
            target_topic_id=uuid.UUID(int=2),
            source_epoch=EPOCH,
        )
        self.copy, self.loop, self.source = PartitionCopy(assignment, Limits()), Loop(), Source(leader_epoch, log=log)

        async def nothing(_openings: object) -> None:
            """No run begins here."""

        self.intake = Intake(
            self.loop,
            cast(Any, self.source),
            {TP: self.copy},
            Limits(),
            RateLimit(is_paused=False, bytes_per_second=None),
            nothing,
        )

    def answered(self, *answers: Fetched, between: Callable[[], None] = lambda: None) -> Halt | None:
        """Take one answer after the other; what the partition is about to halt for."""
        for answer in answers:
            self.loop.run(partial(self.intake._take, [answer]))
            between()
        return None if self.copy.halting is None else self.copy.halting[0]

    def metadata_came(self) -> None:
        self.source.moves += 1


def test_log_that_its_leader_calls_cut_twice_halts_once_metadata_were_asked_in_between() -> None:
    it = World(EPOCH)
    assert it.answered(CUT, CUT) is None
    assert it.intake.is_stale, "who leads is asked"
    assert it.answered(CUT, CUT, between=it.metadata_came) is Halt.TRUNCATED


def test_slow_handler_keeps_its_task_from_other_things_for_a_part_of_the_lease_alone() -> None:
    it = World(EPOCH)
    it.intake.limits, it.copy.handle = Limits(lease_seconds=0), lambda record: record
    it.answered(replace(GOOD, records=made_batch([b"a", b"b", b"c"], base_offset=100, leader_epoch=EPOCH)))
    assert it.copy.fetch_offset == 101, "a record at least"


def test_good_answer_in_between_takes_the_doubt_away() -> None:
    it = World(EPOCH)
    assert it.answered(CUT, GOOD, CUT, between=it.metadata_came) is None


@pytest.mark.parametrize("answer", [CUT, OUT_OF_RANGE])
@pytest.mark.parametrize("log", [(0, 40), (200, 300)], ids=["ends below", "starts above"])
def test_leader_of_before_what_was_copied_halts_nothing_however_often_it_says_so(
    answer: Fetched, log: tuple[int, int]
) -> None:
    it = World(EPOCH - 1, log)
    assert it.answered(*[answer] * 5, between=it.metadata_came) is None
    assert it.intake.is_stale


@pytest.mark.parametrize("others_answer", [True, False])
def test_leader_of_before_that_goes_on_alone_halts_nothing_however_long(
    monkeypatch: pytest.MonkeyPatch, others_answer: bool
) -> None:
    monkeypatch.setattr(intake, "_TROUBLE_SECONDS", -1.0)
    it = World(EPOCH - 1)
    it.source.reported = [{"t": None}] if others_answer else []
    assert (it.answered(OUT_OF_RANGE, OUT_OF_RANGE) is Halt.TRUNCATED) is others_answer


@pytest.mark.parametrize("others", [True, False])
def test_broker_that_rejects_our_credentials_ends_the_task_only_where_it_leads_all(
    monkeypatch: pytest.MonkeyPatch, others: bool
) -> None:
    it, pauses = World(EPOCH), list[float]()
    if others:
        other = TopicPartition("t", 1)
        it.source.leaders[other] = Leader(2, EPOCH)
        it.intake.copies = {
            tp: PartitionCopy(replace(it.copy.assignment, partition=tp), Limits()) for tp in (TP, other)
        }

    class Rejected:
        def __init__(self, *_: object) -> None:
            self.begins, self.close = True, lambda: None

        async def fetch(self, *_: object, **__: object) -> None:
            raise AuthenticationFailed("source", "h:1", "bad password")

    async def paused(seconds: float) -> None:
        pauses.append(seconds)
        it.intake.is_closed = True

    monkeypatch.setattr(intake, "FetchSession", Rejected)
    # Nothing that happens meanwhile has it ask sooner.
    monkeypatch.setattr(it.loop, "rest", paused)
    if others:
        it.loop.run(partial(it.intake._fetch_from, 1))
        assert (pauses, it.intake.is_stale) == ([intake._REJECTED_SECONDS], True)
    else:
        with pytest.raises(AuthenticationFailed):
            it.loop.run(partial(it.intake._fetch_from, 1))


def test_broker_whose_quota_is_used_up_is_asked_nothing_and_nobody_is_asked_who_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it, pauses = World(EPOCH), list[float]()
    it.source.manager.throttled_seconds = lambda _node: 7.5

    class Asked:
        def __init__(self, *_: object) -> None:
            self.begins, self.close = True, lambda: None

        async def fetch(self, *_: object, **__: object) -> None:
            pytest.fail("asked")

    async def paused(seconds: float) -> None:
        pauses.append(seconds)
        it.intake.is_closed = True

    monkeypatch.setattr(intake, "FetchSession", Asked)
    monkeypatch.setattr(it.loop, "rest", paused)
    it.loop.run(partial(it.intake._fetch_from, 1))
    assert (pauses, it.intake.is_stale) == ([7.5], False)


@pytest.mark.parametrize(("log", "halt"), [((0, 40), Halt.TRUNCATED), ((200, 300), Halt.DATA_LOSS)])
def test_leader_of_today_whose_log_does_not_hold_the_position_halts_it(log: tuple[int, int], halt: Halt) -> None:
    it = World(EPOCH, log)
    assert it.answered(OUT_OF_RANGE, between=it.metadata_came) is halt


def test_trouble_of_many_partitions_in_one_answer_costs_the_others_one_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    it, pauses = World(EPOCH), list[float]()
    tps = [TopicPartition("t", n) for n in range(20)]
    it.intake.copies = {tp: PartitionCopy(replace(it.copy.assignment, partition=tp), Limits()) for tp in tps}

    async def paused(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(it.loop, "woken", paused)
    it.loop.run(partial(it.intake._take, [replace(GOOD, partition=tp, error=NOT_LEADER) for tp in tps]))
    assert (len(pauses), it.intake.is_stale) == (1, True)


def test_many_partitions_out_of_range_in_one_answer_are_asked_about_at_once() -> None:
    """One after the other they would keep the broker's other partitions waiting, and themselves for longer than ten
    seconds a look, each of which would be the first one then."""
    it = World(EPOCH)
    tps = [TopicPartition("t", n) for n in range(20)]
    it.intake.copies = {tp: PartitionCopy(replace(it.copy.assignment, partition=tp), Limits()) for tp in tps}
    it.source.leaders = dict.fromkeys(tps, Leader(1, EPOCH))
    it.loop.run(partial(it.intake._take, [replace(OUT_OF_RANGE, partition=tp) for tp in tps]))
    assert it.source.asked == 2
    halted = [copy.halting[0] if copy.halting else None for copy in it.intake.copies.values()]
    assert halted == [Halt.TRUNCATED] * 20
