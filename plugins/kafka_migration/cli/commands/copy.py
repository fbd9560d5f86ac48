"""create, mirror, pause, resume, throttle, stop, executors, restore, release: topics, and the running copy."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_migration.cli.asking import demand_yes
from kafka_migration.cli.command import INTERRUPTED
from kafka_migration.cli.opening import loaded, opened
from kafka_migration.cli.options import By, Debug, DryRun, Json, Master, PlanFile, Reverse, read_offset
from kafka_migration.cli.output import Output
from kafka_migration.domain.types import Desired

if TYPE_CHECKING:
    from kafka_migration.domain.controls import Controls
    from kafka_migration.domain.types import TopicPartition
    from kafka_migration.migration.context import Context
    from kafka_migration.topics.restore import Restored


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
            help="Release at once although a mirror did not record its end, or although records behind the cut are"
            " undecided; first verify that none of its processes runs, and that nobody needs these records.",
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
    from kafka_migration.cli.render.live import lag_beside
    from kafka_migration.cli.render.status import outcome as shown
    from kafka_migration.link import reverse as phase_reverse
    from kafka_migration.link import seal as phase_seal
    from kafka_migration.steps import mirror as phase_mirror
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
        outcome = phase_mirror.run(
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
    from kafka_migration.steps import environment

    output, versions, size = Output(as_json=as_json), environment.versions(), None
    if not output_file.name.endswith((".tar.gz", ".tgz")):
        raise typer.BadParameter("Spark unpacks files named .tar.gz or .tgz", param_hint="--output")
    if image:
        line = environment.image_line()
        output.result({"packages": versions, "python": environment.python(), "image": line}, line)
        return
    if not dry_run:
        size = environment.write_archive(output_file)
    conf, variable = environment.spark_conf(output_file), {"PYSPARK_PYTHON": environment.python()}
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
            help="Resume this halted partition at this offset of the source, or, with --reverse, of the target; may be"
            " given again.",
            show_default=False,
        ),
    ] = None,
    accept_loss: Annotated[
        list[str] | None,
        typer.Option(
            "--accept-loss",
            metavar="TOPIC[:PARTITION]",
            help="Resume partitions that halted for DATA_LOSS, where the log begins now; may be given again.",
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
        offsets = [read_offset(text, option="--at") for text in at or ()]
        output = Output(as_json=as_json)
        _resume_halted(
            plan,
            output,
            offsets,
            accept_loss or (),
            by=who,
            needs_yes=not (dry_run or yes),
            dry_run=dry_run,
            reverse=reverse,
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
    reverse: bool,
) -> None:
    """Resume halted partitions; where offsets are given up, and ``needs_yes``, a person is asked first."""
    from kafka_migration.link.heartbeat import mirror_state
    from kafka_migration.steps import controls

    with opened(plan, output, dry_run=dry_run, reverse=reverse) as ctx:
        todo = controls.check_halted(ctx, at=at, accept_loss=accept_loss)
        if needs_yes and any(partition.given_up for partition in todo):
            declined = "nothing was given up, and the partitions are still halted"
            demand_yes(output, "Give these offsets up, and resume?", shown=todo, declined=declined)
        done = controls.resume_halted(ctx, at=at, accept_loss=accept_loss, by=by)
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
