"""An application that hooks stop and start, and that knows where it runs and how far it has read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups.hooks import HookCall, HookRun
from tests.steps.worlds import START, World

_READ = 2


@dataclass
class Application:
    """One consumer group. ``position`` is the source offset that it reads next, on whichever side.

    ``reads`` is whether it reads on the target as soon as it is there. ``faults`` are what must never be.
    """

    world: World
    group: str
    tp: TopicPartition
    reads: bool = True
    position: int = START + 10
    faults: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    running: dict[str, Callable[[], None]] = field(default_factory=dict)

    def run_hook(self, call: HookCall) -> HookRun:
        """Stop or start, as ``call`` says; twice is once."""
        verb = "stop" if call.hook.command and call.hook.command[0] == "stop" else "start"
        self.history.append(f"{verb} {call.cluster}")
        (self.stop if verb == "stop" else self.start)(call.cluster)
        return HookRun(what=str(call), seconds=0.0, said="done")

    def start(self, side: str) -> None:
        if side in self.running:
            return
        if self.running:
            self.faults.append("both_sides")
        committed = self.world.committed(side, self.group).get(self.tp)
        if committed != self._at(side):
            self.faults.append("wrong_offset")
        if side == "target" and self.reads:
            self._read(side)
        self.running[side] = self.world.join(side, self.group, [self.tp.topic])

    def stop(self, side: str) -> None:
        leave = self.running.pop(side, None)
        if leave is None:
            return
        leave()
        if side == "source":
            # What it had read by then, it commits as it leaves.
            self._read(side)

    def _read(self, side: str) -> None:
        self.position += _READ
        self.world.go_on(side, self.group, self.tp, self._at(side))

    def _at(self, side: str) -> int:
        return self.position if side == "source" else self.position - START
