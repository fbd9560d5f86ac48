"""fence, switch: producers leave one cluster and begin on the other, with nothing lost, doubled or reordered between;
stragglers: what others wrote behind them."""

from __future__ import annotations

import getpass
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from kafka_migration.cli.asking import demand_yes
from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import By, Check, Debug, DryRun, Json, PlanFile
from kafka_migration.cli.output import Output


def fence(
    plan: PlanFile,
    check: Check = False,
    lift: Annotated[bool, typer.Option("--lift", help="Let producers write again.")] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Show the fence that stands, and what was written since it was proved.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Keep producers from writing to the source, proved on every broker; again after a kill, or --lift."""
    from kafka_migration.cli.render import evidence as render
    from kafka_migration.fence import fence as standing
    from kafka_migration.fence import record
    from kafka_migration.steps import fence as step

    output = Output(as_json=as_json)
    if check + lift + status > 1:
        raise typer.BadParameter("give one of --check, --lift and --status")
    with opened(plan, output, dry_run=dry_run or check) as ctx:
        if status:
            seen, rehearsal = standing.status(ctx, step.newest(ctx)), record.describe_rehearsals(ctx)
            output.result(seen.as_dict() | {"rehearsal": rehearsal}, render.standing(seen, rehearsal))
            raise typer.Exit(seen.exit_code)
        if lift:
            lifted = step.lift(ctx).value
            output.result(lifted.as_dict() | {"dry_run": dry_run}, f"lifted: {lifted.evidence}")
            return
        decision = step.run(ctx)
    output.result(decision.value.as_dict() | {"dry_run": dry_run or check}, render.fenced(decision.value))
    raise typer.Exit(decision.exit_code)


def switch(
    plan: PlanFile,
    back: Annotated[
        bool, typer.Option("--back", help="From the target to the source, by the reverse link; after `rollback`.")
    ] = False,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="All up to the fence and back: only the probe is denied, no client.")
    ] = False,
    check: Check = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Switch producers to the target, or back: fence, drain, seal, next link, start; after a kill run it again."""
    from kafka_migration.cli.render import evidence as render
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
    from kafka_migration.inventory import plan_changes
    from kafka_migration.link import stragglers as phase

    if forward and give_up:
        raise BadInput("is not possible together with --give-up", field="--forward", value=True, remedy="choose one")
    output = Output(as_json=as_json)
    decisions: Sequence[Mapping[str, Any]] = ()
    newer: Sequence[phase.Stray] = ()
    with opened(plan, output, dry_run=dry_run) as ctx:
        found = phase.look(ctx)
        if forward:
            plan_changes.require(ctx)
            phase.check_forward(ctx, found)
        if (give_up or forward) and found and not (dry_run or yes):
            question, declined = _ASKED[forward]
            demand_yes(output, question, shown=found, declined=declined)
        if give_up:
            found = phase.give_up(ctx, found, by=by or getpass.getuser(), reason=reason)
            newer = () if dry_run else phase.look(ctx)
        elif forward and not dry_run:
            decisions = phase.forward(ctx, by=by or getpass.getuser(), reason=reason)
        is_forwarding = phase.is_forwarding(ctx)
    value = {
        "stragglers": [stray.as_dict() for stray in found],
        "given_up": give_up and not dry_run,
        "written_since": [stray.as_dict() for stray in newer],
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
    lines += [f"written since, and not decided about: {stray}" for stray in newer]
    if is_forwarding:
        lines.append("a forwarding of these records has begun and not ended: see that it runs, or run --forward again")
    output.result(value, *(lines or ["nothing stands on the source behind the cut that is not its own"]))
    raise typer.Exit(1 if newer or (found and not (give_up or forward)) else 0)


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
