"""The commands, as a table: what each is called, where it stands in ``--help``, and what it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from kafka_migration.cli.command import Command
from kafka_migration.cli.commands import access, controls, copying, groups, prepare, proof, run, telling

_MIGRATE, _LOOK, _COPY, _MOVE, _PROVE = "Migrate", "Look", "Copy topics", "Move consumer groups", "Prove and approve"

#: In the order of a migration, within each panel.
COMMANDS: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("run", _MIGRATE, run.run),
    ("check", _LOOK, prepare.check),
    ("status", _LOOK, telling.status),
    ("lag", _LOOK, copying.lag),
    ("report", _LOOK, telling.report),
    ("acls", _LOOK, access.acls),
    ("schema", _LOOK, prepare.schema),
    ("create", _COPY, prepare.create),
    ("mirror", _COPY, copying.mirror),
    ("pause", _COPY, controls.pause),
    ("resume", _COPY, controls.resume),
    ("throttle", _COPY, controls.throttle),
    ("stop", _COPY, copying.stop),
    ("restore", _COPY, prepare.restore),
    ("release", _COPY, prepare.release),
    ("validate", _PROVE, proof.validate),
    ("parity", _PROVE, groups.parity),
    ("approve", _PROVE, proof.approve),
    ("translate", _MOVE, groups.translate),
    ("cutover", _MOVE, groups.cutover),
    ("watch", _MOVE, groups.watch),
    ("undo", _MOVE, groups.undo),
)

app = typer.Typer(
    name="kafka_migration",
    help="Migrate topics and consumer groups from one Kafka cluster to another, by a plan, while both are in use.",
    epilog="Exit codes: 0 done, 1 a check or gate says no, 2 bad input, 3 could not find out, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    # Our own handler says what to do; a traceback is for --debug.
    pretty_exceptions_enable=False,
)
for _name, _panel, _run in COMMANDS:
    app.command(_name, cls=Command, rich_help_panel=_panel)(_run)


def main() -> None:
    """Run the command that the process's arguments say."""
    is_module = Path(sys.argv[0]).name == "__main__.py"
    app(prog_name="python -m kafka_migration" if is_module else None)
