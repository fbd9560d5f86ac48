"""pause, resume, throttle: holding a running mirror back, and having what halted go on."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import By, Debug, DryRun, Json, PlanFile, read_offset
from kafka_migration.cli.output import Output
from kafka_migration.domain.errors import Refused

if TYPE_CHECKING:
    from kafka_migration.domain.controls import Controls
    from kafka_migration.migration.context import Context
    from kafka_migration.steps.resume import Resumed


def pause(
    plan: PlanFile,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Shown by `status` and `lag`.", show_default=False)] = "",
    by: By = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Hold the mirror: within two seconds nothing is fetched or sent. Its processes stay, and so does its state."""
    from kafka_migration.steps import controls

    _say(plan, lambda ctx: controls.pause(ctx, by=by or getpass.getuser(), reason=reason), dry_run, as_json)


def resume(
    plan: PlanFile,
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="TOPIC:PARTITION:OFFSET",
            help="Have this halted partition go on at this source offset; may be given again.",
            show_default=False,
        ),
    ] = None,
    accept_loss: Annotated[
        list[str] | None,
        typer.Option(
            "--accept-loss",
            metavar="TOPIC[:PARTITION]",
            help="Have partitions go on that halted for DATA_LOSS, where the source begins now; may be given again.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Give up what is lost without being asked.")] = False,
    by: By = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Let a paused mirror go on, where it stands; or, with --at or --accept-loss, halted partitions."""
    from kafka_migration.steps import controls

    who = by or getpass.getuser()
    if not (at or accept_loss):
        _say(plan, lambda ctx: controls.resume(ctx, by=who), dry_run, as_json)
        return
    from kafka_migration.link.heartbeat import mirror_state
    from kafka_migration.steps import resume as phase_resume

    output = Output(as_json=as_json)
    offsets = [read_offset(text, option="--at") for text in at or ()]
    with opened(plan, output, dry_run=dry_run) as ctx:
        todo = phase_resume.check(ctx, at=offsets, accept_loss=accept_loss or ())
        if any(it.given_up for it in todo) and not (dry_run or yes):
            _ask(todo, output)
        done = phase_resume.apply(ctx, at=offsets, accept_loss=accept_loss or (), by=who)
        state, _ = mirror_state(ctx)
    said = "goes on with them by itself" if state == "running" else "goes on with them once it is started"
    text = f"would go on: {len(done)} partitions" if dry_run else f"{len(done)} partitions; the mirror {said}"
    output.result({"partitions": [it.as_dict() for it in done], "mirror": state, "dry_run": dry_run}, text)


def _ask(todo: Sequence[Resumed], output: Output) -> None:
    for it in todo:
        output.tell(str(it))
    if output.as_json or not sys.stdin.isatty():
        raise Refused("nobody can be asked here whether to give these offsets up", remedy="add --yes")
    if typer.prompt("Give them up, and go on? Type yes", default="no").strip() != "yes":
        raise Refused("nothing was given up, and the partitions are still halted", remedy="answer yes, or leave it so")


def throttle(
    plan: PlanFile,
    rate: Annotated[
        str, typer.Argument(metavar="RATE", help="Bytes a second, such as 50MB or 1.5MiB; or off.", show_default=False)
    ],
    by: By = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Limit what the mirror sends, over all of its tasks, from now on and in later runs; `off` for no limit."""
    from kafka_migration.domain.controls import parse_rate
    from kafka_migration.steps import controls

    bytes_per_second = parse_rate(rate)
    _say(plan, lambda ctx: controls.throttle(ctx, bytes_per_second, by=by or getpass.getuser()), dry_run, as_json)


def _say(plan: Path, change: Callable[[Context], Controls], dry_run: bool, as_json: bool) -> None:
    output = Output(as_json=as_json)
    with opened(plan, output, dry_run=dry_run) as ctx:
        found = change(ctx)
        state = str((ctx.link.run() or {}).get("state", "not started"))
    held = found.describe() or "nothing holds the mirror back"
    output.result({**found.as_dict(), "mirror": state, "dry_run": dry_run}, f"mirror: {state}; {held}")
