"""mirror, lag, stop, executors: the running copy, and what its executors on other machines need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_migration.cli.asking import demand_yes
from kafka_migration.cli.command import INTERRUPTED
from kafka_migration.cli.opening import loaded, opened
from kafka_migration.cli.options import Debug, DryRun, Json, Master, PlanFile, Reverse
from kafka_migration.cli.output import Output
from kafka_migration.domain.errors import MigrationError
from kafka_migration.domain.types import Desired

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


def mirror(
    plan: PlanFile,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="End once everything that is there now is copied.")
    ] = False,
    master: Master = None,
    throttle: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="As the command `throttle RATE`, from the start on.", show_default=False),
    ] = None,
    again: Annotated[
        list[str] | None,
        typer.Option(
            "--again",
            metavar="TOPIC",
            help="Delete this halted topic on the target first, and copy it again; may be given again.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Delete what --again names without being asked.")] = False,
    reverse: Annotated[
        bool,
        typer.Option(
            "--reverse", help="Copy what is written on the target since the seal back to the source, for `rollback`."
        ),
    ] = False,
    unseal: Annotated[
        bool, typer.Option("--unseal", help="Remove the seal that `stop` has put on the mirror.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Copy records on Spark until it is stopped. May be killed at any moment, and started again."""
    from kafka_migration.cli.render.status import lag_beside
    from kafka_migration.cli.render.status import outcome as shown
    from kafka_migration.link import reverse as phase_reverse
    from kafka_migration.link import seal as phase_seal
    from kafka_migration.steps import mirror as phase_mirror
    from kafka_migration.steps import mirror_job
    from kafka_migration.topics import keeping as phase_keeping

    output = Output(as_json=as_json)
    rate = _rate(throttle)
    if reverse and (again or unseal):
        raise typer.BadParameter("--again and --unseal are of the forward mirror", param_hint="--reverse")
    # Before Spark starts, and before internal topics are made for a mirror that may not run.
    with opened(plan, output, dry_run=dry_run) as ctx:
        # First: of a run of it that died no topic may be left that the mirror would find.
        if reverse:
            topics = sorted(phase_reverse.arm(ctx).link.topics() or ctx.link.topics())
            if dry_run:
                phase_keeping.apply(ctx)
        else:
            topics = _copy_again(ctx, output, again, yes=yes, unseal=unseal) if again else phase_mirror.check(ctx)
        # Last: whoever answers no, or is refused, leaves the link as it was.
        if unseal and phase_seal.undo(ctx):
            output.log("would remove the seal" if dry_run else "the seal is removed: the mirror may write again")
    if dry_run:
        for topic in topics:
            output.log(f"would mirror {topic}")
        output.result({"dry_run": True, "topics": topics}, f"{len(topics)} topics would be mirrored")
        return
    what = loaded(plan)
    with lag_beside(what, output, reverse=reverse) as log:
        outcome = mirror_job.run(
            what,
            master=master,
            until_caught_up=until_caught_up,
            throttle_bytes_per_second=rate,
            back=reverse,
            log=log,
        )
    output.result(outcome.as_dict(), shown(outcome.as_dict()))
    if outcome.reason == "stopped" and _is_to_run(plan, output, reverse=reverse):
        output.log("interrupted; nothing is lost, and the next run continues from here")
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(1 if outcome.halted else 0)


def _rate(throttle: str | None) -> int | None:
    """Bytes a second, None if no throttle is given. Raises BadInput, and BadParameter for `off`."""
    from kafka_migration.domain.controls import parse_rate

    rate = None if throttle is None else parse_rate(throttle)
    if throttle is not None and rate is None:
        raise typer.BadParameter("to remove a throttle: `throttle PLAN off`", param_hint="--throttle")
    return rate


def _is_to_run(plan: Path, output: Output, *, reverse: bool) -> bool:
    """Whether nobody asked the mirror to stop: then it was interrupted."""
    with opened(plan, output, reverse=reverse) as ctx:
        return ctx.link.wished().desired is Desired.RUN


def _copy_again(ctx: Context, output: Output, again: Sequence[str], *, yes: bool, unseal: bool) -> list[str]:
    """Delete and create what is to be copied again, once a person confirmed it; the topics to mirror then."""
    from kafka_migration.steps import mirror as phase_mirror
    from kafka_migration.steps import recopy as phase_again
    from kafka_migration.topics.declared import mirrored

    todo = phase_again.check(ctx, again, unsealed=unseal)
    if not (ctx.dry_run or yes):
        question = "Delete them on the target, and copy them again?"
        demand_yes(output, question, shown=todo, declined="nothing was deleted")
    phase_again.apply(ctx, again, unsealed=unseal)
    return sorted({*mirrored(ctx), *again}) if ctx.dry_run else phase_mirror.check(ctx)


def lag(
    plan: PlanFile,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until interrupted.")] = False,
    gate: Annotated[
        bool, typer.Option("--gate", help="Wait until the plan's lag gate passes (0), or gives up (1).")
    ] = False,
    reverse: Reverse = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show how far the mirror is behind the source, and how fast it closes in."""
    from kafka_migration.cli.render.status import lag as shown
    from kafka_migration.cli.render.status import watch_lag
    from kafka_migration.link import lag as phase_lag
    from kafka_migration.topics import drift as phase_drift

    output = Output(as_json=as_json)
    if watch and gate:
        raise typer.BadParameter("give either --watch, which never ends, or --gate")
    with opened(plan, output, reverse=reverse) as ctx:
        if watch:
            watch_lag(ctx, output)
        if gate:
            result = phase_lag.verify(ctx)
            output.result(result.as_dict(), shown(result.report), result.reason)
            raise typer.Exit(0 if result.passed else 1)
        meter = phase_lag.LagMeter(ctx)
        meter.read()
        # A rate takes two samples.
        ctx.clock.sleep(min(1.0, ctx.plan.lag_gate.interval_seconds))
        report = meter.read()
        try:
            changes = phase_drift.read(ctx)
        except MigrationError as error:
            # Lag is what was asked for.
            changes = ()
            output.log(f"whether topics have changed is unknown: {error.message}")
    drift = {"drift": [phase_drift.as_dict(change) for change in changes]}
    output.result({**report.as_dict(), **drift}, shown(report, changes))


def stop(
    plan: PlanFile,
    now: Annotated[
        bool, typer.Option("--now", help="End it at once, where it is; a later run continues from there.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """End the mirror, once producers have left the source and everything is copied."""
    from kafka_migration.cli.render.status import stopped
    from kafka_migration.steps import runner

    output = Output(as_json=as_json)
    with opened(plan, output, dry_run=dry_run) as ctx:
        _require_mirror(ctx, now=now)
        result = runner.run(ctx, "stop_mirror", now=now).value
    output.result(result.as_dict(), stopped(result, dry_run=dry_run))
    raise typer.Exit(result.gate.exit_code)


def _require_mirror(ctx: Context, *, now: bool) -> None:
    # Without a mirror there is no state to keep the wish in, and no record of the step is owed.
    from kafka_migration.inventory import plan_changes
    from kafka_migration.topics import locks

    if now:
        # The wish must reach a mirror also where another migration holds the topics by now: above all there.
        locks.begun(ctx)
    else:
        # The seal writes to the topics.
        plan_changes.to_mirror(ctx)


def executors(
    output_file: Annotated[
        Path,
        typer.Option("--output", metavar="FILE", help="The archive to write, in a folder that only you may write to."),
    ] = Path("executors.tar.gz"),
    image: Annotated[
        bool, typer.Option("--image", help="Write nothing; print the line that an image of the executors needs.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Pack what Spark's executors on other machines need, and print the configs that bring it there."""
    from kafka_migration.steps import executors as packed

    output, versions, size = Output(as_json=as_json), packed.versions(), None
    if not output_file.name.endswith((".tar.gz", ".tgz")):
        raise typer.BadParameter("Spark unpacks files named .tar.gz or .tgz", param_hint="--output")
    if image:
        output.result(
            {"packages": versions, "python": packed.python(), "image": packed.image_line()}, packed.image_line()
        )
        return
    if not dry_run:
        size = packed.write_archive(output_file)
    conf, variable = packed.spark_conf(output_file), {"PYSPARK_PYTHON": packed.python()}
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    output.log(f"{'would be written' if dry_run else 'written'}: {output_file}, with {packages}")
    output.result(
        {"archive": str(output_file), "bytes": size, "packages": versions, "spark": conf, "environment": variable}
        | {"dry_run": dry_run},
        "# spark-defaults.conf, where the driver runs:",
        *(f"{key} {value}" for key, value in conf.items()),
        "# environment of the driver; the workers' interpreter:",
        *(f"{key}={value}" for key, value in variable.items()),
    )
