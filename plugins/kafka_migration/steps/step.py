"""What a row of the table is, and what its module gives back.

A row names a module of this folder. The module has ``run(ctx, **options) -> Decision``, or ``Wait(ctx)`` for what is
waited for, or both: what was waited for is then proved once more, and acted on. Modules are loaded when their step is
due: an Airflow scheduler reads the table every few seconds, and needs none of what steps import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from kafka_migration.domain.direction import Direction
from kafka_migration.plans.waves import task_group

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.plans.model import Plan

ApprovalGate = Literal["plan", "cutover", "producers", "rollback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """How a step ended. ``exit_code`` as the command line's (0 done, 1 no, 2 bad input, 3 could not be found out).

    ``message`` is for people; its first line stands for the whole in a table. ``facts`` are small JSON values, for the
    steps that follow; ``notes`` what a log should have besides. ``kept`` is for the journal alone, as the report shows
    it; ``value`` is the result that all this was taken from, for a caller that shows more of it. Neither is in
    :meth:`as_dict`.
    """

    exit_code: int = 0
    message: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    kept: Mapping[str, Any] = field(default_factory=dict)
    value: Any = None

    @property
    def evidence(self) -> dict[str, Any]:
        """What the journal keeps of it."""
        return {**self.facts, **self.kept}

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {"exit_code": self.exit_code, "message": self.message, "facts": dict(self.facts)}


class Waiting(Protocol):
    """What is waited for. Belongs to one thread, from the first look to the last."""

    #: Seconds between two looks.
    interval_seconds: float

    def look(self) -> Decision | None:
        """Look once. None: not yet. Raises MigrationError; a retryable one means "look again"."""

    def too_late(self, overdue: str) -> Decision:
        """The decision when the time is over. ``overdue`` names how long was waited."""


class Verbs(Protocol):
    """The module of a step; one that has nothing to run, or nothing to wait for, lacks that verb."""

    #: Do it (nothing in a dry run), and decide.
    run: Callable[..., Decision]
    #: What has to become so before.
    Wait: Callable[[Context], Waiting]
    #: The groups to move, in batches.
    batches: Callable[[Context], list[list[str]]]


def part_of(wave: str) -> str:
    """What distinguishes one wave's run of a step in the journal; "" for the whole plan's."""
    return f"[{wave}]" if wave else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One row. ``name`` is the task's id, but for a wave's; ``after`` are the ids of rows that must have succeeded.

    ``passes_if`` is what must be so before it counts as passed, ``undo`` how its effect is taken back. ``module`` is
    below :mod:`kafka_migration.steps`; an approval has none, nor has what is only submitted.

    ``approval`` names the gate at which a person is asked, and the row is left out of plans that ask nobody there;
    ``gate`` is the gate that the runner asks right before the step. ``writes``: the step begins to write to the target,
    or goes on; what only reads is not in the journal. ``seconds`` is how long it may take, or how long it is waited
    for, by the plan; None without limit.

    ``spark``: on Spark, as a submission that goes on beside what follows, or in a session of its own that this step
    waits for. ``batched``: by one task per batch of groups, ``in_turn``: of which one runs at a time.
    ``after_failures``: also when batches before it have failed: the others' groups were moved. ``is_teardown``: made
    whatever became of the rows before it, and nothing comes after it. ``until_it_passes``: waited for again, or tried
    again, without end: it waits for people or for days. ``by_wave``: once for each wave of a plan that has some, which
    is then its ``wave``. ``direction``: of the link as which its module is given the migration, which is the newest
    forward one or that of the way back.
    """

    name: str
    after: tuple[str, ...]
    does: str
    passes_if: str
    undo: str
    module: str = ""
    seconds: Callable[[Plan], float | None] = lambda _plan: None
    waits: bool = False
    writes: bool = False
    gate: ApprovalGate | None = None
    approval: ApprovalGate | None = None
    spark: Literal["", "submission", "session"] = ""
    batched: bool = False
    in_turn: bool = False
    after_failures: bool = False
    is_teardown: bool = False
    until_it_passes: bool = False
    by_wave: bool = False
    wave: str = ""
    direction: Direction = Direction.FORWARD

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"a step is named by a plain word, not {self.name!r}")
        if self.id in self.after:
            raise ValueError(f"step {self.name} cannot come after itself")
        if self.waits and not self.module:
            raise ValueError(f"step {self.name} waits for nothing: its row names no module")

    @property
    def id(self) -> str:
        """Its name, within the group of tasks of its wave."""
        return f"{task_group(self.wave)}.{self.name}" if self.wave else self.name

    @property
    def part(self) -> str:
        """What distinguishes this wave's run of the step in the journal."""
        return part_of(self.wave)

    @property
    def runs_on(self) -> bool:
        """Whether it goes on beside what follows, which does not wait for its end."""
        return self.spark == "submission"

    def seen(self, ctx: Context) -> Context:
        """The migration as the module is given it. Raises Refused where it has no state yet that could lead back."""
        if self.direction is Direction.FORWARD:
            return ctx
        from kafka_migration.link import reverse

        return reverse.way_back(ctx)

    @property
    def verbs(self) -> Verbs:
        """Its module, loaded now."""
        return cast("Verbs", import_module(f"kafka_migration.steps.{self.module}"))
