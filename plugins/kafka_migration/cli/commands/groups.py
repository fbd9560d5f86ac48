"""cutover, watch, undo, rollback: consumer groups."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_migration.approvals.evidence import GateName
from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import Debug, DryRun, Groups, Json, PlanFile, Wave
from kafka_migration.cli.output import Output


def cutover(
    plan: PlanFile,
    group: Groups = None,
    wave: Wave = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Stop groups on the source, move their offsets, start them on the target."""
    from kafka_migration.approvals.waves import around
    from kafka_migration.cli.render.groups import moved
    from kafka_migration.groups.translate import selected_groups
    from kafka_migration.steps import outlook, runner
    from kafka_migration.steps.step import part_of

    output = Output(as_json=as_json)
    with opened(plan, output, dry_run=dry_run, wave=wave) as whole:
        ctx = around(whole, group or ())
        # Asked first: a wrong name is bad input, whatever the gate answers.
        selected_groups(ctx, group or None)
        if dry_run:
            outlook.ask_gate(ctx, GateName.CUTOVER)
        decision = runner.run(ctx, "cut_over", part=part_of(ctx.scope.key), groups=group or None)
    output.result(decision.value.as_dict(), moved(decision.value))
    raise typer.Exit(decision.exit_code)


def rollback(
    plan: PlanFile,
    group: Groups = None,
    wave: Wave = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Move groups back to the source that have processed records on the target, at their very next records."""
    from kafka_migration.cli.render.groups import moved
    from kafka_migration.steps import runner
    from kafka_migration.steps.step import part_of

    output = Output(as_json=as_json)
    with opened(plan, output, dry_run=dry_run, wave=wave) as ctx:
        decision = runner.run(ctx, "rollback", part=part_of(ctx.scope.key), groups=group or None)
    output.result(decision.value.as_dict(), moved(decision.value))
    raise typer.Exit(decision.exit_code)


def watch(
    plan: PlanFile,
    group: Groups = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Give them so long from now. (default: the plan's cutover.watch_seconds, from the start of each)",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Watch moved groups on the target until each is active there, or its time is over."""
    from kafka_migration.cli.render.groups import watched
    from kafka_migration.groups import watch as watch_groups
    from kafka_migration.migration.history import phase

    output = Output(as_json=as_json)
    with opened(plan, output) as ctx, phase(ctx, "watch_groups") as run:
        result = watch_groups.apply(ctx, group or None, seconds=seconds)
        late = [one.group for one in result.groups if one.life is not watch_groups.Life.ALIVE]
        run.ends(result.exit_code, f"not active on the target: {', '.join(late)}" if late else "")
    output.result(result.as_dict(), watched(result))
    raise typer.Exit(result.exit_code)


def undo(
    plan: PlanFile,
    group: Annotated[str, typer.Option("--group", "-g", metavar="GROUP", help="The group to move back.")],
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Move one group back to the source, if it has processed nothing on the target yet."""
    from kafka_migration.steps import cutover as phase_cutover

    output = Output(as_json=as_json)
    with opened(plan, output, dry_run=dry_run) as ctx:
        result = phase_cutover.undo(ctx, group)
    output.result(result.as_dict(), f"{result.group}: {result.outcome.replace('_', ' ')}")
