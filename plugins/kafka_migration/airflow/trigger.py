"""The trigger of every step that waits: look, wait, look again, until the step is decided or the time is over."""

from __future__ import annotations

import asyncio
import contextvars
import math
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from kafka_migration.airflow.opening import opened_for_run
from kafka_migration.domain.errors import CouldNotFindOut, MigrationError, Refused, Retryable
from kafka_migration.domain.waiting import Rejections
from kafka_migration.plans.snapshot import Snapshot
from kafka_migration.steps.step import Decision, part_of
from kafka_migration.steps.table import step_named

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.migration.history import PhaseRun
    from kafka_migration.steps.step import Waiting

T = TypeVar("T")


class StepTrigger(BaseTrigger):
    """Waits for step ``step``: holds the run's snapshot of the plan (``packed`` and ``digest``) and no secret;
    connections are looked up where it runs. ``run_of_plan`` is the run's name in the journal, where the plan is
    recorded that the run is bound to; ``plan_file`` is where the snapshot was taken from, ``wave`` the wave that it is
    about, "" for all. The version before gave the ``path`` of the snapshot's file instead.

    ``gives_up_at`` is wall-clock time (seconds since 1970), so that a triggerer that restarts does not give more time;
    None for no limit. What was seen before a restart is forgotten, and seen again: facts of the past prove nothing now.
    """

    def __init__(
        self,
        *,
        step: str,
        digest: str,
        gives_up_at: float | None,
        packed: str = "",
        run_of_plan: str = "",
        plan_file: str = "",
        path: str = "",
        wave: str = "",
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.step, self.digest, self.gives_up_at = step, digest, gives_up_at
        self.packed, self.run_of_plan, self.plan_file, self.path = packed, run_of_plan, plan_file, path
        self.wave = wave

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """As Airflow stores it."""
        kind = type(self)
        names = ["step", "digest", "gives_up_at", "packed", "run_of_plan", "plan_file", "path"]
        # Where there are no waves, a triggerer of the version before takes it, too.
        names += ["wave"] if self.wave else []
        return f"{kind.__module__}.{kind.__qualname__}", {name: getattr(self, name) for name in names}

    def snapshot(self) -> Snapshot:
        """The run's snapshot of the plan. Raises what reading it raises."""
        if self.path:
            return Snapshot.in_file(Path(self.path), self.digest)
        return Snapshot.unpack(self.packed, self.digest)

    def opened(self, **options: bool) -> AbstractContextManager[Context]:
        """The context of the run's plan; see :func:`opened_for_run`."""
        snapshot, run = self.snapshot(), self.run_of_plan
        return opened_for_run(snapshot, self.log, run=run, plan_file=self.plan_file, wave=self.wave, **options)

    def watch(self, ctx: Context) -> Waiting:
        """What is waited for."""
        return step_named(self.step).verbs.Wait(ctx)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event: the decision."""
        decision = await self._wait()
        yield TriggerEvent(decision.as_dict())  # type: ignore[no-untyped-call]

    async def _wait(self) -> Decision:
        # A thread of its own: clients of Kafka block and belong to the thread that opened them, and the triggerer's
        # shared threads are few. Its context has the trigger's log, and Airflow's way to ask for connections.
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=type(self).__name__)

        def call(work: Callable[[], T]) -> asyncio.Future[T]:
            return loop.run_in_executor(thread, contextvars.copy_context().run, work)

        began = time.time()
        session = _Session(self)
        try:
            while True:
                decision = await call(session.look)
                if decision is not None:
                    return decision
                left = math.inf if self.gives_up_at is None else self.gives_up_at - time.time()
                if left <= 0:
                    return await call(lambda: session.too_late(time.time() - began))
                await asyncio.sleep(min(session.interval_seconds, left))
        finally:
            # Not awaited under cancellation for longer than the look that is under way takes.
            await asyncio.shield(call(session.close))
            thread.shutdown(wait=False)


class _Session:
    """The blocking half, in the trigger's own thread: the context stays open from look to look."""

    def __init__(self, trigger: StepTrigger) -> None:
        self.interval_seconds = 2.0
        self._trigger = trigger
        self._open = ExitStack()
        self._watch: Waiting | None = None
        self._run: PhaseRun | None = None
        self._decision: Decision | None = None
        self._rejections = Rejections(time)

    def look(self) -> Decision | None:
        """Look once; an error that another look cannot heal is a decision, too."""
        try:
            if self._watch is None:
                self._watch = self._start()
                self.interval_seconds = self._watch.interval_seconds
            self._decision = self._watch.look()
            self._rejections.last(None)
        except Retryable as error:
            # A broker that restarts is no reason to give up, as long as there is time.
            self._trigger.log.warning("%s", error)
            if self._rejections.last(error):
                self._decision = Decision(exit_code=Refused.exit_code, message=str(error))
        except MigrationError as error:
            # The code for what could not be found out is for what another look may heal.
            final = Refused.exit_code if error.exit_code == CouldNotFindOut.exit_code else error.exit_code
            self._decision = Decision(exit_code=final, message=str(error))
        return self._decision

    def too_late(self, waited: float) -> Decision:
        """The decision when nothing was decided in time."""
        overdue = f"gave up after {waited:.0f} s"
        if self._watch is None:
            self._decision = Decision(
                exit_code=CouldNotFindOut.exit_code, message=f"{overdue}: the clusters could not be looked at"
            )
        else:
            self._decision = self._watch.too_late(overdue)
        return self._decision

    def close(self) -> None:
        """Record how the wait ended, and close connections."""
        from kafka_migration.migration.history import Outcome

        if self._run is not None and self._decision is not None:
            self._run.ends(self._decision.exit_code, self._decision.message, **self._decision.evidence)
        elif self._run is not None:
            # The task was cleared, or the triggerer stops: another one will watch.
            self._run.outcome = Outcome.INTERRUPTED
        self._open.close()

    def _start(self) -> Waiting:
        from kafka_migration.migration.history import phase

        trigger = self._trigger
        with ExitStack() as opening:
            # The state is there, create_targets has made it; but a broker may not show what was made a moment ago,
            # and would be taken for one without state for as long as this context is open.
            ctx = opening.enter_context(trigger.opened(make_state=True))
            watch = trigger.watch(step_named(trigger.step).seen(ctx))
            if not step_named(trigger.step).writes:
                # One that acts then is in the journal from there on.
                self._run = opening.enter_context(phase(ctx, trigger.step + part_of(trigger.wave)))
            self._open = opening.pop_all()
        return watch
