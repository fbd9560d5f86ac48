"""The commands: where each stands in ``--help``; those of one panel stand in one module."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import typer

from kafka_migration.cli.command import Command
from kafka_migration.cli.commands import (
    access,
    copy,
    init,
    look,
    mirrormaker,
    move,
    producers,
    prove,
    run,
)

#: By the panel of ``--help``, in the order of a migration; a command is called as its function is.
PANELS: Mapping[str, tuple[Callable[..., Any], ...]] = {
    "Begin": (init.init,),
    "Migrate": (run.run,),
    "Come from MirrorMaker": (mirrormaker.import_, mirrormaker.adopt),
    "Look": (
        look.doctor,
        look.check,
        look.waves,
        look.status,
        look.lag,
        look.report,
        look.metrics,
        look.acls,
        look.schema,
    ),
    "Copy topics": (
        copy.create,
        copy.mirror,
        copy.pause,
        copy.resume,
        copy.throttle,
        copy.stop,
        copy.executors,
        copy.restore,
        copy.release,
    ),
    "Copy access and schemas": (access.access, access.schemas),
    "Prove and approve": (prove.validate, prove.parity, prove.approve),
    "Move consumer groups": (move.translate, move.cutover, move.watch, move.undo, move.rollback),
    "Move producers": (producers.fence, producers.switch, producers.stragglers),
    "End a migration": (move.cancel, move.complete, move.retire),
}

_IS_MODULE = Path(sys.argv[0]).name == "__main__.py"

app = typer.Typer(
    name="kafka_migration",
    help="Migrate topics and consumer groups from one Kafka cluster to another, by a plan, while both are in use.",
    epilog="Exit codes: 0 done, 1 a check or gate refuses, 2 bad input, 3 could not find out, 130 interrupted.",
    no_args_is_help=True,
    # A shell completes a command by its name, and `python -m` has none of its own.
    add_completion=not _IS_MODULE,
    rich_markup_mode="rich",
    # Our own handler prints what to do; a traceback is for --debug.
    pretty_exceptions_enable=False,
)
for _panel, _commands in PANELS.items():
    for _run in _commands:
        app.command(_run.__name__.rstrip("_"), cls=Command, rich_help_panel=_panel)(_run)


def main() -> None:
    """Run the command that the process's arguments name. Who ends it by SIGTERM, or by closing its terminal, has it
    leave nothing half done, as by Ctrl-C: a fence would keep producers out, and a stopped group would stay so."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        # nohup means that it is to go on.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)
    app(prog_name="python -m kafka_migration" if _IS_MODULE else None)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
