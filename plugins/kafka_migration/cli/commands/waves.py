"""waves: what moves together, how large it is, and why."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import Debug, Json, PlanFile
from kafka_migration.cli.output import Output
from kafka_migration.domain.errors import BadInput


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
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the waves of the plan, with their sizes, and check them against the source. Changes nothing."""
    import yaml

    from kafka_migration.cli.render import waves as shown
    from kafka_migration.inventory import preflight
    from kafka_migration.inventory.facts import Facts
    from kafka_migration.waves import order, sizing

    output = Output(as_json=as_json)
    with opened(plan, output, to_check=True) as ctx:
        facts = Facts(ctx)
        found, taken = facts.waves, facts.inventory
        if given:
            section = {"waves": order.as_given(ctx.plan, found)}
            output.result(section, yaml.safe_dump(section, sort_keys=False).rstrip())
            return
        gate = preflight.wave_checks(facts)
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
                *([shown.checks(gate)] if gate.results else []),
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
