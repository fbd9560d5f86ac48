"""A plan for each wave, for producers that are to move wave by wave.

`switch` moves the producers of a whole plan, since a link is sealed as a whole. A wave whose producers move, and come
back, by themselves is a migration of its own: its own topics and their locks, its own mirror, fence and way back.
Migrations onto one target stay out of each other's way already. Pure.
"""

from __future__ import annotations

from typing import Any

from kafka_migration.domain.errors import BadInput, Refused
from kafka_migration.domain.listing import listed
from kafka_migration.plans.model import Plan
from kafka_migration.plans.patterns import pattern_of
from kafka_migration.waves.order import Wave, Waves


def plans_of(plan: Plan, found: Waves) -> tuple[dict[str, Any], ...]:
    """The plans, as JSON types, in the order of the waves ``found``: ``plan`` without its defaults, with the topics and
    groups of a wave by their names, called ``<plan>-<wave>``.

    Raises BadInput for a plan without waves, for one of which nobody would be asked before producers move, and for
    hooks for producers that do not name the migration, so that those of one wave would stop all; Refused if something
    spans two waves, even if the plan waives it.
    """
    if plan.waves is None:
        raise BadInput("the plan has no waves", field="waves", remedy="write some, or `auto: {}` to have them computed")
    alone = plan.model_copy(update={"waves": None})
    if plan.asks("producers") and not (alone.asks("producers") or alone.asks("cutover")):
        raise BadInput(
            "without waves, the approval of the cutover is that of producers, too: nobody would be asked",
            field="approvals.cutover",
            value=False,
            remedy="set it, or producers.in_workflow, with which producers have an approval of their own",
        )
    if found.spanning:
        spanning = listed(f"{one.link.title} ({', '.join(one.waves)})" for one in found.spanning)
        raise Refused(
            f"no plan of its own can be made of a wave that shares something with another one: {spanning}",
            remedy="have in one wave what belongs together (`waves PLAN --why TOPIC`)",
        )
    first = found.waves[0].name if found.waves else ""
    for place, hook in plan.producers.hooks() if plan.producers is not None else ():
        if not hook.names("migration"):
            raise BadInput(
                "this hook is the same for every wave, so the first one would stop or start the producers of all",
                field=place,
                remedy=f"have {{migration}} in it: {plan.name}-{first} for the wave {first}",
            )
    return tuple(_plan_of(plan, wave) for wave in found.waves if wave.topics)


def _plan_of(plan: Plan, wave: Wave) -> dict[str, Any]:
    fields = plan.model_dump(mode="json", exclude_unset=True, exclude={"waves"})
    fields["name"] = f"{plan.name}-{wave.name}"
    kept = {name: value for name, value in fields["topics"].items() if name not in ("include", "exclude", "adopt")}
    fields["topics"] = {"include": [pattern_of(topic) for topic in sorted(wave.topics)], **kept}
    if adopted := [topic for topic in plan.topics.adopt if topic in wave.topics]:
        fields["topics"]["adopt"] = adopted
    if "stopped_groups" in fields.get("cutover", {}):
        fields["cutover"]["stopped_groups"] = [group for group in plan.cutover.stopped_groups if group in wave.groups]
    if isinstance(fields.get("naming"), dict):
        named = {topic: name for topic, name in fields["naming"].get("topics", {}).items() if topic in wave.topics}
        rest = {**fields["naming"], "topics": named}
        fields["naming"] = rest if named or rest.get("prefix") else "identity"
    if wave.groups:
        fields["groups"] = {"include": [pattern_of(group) for group in sorted(wave.groups)]}
    else:
        for name in ("groups", "consumers"):
            fields.pop(name, None)
    return fields
