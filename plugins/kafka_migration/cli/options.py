"""Arguments and options that commands share, so that each is spelled and explained alike everywhere."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from kafka_migration.domain.errors import BadInput
from kafka_migration.domain.types import TopicPartition
from kafka_migration.plans.places import REPORTS_DIRECTORY

PlanFile = Annotated[
    Path, typer.Argument(metavar="PLAN", help="The plan file, such as migration_plans/demo.yaml.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]


def finite(seconds: float | None) -> float | None:
    """Refuse what is no number of seconds: infinity is within every lower bound."""
    if seconds is not None and not math.isfinite(seconds):
        raise typer.BadParameter(f"{seconds} is not a number of seconds")
    return seconds


Seconds = Annotated[float, typer.Option(min=0, callback=finite, help="Between the two looks that are compared.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")]
Check = Annotated[bool, typer.Option("--check", help="Only check whether it may be done.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where an error came from (traceback, clients' own logs).")]
ReportsDirectory = Annotated[
    str,
    typer.Option(
        "--output",
        envvar=REPORTS_DIRECTORY,
        metavar="DIRECTORY|URL",
        help="Write below it, in a folder named after the plan; a path, or a URL such as s3://bucket/reports.",
    ),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        "-g",
        metavar="GROUP",
        help="This consumer group only; may be given again. (default: all)",
        show_default=False,
    ),
]
Wave = Annotated[
    str | None,
    typer.Option(
        "--wave",
        metavar="NAME",
        help="This wave of the plan only, with its own gate and approval. (default: the whole plan)",
        show_default=False,
    ),
]
Reverse = Annotated[
    bool, typer.Option("--reverse", help="Of the reverse mirror, which copies what is written on the target back.")
]
By = Annotated[
    str | None,
    typer.Option("--as", metavar="NAME", help="Who does this. (default: this terminal's user)", show_default=False),
]
Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Spark master, such as local[4] or spark://host:7077. (default: local[*])",
        show_default=False,
    ),
]


def read_offset(text: str, *, option: str) -> tuple[TopicPartition, int]:
    """TOPIC:PARTITION:OFFSET as given to ``option``. Raises BadInput for anything else."""
    topic, _, offset = text.rpartition(":")
    topic, _, partition = topic.rpartition(":")
    if not topic or not partition.isdecimal() or not offset.isdecimal():
        raise BadInput("is not TOPIC:PARTITION:OFFSET", field=option, value=text, remedy="write it like orders:0:1234")
    return TopicPartition(topic, int(partition)), int(offset)
