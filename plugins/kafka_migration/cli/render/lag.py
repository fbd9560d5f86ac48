"""Replication lag, and how the mirror ended.

Lag is a redrawn page or a status line for a person at a terminal, and plain lines for everything else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from kafka_migration.cli.render.tables import checks, drift, facts, grid, number, seconds
from kafka_migration.link.halts import meaning_of

if TYPE_CHECKING:
    from kafka_migration.cli.output import Output
    from kafka_migration.domain.types import TopicPartition
    from kafka_migration.link.lag import LagReport
    from kafka_migration.migration.context import Context
    from kafka_migration.plans.model import Plan
    from kafka_migration.steps.stop import StopResult
    from kafka_migration.topics.drift import DriftStatus

_SHOWN = 15

_BESIDE_SECONDS = 2.0


def lag(report: LagReport, changes: Sequence[DriftStatus] = ()) -> RenderableType:
    """The sum, the partitions that are furthest behind, and what has changed about topics beneath the mirror."""
    eta = report.trend.eta_seconds
    head = facts(
        (
            ("lag", f"{number(report.total)} source offsets in {len(report.sample.lag)} partitions"),
            ("copied", f"{report.trend.copied_per_second:,.0f} offsets/s"),
            ("produced", f"{report.trend.produced_per_second:,.0f} offsets/s"),
            ("ETA", "never, at these rates" if eta is None else seconds(eta)),
            ("mirror", report.mirror + (f", {report.held}" if report.held else "")),
        )
    )
    parts = [head, Text()]
    if behind := _largest_first(report.sample.lag):
        rows = ((str(tp), number(count)) for tp, count in behind[:_SHOWN])
        parts.append(grid("Furthest behind", ("partition", ">lag"), rows, note=_more(behind, "partitions lag")))
    # No lag, and yet not copied: nobody may read it before its producer has decided.
    if undecided := _largest_first(report.sample.undecided):
        held = ((str(tp), str(report.sample.source_ends[tp]), number(count)) for tp, count in undecided[:_SHOWN])
        columns = ("partition", ">from offset", ">offsets")
        parts.append(grid("Behind open transactions", columns, held, note=_more(undecided, "partitions")))
    if report.halted:
        rows = ((str(tp), reason) for tp, reason in sorted(report.halted.items()))
        parts.append(grid("Halted (see `status`)", ("partition", "reason"), rows))
        remedies = ((reason, meaning_of(reason).remedy) for reason in sorted(set(report.halted.values())))
        parts.append(grid("What can be done", ("reason", "remedy"), remedies))
    if changes:
        parts.append(drift(changes))
    return Group(*parts)


def _largest_first(counts: Mapping[TopicPartition, int]) -> list[tuple[TopicPartition, int]]:
    return sorted(((tp, count) for tp, count in counts.items() if count), key=lambda row: (-row[1], row[0]))


def _more(rows: Sequence[Any], what: str) -> str:
    return f"{len(rows) - _SHOWN} more {what}" if len(rows) > _SHOWN else ""


def stopped(result: StopResult, *, dry_run: bool) -> RenderableType:
    """The gate, and how the mirror ended."""
    if result.mirror.get("state") == "silent" and result.stopped and not dry_run:
        how = Text("the mirror's heartbeat has stopped, so it has probably died; if not, it stops now", "yellow")
    elif result.stopped and not dry_run:
        how = Text(f"the mirror has ended ({result.mirror.get('reason', 'stopped')})", "bold green")
    elif not result.gate.is_open:
        how = Text("the mirror runs on", "bold red")
    elif dry_run:
        how = Text("the gate is open; nothing was changed (dry run)")
    else:
        how = Text("no mirror has run yet")
    parts: list[RenderableType] = [checks("Stop gate", result.gate.results), how]
    if result.seal is not None:
        parts.append(Text(f"sealed: no mirror may write to these {len(result.seal.ends)} partitions any more"))
    return Group(*parts)


def outcome(value: Mapping[str, Any]) -> RenderableType:
    """How a run of the mirror ended; ``value`` is its ``as_dict``."""
    rows = [
        ("ended", str(value["reason"])),
        (
            "copied",
            f"{number(value['records'])} records, {number(value['bytes'])} bytes in {number(value['batches'])} batches",
        ),
        ("epochs", f"{value['epochs']}, {value['fences']} fences"),
    ]
    if value["halted"]:
        rows.append(("halted", ", ".join(value["halted"]) + " (see `status`)"))
    return facts(rows)


def watch_lag(ctx: Context, output: Output) -> NoReturn:
    """Show lag every ``lag_gate.interval_seconds`` until interrupted. With ``--json``, a document a line."""
    from rich.live import Live

    from kafka_migration.link.lag import LagMeter, describe

    meter = LagMeter(ctx)
    first = meter.read()
    if output.is_live:
        with Live(lag(first), console=output.out, auto_refresh=False) as live:
            while True:
                ctx.clock.sleep(ctx.plan.lag_gate.interval_seconds)
                live.update(lag(meter.read()), refresh=True)
    report = first
    while True:
        if output.as_json:
            output.json(report.as_dict(), indent=None)
        else:
            output.line(f"{report.at} {describe(report)}")
        ctx.clock.sleep(ctx.plan.lag_gate.interval_seconds)
        report = meter.read()


@contextmanager
def lag_beside(plan: Plan, output: Output, *, seconds: float = _BESIDE_SECONDS) -> Iterator[Callable[[str], None]]:
    """How a long step reports its progress: lines; at a terminal, with the present lag in a line below them.

    ``seconds`` lie between two looks.
    """
    if not output.err.is_terminal:
        yield output.log
        return
    ended = threading.Event()
    with output.err.status("starting") as line:

        def look() -> None:
            # A context of its own: stores are not shared between threads.
            from kafka_migration.domain.errors import MigrationError
            from kafka_migration.link.lag import LagMeter, describe
            from kafka_migration.migration.context import open_context

            while not ended.is_set():
                try:
                    with open_context(plan) as ctx:
                        meter = LagMeter(ctx)
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
