"""Where a migration stands, written down for the board: whoever looks there opens no cluster.

Two documents below the folder of reports: the page of ``status``, and a summary, so that hundreds of migrations are
listed fast. They are written by who works on the migration anyway, its tasks and the trigger that watches its mirror,
always from a thread of its own with connections of its own: a store or a cluster that is away keeps nobody waiting.
"""

from __future__ import annotations

import contextvars
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.errors import MigrationError
from kafka_migration.domain.lag import followed
from kafka_migration.groups.record import Step
from kafka_migration.link.lag import LagMeter
from kafka_migration.migration import context
from kafka_migration.migration.joined import joined
from kafka_migration.migration.reports import BOARD_FORMAT, Place, board_files, made, read_json, write_text
from kafka_migration.overview import attention, status

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.overview.attention import Attention
    from kafka_migration.overview.notices import Notices
    from kafka_migration.overview.status import Status
    from kafka_migration.plans.model import Plan

#: Of the lag over time, however long a migration lasts.
_MOST_POINTS = 240
_LEAST_SECONDS, _MOST_SECONDS = 30.0, 300.0
#: So much of its time, at most, does a trigger's thread spend on looking at all of a migration.
_SHARE = 0.05
#: So long a task waits for its page to be written.
_TASK_SECONDS = 20.0


def publish(
    plan: Plan, place: Callable[[], Place], log: Callable[[str], None], *, seconds: float = _TASK_SECONDS
) -> None:
    """Write where the migration of ``plan`` stands now, below ``place``; gone on without after ``seconds``. Whatever
    goes wrong is reported, and ends nothing."""
    problems = ["not written in time"]

    def work() -> None:
        try:
            with context.open_context(plan) as ctx:
                Publisher(ctx, place).publish()
            problems.clear()
        except Exception as error:
            problems[:] = [_why(error)]

    thread = _thread(work)
    thread.join(seconds)
    for problem in list(problems):
        log(f"the board is not up to date: {problem}")


@contextmanager
def publishing(
    plan: Plan, place: Callable[[], Place], log: Callable[[str], None], notices: Notices | None = None
) -> Iterator[None]:
    """As :func:`publish`, again and again while the block lasts. ``notices`` look at each page, in the same thread."""
    ended = threading.Event()

    def work() -> None:
        last = ""
        while not ended.is_set():
            try:
                with context.open_context(plan) as ctx:
                    publisher = Publisher(ctx, place, notices)
                    while True:
                        rest = publisher.publish()
                        last = ""
                        if ended.wait(rest):
                            return
            except Exception as error:
                # For weeks, perhaps: once for each reason.
                if (why := _why(error)) != last:
                    log(f"the board is not up to date: {why}")
                last = why
                ended.wait(_LEAST_SECONDS)

    _thread(work)
    try:
        yield
    finally:
        ended.set()


def _thread(work: Callable[[], None]) -> threading.Thread:
    # Airflow's way to ask for connections is in the context.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name="board", daemon=True)
    thread.start()
    return thread


def _why(error: Exception) -> str:
    return error.message if isinstance(error, MigrationError) else f"{type(error).__name__}: {error}"


class Publisher:
    """Publishes below ``place`` what is seen through ``ctx``; ``notices`` as for :func:`publishing`."""

    def __init__(self, ctx: Context, place: Callable[[], Place], notices: Notices | None = None) -> None:
        self._ctx, self._place, self._notices = ctx, place, notices
        self._meter = LagMeter(ctx)

    def publish(self) -> float:
        """Write both documents, unless the migration has not begun, goes by another plan, or somebody wrote what is
        newer. For how many seconds to rest. Raises what reading and writing raise."""
        if (newest := self._ctx.newest()) is not self._ctx:
            self._ctx, self._meter = newest, LagMeter(newest)
        ctx, began = self._ctx, self._ctx.clock.monotonic()
        last = joined(ctx)
        if last is None or last.digest == ctx.plan.digest:
            page = status.read(ctx, self._meter)
            needs = attention.needed(page, ctx.plan)
            try:
                if self._notices is not None and page.has_begun:
                    self._notices.look(ctx, page, needs)
            finally:
                self._write(page, needs)
        return min(_MOST_SECONDS, max(_LEAST_SECONDS, (ctx.clock.monotonic() - began) / _SHARE))

    def _write(self, page: Status, needs: Sequence[Attention]) -> None:
        whole, short = board_files(self._place(), page.migration)
        before = read_json(whole) or {}
        at = before.get("at")
        if not page.has_begun or (isinstance(at, str) and datetime.fromisoformat(at) > page.at):
            return
        history = before.get("history") if isinstance(before.get("history"), list) else []
        if page.lag is not None:
            history = followed(history or [], [page.at.timestamp(), page.lag.total], _MOST_POINTS)
        for file in (whole, short):
            made(file.parent)
        write_text(whole, json.dumps(document(page, needs, history or [])))
        write_text(short, json.dumps(summary(page, needs, self._ctx.plan)))


def document(page: Status, needs: Sequence[Attention], history: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The page, as JSON types, with lag over time (seconds since 1970, offsets)."""
    more = {"needs": [asdict(need) for need in needs], "history": history, "is_over": attention.is_over(page)}
    return {"format": BOARD_FORMAT, **page.as_dict(), **more}


def summary(page: Status, needs: Sequence[Attention], plan: Plan) -> Mapping[str, Any]:
    """What a list of migrations shows of the page, as JSON types."""
    return {
        "format": BOARD_FORMAT,
        "migration": page.migration,
        "at": page.at.isoformat(timespec="seconds"),
        "source": plan.source,
        "target": plan.target,
        "mirror": page.mirror.state,
        "records": page.mirror.records,
        "lag": None if page.lag is None else page.lag.total,
        "outlook": "" if page.lag is None else page.lag.outlook,
        "groups": len(page.groups),
        "groups_moved": page.groups_by_step.get(Step.ALIVE, 0),
        "verdict": None if page.validation is None else page.validation["verdict"],
        "need": needs[0].what if needs else "",
        "more_needs": max(0, len(needs) - 1),
        "is_over": attention.is_over(page),
    }
