"""translate, cutover, watch, undo, rollback: consumer groups, and positions kept outside Kafka; cancel,
complete, retire: the end of a migration."""

from __future__ import annotations

import getpass
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from kafka_migration.approvals.evidence import GateName
from kafka_migration.cli.asking import demand_yes
from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import By, Debug, DryRun, Groups, Json, PlanFile, Seconds, Wave, finite, read_offset
from kafka_migration.cli.output import Output
from kafka_migration.domain.errors import BadInput
from kafka_migration.positions.files import Format

if TYPE_CHECKING:
    from kafka_migration.kafka.cluster import Cluster, Role
    from kafka_migration.migration.context import Context
    from kafka_migration.positions.translation import Rules

_FILES, _CONNECT = "Positions in files", "Positions of Connect"


def translate(
    plan: PlanFile,
    group: Groups = None,
    offset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC:PARTITION:OFFSET",
            help="Translate this source offset instead; may be given again.",
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Translate the positions in this file, or in this checkpoint folder of Spark.",
            rich_help_panel=_FILES,
            show_default=False,
        ),
    ] = None,
    format: Annotated[
        Format | None,
        typer.Option(help="How they are written. (default: by name and content)", rich_help_panel=_FILES),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC,PARTITION,OFFSET",
            help="Names of these columns in a CSV file. (default: topic,partition,offset)",
            rich_help_panel=_FILES,
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Write the file, or folder, with translated positions here. (default: only show them)",
            rich_help_panel=_FILES,
            show_default=False,
        ),
    ] = None,
    connect_offsets: Annotated[
        str | None,
        typer.Option(
            metavar="[CLUSTER:]TOPIC",
            help="Translate the positions in this offsets topic of Kafka Connect. CLUSTER: source, target, or the id of"
            " a connection. (default: where positions are translated from)",
            rich_help_panel=_CONNECT,
            show_default=False,
        ),
    ] = None,
    output_topic: Annotated[
        str | None,
        typer.Option(
            metavar="[CLUSTER:]TOPIC",
            help="Write them, and all other keys, to this topic. (default: only show them; the other cluster)",
            rich_help_panel=_CONNECT,
            show_default=False,
        ),
    ] = None,
    connector: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Of this connector only; may be given again. (default: all)",
            rich_help_panel=_CONNECT,
            show_default=False,
        ),
    ] = None,
    rewind: Annotated[
        bool,
        typer.Option("--rewind", help="Also where the output topic is further ahead.", rich_help_panel=_CONNECT),
    ] = False,
    reverse: Annotated[
        bool, typer.Option("--reverse", help="From the target to the source: of groups, where `rollback` leads.")
    ] = False,
    accept_expired: Annotated[
        bool,
        typer.Option(
            "--accept-expired",
            help="Positions whose records the other cluster will never have lead to the first record behind them.",
        ),
    ] = False,
    keep_topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC",
            help="Positions of this topic stay as they are: it is another cluster's. May be given again.",
            show_default=False,
        ),
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show where each group would resume on the target, exactly; or translate positions kept outside Kafka.

    Writes nothing but --output or --output-topic.
    """
    from kafka_migration.cli.render.groups import translated
    from kafka_migration.groups import translate as phase_translate
    from kafka_migration.link import reverse as phase_reverse
    from kafka_migration.positions.translation import Rules

    given = [name for name, value in _sources(group, offset, file, connect_offsets).items() if value]
    if len(given) > 1:
        raise typer.BadParameter(f"{' and '.join(given)} exclude each other")
    _require_uses(bool(file), "--file", {"--format": format, "--columns": columns, "--output": output})
    _require_uses(
        bool(connect_offsets),
        "--connect-offsets",
        {"--output-topic": output_topic, "--connector": connector, "--rewind": rewind},
    )
    _require_uses(
        bool(file or connect_offsets),
        "--file or --connect-offsets",
        {"--accept-expired": accept_expired, "--keep-topic": keep_topic},
    )
    if offset and reverse:
        raise typer.BadParameter("--reverse translates what groups committed, and no single --offset")
    terminal = Output(as_json=as_json)
    rules = Rules(back=reverse, accept_expired=accept_expired, kept=frozenset(keep_topic or ()))
    if file is not None:
        _translate_file(plan, terminal, file, format, columns, output, rules, dry_run)
    if connect_offsets:
        _translate_connect(plan, terminal, connect_offsets, output_topic, connector or (), rewind, rules, dry_run)
    offsets = [read_offset(text, option="--offset") for text in offset or ()]
    with opened(plan, terminal, dry_run=dry_run) as ctx:
        if offsets:
            found = phase_translate.translate_offsets(ctx, offsets)
        else:
            found = phase_translate.preview(phase_reverse.behind(ctx) if reverse else ctx, group or None)
    terminal.result(found.as_dict(), translated(found))
    raise typer.Exit(found.exit_code)


def _sources(group: object, offset: object, file: object, connect: object) -> dict[str, object]:
    return {"--group": group, "--offset": offset, "--file": file, "--connect-offsets": connect}


def _require_uses(is_given: bool, option: str, uses: dict[str, object]) -> None:
    stray = [name for name, value in uses.items() if value]
    if stray and not is_given:
        raise typer.BadParameter(f"{stray[0]} needs {option}")


def _translate_file(
    plan: Path,
    terminal: Output,
    file: Path,
    format: Format | None,
    columns: str | None,
    output: Path | None,
    rules: Rules,
    dry_run: bool,
) -> None:
    from kafka_migration.cli.render.groups import in_file
    from kafka_migration.positions import files

    names = _columns(columns)
    # Before any cluster is asked: what is wrong with paths and texts needs none.
    found = files.read(file, format=format, columns=names)
    if output is not None:
        files.require_free(output, file)
    with opened(plan, terminal, dry_run=dry_run) as ctx:
        result = files.translate(ctx, found, rules=rules, output=output)
    terminal.result(result.as_dict(), in_file(result))
    raise typer.Exit(result.exit_code)


def _columns(text: str | None) -> list[str] | None:
    names = None if text is None else [name.strip() for name in text.split(",")]
    if names is not None and (len(names) != 3 or not all(names)):
        raise BadInput(
            "is not three names",
            field="--columns",
            value=text,
            remedy=f"write it like topic,partition,offset; found {text}",
        )
    return names


def _translate_connect(
    plan: Path,
    terminal: Output,
    source: str,
    output: str | None,
    connectors: list[str] | tuple[str, ...],
    rewind: bool,
    rules: Rules,
    dry_run: bool,
) -> None:
    from kafka_migration.cli.render.groups import in_connect
    from kafka_migration.kafka.keyed_topic import KeyedTopic
    from kafka_migration.positions import connect_offsets

    with opened(plan, terminal, dry_run=dry_run) as ctx, ExitStack() as stack:
        here, there = (ctx.target, ctx.source) if rules.back else (ctx.source, ctx.target)
        topics = [KeyedTopic(*_place(ctx, stack, source, here))]
        if output is not None:
            topics.append(KeyedTopic(*_place(ctx, stack, output, there)))
        result = connect_offsets.translate(ctx, *topics, rules=rules, connectors=connectors, rewind=rewind)
    terminal.result(result.as_dict(), in_connect(result))
    raise typer.Exit(result.exit_code)


def _place(ctx: Context, stack: ExitStack, text: str, default: Cluster) -> tuple[Cluster, str]:
    """The cluster and the topic of ``[CLUSTER:]TOPIC``: no topic's name has a colon."""
    from kafka_migration.kafka.cluster import Cluster
    from kafka_migration.kafka.lookup import find_connection

    name, _, topic = text.rpartition(":")
    if not name:
        return default, topic
    known = {"source": ctx.source, "target": ctx.target}
    if name in known:
        return known[name], topic
    # A third cluster has no role in the plan: messages name its connection.
    return stack.enter_context(closing(Cluster(cast("Role", name), find_connection(name)))), topic


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
            callback=finite,
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
