"""The waves of a plan: those that it gives, or computed ones. Pure and deterministic, from an inventory.

Order and contents of computed waves go by what does not move by itself (topics, partitions, groups), so that what was
approved is still so when it is asked again; sizes in bytes count only where the plan limits them.

Also a plan for each wave, for producers that are to move wave by wave: `switch` moves the producers of a whole plan,
since a link is sealed as a whole. A wave whose producers move, and come back, by themselves is a migration of its own:
its own topics and their locks, its own mirror, fence and way back. Migrations onto one target stay out of each other's
way already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_migration.domain.errors import BadInput, Refused
from kafka_migration.domain.listing import listed
from kafka_migration.kafka.facts import Inventory
from kafka_migration.plans.model import Plan
from kafka_migration.plans.patterns import matches_any, pattern_of
from kafka_migration.plans.waves import AutoWaves, GivenWave
from kafka_migration.waves.links import Kind, Link, Part, chain, links_of, parts_of

CANARY, NAMED = "canary", "wave-{}"
#: The one wave of a plan without waves: not a name that a wave may have.
WHOLE = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Topics and groups that move together."""

    name: str
    topics: frozenset[str]
    groups: frozenset[str] = frozenset()
    canary: bool = False

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "name": self.name,
            "topics": sorted(self.topics),
            "groups": sorted(self.groups),
            "canary": self.canary,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Spanning:
    """A link that ``waves``, in their order, share. ``waived``: the plan lets it."""

    link: Link
    waves: tuple[str, ...]
    waived: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Waves:
    """All waves in their order, and what the plan and the source disagree about.

    ``homeless`` topics are in no wave, ``doubled`` topics and groups in several (by name); each stands in the first one
    all the same. ``oversized`` waves hold one part that is larger than the limits (by name: which limits). ``settled``:
    they were computed before, and stay, even those whose topics or groups are gone.
    """

    waves: tuple[Wave, ...]
    links: tuple[Link, ...]
    spanning: tuple[Spanning, ...] = ()
    homeless: tuple[str, ...] = ()
    doubled_topics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    doubled_groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    oversized: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    settled: bool = False

    def wave_of(self, topic: str) -> Wave | None:
        """The wave of a topic; None if it has none."""
        return next((wave for wave in self.waves if topic in wave.topics), None)

    def named(self, name: str) -> Wave | None:
        """The wave of this name; None if there is none."""
        return next((wave for wave in self.waves if wave.name == name), None)

    def why(self, topic: str) -> dict[str, tuple[Link, ...]]:
        """The topics that cannot move apart from ``topic``, each with the links that lead to it."""
        torn = {one.link.key for one in self.spanning if one.waived}
        holding = [link for link in self.links if link.key not in torn]
        part = next(
            part for part in parts_of({topic}.union(*(one.topics for one in holding)), holding) if topic in part.topics
        )
        return {other: chain(holding, topic, other) for other in sorted(part.topics - {topic})}


def waves_of(
    plan: Plan,
    taken: Inventory,
    *,
    remembered: Mapping[str, Set[str]] | None = None,
    before: Sequence[Wave] = (),
) -> Waves:
    """The waves of ``plan`` on what ``taken`` shows. ``remembered`` as :func:`links_of` has it. ``before``: waves that
    were computed before, which stay as they are; topics that came since join the last one that a link leads to, or else
    the last of all."""
    links = links_of(taken, remembered=remembered)
    given = plan.waves
    if given is None:
        whole = Wave(name=WHOLE, topics=frozenset(taken.topics), groups=frozenset(taken.groups))
        return Waves(waves=(whole,), links=links)
    waived = {
        link.key
        for link in links
        if link.name in (given.spanning_transactions if link.kind is Kind.TRANSACTION else given.spanning_groups)
    }
    if given.auto is not None:
        found = _kept(before, taken, links) if before else _computed(given.auto, taken, links, waived)
    else:
        found = _given(given.given, taken, links)
    return replace(found, spanning=tuple(_spanning(found, links, waived)))


def as_given(plan: Plan, found: Waves) -> dict[str, Any]:
    """The section ``waves`` of a plan that names the waves ``found``: each topic by its name, groups by what they read.
    JSON types. What the plan waives stays waived."""
    waves: list[dict[str, Any]] = []
    for wave in found.waves:
        topics = [pattern_of(topic) for topic in sorted(wave.topics)]
        # A settled wave whose topics are gone has nothing left to be named by, or to be moved.
        if topics:
            waves.append({"name": wave.name or "all", "topics": topics, **({"canary": True} if wave.canary else {})})
    waived = plan.waves.model_dump(include={"spanning_groups", "spanning_transactions"}) if plan.waves else {}
    return {"given": waves, **{field: list(names) for field, names in waived.items() if names}}


def _given(given: Sequence[GivenWave], taken: Inventory, links: tuple[Link, ...]) -> Waves:
    at_topics = {topic: [w.name for w in given if matches_any(w.topics, topic)] for topic in taken.topics}
    at_groups = {group: [w.name for w in given if matches_any(w.groups, group)] for group in taken.groups}
    homes = {topic: names[0] for topic, names in at_topics.items() if names}
    chosen = {group: names[0] for group, names in at_groups.items() if names}
    bare = [Wave(name=w.name, topics=_of(homes, w.name), canary=w.canary) for w in given]
    return Waves(
        waves=_with_groups(bare, taken, links, chosen),
        links=links,
        homeless=tuple(sorted(taken.topics.keys() - homes.keys())),
        doubled_topics={topic: tuple(names) for topic, names in sorted(at_topics.items()) if len(names) > 1},
        doubled_groups={group: tuple(names) for group, names in sorted(at_groups.items()) if len(names) > 1},
    )


def _of(homes: Mapping[str, str], wave: str) -> frozenset[str]:
    return frozenset(name for name, home in homes.items() if home == wave)


def _with_groups(
    bare: Sequence[Wave], taken: Inventory, links: Iterable[Link], chosen: Mapping[str, str]
) -> tuple[Wave, ...]:
    """``bare`` waves with their groups: where the plan puts them, or else with the last topic that they read, when all
    of their topics have been looked at. A group that reads nothing of the plan waits for the last wave."""
    reads = {link.group: link.topics for link in links if link.group}
    homes = dict(chosen)
    for group in taken.groups.keys() - chosen.keys():
        fitting = [wave.name for wave in bare if wave.topics & reads.get(group, frozenset())]
        homes[group] = fitting[-1] if fitting else bare[-1].name
    return tuple(replace(wave, groups=_of(homes, wave.name)) for wave in bare)


def _spanning(found: Waves, links: Iterable[Link], waived: Set[tuple[str, str]]) -> Iterator[Spanning]:
    for link in links:
        here = [w.name for w in found.waves if w.topics & link.topics or (link.group in w.groups and link.topics)]
        if len(here) > 1:
            yield Spanning(link=link, waves=tuple(here), waived=link.key in waived)


# -- computed ---------------------------------------------------------------------------------------------------------


def _computed(auto: AutoWaves, taken: Inventory, links: tuple[Link, ...], waived: Set[tuple[str, str]]) -> Waves:
    holding = [link for link in links if link.key not in waived]
    left = sorted(parts_of(taken.topics, holding), key=lambda part: _weight(part, taken))
    bare: list[Wave] = []
    if auto.canary and (canary := _canary(auto, left)):
        left.remove(canary)
        bare.append(Wave(name=CANARY, topics=canary.topics, groups=canary.groups, canary=True))
    packed = list(_packed(auto, left, taken))
    bare += [Wave(name=NAMED.format(at), topics=p.topics, groups=p.groups) for at, p in enumerate(packed, 1)]
    oversized = {wave.name: over for wave in bare if (over := _over(auto, wave.topics, wave.groups, taken))}
    return Waves(waves=_with_groups(bare, taken, links, {}) if bare else (), links=links, oversized=oversized)


def _kept(before: Sequence[Wave], taken: Inventory, links: tuple[Link, ...]) -> Waves:
    homes = {topic: wave.name for wave in before for topic in wave.topics if topic in taken.topics}
    for part in parts_of(taken.topics, links):
        known = [wave.name for wave in before if wave.topics & part.topics]
        homes |= dict.fromkeys(part.topics - homes.keys(), (known or [before[-1].name])[-1])
    bare = [replace(wave, topics=_of(homes, wave.name)) for wave in before]
    return Waves(waves=_with_groups(bare, taken, links, {}), links=links, settled=True)


def _weight(part: Part, taken: Inventory) -> tuple[int, int, int, str]:
    partitions = sum(taken.topics[topic].partitions for topic in part.topics)
    return partitions, len(part.topics), len(part.groups), min(part.topics)


def _canary(auto: AutoWaves, parts: Sequence[Part]) -> Part | None:
    if auto.canary_topic is not None:
        return next((part for part in parts if auto.canary_topic in part.topics), None)
    return next((part for part in parts if part.groups), None)


def _packed(auto: AutoWaves, parts: Iterable[Part], taken: Inventory) -> Iterator[Part]:
    """``parts`` in their order, as many to a wave as the limits let; a larger one by itself."""
    wave: Part | None = None
    for part in parts:
        both = part if wave is None else Part(topics=wave.topics | part.topics, groups=wave.groups | part.groups)
        if wave is not None and _over(auto, both.topics, both.groups, taken):
            yield wave
            both = part
        wave = both
    if wave is not None:
        yield wave


def _over(auto: AutoWaves, topics: Set[str], groups: Set[str], taken: Inventory) -> tuple[str, ...]:
    """The limits that these topics and groups exceed, by field. Topics of unknown size count as nothing: a check names
    them."""
    found = {
        "most_topics": (len(topics), auto.most_topics),
        "most_groups": (len(groups), auto.most_groups),
        "most_bytes": (sum(taken.topics[topic].bytes or 0 for topic in topics), auto.most_bytes),
    }
    return tuple(field for field, (has, most) in found.items() if most is not None and has > most)


# -- a plan for each wave --------------------------------------------------------------------------------------------


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
