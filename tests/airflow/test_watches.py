"""What each trigger looks at: lag's streak, source ends that stand still, groups that live."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.lag import LagSample, LagTrend
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups import sides
from kafka_migration.groups import watch as watch_groups
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.groups.sides import Lookout
from kafka_migration.groups.watch import GroupLife, Life, WatchResult
from kafka_migration.link import lag
from kafka_migration.link.lag import LagReport
from kafka_migration.migration.context import Scope
from kafka_migration.plans.load import restore_plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.store import MemoryStore
from kafka_migration.steps.step import Decision, Waiting
from kafka_migration.steps.stop import Wait as StopWatch
from kafka_migration.steps.watch_groups import Wait as GroupsWatch
from kafka_migration.steps.watch_lag import Wait as LagWatch
from kafka_migration.topics import create
from tests.steps.worlds import FakeClock

TP = TopicPartition("orders", 0)


@pytest.fixture
def ctx():
    plan = restore_plan(
        {
            "version": 1,
            "name": "p",
            "source": "a",
            "target": "b",
            "topics": {"include": ["orders"]},
            "lag_gate": {"threshold_records": 10, "samples": 3, "interval_seconds": 1, "deadline_seconds": 100},
            "drain": {"window_seconds": 9, "deadline_seconds": 100},
        }
    )
    told: list[str] = []
    journal = Journal(MemoryStore(), "p")
    # No topic is of the plan, and so none is missing from the mirror.
    source, link = SimpleNamespace(topic_names=list), SimpleNamespace(topics=dict, seal=lambda: None)
    return SimpleNamespace(
        plan=plan,
        told=told,
        log=told.append,
        journal=journal,
        clock=FakeClock(),
        source=source,
        link=link,
        scope=Scope(),
        generation=1,
        own=lambda name, *_: name,
    )


@pytest.fixture
def measured(monkeypatch):
    """What the meter reads, one sample after the other: (seconds, lag, source end)."""
    samples: list[tuple[float, int, int]] = []
    halted: dict[TopicPartition, str] = {}
    undecided: dict[TopicPartition, int] = {}

    def read(_self):
        at, behind, end = samples.pop(0)
        return LagReport(
            at="now",
            sample=LagSample(at=at, lag={TP: behind}, source_ends={TP: end}, undecided=undecided),
            trend=LagTrend(copied_per_second=0.0, produced_per_second=0.0, eta_seconds=None),
            halted=halted,
            mirror="running",
        )

    monkeypatch.setattr(lag.LagMeter, "read", read)
    monkeypatch.setattr(create, "verify", lambda _ctx: ())
    return SimpleNamespace(samples=samples, halted=halted, undecided=undecided)


def decision(watch: Waiting) -> Decision:
    """What a look decides."""
    found = watch.look()
    assert found is not None
    return found


def verdicts(watch, samples, count):
    return [watch.look() for _ in range(count)]


def test_lag_passes_after_enough_samples_in_a_row_and_one_above_begins_anew(ctx, measured):
    measured.samples += [(t, behind, 100) for t, behind in enumerate([5, 5, 11, 10, 0, 10])]
    watch = LagWatch(ctx)
    *waiting, last = verdicts(watch, measured, 6)
    assert waiting == [None] * 5
    assert (last.exit_code, last.facts) == (0, {"lag": 10})


def test_lag_over_time_is_kept_for_the_report_and_not_handed_on(ctx, measured):
    measured.samples += [(t, behind, 100) for t, behind in enumerate([50, 20, 0, 0, 0])]
    *_, last = verdicts(LagWatch(ctx), measured, 5)
    assert last.kept == {"history": [[0, 50], [1, 20], [2, 0], [3, 0], [4, 0]]}
    assert "history" not in last.facts
    assert last.evidence == {**last.facts, **last.kept}


def test_lag_of_a_long_wait_is_kept_ever_more_sparsely_and_to_its_end(ctx, measured):
    looks = 1000
    measured.samples += [(t, 2000 - t, 5000) for t in range(looks)]
    watch = LagWatch(ctx)
    assert verdicts(watch, measured, looks) == [None] * looks
    kept = watch.too_late("gave up").kept["history"]
    assert 60 <= len(kept) <= 122
    assert kept[0] == [0, 2000]
    assert kept[-1] == [looks - 1, 2000 - looks + 1]
    assert all(1 <= after[0] - before[0] <= 17 for before, after in itertools.pairwise(kept))


def test_streak_does_not_survive_the_watch(ctx, measured):
    measured.samples += [(0, 0, 100)] * 4
    first = LagWatch(ctx)
    assert verdicts(first, measured, 2) == [None, None]
    assert verdicts(LagWatch(ctx), measured, 2) == [None, None], "a triggerer that restarted has seen nothing yet"


def test_halted_partition_ends_the_wait_for_lag(ctx, measured):
    measured.samples.append((0, 50, 100))
    measured.halted[TP] = "DATA_LOSS"
    verdict = decision(LagWatch(ctx))
    assert verdict.exit_code == 1
    assert "orders-0 DATA_LOSS" in verdict.message


def test_lag_that_never_came_down_says_what_was_seen_last(ctx, measured):
    measured.samples.append((0, 123_456, 200_000))
    watch = LagWatch(ctx)
    watch.look()
    verdict = watch.too_late("gave up after 100 s")
    assert verdict.exit_code == 1
    assert "123,456" in verdict.message
    assert "remedy" in verdict.message


def test_stop_gate_opens_once_ends_stood_still_for_the_window_and_no_lag_is_left(ctx, measured):
    measured.samples += [(0, 0, 100), (3, 0, 101), (6, 0, 101), (9, 0, 101), (12, 0, 101)]
    *waiting, last = verdicts(StopWatch(ctx), measured, 5)
    assert waiting == [None] * 4, "the window begins where an end last moved"
    assert last.exit_code == 0


def test_stop_gate_stays_shut_while_lag_remains_however_still_the_ends_are(ctx, measured):
    measured.samples += [(t, 1, 100) for t in range(0, 60, 3)]
    assert verdicts(StopWatch(ctx), measured, 20) == [None] * 20


def test_stop_gate_that_is_late_says_what_keeps_it_and_is_tried_again(ctx, measured):
    measured.samples += [(0, 0, 100), (3, 4, 104)]
    watch = StopWatch(ctx)
    verdicts(watch, measured, 2)
    verdict = watch.too_late("gave up after 100 s")
    assert verdict.exit_code == 3
    assert "1 source partitions grow, lag remains" in verdict.message


def test_transaction_that_hangs_keeps_the_stop_gate_shut_and_needs_a_person_once_the_time_is_over(ctx, measured):
    measured.undecided[TP] = 7
    measured.samples += [(t, 0, 100) for t in (0, 30, 59, 60)]
    watch = StopWatch(ctx)
    assert verdicts(watch, measured, 3) == [None] * 3
    assert watch.too_late("gave up after 100 s").exit_code == 3, "it may be decided yet"
    assert verdicts(watch, measured, 1) == [None]
    verdict = watch.too_late("gave up after 100 s")
    assert verdict.exit_code == 1
    assert "open transactions, most in orders-0" in verdict.message
    assert "kafka-transactions.sh" in verdict.message


def test_stop_gate_gives_up_on_halted_partitions(ctx, measured):
    measured.samples.append((0, 0, 100))
    measured.halted[TP] = "FOREIGN_WRITER"
    assert decision(StopWatch(ctx)).exit_code == 1


@pytest.mark.parametrize(("verdict", "exit_code"), [(Verdict.PASS, None), (Verdict.UNCHECKED, None), (Verdict.FAIL, 1)])
def test_moved_group_that_is_active_on_the_source_again_ends_the_wait_within_a_minute(
    ctx, measured, monkeypatch, verdict, exit_code
):
    rest = CheckResult(name="rest", verdict=Verdict.PASS, evidence="none")
    seen = CheckResult(name="rest", verdict=verdict, evidence="audit committed again", remedy="stop audit")
    results = [rest, seen]
    monkeypatch.setattr(sides, "check_back", lambda _ctx: results.pop(0))
    measured.samples += [(t, 1, 100 + t) for t in range(0, 60, 3)]
    decided = [it for it in verdicts(StopWatch(ctx), measured, 20) if it is not None]
    assert results == [], "asked twice in a minute, and not at every look"
    if exit_code is None:
        assert not decided
    else:
        assert decided[0].exit_code == exit_code
        assert "audit committed again" in decided[0].message.partition("\n")[0], "an alert has the first line"
        assert "stop audit; then clear this task" in decided[0].message


@pytest.fixture
def lives(ctx, monkeypatch):
    """Groups whose move was begun, and how each is seen; each look is noted."""
    seen: dict[str, GroupLife] = {}
    looks: list[list[str]] = []

    def sample(_ctx, names, *, until=None):
        looks.append(list(names))
        return WatchResult(groups=tuple(seen[name] for name in names))

    monkeypatch.setattr(watch_groups, "sample", sample)
    monkeypatch.setattr(Lookout, "look", lambda _lookout: {})
    for group, step in (("a", Step.READ_BACK), ("b", Step.READ_BACK), ("back", Step.UNDONE)):
        GroupRecord.own(ctx.journal, group, at="2030-01-01T00:00:00+00:00").mark(step, ctx.clock.now())
    return SimpleNamespace(seen=seen, looks=looks)


def life(group, kind, *, final):
    return GroupLife(group=group, life=kind, evidence="seen", remedy="look", is_final=final)


def test_groups_are_watched_until_each_is_settled_and_one_that_was_moved_back_is_not_looked_for(ctx, lives):
    lives.seen |= {"a": life("a", Life.ALIVE, final=True), "b": life("b", Life.WAITING, final=False)}
    watch = GroupsWatch(ctx)
    assert watch.look() is None
    lives.seen["b"] = life("b", Life.ALIVE, final=True)
    verdict = decision(watch)
    assert (verdict.exit_code, verdict.facts) == (0, {"groups": 2, "alive": 2})
    assert lives.looks == [["a", "b"], ["b"]], "a settled group is left alone"


def test_group_that_does_not_come_alive_is_reported_with_its_remedy(ctx, lives):
    lives.seen |= {"a": life("a", Life.ALIVE, final=True), "b": life("b", Life.LATE, final=True)}
    verdict = decision(GroupsWatch(ctx))
    assert verdict.exit_code == 1
    assert "b: late: seen\n  remedy: look" in verdict.message


def test_no_group_to_watch_is_settled(ctx, monkeypatch):
    assert decision(GroupsWatch(ctx)).exit_code == 0


def test_groups_that_could_not_be_looked_at_in_time_are_unknown(ctx, lives):
    assert GroupsWatch(ctx).too_late("gave up after 600 s").exit_code == 3
