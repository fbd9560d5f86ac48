"""What is to be done with each target topic, found out without changing anything: the steps of ``create``."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.direction import SOURCE
from kafka_migration.domain.errors import NotAuthorized
from kafka_migration.domain.lifecycle import COPIED_AGAIN, CREATED, INTENDED
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import TopicSpec
from kafka_migration.kafka.errors import BrokerRefused, NotSupported, TopicExists
from kafka_migration.kafka.types import ConfigValue, TopicDescription
from kafka_migration.topics import keeping
from kafka_migration.topics.specs import HELD_OPEN, OLD_BOUND, Declared, TargetDefaults, declare, explicit, fitted

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.state.store import Store

KIND = CREATED
INTENT = INTENDED
#: A topic that is being copied again: neither it nor the new one may be recorded as created meanwhile.
AGAIN = COPIED_AGAIN

#: Under it a restored topic's record keeps what it was declared with while mirroring, in case it is mirrored again.
HELD = "held_open"

#: In an intent, the id of the topic that is about to be adopted; without it, one is about to be created.
ADOPTS = "adopts"

#: Configs of a target topic that must stay as they are until completion.
KEPT_OPEN = frozenset({*HELD_OPEN, OLD_BOUND})


class Action(enum.StrEnum):
    """What is to be done with one target topic."""

    CREATE = "create"
    ADOPT = "adopt"
    KEEP = "keep"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStep:
    """One target topic and what is to be done with it; ``problem`` is why it cannot be, and ``remedy`` what helps.
    ``is_filled``: the problem is that it holds records, which `adopt` compares with the source's."""

    action: Action
    declared: Declared
    problem: str = ""
    remedy: str = ""
    is_filled: bool = False

    @property
    def name(self) -> str:
        """The topic, named alike on both clusters."""
        return self.declared.spec.name

    def __str__(self) -> str:
        """One line for people: the same in a dry run and in earnest."""
        spec = self.declared.spec
        configs = ", ".join(f"{name}={value}" for name, value in sorted(spec.configs.items()))
        left = "".join(f"; without {name} ({why})" for name, why in sorted(self.declared.left_out.items()))
        replaced = ", ".join(f"{name}={value}" for name, value in self.declared.replaced.items())
        return (
            f"{self.action} topic {spec.name}: {spec.partitions} partitions, replication {spec.replication_factor},"
            f" {configs}{left}" + (f"; instead of {replaced}" if replaced else "")
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "topic": self.name,
            "action": str(self.action),
            "problem": self.problem,
        } | self.declared.as_dict()


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Something about a topic that is not as declared."""

    topic: str
    what: str
    declared: str
    observed: str

    @property
    def endangers_records(self) -> bool:
        """Whether what was copied may be gone, or go: the topic is another one, or the target may delete records."""
        return self.what in ("topic", "topic id", "source topic", "source topic id") or self.what in KEPT_OPEN

    def __str__(self) -> str:
        return f"{self.topic}: {self.what} is {self.observed}, declared {self.declared}"

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return {"topic": self.topic, "what": self.what, "declared": self.declared, "observed": self.observed}


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """What the journal holds of topics, by name: those created or adopted, and those that a run was about to create."""

    created: Mapping[str, Mapping[str, Any]]
    intents: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, ctx: Context) -> Notes:
        """As they are now, in two reads for all topics."""
        return cls(created=ctx.journal.all(KIND), intents=ctx.journal.all(INTENT))


def mirrored(ctx: Context) -> dict[str, dict[str, Any]]:
    """The records of topics in scope that this migration created or adopted, and that its plan still means.

    One that was excluded since is not mirrored, compared or waited for any more; this migration holds it all the same.
    """
    return {name: record for name, record in ctx.journal.all(KIND).items() if ctx.selects_topic(name)}


def topic_ids(ctx: Context, names: Iterable[str]) -> dict[str, list[str | None]]:
    """Ids of topics on source and target now, None where there is no such topic."""
    wanted = sorted(names)
    sides = [cluster.topics(wanted) for cluster in (ctx.source, ctx.target)]
    return {name: [side[name].topic_id if name in side else None for side in sides] for name in wanted}


def left_over(ctx: Context) -> dict[str, dict[str, Any]]:
    """The records of topics that were excluded from the plan since, and that still are this migration's: it holds
    them, and they are there as it created or adopted them."""
    records = {name: record for name, record in ctx.journal.all(KIND).items() if not ctx.plan.topics.matches(name)}
    holders, there = ctx.journal.holders(records), ctx.target.topics(records)
    held = (name for name in records if holders.get(name) == ctx.journal.migration and name in there)
    return {name: records[name] for name in held if records[name]["topic_id"] == there[name].topic_id}


def is_restored(record: Mapping[str, Any]) -> bool:
    """Whether a topic, by its record in the journal, has its source's configs again, retention included."""
    return HELD in record


def steps(
    ctx: Context, *, only: Collection[str] | None = None, compared: Collection[str] = ()
) -> tuple[TopicStep, ...]:
    """One step per topic of the plan (or of those in ``only``), each with its problem if it has one. Those that were
    ``compared`` with the source's may hold records."""
    source, plan = ctx.source, ctx.plan
    shown = source.topics() if only is None else source.topics(only)
    described = {name: topic for name, topic in sorted(shown.items()) if plan.topics.matches(name)}
    configs = keeping.own(ctx, source.topic_configs(described))
    existing = ctx.target.topics(described)
    holders = ctx.journal.holders(described)
    factor = plan.topic_defaults.replication_factor
    defaults = _target_defaults(ctx)
    notes = Notes.of(ctx)
    declarations = [
        declare(
            topic,
            configs[name],
            replication_factor=None if factor == "source" else factor,
            defaults=defaults,
        )
        for name, topic in described.items()
    ]
    absent = [declared.spec for declared in declarations if declared.spec.name not in existing]
    world = _World(
        holders=holders,
        existing=existing,
        notes=notes,
        creatable=_creatable(ctx, absent),
        # A topic that keeps its name is there already, and could not be created.
        alike=_alike(ctx, described),
        came_back={} if plan.topic_names.are_same else _from_target(ctx, described),
        compared=compared,
    )
    return tuple(_step(ctx, declared, configs[declared.spec.name], world) for declared in declarations)


@dataclass(frozen=True, slots=True, kw_only=True)
class _World:
    """What the target and the journal show of all topics of a plan: which migration holds them, those that exist,
    those that the target would create exactly as they are declared, the links by which some came from there, and of
    topics that would share a name on the target the others. ``compared`` are those whose records are known."""

    holders: Mapping[str, str]
    existing: Mapping[str, TopicDescription]
    notes: Notes
    creatable: frozenset[str]
    came_back: Mapping[str, str] = field(default_factory=dict)
    alike: Mapping[str, Collection[str]] = field(default_factory=dict)
    compared: Collection[str] = ()


def _step(ctx: Context, declared: Declared, configs: Mapping[str, ConfigValue], world: _World) -> TopicStep:
    name = declared.spec.name
    if name in world.came_back and name not in world.notes.created:
        return TopicStep(
            action=Action.CREATE,
            declared=declared,
            problem=f"link {world.came_back[name]} copies it from the target, so it would go back there",
            remedy="leave it out (topics.exclude), with all that this migration renames, such as by its prefix",
        )
    if others := world.alike.get(name):
        return TopicStep(
            action=Action.CREATE,
            declared=declared,
            problem=f"{listed(others)} would be called {ctx.target.topic_here(name)} on the target, too",
            remedy="give each a name of its own (naming)",
        )
    holder = world.holders.get(name, ctx.journal.migration)
    if holder != ctx.journal.migration:
        return TopicStep(
            action=Action.CREATE,
            declared=declared,
            problem=f"migration {holder} holds it",
            remedy="`release` the plan of that migration once it is done with, or exclude the topic here",
        )
    if name in world.existing:
        step = existing_step(ctx, declared, world.existing[name], ctx.plan.topics.adopt, world.notes, world.compared)
        # An adoption that was interrupted has noted how the topic was before.
        is_new = step.action is Action.ADOPT and not step.problem and step.declared is declared
        return _adopted(ctx, declared, configs) if is_new else step
    if name in world.notes.created:
        return TopicStep(
            action=Action.KEEP,
            declared=declared,
            problem="this migration created it, and it is gone from the target",
            remedy="find out who deleted it; what the mirror had copied into it is lost",
        )
    if name in world.creatable:
        return TopicStep(action=Action.CREATE, declared=declared)
    return _fitting(ctx, Action.CREATE, declared, configs, ctx.target.refused_configs)


def _from_target(ctx: Context, topics: Mapping[str, TopicDescription]) -> dict[str, str]:
    """Those of the source's ``topics`` that a link copies there from the target, by its name: by a migration with other
    names for them, they would go back, be copied again under longer names, and so on for ever. A link keeps its state
    on the cluster that it begins by writing to, so the source knows; topics are recognised by their ids. A link that
    is sealed copies nothing any more.

    Raises NotAuthorized, or ClusterUnreachable, where that state cannot be read.
    """
    # Imported here: it reads a topic, and who asks for help loads no client.
    from kafka_migration.domain import ledger
    from kafka_migration.kafka.topic_log import TopicLog
    from kafka_migration.state.store import TopicStore

    with closing(TopicLog(ctx.source.connection.librdkafka(), ledger.LINKS_TOPIC, role=SOURCE)) as log:
        if not log.exists(is_written=False):
            return {}
        with closing(TopicStore(log)) as store:
            copied = _copied(store, source=ctx.target.cluster_id(), target=ctx.source.cluster_id())
    return {name: copied[topic.topic_id] for name, topic in topics.items() if topic.topic_id in copied}


def _copied(links: Store, *, source: str, target: str) -> dict[str, str]:
    """Links by the ids of the topics that they write to, of those from ``source`` to ``target`` (ids of clusters)."""
    from kafka_migration.domain import ledger

    found: dict[str, str] = {}
    keys = links.keys("")
    for link in (key for key in keys if "/" not in key):
        pinned = links.get(link) or {}
        if (pinned.get("source_cluster"), pinned.get("target_cluster")) != (source, target):
            continue
        if (links.get(ledger.link_key(link, "seal").decode()) or {}).get("ends"):
            # Complete: it copies nothing any more.
            continue
        for value in links.items(ledger.link_key(link, "topic", "").decode()).values():
            if value["target_id"]:
                found[value["target_id"]] = link
    return found


def _alike(ctx: Context, topics: Iterable[str]) -> dict[str, list[str]]:
    by_name: dict[str, list[str]] = {}
    for topic in topics:
        by_name.setdefault(ctx.target.topic_here(topic), []).append(topic)
    return {
        topic: [other for other in alike if other != topic]
        for alike in by_name.values()
        if len(alike) > 1
        for topic in alike
    }


def _creatable(ctx: Context, specs: list[TopicSpec]) -> frozenset[str]:
    try:
        return ctx.target.creatable(specs)
    except (NotAuthorized, BrokerRefused):
        # Then each is asked for alone, with what is wrong with it.
        return frozenset()


def differences(spec: TopicSpec, topic: TopicDescription, configs: Mapping[str, ConfigValue]) -> tuple[Drift, ...]:
    """How a topic differs from its declaration, explicit configs included that were never declared."""
    observed = {name: c.value or "" for name, c in configs.items() if c.is_explicit}
    pairs = [
        ("partitions", str(spec.partitions), str(topic.partitions)),
        ("replication factor", str(spec.replication_factor), str(topic.replication_factor)),
        *((name, spec.configs.get(name, "unset"), observed.get(name, "unset")) for name in spec.configs | observed),
    ]
    return tuple(
        Drift(topic=spec.name, what=what, declared=declared, observed=seen)
        for what, declared, seen in pairs
        if declared != seen
    )


def source_drift(
    record: Mapping[str, Any], topic: TopicDescription, configs: Mapping[str, ConfigValue]
) -> tuple[Drift, ...]:
    """What changed on the source since the topic's target was declared."""
    observed = explicit(configs)
    declared = record["configs_source"]
    pairs = [
        ("source topic id", record["source_topic_id"], topic.topic_id),
        ("source partitions", str(record["spec"]["partitions"]), str(topic.partitions)),
        *((f"source's {n}", declared.get(n, "unset"), observed.get(n, "unset")) for n in declared | observed),
    ]
    return tuple(
        Drift(topic=topic.name, what=what, declared=then, observed=now) for what, then, now in pairs if then != now
    )


def _target_defaults(ctx: Context) -> TargetDefaults:
    try:
        return TargetDefaults.of(ctx.target.broker_configs())
    except (NotAuthorized, NotSupported):
        return TargetDefaults()


def _adopted(ctx: Context, declared: Declared, configs: Mapping[str, ConfigValue]) -> TopicStep:
    name = declared.spec.name
    before = explicit(ctx.target.topic_configs([name])[name])
    return _fitting(ctx, Action.ADOPT, replace(declared, before=before), configs, ctx.target.refused_changes)


def _fitting(
    ctx: Context,
    action: Action,
    declared: Declared,
    configs: Mapping[str, ConfigValue],
    refused_by: Callable[[TopicSpec], Mapping[str, str]],
) -> TopicStep:
    """The step with what the target takes of a declaration, or with what keeps it from taking it."""

    def with_problem(problem: str, remedy: str) -> TopicStep:
        return TopicStep(action=action, declared=declared, problem=problem, remedy=remedy)

    here = ctx.target.topic_here(declared.spec.name)
    try:
        declared = fitted(declared, configs, refused_by)
    except BrokerRefused as error:
        remedy = "see topic_defaults of the plan"
        if {".", "_"} & set(here):
            remedy += ", or, where the name collides with another one's by dot and underscore, exclude the topic"
        return with_problem(f"the target refuses it: {error.reason}", remedy)
    except NotAuthorized as error:
        return with_problem(error.message, error.remedy)
    except TopicExists:
        return with_problem("it appeared on the target just now", "find out who created it, then run this again")
    if declared.refused:
        reasons = "; ".join(f"{name}: {why}" for name, why in sorted(declared.refused.items()))
        return with_problem(
            f"the target does not take its configs: {reasons}",
            "delete these configs on the source topic if they are not needed, or exclude the topic",
        )
    return TopicStep(action=action, declared=declared)


def existing_step(
    ctx: Context,
    declared: Declared,
    topic: TopicDescription,
    adopt: Collection[str],
    notes: Notes,
    compared: Collection[str] = (),
) -> TopicStep:
    """The step for a topic that the target has: ours, ours from an interrupted run, to be adopted, or a stranger's.

    ``adopt`` are those that may be used although this migration did not create them; of these, ``compared`` may hold
    records.
    """
    record = notes.created.get(topic.name)
    if record is not None:
        kept = Declared.from_dict(topic.name, record)
        if record["topic_id"] == topic.topic_id:
            return TopicStep(action=Action.KEEP, declared=kept)
        return TopicStep(
            action=Action.KEEP,
            declared=kept,
            problem="this migration created it, and it was recreated since",
            remedy="find out who recreated it; what the mirror had copied into the first one is lost",
        )
    intent = notes.intents.get(topic.name)
    if intent is not None and ADOPTS in intent:
        if intent[ADOPTS] == topic.topic_id:
            return _foreign(ctx, Declared.from_dict(topic.name, intent), topic, (topic.name,), compared)
    elif intent is not None:
        meant = Declared.from_dict(topic.name, intent)
        different = differences(meant.spec, topic, ctx.target.topic_configs([topic.name])[topic.name])
        if not different and _is_empty(ctx, topic):
            return TopicStep(action=Action.CREATE, declared=meant)
        problem = "; ".join(map(str, different)) or "it holds records"
        return TopicStep(
            action=Action.CREATE,
            declared=meant,
            problem=f"it exists, and is not what an interrupted run was about to create: {problem}",
            remedy="find out who created it; if nobody needs it, delete it and run this again",
        )
    return _foreign(ctx, declared, topic, adopt, compared)


def _foreign(
    ctx: Context,
    declared: Declared,
    topic: TopicDescription,
    adopt: Collection[str],
    compared: Collection[str],
) -> TopicStep:
    problem, remedy, is_filled = "", "", False
    here = ctx.target.topic_here(topic.name)
    it = "it" if here == topic.name else here
    if topic.name not in adopt:
        problem, remedy = (
            f"{it} exists on the target, and this migration did not create it",
            f"delete {it} there, exclude the topic, or list it under topics.adopt (empty, or filled by MirrorMaker)",
        )
    elif topic.partitions != declared.spec.partitions:
        problem, remedy = (
            f"the plan adopts it, but it has {topic.partitions} partitions, and its source {declared.spec.partitions}",
            "delete it, or give it as many partitions as its source has",
        )
    elif topic.name not in compared and not _is_empty(ctx, topic):
        is_filled = True
        problem, remedy = (
            "the plan adopts it, but it holds records",
            f"`adopt` takes {it} over if MirrorMaker has filled it; else delete {it} on the target, or empty it",
        )
    return TopicStep(action=Action.ADOPT, declared=declared, problem=problem, remedy=remedy, is_filled=is_filled)


def _is_empty(ctx: Context, topic: TopicDescription) -> bool:
    return all(log.start == log.end for log in ctx.target.ends(topic.topic_partitions).values())
