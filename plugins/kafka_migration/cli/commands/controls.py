"""pause, resume, throttle: holding a running mirror back, and resuming halted partitions."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_migration.cli.asking import demand_yes
from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import By, Debug, DryRun, Json, PlanFile, Reverse, read_offset
from kafka_migration.cli.output import Output

if TYPE_CHECKING:
    from kafka_migration.domain.controls import Controls
    from kafka_migration.domain.types import TopicPartition
    from kafka_migration.migration.context import Context


def pause(
    plan: PlanFile,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Shown by `status` and `lag`.", show_default=False)] = "",
    reverse: Reverse = False,
    by: By = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Hold the mirror: within two seconds nothing is fetched or sent. Its processes stay, and so does its state."""
    from kafka_migration.steps import controls

    _apply(plan, lambda ctx: controls.pause(ctx, by=by or getpass.getuser(), reason=reason), dry_run, as_json, reverse)


def resume(
    plan: PlanFile,
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="TOPIC:PARTITION:OFFSET",
            help="Resume this halted partition at this source offset; may be given again.",
            show_default=False,
        ),
    ] = None,
    accept_loss: Annotated[
        list[str] | None,
        typer.Option(
            "--accept-loss",
            metavar="TOPIC[:PARTITION]",
            help="Resume partitions that halted for DATA_LOSS, where the source begins now; may be given again.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Give up what is lost without being asked.")] = False,
    reverse: Reverse = False,
    by: By = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Resume a paused mirror, where it stands; or, with --at or --accept-loss, halted partitions."""
    from kafka_migration.steps import controls

    who = by or getpass.getuser()
    if at or accept_loss:
        if reverse:
            raise typer.BadParameter("partitions of the reverse mirror cannot be resumed", param_hint="--reverse")
        offsets = [read_offset(text, option="--at") for text in at or ()]
        output = Output(as_json=as_json)
        _resume_halted(
            plan, output, offsets, accept_loss or (), by=who, needs_yes=not (dry_run or yes), dry_run=dry_run
        )
    else:
        _apply(plan, lambda ctx: controls.resume(ctx, by=who), dry_run, as_json, reverse)


def _resume_halted(
    plan: Path,
    output: Output,
    at: Sequence[tuple[TopicPartition, int]],
    accept_loss: Sequence[str],
    *,
    by: str,
    needs_yes: bool,
    dry_run: bool,
) -> None:
    """Resume halted partitions; where offsets are given up, and ``needs_yes``, a person is asked first."""
    from kafka_migration.link.heartbeat import mirror_state
    from kafka_migration.steps import resume as phase_resume

    with opened(plan, output, dry_run=dry_run) as ctx:
        todo = phase_resume.check(ctx, at=at, accept_loss=accept_loss)
        if needs_yes and any(partition.given_up for partition in todo):
            declined = "nothing was given up, and the partitions are still halted"
            demand_yes(output, "Give these offsets up, and resume?", shown=todo, declined=declined)
        done = phase_resume.apply(ctx, at=at, accept_loss=accept_loss, by=by)
        state, _ = mirror_state(ctx)
    then = "resumes them by itself" if state == "running" else "resumes them once it is started"
    text = f"would resume: {len(done)} partitions" if dry_run else f"{len(done)} partitions; the mirror {then}"
    output.result({"partitions": [one.as_dict() for one in done], "mirror": state, "dry_run": dry_run}, text)


def throttle(
    plan: PlanFile,
    rate: Annotated[
        str, typer.Argument(metavar="RATE", help="Bytes a second, such as 50MB or 1.5MiB; or off.", show_default=False)
    ],
    reverse: Reverse = False,
    by: By = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Limit what the mirror sends, over all of its tasks, from now on and in later runs; `off` for no limit."""
    from kafka_migration.domain.controls import parse_rate
    from kafka_migration.steps import controls

    bytes_per_second = parse_rate(rate)
    who = by or getpass.getuser()
    _apply(plan, lambda ctx: controls.throttle(ctx, bytes_per_second, by=who), dry_run, as_json, reverse)


def _apply(plan: Path, change: Callable[[Context], Controls], dry_run: bool, as_json: bool, reverse: bool) -> None:
    output = Output(as_json=as_json)
    with opened(plan, output, dry_run=dry_run, reverse=reverse) as ctx:
        found = change(ctx)
        state = str((ctx.link.run() or {}).get("state", "not started"))
    mirror = "reverse mirror" if reverse else "mirror"
    held = found.describe() or f"nothing holds the {mirror} back"
    output.result({**found.as_dict(), "mirror": state, "dry_run": dry_run}, f"{mirror}: {state}; {held}")
