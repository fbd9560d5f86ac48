"""The commands, as a table: what each is called, where it stands in ``--help``, and what it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from kafka_migration.cli.command import Command
from kafka_migration.cli.commands import (
    access,
    approvals,
    controls,
    ending,
    groups,
    mirror,
    prepare,
    producers,
    report,
    run,
    translation,
    validation,
    waves,
)

_MIGRATE, _LOOK, _COPY, _PROVE = "Migrate", "Look", "Copy topics", "Prove and approve"
_MOVE, _PRODUCERS = "Move consumer groups", "Move producers"
_END = "End a migration"

#: In the order of a migration, within each panel.
COMMANDS: tuple[tuple[str, str, Callable[..., Any]], ...] = (
    ("run", _MIGRATE, run.run),
    ("check", _LOOK, prepare.check),
    ("waves", _LOOK, waves.waves),
    ("status", _LOOK, report.status),
    ("lag", _LOOK, mirror.lag),
    ("report", _LOOK, report.report),
    ("acls", _LOOK, access.acls),
    ("schema", _LOOK, prepare.schema),
    ("create", _COPY, prepare.create),
    ("mirror", _COPY, mirror.mirror),
    ("pause", _COPY, controls.pause),
    ("resume", _COPY, controls.resume),
    ("throttle", _COPY, controls.throttle),
    ("stop", _COPY, mirror.stop),
    ("executors", _COPY, mirror.executors),
    ("restore", _COPY, prepare.restore),
    ("release", _COPY, prepare.release),
    ("validate", _PROVE, validation.validate),
    ("parity", _PROVE, validation.parity),
    ("approve", _PROVE, approvals.approve),
    ("translate", _MOVE, translation.translate),
    ("cutover", _MOVE, groups.cutover),
    ("watch", _MOVE, groups.watch),
    ("undo", _MOVE, groups.undo),
    ("rollback", _MOVE, groups.rollback),
    ("fence", _PRODUCERS, producers.fence),
    ("switch", _PRODUCERS, producers.switch),
    ("stragglers", _PRODUCERS, producers.stragglers),
    ("cancel", _END, ending.cancel),
    ("complete", _END, ending.complete),
    ("retire", _END, ending.retire),
)

app = typer.Typer(
    name="kafka_migration",
    help="Migrate topics and consumer groups from one Kafka cluster to another, by a plan, while both are in use.",
    epilog="Exit codes: 0 done, 1 a check or gate refuses, 2 bad input, 3 could not find out, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    # Our own handler prints what to do; a traceback is for --debug.
    pretty_exceptions_enable=False,
)
for _name, _panel, _run in COMMANDS:
    app.command(_name, cls=Command, rich_help_panel=_panel)(_run)


def main() -> None:
    """Run the command that the process's arguments name."""
    is_module = Path(sys.argv[0]).name == "__main__.py"
    app(prog_name="python -m kafka_migration" if is_module else None)
