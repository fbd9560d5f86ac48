"""What is killed: each command that changes something from the first topic to the end, and what stands before it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from kafka_migration.fence.fence import keep_off_target
from kafka_migration.link import reverse
from kafka_migration.steps import (
    cancel,
    complete,
    cutover,
    fence,
    rehearsal,
    release,
    restore,
    retire,
    rollback,
    runner,
    switch,
    unfence,
)
from tests.crash.process import Process
from tests.crash.shop import RECORDS, WRITTEN, Shop
from tests.steps import histories
from tests.steps.histories import ORDERS
from tests.steps.killing import Killed


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """``prepare`` a shop, then ``run`` the command, by a new process; whatever it decides must be that it is done."""

    name: str
    run: Callable[[Shop], object]
    prepare: Callable[[Shop], object] = lambda _shop: None
    #: Whether the shop that is prepared is mirrored already.
    is_created: bool = True
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


def _producers_first(shop: Shop) -> None:
    shop.guards = {"first": True}


def _producers_went_first(shop: Shop) -> None:
    """Groups read on the source meanwhile: one of them past the cut, which the reverse link's mirror brings there."""
    _producers_first(shop)
    _switch(shop)
    shop.serve()
    for tp in ORDERS:
        shop.source.consumer_commits("shop.app", tp, RECORDS + 1 + WRITTEN // 2)


def _rehearse(shop: Shop) -> None:
    decision = rehearsal.run(shop.ctx(), environ={})
    assert decision.exit_code == 0, decision.message


def _switched(shop: Shop) -> None:
    _cut_over(shop)
    _switch(shop)


def _guarded(shop: Shop) -> None:
    _cut_over(shop)
    shop.guard()
    keep_off_target(shop.ctx())


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


def _approved(shop: Shop) -> None:
    shop.guard()
    histories.approved(shop.ctx())


def _cancelled(shop: Shop) -> None:
    _cancel(shop)
    _approved(shop)


def _create(shop: Shop) -> None:
    assert runner.run(shop.ctx(), "create_targets").exit_code == 0


def _guarded_and_fenced(shop: Shop) -> None:
    _guarded(shop)
    _fence(shop)


def _stop(shop: Shop) -> None:
    decision = runner.run(shop.ctx(), "stop_mirror")
    assert decision.exit_code == 0, decision.message


def _rolled_back(shop: Shop) -> None:
    _guarded_and_served(shop)
    _roll_back(shop)


def _switch_back(shop: Shop) -> None:
    decision = switch.run(reverse.way_back(shop.ctx().newest()), environ={})
    assert decision.exit_code == 0, decision.message


def _validated(shop: Shop) -> None:
    _guarded_and_served(shop)
    histories.validated(shop)


def _complete(shop: Shop) -> None:
    decision = complete.run(shop.ctx(), by="ada")
    assert decision.exit_code == 0, decision.message


SCENARIOS = (
    Scenario(name="create", prepare=_approved, run=_create, is_created=False, at_least=20),
    Scenario(name="create after cancel", prepare=_cancelled, run=_create, at_least=25),
    Scenario(name="cutover", run=_cut_over, at_least=25),
    Scenario(name="undo", prepare=_moved_idle, run=_undo, at_least=5),
    Scenario(name="fence", prepare=_cut_over, run=_fence, at_least=12),
    Scenario(name="fence --lift", prepare=_fenced, run=_lift, at_least=10),
    Scenario(name="switch --rehearse", prepare=_cut_over, run=_rehearse, at_least=10),
    Scenario(name="switch", prepare=_cut_over, run=_switch, at_least=30),
    Scenario(name="switch with guards", prepare=_guarded, run=_switch, at_least=40),
    Scenario(name="switch, producers first", prepare=_producers_first, run=_switch, at_least=30),
    Scenario(name="cutover behind producers", prepare=_producers_went_first, run=_cut_over, at_least=25),
    Scenario(name="switch --back", prepare=_rolled_back, run=_switch_back, at_least=40),
    Scenario(name="stop", prepare=_guarded_and_fenced, run=_stop, at_least=15),
    Scenario(name="unfence", prepare=_left_fenced, run=_unfence, at_least=10),
    Scenario(name="rollback with guards", prepare=_guarded_and_served, run=_roll_back, at_least=20),
    Scenario(name="rollback", prepare=_served, run=_roll_back, at_least=20),
    Scenario(name="restore", prepare=_switched, run=_restore, at_least=4),
    Scenario(name="release", prepare=_restored, run=_release, at_least=3),
    Scenario(name="complete", prepare=_validated, run=_complete, at_least=18),
    Scenario(name="cancel", run=_cancel, at_least=15),
    # It only reads: its one point is that there is none.
    Scenario(name="retire", prepare=_restored, run=_retire, at_least=0),
)
