"""What is killed: each command that changes something between the cutover and the end, and what stands before it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from kafka_migration.steps import cancel, cutover, fence, rehearsal, release, restore, retire, rollback, switch, unfence
from tests.crash.process import Process
from tests.crash.shop import Shop
from tests.steps.killing import Killed


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """``prepare`` a shop, then ``run`` the command, by a new process; whatever it decides must be that it is done."""

    name: str
    run: Callable[[Shop], object]
    prepare: Callable[[Shop], object] = lambda _shop: None
    #: At how many places it changes something at the least.
    at_least: int = 1


def _cut_over(shop: Shop) -> None:
    result = cutover.apply(shop.ctx(), environ={})
    assert result.exit_code == 0, result


def _undo(shop: Shop) -> None:
    cutover.undo(shop.ctx(), "shop.app", environ={})


def _moved_idle(shop: Shop) -> None:
    """Groups that have read nothing yet where they were moved to."""
    shop.reads = False
    _cut_over(shop)


def _fence(shop: Shop) -> None:
    assert fence.run(shop.ctx(), environ={}).exit_code == 0


def _lift(shop: Shop) -> None:
    fence.lift(shop.ctx(), environ={})


def _switch(shop: Shop) -> None:
    decision = switch.run(shop.ctx(), environ={})
    assert decision.exit_code == 0, decision.message


def _rehearse(shop: Shop) -> None:
    decision = rehearsal.run(shop.ctx(), environ={})
    assert decision.exit_code == 0, decision.message


def _switched(shop: Shop) -> None:
    _cut_over(shop)
    _switch(shop)


def _guarded(shop: Shop) -> None:
    _cut_over(shop)
    shop.guard()


def _left_fenced(shop: Shop) -> None:
    """A switch died once its fence had been proved, and nobody runs it again."""
    _cut_over(shop)
    shop.process = Process(dies_at=23)
    with suppress(Killed):
        _switch(shop)
    shop.process = Process()


def _unfence(shop: Shop) -> None:
    assert unfence.run(shop.ctx(), environ={}).exit_code == 0


def _guarded_and_served(shop: Shop) -> None:
    _guarded(shop)
    _switch(shop)
    shop.serve()


def _served(shop: Shop) -> None:
    _switched(shop)
    shop.serve()


def _roll_back(shop: Shop) -> None:
    result = rollback.apply(shop.ctx(), environ={})
    assert result.exit_code == 0, result


def _restore(shop: Shop) -> None:
    assert restore.run(shop.ctx()).exit_code == 0


def _release(shop: Shop) -> None:
    assert release.run(shop.ctx()).exit_code == 0


def _restored(shop: Shop) -> None:
    _switched(shop)
    _restore(shop)


def _cancel(shop: Shop) -> None:
    cancel.run(shop.ctx(), by="ada", reason="too early")


def _retire(shop: Shop) -> None:
    retire.check(shop.ctx())


def _fenced(shop: Shop) -> None:
    _cut_over(shop)
    _fence(shop)


SCENARIOS = (
    Scenario(name="cutover", run=_cut_over, at_least=25),
    Scenario(name="undo", prepare=_moved_idle, run=_undo, at_least=5),
    Scenario(name="fence", prepare=_cut_over, run=_fence, at_least=12),
    Scenario(name="fence --lift", prepare=_fenced, run=_lift, at_least=10),
    Scenario(name="switch --rehearse", prepare=_cut_over, run=_rehearse, at_least=10),
    Scenario(name="switch", prepare=_cut_over, run=_switch, at_least=30),
    Scenario(name="switch with guards", prepare=_guarded, run=_switch, at_least=40),
    Scenario(name="unfence", prepare=_left_fenced, run=_unfence, at_least=10),
    Scenario(name="rollback with guards", prepare=_guarded_and_served, run=_roll_back, at_least=20),
    Scenario(name="rollback", prepare=_served, run=_roll_back, at_least=20),
    Scenario(name="restore", prepare=_switched, run=_restore, at_least=4),
    Scenario(name="release", prepare=_restored, run=_release, at_least=3),
    Scenario(name="cancel", run=_cancel, at_least=15),
    # It only reads: its one point is that there is none.
    Scenario(name="retire", prepare=_restored, run=_retire, at_least=0),
)
