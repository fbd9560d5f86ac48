"""status, report: what a migration has done."""

from __future__ import annotations

import typer

from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import Debug, DryRun, Json, PlanFile, ReportsDirectory
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
