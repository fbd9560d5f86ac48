"""What every command does with what goes wrong: a message of what happened, where, and what to do, and an exit code.

0 done; 1 a check or a gate refuses; 2 bad input (also typer's own, for a wrong option); 3 could not find out, which
includes errors that nobody expected; 130 interrupted.
"""

from __future__ import annotations

import logging
import traceback
from typing import Any

import typer
from rich.text import Text
from typer.core import TyperCommand

from kafka_migration.cli.output import Output
from kafka_migration.domain.errors import BadInput, MigrationError
from kafka_migration.domain.printable import printable

UNEXPECTED = 3
INTERRUPTED = 130


class Command(TyperCommand):
    """A command whose errors become messages and exit codes."""

    def invoke(self, ctx: Any) -> Any:
        """Run it. Raises typer.Exit with the code of what went wrong."""
        output = Output(as_json=bool(ctx.params.get("as_json")))
        debug = bool(ctx.params.get("debug"))
        if not debug:
            # The clients' own warnings about a broker that is away would bury the one message that explains it.
            logging.getLogger("kafka").setLevel(logging.CRITICAL)
        try:
            return super().invoke(ctx)
        except MigrationError as error:
            if debug:
                output.err.print(Text(traceback.format_exc()), soft_wrap=True)
            _report(output, error)
            raise typer.Exit(error.exit_code) from None
        except Exception as error:
            # What typer raises itself (an exit, a wrong option, Ctrl-C at a question) is its own affair.
            if type(error).__module__.partition(".")[0] == "typer":
                raise
            if debug:
                output.err.print(Text(traceback.format_exc()), soft_wrap=True)
            _report_unexpected(output, error, debug=debug)
            raise typer.Exit(UNEXPECTED) from None


def _report(output: Output, error: MigrationError) -> None:
    output.err.print(Text("error: ", "bold red") + Text(printable(str(error))), soft_wrap=True)
    if output.as_json:
        value: dict[str, Any] = {
            "kind": type(error).__name__,
            "message": error.message,
            "remedy": error.remedy,
            "exit_code": error.exit_code,
        }
        if isinstance(error, BadInput):
            shown = error.value if error.value is None or isinstance(error.value, str | int | float | bool) else None
            value |= {"file": error.file, "field": error.field, "value": shown}
        output.json({"error": value})


def _report_unexpected(output: Output, error: Exception, *, debug: bool) -> None:
    lines = str(error).strip().splitlines()
    message = printable(f"{type(error).__name__}: {lines[0][:300] if lines else 'no message'}")
    hint = "" if debug else "\n  remedy: run it again with --debug to see where this comes from, and report it"
    output.err.print(Text("unexpected error: ", "bold red") + Text(message + hint), soft_wrap=True)
    if output.as_json:
        output.json({"error": {"kind": type(error).__name__, "message": message, "exit_code": UNEXPECTED}})
