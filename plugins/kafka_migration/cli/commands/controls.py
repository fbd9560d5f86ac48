"""pause, resume, throttle: holding a running mirror back."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import By, Debug, DryRun, Json, PlanFile
from kafka_migration.cli.output import Output

if TYPE_CHECKING:
    from kafka_migration.domain.controls import Controls
    from kafka_migration.phases.context import Context


def pause(
    plan: PlanFile,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Shown by `status` and `lag`.", show_default=False)] = "",
    by: By = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Hold the mirror: within two seconds nothing is fetched or sent. Its processes stay, and so does its state."""
    from kafka_migration.phases import controls

    _say(plan, lambda ctx: controls.pause(ctx, by=by or getpass.getuser(), reason=reason), dry_run, as_json)


def resume(plan: PlanFile, by: By = None, dry_run: DryRun = False, as_json: Json = False, debug: Debug = False) -> None:
    """Let a paused mirror go on, where it stands."""
    from kafka_migration.phases import controls

    _say(plan, lambda ctx: controls.resume(ctx, by=by or getpass.getuser()), dry_run, as_json)


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
    from kafka_migration.phases import controls

    bytes_per_second = parse_rate(rate)
    _say(plan, lambda ctx: controls.throttle(ctx, bytes_per_second, by=by or getpass.getuser()), dry_run, as_json)


def _say(plan: Path, change: Callable[[Context], Controls], dry_run: bool, as_json: bool) -> None:
    output = Output(as_json=as_json)
    with opened(plan, output, dry_run=dry_run) as ctx:
        found = change(ctx)
        state = str((ctx.link.run() or {}).get("state", "not started"))
    held = found.describe() or "nothing holds the mirror back"
    output.result({**found.as_dict(), "mirror": state, "dry_run": dry_run}, f"mirror: {state}; {held}")
