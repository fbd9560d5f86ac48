"""The journal's account of phases: when each began and ended, and how. Commands and operators wrap their work in it.

What is written is history, for people and the report: no phase decides by it. A process that was killed leaves
``running`` behind, which means only that no end was recorded.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.errors import BadInput, CouldNotFindOut, MigrationError, Refused, TakenOver
from kafka_migration.migration.joined import join

if TYPE_CHECKING:
    from kafka_migration.kafka.facts import Inventory
    from kafka_migration.migration.context import Context

KIND = "phase"
_RUN = "run"

#: Earlier runs of a phase that are kept, for the report.
_KEPT_RUNS = 20


class Outcome(enum.StrEnum):
    """How a phase ended. The names are part of the journal's format."""

    RUNNING = "running"
    DONE = "done"
    REFUSED = "refused"
    BAD_INPUT = "bad input"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @classmethod
    def of_exit_code(cls, code: int) -> Outcome:
        """The outcome of a phase that ends with this exit code of the command line."""
        return {0: cls.DONE, 1: cls.REFUSED, 2: cls.BAD_INPUT}.get(code, cls.FAILED)


@dataclass(slots=True)
class PhaseRun:
    """One run of a phase, while it lasts. Without :meth:`ends` it ends as done, or by the kind of its exception."""

    name: str
    outcome: Outcome = Outcome.DONE
    detail: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)

    def ends(self, exit_code: int, detail: str = "", **evidence: Any) -> None:
        """Set how it ends, by the exit code of its result. ``evidence`` holds small JSON values for the report."""
        self.outcome, self.detail = Outcome.of_exit_code(exit_code), detail
        self.evidence.update(evidence)


@contextmanager
def phase(ctx: Context, name: str) -> Iterator[PhaseRun]:
    """Record in the journal that phase ``name`` runs, and how it ended. Nothing is recorded in a dry run.

    Tasks that run one phase side by side give each a name of its own (``cutover[2]``): two writers of one key would
    overwrite each other. What the phase raises passes through unchanged.
    """
    run = PhaseRun(name)
    if ctx.dry_run:
        yield run
        return
    began = ctx.clock.monotonic()
    before = ctx.journal.read(KIND, name)
    value: dict[str, Any] = {
        "started": ctx.stamp(),
        "ended": None,
        "outcome": str(Outcome.RUNNING),
        "detail": "",
        "seconds": None,
        "evidence": {},
        "earlier": _earlier(before),
    }
    ctx.journal.record(KIND, name, value)

    def note(outcome: Outcome, detail: str) -> None:
        value["ended"], value["outcome"], value["detail"] = ctx.stamp(), str(outcome), detail
        value["seconds"] = round(ctx.clock.monotonic() - began, 3)
        value["evidence"] = run.evidence
        ctx.journal.record(KIND, name, value)

    try:
        yield run
    except TakenOver:
        # The journal is the other process's now.
        raise
    except BaseException as error:
        # The first error is what a person must see, also where the journal cannot be written any more.
        with contextlib.suppress(MigrationError):
            note(_outcome_of(error), error.message if isinstance(error, MigrationError) else type(error).__name__)
        raise
    note(run.outcome, run.detail)


def record_death(ctx: Context, name: str, *, since: datetime, detail: str) -> None:
    """Record that phase ``name`` failed, for a process that began it after ``since`` and died without recording an end.

    A phase that never began has failed, too. An end that the process recorded itself stays.
    """
    last = ctx.journal.read(KIND, name)
    if last is None or datetime.fromisoformat(last["started"]) < since:
        with phase(ctx, name) as run:
            run.ends(CouldNotFindOut.exit_code, detail)
    elif last["ended"] is None:
        seconds = (ctx.clock.now() - datetime.fromisoformat(last["started"])).total_seconds()
        ends = {"ended": ctx.stamp(), "outcome": str(Outcome.FAILED), "detail": detail, "seconds": round(seconds, 3)}
        ctx.journal.record(KIND, name, {**last, **ends})


def _earlier(before: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    if before is None:
        return []
    last = {name: before.get(name) for name in ("started", "ended", "outcome", "detail", "seconds")}
    return [*before.get("earlier", []), last][-_KEPT_RUNS:]


def _outcome_of(error: BaseException) -> Outcome:
    if isinstance(error, BadInput):
        return Outcome.BAD_INPUT
    if isinstance(error, Refused):
        return Outcome.REFUSED
    return Outcome.INTERRUPTED if isinstance(error, KeyboardInterrupt) else Outcome.FAILED


def remember_run(ctx: Context, run: str) -> None:
    """Record that ``run`` (of a DAG: its id and the run's) works by this plan, and by no other from now on."""
    if not ctx.dry_run:
        ctx.journal.record(_RUN, run, {"digest": ctx.plan.digest, "snapshot": ctx.plan.snapshot(), "at": ctx.stamp()})


def digest_of_run(ctx: Context, run: str) -> str | None:
    """The digest of the plan that was recorded for ``run``, or None before that."""
    recorded = ctx.journal.read(_RUN, run)
    return None if recorded is None else str(recorded["digest"])


def remember_beginning(ctx: Context, inventory: Inventory | None, *, approved_by: str = "") -> None:
    """Record what the target topics are created from: the plan, which joins the migration with it, and the inventory as
    it is now."""
    if ctx.dry_run or inventory is None:
        return
    join(ctx, by=approved_by)
    ctx.journal.record(
        "inventory",
        "source",
        {
            "digest": inventory.digest,
            "at": inventory.taken_at.isoformat(),
            "cluster_id": inventory.cluster_id,
            "topics": len(inventory.topics),
            "partitions": len(inventory.topic_partitions),
            "groups": len(inventory.groups),
            "bytes": inventory.bytes,
            "left_behind": list(inventory.left_behind[:100]),
            "unchecked": dict(inventory.unchecked),
        },
    )
