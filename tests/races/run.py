"""Interleavings of two movers: one waits at each of its points, the other runs meanwhile, and a last run converges."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from kafka_migration.approvals.cutover import CutoverGate
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.ledger import JOURNAL_TOPIC
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups import move
from kafka_migration.groups.hooks import HookCall, HookRun
from kafka_migration.groups.record import GroupRecord
from kafka_migration.kafka.topic_log import TopicLog
from kafka_migration.migration.context import Context
from kafka_migration.state.journal import Journal
from kafka_migration.state.store import Store, TopicStore
from kafka_migration.steps import cutover
from tests.races.application import Application
from tests.races.turns import Racer, RacingCluster, RacingJournal
from tests.steps.worlds import RealWorld, World

#: What two movers do beside each other: (name, the first, the second, whether the application reads on the target).
#: ``dies`` is a cutover whose process is killed a few points after the other one has begun.
PAIRS = (
    ("command beside the DAG", "cutover", "cutover", True),
    ("undo beside a cutover", "cutover", "undo", False),
    ("cutover beside an undo", "undo", "cutover", False),
    ("cleared task beside its dying try", "dies", "cutover", True),
)
_CONSUMERS = {"stop": [{"command": ["stop", "{group}"]}], "start": [{"command": ["start", "{group}"]}]}
_DIES_AFTER = 3
FAULTS = ("both_sides", "neither_side", "wrong_offset", "lost_record")
"""What must never be; ``lost_record``: the journal does not say in the end that the group was moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interleaving:
    """The first mover waits at point ``first_at``; the second runs to ``second_at``, then the first. 0: to its end."""

    pair: int
    first_at: int
    second_at: int = 0

    def __str__(self) -> str:
        upto = f"up to {self.second_at}" if self.second_at else "to its end"
        return f"{PAIRS[self.pair][0]}: the first waits at {self.first_at}, the second runs {upto}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one. ``waited`` is False if the first mover never came to its point; so is ``met`` of the second.
    ``points`` are those that the first one passed until it waited, or ended."""

    faults: tuple[str, ...]
    waited: bool
    met: bool
    points: int
    history: tuple[str, ...]


@contextmanager
def hooks_of(applications: dict[str, Application]) -> Iterator[None]:
    """Hooks go to the application of their group, and the gate is open: it is not what races here."""

    def run_hook(call: HookCall, **_: Any) -> HookRun:
        done = applications[call.group].run_hook(call)
        racer = getattr(threading.current_thread(), "racer", None)
        if racer is not None:
            racer.point()
        return done

    with (
        patch.object(move, "run_hook", run_hook),
        patch.object(move, "require_runnable", lambda *_, **__: None),
        patch.object(CutoverGate, "ask", lambda _gate: "open"),
    ):
        yield


class Races:
    """Interleavings in one world. ``store`` opens the journal's store anew, as each process does."""

    def __init__(self, world: World, store: Callable[[], Store]) -> None:
        self.world, self._store = world, store
        self.topic = world.topic("orders", records=100)
        self._serial = itertools.count()

    def run(self, it: Interleaving) -> Outcome:
        """Run one, and converge."""
        _, first, second, reads = PAIRS[it.pair]
        group = self.world.group(f"g{next(self._serial)}")
        app = Application(self.world, group, TopicPartition(self.topic, 0), reads=reads)
        self.world.commit("source", group, {app.tp: app.position})
        app.start("source")
        with hooks_of({group: app}):
            if "undo" in (first, second) and first == "undo":
                self._act("cutover", self._ctx(None, reads), group)
            a, b = Racer("first"), Racer("second")
            a.start(self._work(first, a, group, reads), pause_at=it.first_at)
            waited, points = not a.ended, a.points
            b.start(self._work(second, b, group, reads), pause_at=it.second_at)
            met = not b.ended
            if first == "dies":
                a.go_on(die_at=a.points + _DIES_AFTER)
            else:
                a.go_on()
            b.go_on()
            self._converge(app, reads)
        if not app.running:
            app.faults.append("neither_side")
        record = GroupRecord.load(Journal(self._store(), "moving"), group)
        if list(app.running) != ["target"] or not record.is_moved:
            app.faults.append("lost_record")
            app.history.append(f"ended on {list(app.running)}, record {[str(step) for step in record.steps]}")
        for leave in app.running.values():
            leave()
        history = (*app.history, f"first {a.ended}, second {b.ended}")
        return Outcome(faults=tuple(app.faults), waited=waited, met=met, points=points, history=history)

    def every(self, *, second_every: int) -> Iterator[tuple[Interleaving, Outcome]]:
        """All of them: the first waits at each of its points, and the second runs to its end, and to each
        ``second_every``-th of its own points."""
        for pair in range(len(PAIRS)):
            for first_at in itertools.count(1):
                it = Interleaving(pair=pair, first_at=first_at)
                outcome = self.run(it)
                if not outcome.waited:
                    break
                yield it, outcome
                for second_at in itertools.count(1 + first_at % second_every, second_every):
                    it = Interleaving(pair=pair, first_at=first_at, second_at=second_at)
                    outcome = self.run(it)
                    if not outcome.met:
                        break
                    yield it, outcome

    def some(self, count: int) -> Iterator[tuple[Interleaving, Outcome]]:
        """``count`` of them, of every pair in turn and spread over the points that its first mover passes when it is
        let through; the second runs to its end."""
        rounds = -(-count // len(PAIRS))
        points = [self.run(Interleaving(pair=pair, first_at=0)).points for pair in range(len(PAIRS))]
        for number in range(count):
            turn, pair = divmod(number, len(PAIRS))
            it = Interleaving(pair=pair, first_at=max(1, (2 * turn + 1) * points[pair] // (2 * rounds)))
            outcome = self.run(it)
            if not outcome.waited:
                raise AssertionError(f"{it}: the first mover ends before it, and passed {points[pair]} points before")
            yield it, outcome

    def _converge(self, app: Application, reads: bool) -> None:
        """What a person or the DAG does afterwards: run it again, and finish an undo first if it says so."""
        for what in ("cutover", "undo", "cutover"):
            self._act(what, self._ctx(None, reads), app.group)
            if "target" in app.running:
                return

    def _work(self, what: str, racer: Racer, group: str, reads: bool) -> Callable[[], None]:
        def work() -> None:
            threading.current_thread().racer = racer  # type: ignore[attr-defined]
            self._act("cutover" if what == "dies" else what, self._ctx(racer, reads), group)

        return work

    def _act(self, what: str, ctx: Context, group: str) -> None:
        if what == "cutover":
            cutover.apply(ctx, [group])
            return
        try:
            cutover.undo(ctx, group)
        except Refused as error:
            # Nothing to move back (yet), or not any more: what it says is for whoever asked.
            ctx.log(error.message)

    def _ctx(self, racer: Racer | None, reads: bool) -> Context:
        ctx = self.world.ctx(consumers=_CONSUMERS, cutover={} if reads else {"watch_seconds": 0.05})
        store = self._store()
        if racer is None:
            ctx.journal = Journal(store, "moving")
            return ctx
        ctx.journal = RacingJournal(store, "moving", racer)
        ctx.target = RacingCluster(ctx.target, racer)  # type: ignore[assignment]
        return ctx


@contextmanager
def on_brokers(world: RealWorld) -> Iterator[Races]:
    """Races whose journal is the internal topic of the world's target: each mover reads it as a process of its own."""
    opened: list[Store] = []

    def store() -> Store:
        opened.append(TopicStore(TopicLog({"bootstrap.servers": world.servers["target"]}, JOURNAL_TOPIC)))
        return opened[-1]

    TopicLog({"bootstrap.servers": world.servers["target"]}, JOURNAL_TOPIC).ensure()
    try:
        yield Races(world, store)
    finally:
        for it in opened:
            it.close()
