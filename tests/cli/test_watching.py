"""Lag, watched at a terminal and beside a phase that runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from kafka_migration.cli.output import Output
from kafka_migration.cli.render.status import lag_beside, watch_lag
from kafka_migration.domain.errors import ClusterUnreachable
from kafka_migration.link import lag as phase_lag
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
