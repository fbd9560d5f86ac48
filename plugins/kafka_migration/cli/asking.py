"""Asking the person at the terminal, before something is given up, deleted or approved."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import typer

from kafka_migration.domain.errors import Refused

if TYPE_CHECKING:
    from kafka_migration.cli.output import Output


def can_be_asked() -> bool:
    """Whether a person sits at standard input."""
    return sys.stdin.isatty()


def demand_yes(
    output: Output,
    question: str,
    *,
    declined: str,
    shown: Iterable[object] = (),
    unasked: str = "",
    remedy: str = "add --yes",
    refused: Callable[..., Refused] = Refused,
) -> None:
    """Show the lines of ``shown``, ask ``question``, and return if the answer is yes, in full.

    Raises ``refused`` where nobody can be asked (no terminal, or a machine reads), with ``unasked`` and ``remedy``; and
    for any other answer, with ``declined``.
    """
    for line in shown:
        output.log(str(line))
    if output.as_json or not can_be_asked():
        raise refused(unasked or f"nobody can be asked here: {question}", remedy=remedy)
    if typer.prompt(f"{question} Type yes", default="no").strip().lower() != "yes":
        raise refused(declined, remedy="answer yes, or leave it as it is")
