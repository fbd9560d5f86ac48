"""check, create, restore, release, schema: what is done with topics, beside copying them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_migration.cli.asking import demand_yes
from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import Debug, DryRun, Json, PlanFile
from kafka_migration.cli.output import Output

if TYPE_CHECKING:
    from kafka_migration.topics.restore import Restored


def check(plan: PlanFile, as_json: Json = False, debug: Debug = False) -> None:
    """Take the inventory of the source and check both clusters. Changes nothing."""
    from kafka_migration.cli.render.evidence import preflight as shown
    from kafka_migration.inventory import preflight

    output = Output(as_json=as_json)
    with opened(plan, output, to_check=True) as ctx:
        seen = preflight.check(ctx)
    output.result(seen.as_dict(), shown(seen))
    raise typer.Exit(seen.exit_code)


def create(plan: PlanFile, dry_run: DryRun = False, as_json: Json = False, debug: Debug = False) -> None:
    """Create the plan's topics on the target, as on the source, with retention disabled while mirroring."""
    from kafka_migration.cli.render.evidence import created
    from kafka_migration.steps import runner

    output = Output(as_json=as_json)
    with opened(plan, output, dry_run=dry_run) as ctx:
        result = runner.run(ctx, "create_targets").value
    output.result(result.as_dict(), created(result))


def release(
    plan: PlanFile,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Release although a mirror run did not record its end; first verify that none of its processes runs.",
        ),
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Give up the migration's locks on its topics, so that another plan may have them. Deletes nothing."""
    from kafka_migration.steps import runner

    output = Output(as_json=as_json)
    with opened(plan, output, dry_run=dry_run) as ctx:
        decision = runner.run(ctx, "release", forced=force)
    topics, left = list(decision.value), list(decision.notes)
    output.result({"dry_run": dry_run, "topics": topics, "left_open": left}, f"{len(topics)} topics released")


def restore(
    plan: PlanFile,
    yes: Annotated[bool, typer.Option("--yes", help="Restore without being asked.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Give the target topics their sources' configs; retention was disabled while mirroring. After `stop`."""
    from kafka_migration.steps import runner
    from kafka_migration.topics import restore as restoring

    output = Output(as_json=as_json)
    with opened(plan, output, dry_run=dry_run) as ctx:
        todo = restoring.check(ctx)
        if _changed(todo) and not (dry_run or yes):
            question = "Restore them? The target then deletes what its retention does not keep."
            demand_yes(output, question, shown=todo, declined="nothing was restored")
        done = runner.run(ctx, "restore").value
    would = "would be" if dry_run else "were"
    text = f"{_changed(done)} of {len(done)} topics {would} given their sources' configs"
    output.result({"dry_run": dry_run, "topics": [topic.as_dict() for topic in done]}, text)


def _changed(topics: Iterable[Restored]) -> int:
    """How many topics get other configs than they have."""
    return sum(bool(topic.set or topic.delete) for topic in topics)


def schema() -> None:
    """Print the JSON schema of a plan, for editors."""
    from kafka_migration.plans.load import schema_text

    sys.stdout.write(schema_text())
