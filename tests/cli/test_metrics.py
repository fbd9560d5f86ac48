"""The command metrics: once, as text, and what it refuses."""

from __future__ import annotations

import pytest

from kafka_migration.domain.errors import ClusterUnreachable
from kafka_migration.overview import status
from tests.cli.conftest import Terminal
from tests.steps import histories


def test_once_prints_the_metrics_and_ends(terminal: Terminal) -> None:
    histories.created(terminal.shop)
    seen = terminal.run("metrics", "--once")
    assert seen.exit_code == 0
    assert 'kafka_migration_topics{migration="shop"} 2.0' in seen.stdout.splitlines()
    assert terminal.opened == [{"dry_run": False, "make_state": False}]


def test_once_says_on_standard_error_what_could_not_be_read(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_ctx: object) -> None:
        raise ClusterUnreachable("target", "127.0.0.1:1", "refused")

    monkeypatch.setattr(status, "read", away)
    seen = terminal.run("metrics", "--once")
    assert seen.exit_code == 3
    assert 'kafka_migration_up{migration="shop"} 0.0' in seen.stdout.splitlines()
    assert "shop cannot be read: target: no broker at 127.0.0.1:1 answered" in seen.stderr


def test_place_that_is_none_is_bad_input_before_anything_is_read(terminal: Terminal) -> None:
    seen = terminal.run("metrics", "--listen", "9404")
    assert seen.exit_code == 2
    assert "--listen: is not HOST:PORT" in seen.stderr
    assert not terminal.opened
