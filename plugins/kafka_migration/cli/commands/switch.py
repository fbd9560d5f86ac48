"""switch: producers leave the source and begin on the target, with nothing lost, doubled or reordered between."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import Debug, DryRun, Json, PlanFile
from kafka_migration.cli.output import Output


def switch(
    plan: PlanFile,
    back: Annotated[
        bool, typer.Option("--back", help="From the target to the source, by the reverse link; after `rollback`.")
    ] = False,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="All up to the fence and back: only the probe is denied, no client.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Only check whether it may be done.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Switch producers to the target, or back: fence, drain, seal, next link, start; after a kill run it again."""
    from kafka_migration.cli.render import switch as render
    from kafka_migration.link import reverse
    from kafka_migration.steps import rehearsal
    from kafka_migration.steps import switch as step

    output = Output(as_json=as_json)
    with opened(plan, output, dry_run=dry_run or check) as ctx:
        way = reverse.way_back(ctx) if back else ctx
        decision = rehearsal.run(way) if rehearse else step.run(way)
    shown = render.rehearsed(decision.value) if rehearse else render.switched(decision.value)
    output.result(decision.value.as_dict() | {"dry_run": dry_run or check}, shown)
    raise typer.Exit(decision.exit_code)
