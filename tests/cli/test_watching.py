"""Lag, watched at a terminal and beside a phase that runs."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from kafka_migration.cli.command import INTERRUPTED
from kafka_migration.cli.commands import look
from kafka_migration.cli.output import Output
from kafka_migration.cli.render.live import lag_beside, watch_lag
from kafka_migration.domain.errors import ClusterUnreachable
from kafka_migration.link import lag as phase_lag
from kafka_migration.migration.context import Context
from kafka_migration.overview import status as phase_status
from kafka_migration.overview.status import Status
from tests.cli.conftest import Terminal
from tests.steps import histories
from tests.waiting import wait_until


def at_terminal() -> tuple[Output, io.StringIO]:
    output, seen = Output(as_json=False), io.StringIO()
    output.out = output.err = Console(file=seen, force_terminal=True, width=80, height=24)
    return output, seen


def test_lag_at_a_terminal_is_redrawn(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    histories.created(terminal.shop)
    output, seen = at_terminal()
    read, reads = phase_lag.LagMeter.read, iter(range(3))

    def growing(meter: phase_lag.LagMeter) -> phase_lag.LagReport:
        if next(reads, None) is None:
            raise KeyboardInterrupt
        terminal.shop.produce(100)
        return read(meter)

    monkeypatch.setattr(phase_lag.LagMeter, "read", growing)
    with pytest.raises(KeyboardInterrupt):
        watch_lag(terminal.shop.ctx(), output)
    for total in ("600", "900", "1,200"):
        assert f"{total} offsets in 3 partitions" in seen.getvalue()


def seen_of_status(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, *options: str, looks: int = 3) -> str:
    """What `status --watch` writes to a terminal in so many looks, of which the second one fails."""
    output, seen = at_terminal()
    monkeypatch.setattr(look, "Output", lambda *, as_json: output)
    read, reads = phase_status.read, iter(range(looks))

    def failing(*arguments: Any) -> Status:
        at = next(reads, None)
        if at is None:
            raise KeyboardInterrupt
        if at == 1:
            raise ClusterUnreachable("target", "127.0.0.1:1", "down")
        return read(*arguments)

    monkeypatch.setattr(phase_status, "read", failing)
    assert terminal.run("status", "--watch", *options).exit_code == INTERRUPTED
    return seen.getvalue()


def test_status_at_a_terminal_takes_its_screen_and_bears_an_outage(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories.in_flight(terminal.shop)
    seen = seen_of_status(terminal, monkeypatch)
    assert seen.startswith("\x1b[?1049h")
    assert "lag 300" in seen
    assert "1 stopped, 1 alive; longest pause 6.5 s" in seen
    assert "create_targets" in seen
    assert "cannot be read: target: no broker at 127.0.0.1:1" in seen


def test_status_at_a_terminal_has_what_needs_a_person_above_the_rest(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories.created(terminal.shop)
    histories.mirroring(terminal.shop)
    terminal.shop.clock.sleep(400)
    seen = seen_of_status(terminal, monkeypatch, looks=1)
    assert seen.index("Needs a person") < seen.index("mirror is silent") < seen.index("lag 300") < seen.index("topics")


def test_status_that_is_watched_by_a_program_is_a_document_a_line(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories.in_flight(terminal.shop)
    read, reads = phase_status.read, iter(range(3))

    def growing(*arguments: Any) -> Status:
        if next(reads, None) is None:
            raise KeyboardInterrupt
        terminal.shop.produce(100)
        return read(*arguments)

    monkeypatch.setattr(phase_status, "read", growing)
    run = terminal.run("status", "--watch", "--interval", "10", "--json")
    pages = [json.loads(line) for line in run.stdout.splitlines()]
    assert [page["lag"]["total"] for page in pages] == [600, 900, 1200]
    assert [page["needs"] for page in pages] == [[], [], []]
    assert [page["lag"]["produced_per_second"] for page in pages] == [None, 30.0, 30.0]
    assert [page["lag"]["outlook"] for page in pages] == ["", *["ETA never, at these rates"] * 2]


def test_status_that_is_watched_into_a_file_is_a_line_a_look(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories.in_flight(terminal.shop)
    read, reads = phase_status.read, iter(range(2))
    monkeypatch.setattr(phase_status, "read", lambda *a: read(*a) if next(reads, None) is not None else interrupt())
    lines = terminal.run("status", "--watch").stdout.splitlines()
    assert len(lines) == 2
    assert "mirror running, lag 300, 1 groups stopped, 1 groups alive" in lines[0]


def test_status_that_is_watched_goes_on_with_a_generation_that_begins_meanwhile(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories.in_flight(terminal.shop)
    later, seen = terminal.shop.ctx(), list[bool]()
    read = phase_status.read

    def noting(ctx: Context, meter: phase_lag.LagMeter) -> Status:
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(ctx is later)
        monkeypatch.setattr(Context, "newest", lambda _ctx: later)
        return read(ctx, meter)

    monkeypatch.setattr(phase_status, "read", noting)
    terminal.run("status", "--watch", "--json")
    assert seen == [False, True]


def interrupt() -> Status:
    raise KeyboardInterrupt


def test_lag_beside_a_phase_stands_below_its_lines_at_a_terminal(terminal: Terminal) -> None:
    histories.created(terminal.shop)
    output, seen = at_terminal()
    with lag_beside(terminal.shop.plan(), output, seconds=0.01) as log:
        log("fence 0: 3 partitions")
        wait_until(lambda: "lag 300 in 3 partitions" in seen.getvalue(), "lag is shown")
        log("epoch 1: [done]")
    assert "fence 0: 3 partitions\n" in seen.getvalue()
    assert "epoch 1: [done]\n" in seen.getvalue()


def test_lag_beside_a_phase_that_cannot_be_read_disturbs_nothing(terminal: Terminal) -> None:
    histories.created(terminal.shop)
    output, seen = at_terminal()
    down = ClusterUnreachable("source", "127.0.0.1:1", "down")
    with lag_beside(terminal.shop.plan(), output, seconds=0.01):
        with terminal.shop.source.failing("topics", down):
            wait_until(lambda: "lag unknown: source: no broker" in seen.getvalue(), "the outage is shown")
        wait_until(lambda: "lag 300 in 3 partitions" in seen.getvalue(), "lag is shown again")


def test_lag_is_not_looked_at_beside_a_phase_where_nobody_watches(terminal: Terminal) -> None:
    with lag_beside(terminal.shop.plan(), Output(as_json=False), seconds=0.01) as log:
        log("fence 0: 3 partitions")
    assert terminal.opened == []
