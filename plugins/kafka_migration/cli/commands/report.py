"""status, report: what a migration has done; stragglers: what others did behind it."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from kafka_migration.cli.asking import demand_yes
from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import By, Debug, DryRun, Json, PlanFile, ReportsDirectory
from kafka_migration.cli.output import Output


def status(plan: PlanFile, as_json: Json = False, debug: Debug = False) -> None:
    """Show one page: phases, mirror, lag, halts with remedies, groups, approvals, verdict, locks."""
    from kafka_migration.cli.render.status import status as shown
    from kafka_migration.steps import status as phase_status

    output = Output(as_json=as_json)
    with opened(plan, output) as ctx:
        page = phase_status.read(ctx)
    output.result(page.as_dict(), shown(page))
    raise typer.Exit(1 if page.stragglers else 0)


def stragglers(
    plan: PlanFile,
    forward: Annotated[
        bool, typer.Option("--forward", help="Copy these records to the target, each once; their order is lost.")
    ] = False,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="Note that nobody needs these records: they are not named any more.")
    ] = False,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Kept in the report.", show_default=False)] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Forward them, or give them up, without being asked.")] = False,
    by: By = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show what others than the reverse link wrote to the source behind the cut (1 if anything); forward it to the
    target, or give it up."""
    from kafka_migration.domain.errors import BadInput
    from kafka_migration.link import stragglers as phase

    if forward and give_up:
        raise BadInput("is not possible together with --give-up", field="--forward", value=True, remedy="choose one")
    output = Output(as_json=as_json)
    decisions: Sequence[Mapping[str, Any]] = ()
    with opened(plan, output, dry_run=dry_run) as ctx:
        found = phase.look(ctx)
        if forward:
            phase.check_forward(ctx, found)
        if (give_up or forward) and found and not (dry_run or yes):
            question, declined = _ASKED[forward]
            demand_yes(output, question, shown=found, declined=declined)
        if give_up:
            found = phase.give_up(ctx, by=by or getpass.getuser(), reason=reason)
        elif forward and not dry_run:
            decisions = phase.forward(ctx, by=by or getpass.getuser(), reason=reason)
        is_forwarding = phase.is_forwarding(ctx)
    value = {
        "stragglers": [stray.as_dict() for stray in found],
        "given_up": give_up and not dry_run,
        "forwarded": list(decisions),
        "is_forwarding": is_forwarding,
        "dry_run": dry_run,
    }
    verb = "forwarded: " if forward else "given up: " if give_up else ""
    if verb and dry_run:
        verb = f"would be {verb}"
    lines = [f"{verb}{stray}" for stray in found]
    if forward and not dry_run:
        lines = [phase.sentence(one) for one in decisions]
    if is_forwarding:
        lines.append("a forwarding of these records has begun and not ended: see that it runs, or run --forward again")
    output.result(value, *(lines or ["nothing stands on the source behind the cut that is not its own"]))
    raise typer.Exit(1 if found and not (give_up or forward) else 0)


#: Whether they are forwarded: what is asked, and what a no leaves.
_ASKED = {
    False: (
        "Give these records up? They stay on the source, and no consumer of the target gets them.",
        "nothing was given up",
    ),
    True: (
        "Copy these records to the ends of their partitions on the target? Their place among others is lost.",
        "nothing was forwarded",
    ),
}


def report(
    plan: PlanFile,
    output_directory: ReportsDirectory = "reports",
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write report.json and report.html."""
    from kafka_migration.migration.reports import place_of
    from kafka_migration.steps import runner

    output, place = Output(as_json=as_json), place_of(output_directory, field="--output")
    with opened(plan, output, dry_run=dry_run) as ctx:
        written = runner.run(ctx, "report", reports=place).value
    exceptions = [f"exception: {text}" for text in written.report["exceptions"]]
    lines = [
        f"{'would be written' if dry_run else 'written'}: {path}" for path in (written.html_path, written.json_path)
    ]
    if as_json:
        output.json(written.report)
    for line in () if as_json else (*exceptions, *lines):
        output.line(line)
