"""run: the whole migration at one terminal, step by step as the table has them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import typer

from kafka_migration.approvals.evidence import GateName
from kafka_migration.cli.asking import can_be_asked
from kafka_migration.cli.commands.prove import approve
from kafka_migration.cli.opening import loaded, opened
from kafka_migration.cli.options import Debug, DryRun, Json, Master, PlanFile, ReportsDirectory
from kafka_migration.cli.output import Output
from kafka_migration.domain.errors import BadInput, CouldNotFindOut, MigrationError, Refused, Retryable, TakenOver
from kafka_migration.domain.leash import Leash
from kafka_migration.link.flight import was_taken_over
from kafka_migration.migration.signing import without_keys

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.migration.reports import Place
    from kafka_migration.steps.step import Decision, Step

_TRIES = 3
_BETWEEN_TRIES_SECONDS = 10.0

#: Deaths in a row after which it is not started any more.
_MOST_STARTS = 5
_BETWEEN_STARTS_SECONDS = 5.0
#: A mirror that ran for so long did not die of its set-up.
_LONG_SECONDS = 60.0
_CLEAN_END_SECONDS = 30.0
_LAST_LINES_SECONDS = 1.0
#: Of what the mirror prints while a person is asked, so many lines are kept: the last ones.
_KEPT_LINES = 100

#: The attempts to mirror the link (True while one runs), and the plan that the mirror goes by, for people.
Look = tuple[dict[str, bool], str]


def run(
    plan: PlanFile,
    master: Master = None,
    output_directory: ReportsDirectory = "reports",
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Go through the whole migration, and ask for its approvals here. May be killed at any moment, and run again."""
    from kafka_migration.cli.render.tables import grid
    from kafka_migration.migration.reports import place_of
    from kafka_migration.steps.table import workflow

    output, place = Output(as_json=as_json), place_of(output_directory, field="--output")
    what = loaded(plan)
    rows = workflow(what)
    if dry_run:
        steps = [{"step": row.id, "does": row.does, "passes_if": row.passes_if, "undo": row.undo} for row in rows]
        table = grid("Steps", ("step", "what it does", "passes if"), [(r.id, r.does, r.passes_if) for r in rows])
        output.result({"dry_run": True, "steps": steps}, table)
        return
    walk = _Walk(plan, output, master=master, reports=place)
    with walk.mirror:
        code = walk.through(rows)
    output.result({"steps": walk.account, "exit_code": code}, "done" if not code else f"ended with exit code {code}")
    raise typer.Exit(code)


class _Walk:
    """One way through the table. What was done by an earlier one is seen on the clusters, and is not done again."""

    def __init__(self, plan: Path, output: Output, *, master: str | None, reports: Place) -> None:
        self.mirror = MirrorProcess(plan, master=master, log=output.log, look=self._look)
        self.account: list[dict[str, Any]] = []
        self._over: dict[str, bool] = {}
        self._plan, self._output, self._master, self._reports = plan, output, master, reports

    def through(self, rows: tuple[Step, ...]) -> int:
        """Make the steps, in order, to the first that does not pass. The exit code of that one, or 0."""
        from kafka_migration.steps.table import by_waves

        code, is_over = 0, False
        left = [*self._left(rows)]
        while left:
            row = left.pop(0)
            is_over = is_over or bool(code and not (row.after_failures or row.is_teardown))
            if is_over and not row.is_teardown:
                continue
            if row.by_wave and not row.wave and (names := self._waves()):
                # Computed: they are settled by now.
                left = [*by_waves([row, *left], names)]
                continue
            self.mirror.require_ours()
            if row.wave and self._is_over(row.wave):
                continue
            self._output.log(f"{row.id}: {row.does}")
            try:
                decision = self._step(row)
            except MigrationError:
                self._tear_down(left)
                raise
            if decision is None:
                continue
            self.account.append({"step": row.id, **decision.as_dict()})
            for line in (*decision.notes, *decision.message.splitlines()):
                self._output.log(f"  {line}")
            code = code or decision.exit_code
        return code

    def _tear_down(self, rows: Iterable[Step]) -> None:
        """Make the teardowns among ``rows``; what has failed before stays the reason."""
        for row in rows:
            if row.is_teardown:
                self._output.log(f"{row.name}: {row.does}")
                try:
                    self._output.log(f"  {self._once(row).message}")
                except MigrationError as error:
                    self._output.log(f"  {error}")

    def _look(self) -> tuple[dict[str, bool], str]:
        from kafka_migration.migration.joined import begun_mirror

        with opened(self._plan, self._output) as ctx:
            return ctx.link.attempts(), str(begun_mirror(ctx) or "")

    def _left(self, rows: tuple[Step, ...]) -> tuple[Step, ...]:
        """The steps to make: all, or once the mirror is sealed only those after the last that cannot be made twice."""
        with opened(self._plan, self._output, to_check=True) as ctx:
            done = _done(ctx)
        names = [row.name for row in rows]
        if done:
            self._output.log(f"{done} was done by an earlier run: continuing with the step after it")
        # Each wave has its own: the last one is what the seal comes behind.
        return rows[len(names) - names[::-1].index(done) :] if done else rows

    def _waves(self) -> Iterable[str]:
        from kafka_migration.approvals import waves

        if loaded(self._plan).waves is None:
            return ()
        with opened(self._plan, self._output) as ctx:
            return waves.names(ctx)

    def _is_over(self, wave: str) -> bool:
        """Whether the groups of ``wave`` had moved, and gone on, before this run came to it: nobody is asked for what
        is done, though the approval may have grown old since."""
        from kafka_migration.approvals import waves

        if wave not in self._over:
            with opened(self._plan, self._output, wave=wave) as ctx:
                self._over[wave] = bool(ctx.scope.reading) and not waves.left(ctx, ctx.scope.reading)
            if self._over[wave]:
                self._output.log(f"wave {wave} has moved: continuing with what follows it")
        return self._over[wave]

    def _step(self, row: Step) -> Decision | None:
        if row.approval:
            self._approve(GateName(row.approval), row.wave)
            return None
        if row.runs_on:
            self.mirror.start()
            return None
        return self._decided(row)

    def _decided(self, row: Step) -> Decision:
        """Try ``row`` until its outcome is known, or there is no try left."""
        tries = 0
        while True:
            tries += 1
            is_last = tries >= _TRIES and not row.until_it_passes
            try:
                decision = self._once(row)
            except Retryable as error:
                if is_last:
                    raise
                problem = str(error)
            else:
                if is_last or decision.exit_code != CouldNotFindOut.exit_code:
                    return decision
                problem = decision.message
            self._output.log(f"{row.id}: trying again: {problem}")
            self.mirror.require()
            self.mirror.wait(_BETWEEN_TRIES_SECONDS)

    def _once(self, row: Step) -> Decision:
        from kafka_migration.steps import runner

        options: dict[str, Any] = {}
        if row.spark:
            options = {"spark_master": self._master, "reports": self._reports}
        elif row.name == "report":
            options = {"reports": self._reports}
        is_check = row.name == "inventory_and_preflight"
        with opened(self._plan, self._output, to_check=is_check, wave=row.wave or None) as ctx:
            if row.waits:
                return runner.wait(ctx, row.name, part=row.part)
            return runner.run(ctx, row.name, part=row.part, **options)

    def _approve(self, gate: GateName, wave: str) -> None:
        """Ask for the approval of ``gate`` at this terminal, unless one holds. Raises NotApproved."""
        from kafka_migration.approvals import approvals, passing

        with opened(self._plan, self._output, wave=wave or None) as ctx:
            try:
                self._output.log(f"  {approvals.check(ctx, gate).reason}")
                return
            except Refused as shut:
                self._output.log(f"  {shut.message}")
        if self._output.as_json or not can_be_asked():
            raise passing.NotApproved(
                gate,
                "nobody can be asked here",
                remedy=f"{passing.command(gate, wave, self._plan)}, then run this again",
                wave=wave,
            )
        with self.mirror.quiet():
            approve(gate, self._plan, wave=wave or None)


def _done(ctx: Context) -> str:
    """The last step that cannot be made twice: the seal ends the copy for good, and what was restored may be released.
    "" before that, and where the plan selects topics by now that were never mirrored."""
    from kafka_migration.fence import record as fences
    from kafka_migration.fence.bans import BACK_WRITES, EARLY_WRITES
    from kafka_migration.link import switched
    from kafka_migration.link.switched import SwitchState
    from kafka_migration.topics.declared import KIND, is_restored

    seal, records = ctx.link.seal(), ctx.journal.all(KIND)
    if seal is None or not seal.is_complete:
        return ""
    if set(ctx.plan.topics.select(ctx.source.topics())) - set(ctx.link.topics()):
        return ""
    is_switched = ctx.plan.producers is not None and ctx.plan.producers.in_workflow
    if not is_switched and {EARLY_WRITES.key, BACK_WRITES.key} & fences.standing(ctx).keys():
        # `stop_mirror` lets producers in behind the seal, which is left to do.
        return "watch_groups"
    if all(is_restored(record) for record in records.values()):
        return "restore"
    if not is_switched:
        return "stop_mirror"
    # The switch seals before the point of no return: until it is done, it is gone on with.
    switch = switched.read(ctx)
    if switch is not None and switch.state is SwitchState.DONE:
        return "switch_producers"
    return "validate" if ctx.plan.producers and ctx.plan.producers.first else "watch_groups"


class MirrorProcess:
    """Runs the mirror of ``plan``, and starts it again when it dies; ends it on exit. What it prints is logged."""

    def __init__(
        self,
        plan: Path,
        *,
        master: str | None,
        log: Callable[[str], None],
        look: Callable[[], Look],
    ) -> None:
        """``look`` looks at the link: before a start, and after an end."""
        self._arguments = [sys.executable, "-m", "kafka_migration", "mirror", str(plan)]
        self._arguments += ["--master", master] if master else []
        self._log, self._look = log, look
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[str] | None = None
        self._ending, self._ended = threading.Event(), threading.Event()
        self._problem: MigrationError | None = None
        self._printing = threading.Lock()
        self._kept: deque[str] | None = None

    def __enter__(self) -> Self:
        return self

    def start(self) -> None:
        """Start it, and go on. A mirror that runs elsewhere is taken over by it, once: it is not started again where it
        was itself taken over since."""
        self._thread = threading.Thread(target=self._keep, name="mirror", daemon=True)
        self._thread.start()

    def require(self) -> None:
        """Raise CouldNotFindOut if it was started, has ended with a problem, and is not started any more; TakenOver if
        another mirror runs instead."""
        if self._problem:
            raise self._problem

    def require_ours(self) -> None:
        """Raise TakenOver if another mirror runs instead: whoever started that one goes on with the migration."""
        if isinstance(self._problem, TakenOver):
            raise self._problem

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """What the mirror prints while the block runs is logged behind it: else it would stand amid a question."""
        with self._printing:
            self._kept = deque(maxlen=_KEPT_LINES)
        try:
            yield
        finally:
            with self._printing:
                kept, self._kept = self._kept or (), None
                for line in kept:
                    self._log(line)

    def wait(self, seconds: float) -> None:
        """Return once it has ended for good, or after ``seconds``."""
        self._ended.wait(seconds)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ending.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_CLEAN_END_SECONDS)
        if self._thread is not None:
            self._thread.join(timeout=_CLEAN_END_SECONDS)

    def _keep(self) -> None:
        deaths = 0
        while not self._ending.is_set():
            began, before = time.monotonic(), self._looked()
            code = self._run()
            if code == 0 or self._ending.is_set():
                break
            after = self._looked()
            if before and after and was_taken_over(before[0], after[0]):
                self._problem = TakenOver(f"the mirror{f', by {after[1]},' if after[1] else ''}")
                self._log(str(self._problem))
                break
            if code in (Refused.exit_code, BadInput.exit_code):
                # Only a person can clear it: the steps that wait see that, and report it.
                self._problem = _problem(f"the mirror ended with exit code {code}")
                break
            deaths = 1 if time.monotonic() - began > _LONG_SECONDS else deaths + 1
            if deaths >= _MOST_STARTS:
                self._problem = _problem(f"the mirror died {deaths} times in a row, last with exit code {code}")
                break
            self._log(f"the mirror ended with exit code {code}; starting it again")
            self._ending.wait(_BETWEEN_STARTS_SECONDS)
        self._ended.set()

    def _looked(self) -> Look | None:
        try:
            return self._look()
        except MigrationError:
            # A cluster is away: the mirror itself reports that, and is started again.
            return None

    def _run(self) -> int:
        with ExitStack() as stack:
            leash = stack.enter_context(Leash())
            # A group of its own, so that the leash ends its JVM, too.
            process = leash.start(
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                # The mirror asks no gate, so it needs no approval key.
                env=without_keys(os.environ),
            )
            self._process = process
            if self._ending.is_set():
                process.terminate()
            # Read on whoever is asked what: the mirror would stand still behind a pipe that is full.
            printing = threading.Thread(target=self._print, args=(process.stdout,), name="mirror output", daemon=True)
            printing.start()
            code = process.wait()
        # A JVM that has not ended yet may hold the pipe.
        printing.join(timeout=_LAST_LINES_SECONDS)
        return code

    def _print(self, lines: Iterable[str]) -> None:
        for line in lines:
            with self._printing:
                (self._log if self._kept is None else self._kept.append)(line.rstrip("\n"))


def _problem(text: str) -> CouldNotFindOut:
    return CouldNotFindOut(text, remedy="read the mirror's output above, correct what it reports, then run this again")
