"""A first plan, proposed from what two clusters hold: which topics, groups and waves, and why others are left out.

Only reads. What a person has to put right on a cluster (a permission, a policy) stays in the plan, for `check` to
name; left out is what no plan can move: a topic that the target has already (unless it is empty, and may be adopted),
one that another migration holds, and a group that also reads a topic that is left out.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import ValidationError

from kafka_migration.domain.amounts import size
from kafka_migration.domain.errors import BadInput, NotAuthorized
from kafka_migration.domain.listing import listed
from kafka_migration.groups.looks import MOVABLE_PROTOCOLS
from kafka_migration.inventory.facts import Facts
from kafka_migration.kafka.facts import GroupFacts, Inventory, TopicFacts
from kafka_migration.plans.load import LARGEST_PLAN_BYTES, parse_plan, restore_plan
from kafka_migration.plans.model import Plan
from kafka_migration.plans.patterns import Selection, matches_any, pattern_of
from kafka_migration.waves import order

if TYPE_CHECKING:
    from kafka_migration.kafka.types import TopicDescription
    from kafka_migration.migration.context import Context

#: Topics and groups that belong to a tool, and are not an application's, with what they are.
_TOPICS_OF_TOOLS = (
    (r"(.*\.)?heartbeats|mm2-.*", "MirrorMaker's own"),
    (r"_confluent.*|confluent\..*", "Confluent's own"),
    (
        r"(.*[-_.])?(connect|mirrormaker2)([-_.].*)?[-_.](configs?|offsets?|status)",
        "the state of Kafka Connect, whose workers on the target make their own",
    ),
    (r"_schemas", "the state of a schema registry, whose schemas are copied by its own API"),
)
_GROUPS_OF_TOOLS = (
    (r"console-consumer-.*", "a console consumer"),
    (r"_confluent.*", "Confluent's own"),
    (r"connect-.*", "a sink connector's: deploy it on the target, and add its group here"),
)
#: More than that is moved in waves.
_MANY_TOPICS = 100
_MANY_GROUPS = 50
_WIDTH = 116

#: Every name, one with a line break in it, too.
_ALL = ("(?s:.*)",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a person chose: ``topics`` and ``groups`` by patterns, empty for all that applications have; ``consumers``
    as the plan has it."""

    name: str
    source: str
    target: str
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    consumers: Mapping[str, Any] = field(default_factory=dict)

    def plan(self) -> Plan:
        """The plan of all that may be proposed."""
        topics, groups = {"include": list(self.topics or _ALL)}, {"include": list(self.groups or _ALL)}
        return restore_plan(self.head() | {"topics": topics, "groups": groups})

    def head(self) -> dict[str, Any]:
        """The fields with which a plan begins."""
        return {"version": 1, "name": self.name, "source": self.source, "target": self.target}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A plan's ``fields`` in JSON types. ``comments`` stand above a field, at the beginning (""), or at the end
    ("end"); ``items`` beside the patterns of an ``include``. ``left_out``: why each topic and group is not in it."""

    fields: Mapping[str, Any]
    comments: Mapping[str, Sequence[str]]
    items: Mapping[str, Sequence[str]]
    left_out: Mapping[str, Mapping[str, str]]

    @property
    def plan(self) -> Plan:
        """The plan that the text holds."""
        return restore_plan(self.fields)

    def text(self) -> str:
        """The plan's file. Raises BadInput for one that is larger than a plan may be."""
        found = self._text(self.comments, self.items)
        if len(found.encode()) > LARGEST_PLAN_BYTES:
            found = self._text({"": self.comments.get("", ())}, {})
        if len(found.encode()) > LARGEST_PLAN_BYTES:
            remedy = "select topics and groups by patterns, with --topic and --group, or make several plans"
            raise BadInput(
                f"the plan would be larger than {LARGEST_PLAN_BYTES:,} bytes", field="--topic", remedy=remedy
            )
        if parse_plan(found) != self.plan:
            raise AssertionError("the comments of the proposed plan change it")
        return found

    def _text(self, comments: Mapping[str, Sequence[str]], items: Mapping[str, Sequence[str]]) -> str:
        lines = [*_commented(comments.get("", ()))]
        for name, value in self.fields.items():
            lines += _commented(comments.get(name, ()))
            if name in ("topics", "groups"):
                lines += _selected(name, value, items.get(name, ()))
            else:
                lines += str(yaml.safe_dump({name: value}, sort_keys=False, width=math.inf)).splitlines()
        lines += _commented(comments.get("end", ()))
        return "\n".join(lines) + "\n"


def _selected(name: str, value: Mapping[str, Sequence[str]], notes: Sequence[str]) -> Iterator[str]:
    yield f"{name}:"
    for part, patterns in value.items():
        yield f"  {part}:"
        for at, pattern in enumerate(patterns):
            # Quoted where a line break would tear it apart.
            style = None if pattern.isprintable() else '"'
            item = yaml.safe_dump([pattern], width=math.inf, default_style=style).rstrip("\n")
            note = f"  # {_plain(notes[at])}" if part == "include" and at < len(notes) else ""
            yield f"    {item}{note}"


def _commented(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        indent = "  " if line.startswith("- ") else ""
        for part in textwrap.wrap(
            _plain(line), _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ):
            yield f"# {part}"


def _plain(text: str) -> str:
    """What is no character of a YAML comment as its code: whoever names groups is free to."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def propose(ctx: Context, wish: Wish) -> Proposal:
    """A plan for ``wish``, on what the clusters of ``ctx`` hold, whose plan is that of the wish.

    Raises BadInput if both are one cluster or no topic is left to be migrated, and what the clusters raise.
    """
    if ctx.source.cluster_id() == ctx.target.cluster_id():
        raise BadInput("is the cluster of the source", field="--target", remedy="give another cluster's address")
    shown, there = ctx.source.topics(), ctx.target.topics()
    chosen, left = _topics(ctx, wish, shown, there)
    adopted = [name for name in chosen if name in there]
    groups, stay = _groups(ctx, wish)
    fields: dict[str, Any] = wish.head()
    fields["topics"] = _selection(wish.topics, chosen, left)
    if adopted:
        fields["topics"]["adopt"] = adopted
    brokers, replicas = ctx.target.broker_count(), max(shown[name].replication_factor for name in chosen)
    if replicas > brokers:
        fields["topic_defaults"] = {"replication_factor": brokers}
    narrowed = fields | ({"groups": _selection(wish.groups, groups, stay)} if groups else {})
    taken = Facts(replace(ctx, plan=restore_plan(narrowed))).inventory
    stay |= _staying(wish, taken)
    groups = [name for name in groups if name in taken.groups and name not in stay]
    if groups:
        fields["groups"] = _selection(wish.groups, groups, stay)
    if len(chosen) > _MANY_TOPICS or len(groups) > _MANY_GROUPS:
        fields |= _waves(fields, wish, taken)
    if groups and wish.consumers:
        fields["consumers"] = dict(wish.consumers)
    moving = [taken.groups[name] for name in groups]
    on_groups = [
        *_matched("groups", wish.groups, groups),
        *_left("groups", stay),
        *_torn(moving),
        *_uncommitted(moving),
    ]
    return Proposal(
        fields=fields,
        comments={
            "": _head(ctx, taken, brokers),
            "topics": [*_matched("topics", wish.topics, chosen), *_left("topics", left)],
            "groups": on_groups,
            "topic_defaults": [
                f"Topics have up to {replicas} replicas, and the target has {brokers} brokers.",
                "This number is that of every topic, also of those with fewer replicas.",
            ],
            "waves": ["One after another, each with its own approval; what shares a group or a transaction is in one."],
            "consumers": [
                "How consumers are stopped on the source and started on the target, and back (docs/plan.md, Choose).",
                "Correct it where units, deployments or numbers of replicas are others.",
            ],
            "end": [*(() if groups else on_groups), *_producers(taken.topics.values())],
        },
        items={
            "topics": () if wish.topics else [_topic(taken.topics.get(name)) for name in chosen],
            "groups": () if wish.groups else [_group(group) for group in moving],
        },
        left_out={"topics": left, "groups": stay},
    )


def _topics(
    ctx: Context, wish: Wish, shown: Mapping[str, TopicDescription], there: Mapping[str, TopicDescription]
) -> tuple[list[str], dict[str, str]]:
    """The topics to mirror, and those that are left out, with why. Raises BadInput if none is to be mirrored."""
    include = wish.topics or _ALL
    wanted = [name for name, topic in sorted(shown.items()) if matches_any(include, name) and not topic.is_internal]
    if not wanted:
        raise BadInput(
            "the source shows no such topic to this principal",
            field="--topic",
            value=", ".join(wish.topics) or None,
            remedy="a pattern matches the whole name; the principal needs Describe on the topics",
        )
    held = ctx.journal.held_elsewhere(wanted)
    left: dict[str, str] = {}
    for name in wanted:
        if not ctx.plan.topics.matches(name):
            left[name] = "internal, by its name (topics.internal of a plan)"
        elif (why := _of_tool(_TOPICS_OF_TOOLS, name)) and not _is_spelled(wish.topics, name):
            left[name] = why
        elif name in held:
            left[name] = f"migration {held[name]} holds it"
        elif name in there and (why := _not_adopted(ctx, there[name], shown[name])):
            left[name] = why
    chosen = [name for name in wanted if name not in left]
    if not chosen:
        reasons = listed((f"{name}: {why}" for name, why in left.items()), separator="; ")
        raise BadInput(f"no topic is left to be migrated: {reasons}", field="--topic", remedy="name others")
    return chosen, left


def _not_adopted(ctx: Context, there: TopicDescription, here: TopicDescription) -> str:
    """Why a topic of the target cannot be the copy of the source's; "" if it can."""
    if there.partitions != here.partitions:
        return "the target has it, with another number of partitions"
    try:
        ends = ctx.target.ends(there.topic_partitions).values()
    except NotAuthorized:
        return "the target has it, and does not show whether it is empty"
    return "the target has it, with records" if any(log.end > log.start for log in ends) else ""


def _groups(ctx: Context, wish: Wish) -> tuple[list[str], dict[str, str]]:
    """Groups that may be looked at, and those that may not, or are a tool's, with why."""
    wanted = [name for name in sorted(ctx.source.groups()) if ctx.plan.groups.matches(name)]
    stay: dict[str, str] = {}
    for name in wanted:
        if (why := _of_tool(_GROUPS_OF_TOOLS, name)) and not _is_spelled(wish.groups, name):
            stay[name] = why
        elif not _can_be_selected(name):
            stay[name] = "no pattern can have its name"
    asked = [name for name in wanted if name not in stay]
    try:
        ctx.source.group_states(asked)
    except NotAuthorized:
        for name in asked:
            try:
                ctx.source.group_states([name])
            except NotAuthorized:
                stay[name] = "the source's principal may not describe it"
    return [name for name in asked if name not in stay], stay


def _staying(wish: Wish, taken: Inventory) -> dict[str, str]:
    """Groups that are not moved for what they are, or read, with why."""
    stay: dict[str, str] = {}
    for name, group in sorted(taken.groups.items()):
        if group.protocol not in MOVABLE_PROTOCOLS:
            stay[name] = f"a {group.protocol} group, whose state is not only committed offsets"
        elif not group.topics:
            closed = group.lag is None
            stay[name] = "what it reads could not be found out" if closed else "reads none of these topics"
        elif group.outside and not wish.groups:
            stay[name] = f"also reads {listed(sorted(group.outside))}, which this plan does not mirror"
    return stay


def _of_tool(table: Iterable[tuple[str, str]], name: str) -> str:
    return next((why for pattern, why in table if re.fullmatch(pattern, name)), "")


def _is_spelled(patterns: Collection[str], name: str) -> bool:
    """Whether somebody asked for exactly this one."""
    return name in patterns or pattern_of(name) in patterns


def _can_be_selected(name: str) -> bool:
    try:
        Selection(include=(pattern_of(name),))
    except ValidationError:
        return False
    return True


def _selection(patterns: Sequence[str], chosen: Iterable[str], left: Iterable[str]) -> dict[str, list[str]]:
    """By the patterns that were given, less what is left out of them; or else name by name."""
    if not patterns:
        return {"include": [pattern_of(name) for name in chosen]}
    excluded = [pattern_of(name) for name in left if _can_be_selected(name)]
    # A name that was asked for and is left out would stand in both.
    included = [pattern for pattern in patterns if pattern not in excluded]
    return {"include": included} | ({"exclude": excluded} if excluded else {})


def _waves(fields: Mapping[str, Any], wish: Wish, taken: Inventory) -> dict[str, Any]:
    """The plan's section of waves; nothing where all hangs together. A Streams application that is not moved as a group
    keeps its topics together all the same."""
    auto = {"waves": {"auto": {"most_topics": _MANY_TOPICS, "most_groups": _MANY_GROUPS}}}
    plan = restore_plan({**fields, **auto})
    found = order.waves_of(plan, taken)
    if len(found.waves) < 2:
        return {}
    # Topics that come later, and match, join computed waves alone.
    return auto if wish.topics else {"waves": order.as_given(plan, found)}


def _head(ctx: Context, taken: Inventory, brokers: int) -> list[str]:
    def cluster(servers: str, cluster_id: str, count: int) -> str:
        return f"{servers} (cluster {cluster_id}, {count} {'broker' if count == 1 else 'brokers'})"

    return [
        f"Proposed by `init` on {ctx.clock.now():%Y-%m-%d %H:%M} UTC, from what was there then.",
        f"source: {cluster(ctx.source.connection.servers, taken.cluster_id, taken.brokers)}",
        f"target: {cluster(ctx.target.connection.servers, ctx.target.cluster_id(), brokers)}",
        "Each field that a plan can have is explained in migration_plans/reference.yaml.",
    ]


def _matched(what: str, patterns: Sequence[str], chosen: Collection[str]) -> Iterator[str]:
    if patterns:
        yield f"These match: {', '.join(chosen) or 'none'} ({len(chosen)} {what})"


def _left(what: str, left: Mapping[str, str]) -> Iterator[str]:
    """Every name with why it is left out; those of one reason together."""
    if left:
        yield f"Left out ({len(left)} {what}):"
    reasons: dict[str, list[str]] = {}
    for name, why in left.items():
        reasons.setdefault(why, []).append(name)
    yield from (f"- {', '.join(names)}: {why}" for why, names in reasons.items())


def _topic(topic: TopicFacts | None) -> str:
    if topic is None:
        return "deleted meanwhile"
    amount = f"{topic.offsets:,} offsets" if topic.bytes is None else size(topic.bytes)
    return f"{topic.partitions} partitions, {amount}, {topic.records_per_second:,.0f} records/s"


def _group(group: GroupFacts) -> str:
    members = f"{len(group.members)} members" if group.members else "no members now"
    lag = "" if group.lag is None else f", lag {group.lag:,}"
    return f"{group.protocol}, {members}{lag}, reads {listed(sorted(group.topics))}"


def _torn(groups: Iterable[GroupFacts]) -> Iterator[str]:
    if torn := [f"{group.name} ({', '.join(sorted(group.outside))})" for group in groups if group.outside]:
        yield f"These also read topics that this plan does not mirror, and will not find them: {', '.join(torn)}."


def _uncommitted(groups: Iterable[GroupFacts]) -> Iterator[str]:
    if found := [f"{group.name} ({listed(group.uncommitted)})" for group in groups if group.uncommitted]:
        yield (
            f"These have never committed some partitions: {', '.join(found)}. cutover refuses them, unless they commit"
            " there until then, or cutover.uncommitted is earliest or cut."
        )


def _producers(topics: Collection[TopicFacts]) -> Iterator[str]:
    known = [topic.producers for topic in topics if topic.producers is not None]
    seen = "Who writes these topics could not be found out."
    if len(known) == len(topics):
        written, in_transactions = sum(one.active > 0 for one in known), sum(one.transactional > 0 for one in known)
        seen = f"Leaders remember producers of {written} of these topics, and transactional ones of {in_transactions}."
    yield (
        f"{seen} Producers leave the source by themselves, unless a section `producers` has them switched"
        " (docs/producers.md)."
    )
