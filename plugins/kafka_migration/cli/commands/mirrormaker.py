"""import: plans and connections from what a MirrorMaker is configured to do. adopt: its copy is taken over."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from kafka_migration.cli.asking import demand_yes
from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import Debug, Json, PlanFile, Seconds
from kafka_migration.cli.output import Output, write_new
from kafka_migration.cli.render.tables import facts, grid
from kafka_migration.mirrormaker.options import Outcome

if TYPE_CHECKING:
    from kafka_migration.mirrormaker.plans import Imported

_FIRST = "MirrorMaker 1"
_CONNECTIONS = "connections.env"
_STYLES = {Outcome.TAKEN: "green", Outcome.TO_DO: "bold yellow", Outcome.NO_COUNTERPART: "bold red"}


def _first(*names: str, metavar: str) -> Any:
    """An option of MirrorMaker 1, as it is called there."""
    return typer.Option(*names, metavar=metavar, rich_help_panel=_FIRST, show_default=False)


def import_(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="connect-mirror-maker.properties of MirrorMaker 2, or the JSON of its connectors.",
            show_default=False,
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help=f"Write plans there, and {_CONNECTIONS} with the connections, which holds secrets.",
            show_default=False,
        ),
    ] = None,
    flow: Annotated[str, typer.Option(metavar="A->B", help="This flow only. (default: all that are enabled)")] = "",
    name: Annotated[str, typer.Option(metavar="NAME", help="The plan's name. (default: a-to-b)")] = "",
    consumer_config: Annotated[Path | None, _first("--consumer.config", metavar="FILE")] = None,
    producer_config: Annotated[Path | None, _first("--producer.config", metavar="FILE")] = None,
    include: Annotated[
        str | None,
        _first("--include", "--whitelist", metavar="PATTERN"),
    ] = None,
    num_streams: Annotated[str | None, _first("--num.streams", metavar="N")] = None,
    message_handler: Annotated[str | None, _first("--message.handler", metavar="CLASS")] = None,
    message_handler_args: Annotated[str | None, _first("--message.handler.args", metavar="TEXT")] = None,
    abort_on_send_failure: Annotated[str | None, _first("--abort.on.send.failure", metavar="BOOL")] = None,
    offset_commit_interval_ms: Annotated[
        str | None,
        _first("--offset.commit.interval.ms", metavar="MS"),
    ] = None,
    consumer_rebalance_listener: Annotated[
        str | None,
        _first("--consumer.rebalance.listener", metavar="CLASS"),
    ] = None,
    rebalance_listener_args: Annotated[
        str | None,
        _first("--rebalance.listener.args", metavar="TEXT"),
    ] = None,
    new_consumer: Annotated[bool, typer.Option("--new.consumer", rich_help_panel=_FIRST)] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Make plans of a MirrorMaker's configuration, and show what becomes of every option. Asks no cluster."""
    from kafka_migration.mirrormaker.plans import imported
    from kafka_migration.mirrormaker.read import read, read_first

    output = Output(as_json=as_json)
    given = {
        "include": include,
        "num.streams": num_streams,
        "message.handler": message_handler,
        "message.handler.args": message_handler_args,
        "abort.on.send.failure": abort_on_send_failure,
        "offset.commit.interval.ms": offset_commit_interval_ms,
        "consumer.rebalance.listener": consumer_rebalance_listener,
        "rebalance.listener.args": rebalance_listener_args,
        "new.consumer": "true" if new_consumer else None,
    }
    command = {option: value for option, value in given.items() if value is not None}
    if consumer_config is not None and producer_config is not None and not files:
        found = read_first(consumer_config, producer_config, command)
    elif files and not (consumer_config or producer_config or command):
        found = read(files)
    else:
        raise typer.BadParameter(
            "give either files of MirrorMaker 2, or --consumer.config, --producer.config and --include of MirrorMaker 1"
        )
    made = imported(found, only=flow, name=name)
    written: list[Path] = []
    if write is not None:
        secret = write / _CONNECTIONS
        plans = {write / file: text for file, text in made.texts().items()}
        written = write_new({**plans, secret: made.variables()}, secrets=[secret])
    output.result(made.as_dict() | {"written": [str(path) for path in written]}, *_imported(made, written))


def _imported(made: Imported, written: Sequence[Path]) -> Sequence[RenderableType | str]:
    """Every option, then the plans; what has to be looked at stands last, where a terminal ends."""
    order = (Outcome.IGNORED, Outcome.NOT_NEEDED, Outcome.TAKEN, Outcome.NO_COUNTERPART, Outcome.TO_DO)
    rows = []
    for row in sorted(made.rows, key=lambda row: order.index(row.counterpart.outcome)):
        text = Text().append(row.setting.name, "bold").append(f" = {row.shown}\n{row.counterpart.note}")
        rows.append((Text(str(row.counterpart.outcome), _STYLES.get(row.counterpart.outcome, "")), text))
    plans = [
        (title, f"plan {fields['name']}, from {fields['source']} to {fields['target']}")
        for title, fields in made.plans.items()
    ]
    parts = (facts(plans), Text(), facts([("note", one) for one in made.differences]), Text())
    lines = [f"written: {path}" for path in written] or ["nothing was written: --write DIR"]
    return (grid("Options", ("outcome", "option, and where it went or why it did not"), rows), *parts, *lines)


def adopt(
    plan: PlanFile,
    apply: Annotated[
        bool, typer.Option("--apply", help="Take over each topic whose copy is right, or chosen to be taken.")
    ] = False,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC",
            help="This topic of topics.adopt only; may be given again. (default: all)",
            show_default=False,
        ),
    ] = None,
    keep_extra: Annotated[
        bool,
        typer.Option(
            "--keep-extra", help="Leave records where they are that the target has twice, or the source does not have."
        ),
    ] = False,
    accept_expired: Annotated[
        bool, typer.Option("--accept-expired", help="Go on without first records that the target has deleted already.")
    ] = False,
    copy_again: Annotated[
        bool,
        typer.Option(
            "--copy-again", help="Delete topics on the target that differ still, so that the mirror copies all of them."
        ),
    ] = False,
    seconds: Seconds = 10.0,
    yes: Annotated[bool, typer.Option("--yes", help="Delete them without being asked.")] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Compare what MirrorMaker 2 has copied with the source, and take it over, so that the mirror goes on behind it.
    Changes nothing without --apply."""
    from kafka_migration.cli.render.evidence import adopted, adoptions
    from kafka_migration.steps import adopt as step

    output = Output(as_json=as_json)

    def may_delete(doomed: Sequence[step.Adoption]) -> None:
        if not yes:
            question = f"Delete {len(doomed)} topics on the target?"
            demand_yes(output, question, shown=doomed, declined="these topics stay; what was adopted is adopted")

    choices = step.Choices(keep_extra=keep_extra, accept_expired=accept_expired, copy_again=copy_again)
    with opened(plan, output, dry_run=not apply) as ctx:
        decision = step.run(ctx, choices=choices, only=topic or (), seconds=seconds, may_delete=may_delete)
    value = {"applied": apply, **decision.facts, "topics": [one.as_dict() for one in decision.value]}
    output.result(value, adoptions(decision.value), adopted(decision, applied=apply))
    raise typer.Exit(decision.exit_code)
