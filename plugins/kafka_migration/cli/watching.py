"""Lag, watched: a redrawn page or a status line for a person at a terminal, plain lines for everything else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from rich.markup import escape

if TYPE_CHECKING:
    from kafka_migration.cli.output import Output
    from kafka_migration.migration.context import Context
    from kafka_migration.plans.model import Plan

_BESIDE_SECONDS = 2.0


def watch_lag(ctx: Context, output: Output) -> NoReturn:
    """Show lag every ``lag_gate.interval_seconds`` until interrupted. With ``--json``, a document a line."""
    from rich.live import Live

    from kafka_migration.cli.render.lag import lag as shown
    from kafka_migration.link.lag import LagMeter, describe

    meter = LagMeter(ctx)
    first = meter.read()
    if output.is_live:
        with Live(shown(first), console=output.out, auto_refresh=False) as live:
            while True:
                ctx.clock.sleep(ctx.plan.lag_gate.interval_seconds)
                live.update(shown(meter.read()), refresh=True)
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
