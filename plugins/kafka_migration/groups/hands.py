"""What moving a group is done with: asking clusters that may need to be asked again, waiting, and running hooks.

A hook is the one effect that nothing undoes. So right before each call of one, what it relies on is proved, and the
claim on the group is looked at; nothing stands between that look and the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, TypeVar

from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.groups.hooks import HookCall, HookRun, HookUnanswered, require_runnable, run_hook
from kafka_migration.groups.record import GroupRecord
from kafka_migration.groups.refusals import Side
from kafka_migration.plans.hooks import Hook

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

T = TypeVar("T")
Proof = Callable[["Context", GroupRecord], None]

#: The longest time between two looks while waiting, in seconds. The first come sooner: a group stands still meanwhile.
POLL_SECONDS = 0.25
_FIRST_POLL_SECONDS = 0.02

#: For how long a cluster that does not answer is asked again, and a hook without an answer called again, while a group
#: stands still. Giving up at the first hiccup (a coordinator that moves) would leave its consumers stopped until a
#: person looks.
PATIENCE_SECONDS = 30.0
HOOK_AGAIN_SECONDS = 1.0


class Hands:
    """Asks, waits and runs hooks.

    ``tick`` is called while it waits. ``environ`` is what hooks are allowed by (default: the process's environment).
    """

    def __init__(
        self, ctx: Context, *, environ: Mapping[str, str] | None = None, tick: Callable[[], None] = lambda: None
    ) -> None:
        self.ctx, self._environ, self._tick = ctx, environ, tick
        self._ticked = float("-inf")

    def require_hooks(self, group: str, *, stop_on: Side, start_on: Side, phase: Literal["cutover", "undo"]) -> None:
        """Refuse before anything is stopped, if a hook that stops it, or starts it later, may not run here."""
        calls = [self.call(hook, group, stop_on, phase) for hook in self.ctx.plan.stop_hooks(group)]
        calls += [self.call(hook, group, start_on, phase) for hook in self.ctx.plan.start_hooks(group)]
        for call in calls:
            require_runnable(call, environ=self._environ)

    def run_hooks(
        self,
        record: GroupRecord,
        hooks: tuple[Hook, ...],
        cluster: Side,
        phase: Literal["cutover", "undo"],
        *,
        prove: Proof = lambda _ctx, _record: None,
    ) -> list[HookRun]:
        """Run hooks in order, each right after ``prove`` and a look at the claim; one without an answer is run again.

        ``wait`` runs nothing: whoever stops waits for rest, whoever starts is watched.
        """
        calls = [self.call(hook, record.group, cluster, phase) for hook in hooks if not hook.wait]
        if not calls:
            prove(self.ctx, record)
        return [self._run_hook(record, call, prove) for call in calls]

    def _run_hook(self, record: GroupRecord, call: HookCall, prove: Proof) -> HookRun:
        clock = self.ctx.clock
        deadline = clock.monotonic() + min(PATIENCE_SECONDS, self.ctx.plan.consumers.wait_seconds)
        while True:
            self.asked(lambda: prove(self.ctx, record))
            record.require_owner()
            try:
                return run_hook(call, environ=self._environ)
            except HookUnanswered:
                if clock.monotonic() >= deadline:
                    raise
            self.sleep(HOOK_AGAIN_SECONDS)

    def call(self, hook: Hook, group: str, cluster: Side, phase: Literal["cutover", "undo"]) -> HookCall:
        """``hook`` for one group."""
        return HookCall(hook=hook, group=group, migration=self.ctx.plan.name, cluster=cluster, phase=phase)

    def asked(self, ask: Callable[[], T]) -> T:
        """The answer of a cluster that may need to be asked again."""
        deadline = self.ctx.clock.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return ask()
            except CouldNotFindOut:
                if self.ctx.clock.monotonic() >= deadline:
                    raise
            self.sleep(POLL_SECONDS)

    def sleep(self, seconds: float) -> None:
        """Wait, and tick meanwhile."""
        clock = self.ctx.clock
        end = clock.monotonic() + seconds
        while (left := end - clock.monotonic()) > 0:
            if clock.monotonic() >= self._ticked + POLL_SECONDS:
                self._tick()
                self._ticked = clock.monotonic()
            clock.sleep(min(left, POLL_SECONDS))


def polls() -> Iterator[float]:
    """How long to wait before each next look: short first, since most of what is waited for happens soon."""
    seconds = _FIRST_POLL_SECONDS
    while True:
        yield seconds
        seconds = min(2 * seconds, POLL_SECONDS)
