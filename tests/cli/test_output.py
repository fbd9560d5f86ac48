"""What a terminal is given: names of groups and clients, reasons and errors are free text of others."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import typer
from rich.console import Group
from rich.text import Text
from typer.testing import CliRunner

from kafka_migration.cli.app import app
from kafka_migration.cli.commands import look
from kafka_migration.cli.options import finite
from kafka_migration.cli.output import Output
from kafka_migration.cli.render import tables
from kafka_migration.cli.render.tables import facts, grid
from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.kafka import lookup

ESCAPE = "app \x1b[2J\x9b2J PASS"


def test_free_text_does_nothing_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=False)
    output.log(ESCAPE)
    output.line(ESCAPE)
    output.result({}, grid("Groups", ("group",), [(ESCAPE,)]), facts([("reason", ESCAPE)]))
    output.json({"group": ESCAPE})
    found = capsys.readouterr()
    for stream in (found.out, found.err):
        assert "\x1b[2J" not in stream
        assert "\x9b" not in stream
    assert found.err.count(r"app \x1b[2J\x9b2J PASS") == 1
    assert found.out.count(r"app \x1b[2J\x9b2J PASS") == 3


def test_json_gives_a_machine_the_text_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).json({"group": ESCAPE})
    assert json.loads(capsys.readouterr().out) == {"group": ESCAPE}


@pytest.mark.parametrize("command", ["watch", "complete", "retire"])
def test_every_command_that_takes_seconds_wants_a_number_of_them(command: str) -> None:
    result = CliRunner().invoke(app, [command, "plan.yaml", "--seconds", "inf"])
    assert (result.exit_code, "inf is not a number of seconds" in result.output) == (2, True)


@pytest.mark.parametrize("seconds", ["nan", "inf"])
def test_seconds_are_a_number_of_them(seconds: str) -> None:
    with pytest.raises(typer.BadParameter):
        finite(float(seconds))


def test_servers_are_a_word_of_the_commands_to_paste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "find_connection", lambda _id: SimpleNamespace(servers="$(id):9092,[::1]:9092"))
    plan = SimpleNamespace(connection=lambda side: side)
    assert look._servers(plan, "source") == "'$(id):9092,[::1]:9092'"  # type: ignore[arg-type]


def test_styled_text_does_nothing_to_a_terminal_either(capsys: pytest.CaptureFixture[str]) -> None:
    check = CheckResult(
        name="groups left behind", verdict=Verdict.WARN, evidence="x\x1b[2J\x1b[HPASS\x9b1m", remedy="\r"
    )
    Output(as_json=False).result(
        {},
        tables.checks("Checks", [check]),
        Text("title \x1b]0;x\x07", "bold"),
        Group(Text("in a group \x9b")),
        tables.facts([("name", Text("\x1b[8m"))]),
    )
    shown = capsys.readouterr().out
    assert not set(shown) & {"\x1b", "\x9b", "\r", "\x07"}
    assert "x\\x1b[2J\\x1b[HPASS\\x9b1m" in shown
