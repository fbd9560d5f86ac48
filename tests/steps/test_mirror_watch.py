"""Whether a mirror is active, has ended as it should, or is to be started again."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_migration.domain.errors import ClusterUnreachable, TakenOver
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Desired, TopicPartition
from kafka_migration.migration.context import Context
from kafka_migration.migration.joined import begun_mirror, mirror_began, mirror_goes_on
from kafka_migration.state.link import Wish
from kafka_migration.steps import mirror_watch
from kafka_migration.steps.mirror_watch import ALIVE_SECONDS, GONE_SECONDS, SILENT_SECONDS, Pause, Wait
from kafka_migration.steps.step import Decision
from tests.steps.gates import Migration

EPOCH = 15.0


class Stage:
    """A mirror that is submitted, begins, copies and ends, as a test has it."""

    def __init__(self) -> None:
        self.shop = Migration()
        self.ctx: Context = self.shop.ctx(mirror={"epoch_seconds": EPOCH})
        self.began = self.ctx.stamp()

    def pass_time(self, seconds: float = 1.0) -> None:
        self.shop.clock.sleep(seconds)

    def submit(self) -> str:
        return mirror_watch.submit(self.ctx, host="h", log="/l").id

    def begin(self, submission: str = "", *, by_another_plan: bool = False) -> None:
        other = self.shop.ctx(mirror={"epoch_seconds": EPOCH + 1})
        mirror_began(other if by_another_plan else self.ctx, submission)
        self.ctx.link.record_run({"state": "running", "at": self.ctx.stamp()})

    def beat(self) -> None:
        self.ctx.link.record_run({"state": "running", "at": self.ctx.stamp(), "epoch": 1})

    def end(self, reason: str) -> None:
        self.ctx.link.record_run({"state": "ended", "reason": reason, "at": self.ctx.stamp()})

    def halt(self) -> None:
        self.ctx.link.halt(TopicPartition("shop.orders", 0), "FOREIGN_WRITER", "", 0, 0, self.ctx.stamp())

    def wish(self, desired: Desired) -> None:
        self.ctx.link.wish(Wish(desired=desired, reason="stop now", at=self.ctx.stamp()))

    def wait(self, asked_since: str | None = None) -> Wait:
        return Wait(self.ctx, since=self.began, asked_since=asked_since or self.began)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def died(decision: Decision | None) -> bool:
    return decision is not None and decision.exit_code == 3 and bool(decision.facts.get("died"))


def seen(stage: Stage, wait: Wait, seconds: float) -> Decision | None:
    """The first decision within so many seconds of looks."""
    for _ in range(int(seconds / wait.interval_seconds)):
        if (decision := wait.look()) is not None:
            return decision
        stage.pass_time(wait.interval_seconds)
    return None


def test_mirror_that_beats_is_waited_for(stage: Stage) -> None:
    submission, wait = stage.submit(), stage.wait()
    assert wait.look() is None
    stage.begin(submission)
    for _ in range(100):
        stage.pass_time(EPOCH)
        stage.beat()
        assert wait.look() is None


@pytest.mark.parametrize(
    ("wish", "reason", "halted", "expected"),
    [
        (Desired.DRAIN, "drained", False, 0),
        (Desired.STOP, "stopped", False, 0),
        (Desired.RUN, "stopped", False, 3),
        (Desired.RUN, "caught_up", False, 3),
        (Desired.DRAIN, "stopped", False, 3),
        (Desired.RUN, "failed", False, 3),
        (Desired.STOP, "failed", False, 3),
        (Desired.RUN, "halted", True, 1),
        (Desired.DRAIN, "drained", True, 1),
        (Desired.STOP, "stopped", True, 1),
        # A signal ended it; its neighbours are to be copied.
        (Desired.RUN, "stopped", True, 3),
        (Desired.RUN, "failed", True, 3),
    ],
)
def test_end_of_a_mirror_is_what_was_asked_for_or_needs_a_person_or_a_new_start(
    stage: Stage, wish: Desired, reason: str, halted: bool, expected: int
) -> None:
    wait, submission = stage.wait(), stage.submit()
    stage.begin(submission)
    stage.pass_time()
    if wish is not Desired.RUN:
        stage.wish(wish)
    if halted:
        stage.halt()
    stage.pass_time()
    stage.end(reason)
    decision = wait.look()
    assert decision is not None
    assert decision.exit_code == expected
    assert died(decision) is (expected == 3)
    assert ("shop.orders-0 FOREIGN_WRITER" in decision.message) is (expected == 1)


def test_wish_to_stop_from_before_this_try_is_over_once_it_is_obeyed(stage: Stage) -> None:
    stage.begin()
    stage.wish(Desired.STOP)
    stage.pass_time()
    wait = stage.wait(asked_since=stage.ctx.stamp())
    stage.end("stopped")
    assert died(wait.look())


def test_end_of_an_earlier_run_is_not_this_ones(stage: Stage) -> None:
    stage.begin()
    stage.end("failed")
    stage.pass_time()
    stage.began = stage.ctx.stamp()
    stage.submit()
    assert stage.wait().look() is None


def test_application_that_ends_before_the_mirror_began_has_died_at_once(stage: Stage) -> None:
    mirror_watch.record_end(stage.ctx, stage.submit(), "no such jar")
    decision = stage.wait().look()
    assert died(decision)
    assert decision is not None
    assert decision.message == "the Spark application ended before the mirror began"
    newest = mirror_watch.submission(stage.ctx)
    assert newest is not None
    assert newest.last_lines == "no such jar"


def test_application_that_is_killed_under_its_mirror_has_died_at_once(stage: Stage) -> None:
    submission = stage.submit()
    stage.begin(submission)
    stage.beat()
    mirror_watch.record_end(stage.ctx, submission)
    assert died(stage.wait().look())


def test_mirror_that_another_process_took_over_is_watched_although_our_application_ended(stage: Stage) -> None:
    submission = stage.submit()
    stage.begin(submission)
    stage.pass_time()
    stage.begin()
    mirror_watch.record_end(stage.ctx, submission)
    stage.beat()
    assert stage.wait().look() is None
    assert mirror_watch.active_since(stage.ctx) is not None


def test_mirror_of_a_plan_that_has_not_joined_which_took_over_is_left_alone_and_named(stage: Stage) -> None:
    submission, wait = stage.submit(), stage.wait()
    stage.begin(submission)
    stage.pass_time()
    stage.begin(by_another_plan=True)
    assert wait.look() is None, "the end of the own application decides"
    mirror_watch.record_end(stage.ctx, submission)
    decision = wait.look()
    assert decision is not None
    assert decision.exit_code == 1
    assert f"copies now, by {begun_mirror(stage.ctx)}" in decision.message


def test_mirror_that_the_corrected_plan_has_joined_is_the_corrected_plans_too(stage: Stage) -> None:
    stage.begin(by_another_plan=True)
    assert mirror_watch.active_since(stage.ctx) is None
    mirror_goes_on(stage.ctx)
    assert mirror_watch.active_since(stage.ctx) == stage.began
    assert stage.wait().look() is None


def test_mirror_that_began_with_other_handlers_is_started_again_and_a_task_with_the_plan_before_watches_it(
    stage: Stage,
) -> None:
    stage.begin()
    before, handlers = stage.ctx, [{"topics": [".*"], "function": "m:f"}]
    stage.ctx = stage.shop.ctx(mirror={"epoch_seconds": EPOCH}, handlers=handlers)
    mirror_goes_on(stage.ctx)
    assert mirror_watch.active_since(stage.ctx) is None
    assert mirror_watch.active_since(before) == stage.began
    stage.begin()
    assert mirror_watch.active_since(stage.ctx) == stage.began


def death(stage: Stage, wait: Wait, seconds: float) -> str:
    """How it has died, seen after so many ``seconds`` and no sooner."""
    assert seen(stage, wait, seconds) is None
    decision = seen(stage, wait, 2 * wait.interval_seconds)
    assert died(decision)
    assert decision is not None
    return decision.message


@pytest.mark.parametrize("begins", [True, False])
def test_process_that_is_gone_is_a_death_and_one_that_is_alive_may_be_silent_for_long(
    stage: Stage, begins: bool
) -> None:
    submission, wait = stage.submit(), stage.wait()
    if begins:
        stage.begin(submission)
    for _ in range(100):
        mirror_watch.record_alive(stage.ctx, submission)
        assert seen(stage, wait, ALIVE_SECONDS) is None
        assert mirror_watch.active_since(stage.ctx) is not None
    assert "was last alive at" in death(stage, wait, GONE_SECONDS - ALIVE_SECONDS)
    assert mirror_watch.active_since(stage.ctx) is None


def test_process_that_never_was_alive_is_a_death_as_soon_as_one_that_is_gone(stage: Stage) -> None:
    stage.submit()
    wait = stage.wait()
    assert "never was alive" in death(stage, wait, GONE_SECONDS)


def test_heartbeat_that_is_gone_is_a_death_and_one_asked_to_stop_has_stopped(stage: Stage) -> None:
    stage.begin()
    stage.beat()
    wait = stage.wait()
    assert "last heartbeat was at" in death(stage, wait, SILENT_SECONDS)
    stage.wish(Desired.STOP)
    decision = wait.look()
    assert decision is not None
    assert (decision.exit_code, decision.message) == (0, "the mirror was stopped: stop now")


def test_outage_of_the_target_is_no_silence_of_the_mirror(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.begin(stage.submit())
    stage.beat()
    wait = stage.wait()
    assert wait.look() is None

    def away() -> Any:
        raise ClusterUnreachable("target", "h:1", "gone")

    with monkeypatch.context() as patch:
        patch.setattr(stage.ctx, "link", SimpleNamespace(run=away))
        with pytest.raises(ClusterUnreachable):
            wait.look()
        stage.pass_time(10 * SILENT_SECONDS)
    assert wait.look() is None, "the mirror has had no time to beat"


def test_sealed_mirror_is_done(stage: Stage) -> None:
    stage.ctx.link.record_seal(Seal(at=stage.ctx.stamp(), ends={}))
    decision = stage.wait().look()
    assert decision is not None
    assert decision.exit_code == 0


def test_active_mirror_of_the_same_plan_is_found_whoever_started_it(stage: Stage) -> None:
    assert mirror_watch.active_since(stage.ctx) is None
    began = stage.ctx.stamp()
    stage.begin()
    assert mirror_watch.active_since(stage.ctx) == began
    stage.pass_time(EPOCH + 31)
    assert mirror_watch.active_since(stage.ctx) is None, "it is silent"
    stage.beat()
    assert mirror_watch.active_since(stage.ctx) == began
    stage.end("stopped")
    assert mirror_watch.active_since(stage.ctx) is None


def test_mirror_of_another_plan_or_of_a_version_that_noted_none_is_not_taken_for_this_one(stage: Stage) -> None:
    stage.beat()
    assert mirror_watch.active_since(stage.ctx) is None
    stage.begin(by_another_plan=True)
    assert mirror_watch.active_since(stage.ctx) is None


def test_application_that_waits_for_its_slots_is_found_until_it_ends_or_its_process_is_gone(stage: Stage) -> None:
    submission = stage.submit()
    began = stage.ctx.stamp()
    stage.pass_time(GONE_SECONDS - 1)
    assert mirror_watch.active_since(stage.ctx) == began
    stage.pass_time(2)
    assert mirror_watch.active_since(stage.ctx) is None
    mirror_watch.record_alive(stage.ctx, submission)
    assert mirror_watch.active_since(stage.ctx) == began
    mirror_watch.record_end(stage.ctx, submission)
    assert mirror_watch.active_since(stage.ctx) is None


def test_application_begins_only_if_it_is_the_newest_that_was_not_ended(stage: Stage) -> None:
    first = stage.submit()
    mirror_watch.require_newest(stage.ctx, first)
    second = stage.submit()
    with pytest.raises(TakenOver):
        mirror_watch.require_newest(stage.ctx, first)
    mirror_watch.record_end(stage.ctx, first)
    mirror_watch.require_newest(stage.ctx, second)
    mirror_watch.stop(stage.ctx, "its task was deleted")
    with pytest.raises(TakenOver):
        mirror_watch.require_newest(stage.ctx, second)
    assert stage.ctx.link.wished().desired is Desired.RUN, "nothing runs that could obey"


def test_running_mirror_is_asked_to_stop_by_its_own_wish(stage: Stage) -> None:
    stage.begin(stage.submit())
    mirror_watch.stop(stage.ctx, "its task was marked as failed")
    wish = stage.ctx.link.wished()
    assert (wish.desired, wish.reason) == (Desired.STOP, "its task was marked as failed")


def test_pause_ends_early_for_a_mirror_that_is_active_again_and_for_a_wish_to_stop(stage: Stage) -> None:
    stage.begin(stage.submit())
    stage.end("failed")
    stage.pass_time()
    pause = Pause(stage.ctx, asked_since=stage.began)
    assert pause.look() is None
    assert pause.too_late("").exit_code == 3
    assert not died(pause.too_late(""))
    stage.begin()
    active = pause.look()
    assert active is not None
    assert (active.exit_code, died(active)) == (3, False)
    stage.wish(Desired.STOP)
    stopped = pause.look()
    assert stopped is not None
    assert stopped.exit_code == 0
    later = stage.ctx.clock.now() + timedelta(seconds=1)
    active = Pause(stage.ctx, asked_since=later.isoformat()).look()
    assert active is not None
    assert active.exit_code == 3
