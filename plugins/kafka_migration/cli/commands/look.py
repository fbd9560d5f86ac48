"""check, waves, status, lag, report, metrics, acls, schema: what there is, and how far it came."""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Iterable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from kafka_migration.cli.opening import loaded, opened
from kafka_migration.cli.options import Debug, DryRun, Json, PlanFile, ReportsDirectory, Reverse, finite
from kafka_migration.cli.output import Output, write_new
from kafka_migration.domain.errors import BadInput, MigrationError, Refused

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kafka_migration.inventory.permissions import Names, Rule, Side
    from kafka_migration.migration.context import Context
    from kafka_migration.overview.status import Status
    from kafka_migration.plans.model import Plan
    from kafka_migration.waves.order import Waves


def check(plan: PlanFile, as_json: Json = False, debug: Debug = False) -> None:
    """Take the inventory of the source and check both clusters. Changes nothing."""
    from kafka_migration.cli.render.evidence import preflight as shown
    from kafka_migration.inventory import preflight

    output = Output(as_json=as_json)
    with opened(plan, output, to_check=True) as ctx:
        seen = preflight.check(ctx)
    output.result(seen.as_dict(), shown(seen))
    raise typer.Exit(seen.exit_code)


def doctor(as_json: Json = False, debug: Debug = False) -> None:
    """Check this installation: packages, Java and Spark, jars, approval key, Airflow, folders, clock. Asks no cluster,
    and changes nothing."""
    from kafka_migration.cli.render.tables import checks
    from kafka_migration.domain.checks import Gate
    from kafka_migration.steps import environment as step

    gate = Gate.of("installation", step.check())
    value = {"ok": gate.is_open, "checks": [result.as_dict() for result in gate.results]}
    Output(as_json=as_json).result(value, checks("This installation", gate.results))
    raise typer.Exit(gate.exit_code)


def schema() -> None:
    """Print the JSON schema of a plan, for editors."""
    from kafka_migration.plans.load import schema_text

    sys.stdout.write(schema_text())


def waves(
    plan: PlanFile,
    why: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC|WAVE",
            help="Show what holds this topic together with others, or the topics of this wave.",
            show_default=False,
        ),
    ] = None,
    given: Annotated[
        bool, typer.Option("--given", help="Print computed waves as the section of a plan that names them.")
    ] = False,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write a plan for each wave there: their producers move wave by wave.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the waves of the plan, with their sizes, and check them against the source. Changes no cluster."""
    import yaml

    from kafka_migration.cli.render import evidence as shown
    from kafka_migration.cli.render.tables import checks
    from kafka_migration.inventory import preflight
    from kafka_migration.inventory.facts import Facts
    from kafka_migration.waves import order, sizing

    output = Output(as_json=as_json)
    if (why is not None) + given + (write is not None) > 1:
        raise typer.BadParameter("give one of --why, --given and --write")
    with opened(plan, output, to_check=True) as ctx:
        facts = Facts(ctx)
        found, taken = facts.waves, facts.inventory
        if given:
            section = {"waves": order.as_given(ctx.plan, found)}
            output.result(section, yaml.safe_dump(section, sort_keys=False).rstrip())
            return
        gate = preflight.wave_checks(facts)
        # A gate that is shut is shown; a plan without waves has none.
        if write is not None and (gate.is_open or not gate.results):
            written = _write_plans(ctx, found, write)
            value = {"written": [str(path) for path in written], "checks": [check.as_dict() for check in gate.results]}
            output.result(value, checks("Checks", gate.results), *(f"written: {path}" for path in written))
            return
        if why is None:
            sized = sizing.sizes(ctx, found, taken)
            output.result(
                {
                    "waves": [one.as_dict() for one in sized],
                    "links": [link.as_dict() for link in found.links],
                    "checks": [check.as_dict() for check in gate.results],
                },
                shown.sizes(sized),
                shown.members(found),
                *([checks("Checks", gate.results)] if gate.results else []),
            )
            # A plan without waves has nothing to be checked.
            raise typer.Exit(gate.exit_code if gate.results else 0)
    if why in taken.topics:
        wave, held = found.wave_of(why), found.why(why)
        value = {other: [link.as_dict() for link in links] for other, links in held.items()}
        output.result(
            {"topic": why, "wave": wave.name if wave else None, "held_together_with": value},
            shown.why_topic(why, wave, held),
        )
        return
    named = found.named(why)
    if named is None:
        raise BadInput(
            f"{why} is neither a topic that the plan selects on the source nor one of its waves",
            field="--why",
            value=why,
            remedy=f"`waves {plan}` lists waves and topics",
        )
    links = [link for link in found.links if link.topics & named.topics and (link.group or len(link.topics) > 1)]
    output.result({"wave": why, "links": [link.as_dict() for link in links]}, shown.why_wave(named, links))


def _write_plans(ctx: Context, found: Waves, folder: Path) -> list[Path]:
    """A plan file for each wave, all or none. Raises Refused once the migration has begun, BadInput for a file that is
    there."""
    import yaml

    from kafka_migration.migration.joined import joined
    from kafka_migration.plans.load import parse_plan
    from kafka_migration.waves.order import plans_of

    if joined(ctx) is not None:
        raise Refused(
            f"migration {ctx.plan.name} has begun as a whole, and its mirror copies all waves",
            remedy="go on with it; or `cancel` it, while no client has moved, and run this again",
        )
    texts = {
        folder / f"{fields['name']}.yaml": yaml.safe_dump(fields, sort_keys=False)
        for fields in plans_of(ctx.plan, found)
    }
    for path, text in texts.items():
        parse_plan(text, file=str(path))
    return write_new(texts)


def status(
    plan: PlanFile,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Go on until interrupted: one screen, with rates, and what needs a person."),
    ] = False,
    interval: Annotated[
        float, typer.Option(min=1, max=3600, callback=finite, help="With --watch: seconds from one look to the next.")
    ] = 5.0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show one page: what needs a person, phases, mirror, lag, halts, groups, approvals, verdict, locks."""
    from kafka_migration.cli.render.status import status as shown
    from kafka_migration.overview import attention
    from kafka_migration.overview import status as phase_status

    output = Output(as_json=as_json)
    with opened(plan, output) as ctx:
        if watch:
            _watch_status(ctx, output, interval)
        page = phase_status.read(ctx)
        needs = attention.needed(page, ctx.plan)
    output.result({**page.as_dict(), "needs": [asdict(need) for need in needs]}, shown(page, needs))
    raise typer.Exit(1 if page.stragglers else 0)


def _watch_status(ctx: Context, output: Output, interval: float) -> NoReturn:
    from kafka_migration.cli.render import live
    from kafka_migration.link.lag import LagMeter
    from kafka_migration.overview import attention
    from kafka_migration.overview import status as phase_status

    meter = LagMeter(ctx)

    def look() -> tuple[Status, tuple[attention.Attention, ...]]:
        nonlocal ctx, meter
        if (newest := ctx.newest()) is not ctx:
            # A later generation of the link has begun: rates are its own.
            ctx, meter = newest, LagMeter(newest)
        page = phase_status.read(ctx, meter)
        return page, attention.needed(page, ctx.plan)

    live.watch(
        output,
        look,
        page=lambda seen: live.screen(*seen),
        line=lambda seen: live.summary(*seen),
        as_dict=lambda seen: {**seen[0].as_dict(), "needs": [asdict(need) for need in seen[1]]},
        rest=lambda: ctx.clock.sleep(interval),
        whole=True,
    )


def report(
    plan: PlanFile,
    output_directory: ReportsDirectory = "reports",
    verify: Annotated[
        Path | None, typer.Option("--verify", metavar="FILE", help="Write nothing: was this report.json changed since?")
    ] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write report.json and report.html."""
    from kafka_migration.migration.reports import place_of
    from kafka_migration.steps import runner

    output, place = Output(as_json=as_json), place_of(output_directory, field="--output")
    if verify is not None:
        from kafka_migration.migration.signing import find_keys
        from kafka_migration.plans.load import load_plan
        from kafka_migration.steps.report import verified

        how = verified(load_plan(plan).name, find_keys(), verify)
        output.result({"unchanged": how}, how)
        return
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
    from kafka_migration.cli.render.live import watch_lag
    from kafka_migration.cli.render.status import lag as shown
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


def metrics(
    plans: Annotated[
        list[Path], typer.Argument(metavar="PLAN", help="The plan files of the migrations.", show_default=False)
    ],
    listen: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Where Prometheus asks; the default serves this machine alone."),
    ] = "127.0.0.1:9404",
    interval: Annotated[
        float,
        typer.Option(min=1, max=300, callback=finite, help="Seconds from one reading of a migration to its next."),
    ] = 60.0,
    once: Annotated[
        bool, typer.Option("--once", help="Read once, print the metrics, and end: for node_exporter's text files.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Serve where migrations stand to Prometheus, until interrupted. Changes nothing."""
    from prometheus_client import generate_latest

    from kafka_migration.metrics.exporter import Exporter, registry_of, serve

    output = Output(as_json=False)
    found = Exporter(plans=plans, log=output.log)
    if once:
        found.read()
        sys.stdout.write(generate_latest(registry_of(found)).decode())
        raise typer.Exit(3 if found.errors else 0)
    url = serve(found, listen, field="--listen")
    output.log(f"serving metrics at {url}; Ctrl-C ends it")
    ended = threading.Event()
    found.read_every(interval, ended)
    ended.wait()


class SideOption(StrEnum):
    """As typed."""

    SOURCE = "source"
    TARGET = "target"


Principal = Annotated[
    str,
    typer.Option(
        metavar="TYPE:NAME", help="Whom to grant it, such as User:migration or User:CN=migration.", show_default=False
    ),
]
OneSide = Annotated[SideOption | None, typer.Option("--side", help="This cluster only. (default: both)")]
AskForNames = Annotated[
    bool,
    typer.Option(
        "--names", help="Ask the source which topics and groups there are now, and name each, instead of prefixes."
    ),
]


def acls(
    plan: PlanFile,
    principal: Principal,
    side: OneSide = None,
    names: AskForNames = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the ACLs that the migration needs, and no more. Changes nothing, and grants nothing."""
    from kafka_migration.domain.listing import listed
    from kafka_migration.inventory import permissions
    from kafka_migration.kafka import acl_commands
    from kafka_migration.plans.load import load_plan

    kind, separator, name = principal.partition(":")
    if not (kind and separator and name) or principal != principal.strip():
        raise BadInput(
            "a principal is a type and a name",
            field="--principal",
            value=principal,
            remedy='write it like User:migration, or with certificates "User:CN=migration,O=Shop"',
        )
    output = Output(as_json=as_json)
    loaded = load_plan(plan)
    known = _names_there(plan, output) if names else permissions.names_of(loaded)
    wanted: tuple[permissions.Side, ...] = permissions.SIDES if side is None else (side.value,)
    value: dict[str, Any] = {"principal": principal, "rules": [], "commands": [], "optional": []}
    parts: list[RenderableType] = []
    for cluster in wanted:
        servers = _servers(loaded, cluster)
        rules = permissions.rules(loaded, cluster, known)
        commands = acl_commands.adding((rule.acl(principal) for rule in rules), servers=servers)
        value["rules"] += [rule.as_dict() for rule in rules]
        value["commands"] += commands
        parts += _rules_shown(cluster, rules, commands)
        if more := permissions.rules(loaded, cluster, known, optional=True):
            value["optional"] += [rule.as_dict() for rule in more]
            commands = acl_commands.adding((rule.acl(principal) for rule in more), servers=servers)
            why = listed(sorted({rule.right.why for rule in more}))
            parts += _rules_shown(f"{cluster}, optional ({why})", more, commands)
    output.result(value, *parts)


def _names_there(plan: Path, output: Output) -> Names:
    """Names on the source now, as far as the connection's principal may see them."""
    from kafka_migration.inventory import permissions
    from kafka_migration.kafka.cluster import Cluster
    from kafka_migration.kafka.lookup import find_connection

    what = loaded(plan)
    with Cluster("source", find_connection(what.source)) as source:
        topics, groups = what.topics.select(source.topics()), what.groups.select(source.groups())
    output.log(f"the source shows {len(topics)} topics and {len(groups)} groups of the plan")
    return permissions.named(topics, groups)


def _servers(plan: Plan, side: Side) -> str:
    """The connection's servers, or a variable to be set: rules can be printed before there is any connection."""
    from kafka_migration.kafka.lookup import find_connection

    try:
        return shlex.quote(find_connection(plan.connection(side)).servers)
    except BadInput:
        return f'"${side.upper()}_SERVERS"'


def _rules_shown(side: str, rules: Iterable[Rule], commands: Iterable[str]) -> tuple[RenderableType, ...]:
    """Everything of one side; each command is a line of its own, never wrapped."""
    from rich.text import Text

    from kafka_migration.cli.render.tables import grid
    from kafka_migration.inventory.permissions import by_resource

    rows = [
        (kind, name, "prefixed" if prefixed else "literal", ", ".join(operations))
        for (kind, name, prefixed), operations in by_resource(rules).items()
    ]
    return (grid(f"{side}: allow", ("resource", "name", "pattern", "operations"), rows), *commands, Text())
