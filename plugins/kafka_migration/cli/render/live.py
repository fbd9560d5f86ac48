"""What is watched: a page that is redrawn, or a line below a long step, for a person at a terminal; else lines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from rich.console import Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kafka_migration.cli.render.status import OUTCOMES, needed, state
from kafka_migration.cli.render.tables import Cell, facts, number
from kafka_migration.domain.amounts import moment, seconds
from kafka_migration.domain.errors import MigrationError
from kafka_migration.domain.listing import listed
from kafka_migration.domain.printable import in_one_line
from kafka_migration.groups.record import Step

if TYPE_CHECKING:
    from kafka_migration.cli.output import Output
    from kafka_migration.migration.context import Context
    from kafka_migration.overview.attention import Attention
    from kafka_migration.overview.status import Status
    from kafka_migration.plans.model import Plan

_BESIDE_SECONDS = 2.0
_BAR_WIDTH = 30
_PHASES, _NEEDS = 8, 5


_Found = TypeVar("_Found")


def watch(
    output: Output,
    look: Callable[[], _Found],
    *,
    page: Callable[[_Found], RenderableType],
    line: Callable[[_Found], str],
    as_dict: Callable[[_Found], Mapping[str, Any]],
    rest: Callable[[], None],
    whole: bool = False,
) -> NoReturn:
    """Look again and again, with a ``rest`` between two looks, until interrupted. With ``--json``, a document a line.

    ``page`` and ``line`` show what was found, at a terminal and elsewhere; ``whole``: the page takes the terminal.
    Raises what ``look`` raises; at a terminal only at first: later the page stays, with the error above it.
    """
    found = look()
    if output.is_live:
        with Live(page(found), console=output.out, auto_refresh=False, screen=whole) as live:
            while True:
                rest()
                try:
                    found = look()
                except MigrationError as error:
                    live.update(Group(Text(f"cannot be read: {error.message}", "bold red"), page(found)), refresh=True)
                else:
                    live.update(page(found), refresh=True)
    while True:
        if output.as_json:
            output.json(as_dict(found), indent=None)
        else:
            output.line(line(found))
        rest()
        found = look()


def screen(page: Status, needs: tuple[Attention, ...]) -> RenderableType:
    """A migration on one screen, what matters most at its top: a small terminal cuts off the rest."""
    head = Text(page.migration, "bold").append(f"  {moment(page.at.isoformat())} UTC", "dim")
    rows: list[tuple[str, Cell]] = [("mirror", state(page.mirror))]
    if held := "; ".join(filter(None, (page.mirror.controls.describe(), page.mirror.waiting))):
        rows.append(("held back", Text(held, "yellow")))
    if page.mirror.sealed:
        rows.append(("sealed", page.mirror.sealed))
    rows.append(("topics", ", ".join(f"{n} {name}" for name, n in page.topics_by_state.items()) or str(page.topics)))
    verdict = page.validation
    rows.append(("validation", "none yet" if verdict is None else f"{verdict['verdict']} at {moment(verdict['at'])}"))
    rows += [("wave", f"{wave.title}: {wave.stands}") for wave in page.waves]
    rows += [("producers", str(page.switch))] if page.switch else []
    if page.way_back is not None:
        rows.append(("way back", state(page.way_back.mirror)))
    return Group(head, *needed(needs, _NEEDS), Text(), _bars(page), Text(), facts(rows), Text(), *_latest(page))


def summary(page: Status, needs: tuple[Attention, ...]) -> str:
    """The same in one line."""
    lag = "unknown" if page.lag is None else number(page.lag.total)
    rest = [page.lag.outlook] if page.lag is not None and page.lag.outlook else []
    rest += [f"{n} groups {step.replace('_', ' ')}" for step, n in page.groups_by_step.items()]
    rest += [in_one_line(f"needs a person: {listed(need.what for need in needs)}")] if needs else []
    return ", ".join([f"{moment(page.at.isoformat())} mirror {page.mirror.state}, lag {lag}", *rest])


def _bars(page: Status) -> RenderableType:
    """How much is copied, and how many groups go on on the target."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(width=_BAR_WIDTH)
    table.add_column(overflow="fold")
    if page.lag is None:
        table.add_row(Text("copied"), "", Text(f"lag unknown: {page.unknown.get('lag', '')}"))
    else:
        copied, lag = page.mirror.records, page.lag
        rates = ""
        if lag.copied_per_second is not None and lag.produced_per_second is not None:
            rates = f", copying {lag.copied_per_second:,.0f}/s, produced {lag.produced_per_second:,.0f}/s"
        text = f"{number(copied)} records, lag {number(lag.total)}{rates}"
        table.add_row(
            Text("copied"), _bar(copied, copied + lag.total), Text(". ".join(filter(None, (text, lag.outlook))))
        )
    if page.groups:
        counts = page.groups_by_step
        pauses = [group.pause_seconds for group in page.groups if group.pause_seconds is not None]
        text = ", ".join(f"{n} {step.replace('_', ' ')}" for step, n in counts.items())
        text += f"; longest pause {seconds(max(pauses))}" if pauses else ""
        table.add_row(Text("groups"), _bar(counts.get(Step.ALIVE, 0), len(page.groups)), Text(text))
    return table


def _bar(done: int, total: int) -> RenderableType:
    # What is all there is, is full, also where there is nothing.
    return ProgressBar(total=max(total, 1), completed=done if total else 1, width=_BAR_WIDTH)


def _latest(page: Status) -> Iterator[RenderableType]:
    """The phases that began last, the newest first."""
    table = Table.grid(padding=(0, 2))
    for phase in list(reversed(page.phases))[:_PHASES]:
        took = Text("" if phase.seconds is None else seconds(phase.seconds), justify="right")
        outcome = Text(phase.outcome, OUTCOMES.get(phase.outcome, ""))
        table.add_row(Text(moment(phase.started)[11:], "dim"), Text(phase.name), outcome, took, Text(phase.detail))
    if page.phases:
        yield table


def watch_lag(ctx: Context, output: Output) -> NoReturn:
    """Show lag every ``lag_gate.interval_seconds``."""
    from kafka_migration.cli.render.status import lag
    from kafka_migration.link.lag import LagMeter, LagReport, describe

    def rest() -> None:
        ctx.clock.sleep(ctx.plan.lag_gate.interval_seconds)

    watch(
        output,
        LagMeter(ctx).read,
        page=lag,
        line=lambda found: f"{found.at} {describe(found)}",
        as_dict=LagReport.as_dict,
        rest=rest,
    )


@contextmanager
def lag_beside(
    plan: Plan, output: Output, *, reverse: bool = False, seconds: float = _BESIDE_SECONDS
) -> Iterator[Callable[[str], None]]:
    """How a long step reports its progress: lines; at a terminal, with the present lag in a line below them.

    ``seconds`` lie between two looks. ``reverse``: the lag of the reverse link.
    """
    if not output.err.is_terminal:
        yield output.log
        return
    ended = threading.Event()
    with output.err.status("starting") as line:

        def look() -> None:
            # A context of its own: stores are not shared between threads.
            from kafka_migration.link.lag import LagMeter, describe
            from kafka_migration.migration.context import open_context

            while not ended.is_set():
                try:
                    with open_context(plan) as ctx:
                        meter = LagMeter(ctx.reverse() if reverse else ctx)
                        while not ended.wait(seconds):
                            line.update(escape(describe(meter.read())))
                except MigrationError as error:
                    # Only the line depends on it; the mirror has its own way of bearing an outage.
                    line.update(escape(f"lag unknown: {error.message.splitlines()[0]}"))
                    ended.wait(seconds)

        thread = threading.Thread(target=look, name="lag", daemon=True)
        thread.start()
        try:
            yield output.log
        finally:
            ended.set()
            thread.join(timeout=_BESIDE_SECONDS)
