"""cancel, complete and retire: the end of a migration, and what is left on the source after all clients have moved."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from kafka_migration.cli.asking import demand_yes
from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import By, Debug, DryRun, Json, PlanFile, Seconds
from kafka_migration.cli.output import Output


def cancel(
    plan: PlanFile,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Kept, and shown by `status` and in the report.", show_default=False)
    ] = "",
    keep_topics: Annotated[
        bool, typer.Option("--keep-topics", help="Leave the target topics where they are; they keep every record.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Cancel without being asked.")] = False,
    by: By = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """End a migration before any client moved: end and fence the mirror, delete the topics that it created."""
    from kafka_migration.cli.render.evidence import cancelled
    from kafka_migration.steps import cancel as phase_cancel

    output = Output(as_json=as_json)
    with opened(plan, output, dry_run=dry_run) as ctx:
        todo = phase_cancel.check(ctx, keep_topics=keep_topics)
        if phase_cancel.is_left_to_do(ctx) and not (dry_run or yes):
            question = f"Cancel migration {ctx.plan.name}? What is deleted on the target cannot be brought back."
            shown = phase_cancel.steps(ctx, todo)
            demand_yes(output, question, shown=shown, declined="nothing was cancelled, and nothing deleted")
        result = phase_cancel.run(ctx, by=by or getpass.getuser(), reason=reason, keep_topics=keep_topics).value
    output.result(result.as_dict(), cancelled(result))


def complete(
    plan: PlanFile,
    check: Annotated[
        bool, typer.Option("--check", help="Only check whether it may be done, and what still uses the source.")
    ] = False,
    seconds: Seconds = 10.0,
    yes: Annotated[bool, typer.Option("--yes", help="Complete without being asked.")] = False,
    by: By = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Give up the way back for good: cut the reverse mirror off, give configs back, release the topics."""
    from kafka_migration.cli.render.evidence import completed
    from kafka_migration.migration import completion
    from kafka_migration.steps import complete as step

    output = Output(as_json=as_json)
    with opened(plan, output, dry_run=dry_run or check) as ctx:
        if completion.read(ctx) is None and not (check or dry_run or yes):
            checked = step.check(ctx, seconds=seconds)
            question = f"Complete migration {ctx.plan.name}? Nothing goes back to the source after that."
            shown = [f"{one.name} {one.verdict}: {one.evidence}" for one in (*checked.checks, *checked.uses)]
            demand_yes(output, question, shown=shown, declined="nothing was changed")
        decision = step.run(ctx, by=by or getpass.getuser(), seconds=seconds)
    output.result(decision.value.as_dict() | {"dry_run": dry_run or check}, completed(decision.value))
    raise typer.Exit(decision.exit_code)


def retire(
    plan: PlanFile,
    seconds: Seconds = 10.0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Check what still uses the source, before it is switched off. Changes nothing."""
    from kafka_migration.cli.render.evidence import retired
    from kafka_migration.steps import retire as phase_retire

    output = Output(as_json=as_json)
    with opened(plan, output) as ctx:
        gate = phase_retire.check(ctx, seconds=seconds)
    value = {
        "unused": gate.is_open,
        "checks": [result.as_dict() for result in gate.results],
        "note": phase_retire.CONNECTIONS,
    }
    output.result(value, retired(gate))
    raise typer.Exit(gate.exit_code)
