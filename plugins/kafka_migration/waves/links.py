"""Why topics have to move together: a link is one thing that reads or writes several of them.

A consumer group keeps one set of offsets, a transaction is atomic on one cluster only, and a Streams application needs
its state and its repartitioning where it runs. Each link keeps its name, so that a person sees why two topics are in
one wave. What nothing links may move apart. Pure: all of it is taken from an inventory.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from kafka_migration.domain.listing import listed
from kafka_migration.kafka.facts import Inventory

#: Internal topics of Kafka Streams: ``<application id>-<store or operator>-changelog`` or ``-repartition``.
_STREAMS_TOPIC = re.compile(r"(?P<named>.+)-(?:changelog|repartition)", re.DOTALL)


class Kind(enum.StrEnum):
    """What holds topics together."""

    GROUP = "group"
    STREAMS = "Streams application"
    TRANSACTION = "transaction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """``name`` of this kind holds ``topics`` together. ``group`` is the plan's group that moves with them, "" for
    none. One topic, or none, is a link as well: its group moves with it."""

    kind: Kind
    name: str
    topics: frozenset[str]
    group: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What distinguishes two links; links are ordered by it."""
        return str(self.kind), self.name

    @property
    def why(self) -> str:
        """The reason, without the topics."""
        if self.kind is Kind.GROUP:
            return f"group {self.name} reads them"
        if self.kind is Kind.STREAMS:
            return f"Streams application {self.name} reads them, or keeps its state in them"
        return f"transactional producer {self.name} writes them"

    def __str__(self) -> str:
        return f"{self.why}: {listed(sorted(self.topics)) or 'none'}"

    @property
    def title(self) -> str:
        """What it is, and its name."""
        return f"{self.kind} {self.name}"

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {"kind": str(self.kind), "name": self.name, "group": self.group, "topics": sorted(self.topics)}


def links_of(taken: Inventory, *, remembered: Mapping[str, Set[str]] | None = None) -> tuple[Link, ...]:
    """Every link between topics of the inventory, and one for each of its groups. ``remembered``: topics that a group
    was once seen to subscribe to, which count while it is stopped."""
    remembered = remembered or {}
    applications = _applications(taken)
    found = []
    for name, group in taken.groups.items():
        topics = (group.topics | remembered.get(name, frozenset())) & taken.topics.keys()
        internal = applications.pop(name, set())
        kind = Kind.STREAMS if internal or group.protocol == "streams" else Kind.GROUP
        found.append(Link(kind=kind, name=name, topics=frozenset(topics | internal), group=name))
    # Of groups that the plan does not move: their state must stay in one piece all the same.
    found += [Link(kind=Kind.STREAMS, name=name, topics=frozenset(t)) for name, t in applications.items() if len(t) > 1]
    found += [Link(kind=Kind.TRANSACTION, name=one.name, topics=one.topics) for one in taken.transactions or ()]
    return tuple(sorted(found, key=lambda link: link.key))


def _applications(taken: Inventory) -> dict[str, set[str]]:
    """Application id -> its internal topics. An application's group has its id as name: of several that fit a topic's
    name, the longest."""
    known = {*taken.groups, *taken.left_behind}
    found: dict[str, set[str]] = {}
    for topic in taken.topics:
        place = _STREAMS_TOPIC.fullmatch(topic)
        owners = [name for name in _beginnings(place["named"]) if name in known] if place else []
        if owners:
            found.setdefault(max(owners, key=len), set()).add(topic)
    return found


def _beginnings(text: str) -> Iterator[str]:
    """``a`` and ``a-b`` of ``a-b-c``."""
    for at, character in enumerate(text):
        if character == "-":
            yield text[:at]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Topics that cannot move apart, and the groups that move with them."""

    topics: frozenset[str]
    groups: frozenset[str]


def parts_of(topics: Iterable[str], links: Iterable[Link]) -> tuple[Part, ...]:
    """The connected parts of ``topics``, ordered by their first topic. Groups that read none of them are in no part."""
    whole = {topic: topic for topic in topics}

    def root(topic: str) -> str:
        while whole[topic] != topic:
            # Halved on the way, so that long chains stay short.
            whole[topic] = topic = whole[whole[topic]]
        return topic

    known = [(link, sorted(link.topics & whole.keys())) for link in links]
    for _, held in known:
        for topic in held[1:]:
            whole[root(topic)] = root(held[0])
    members: dict[str, set[str]] = {}
    for topic in whole:
        members.setdefault(root(topic), set()).add(topic)
    groups: dict[str, set[str]] = {}
    for link, held in known:
        if held and link.group:
            groups.setdefault(root(held[0]), set()).add(link.group)
    found = [Part(topics=frozenset(t), groups=frozenset(groups.get(at, ()))) for at, t in members.items()]
    return tuple(sorted(found, key=lambda part: min(part.topics)))


def chain(links: Iterable[Link], start: str, end: str) -> tuple[Link, ...]:
    """A shortest row of links that leads from topic ``start`` to topic ``end``; empty if there is none."""
    by_topic: dict[str, list[Link]] = {}
    for link in sorted(links, key=lambda link: link.key):
        for topic in link.topics:
            by_topic.setdefault(topic, []).append(link)
    ways: dict[str, tuple[Link, ...]] = {start: ()}
    todo = [start]
    for topic in todo:
        if topic == end:
            return ways[topic]
        for link in by_topic.get(topic, ()):
            for other in sorted(link.topics - ways.keys()):
                ways[other] = (*ways[topic], link)
                todo.append(other)
    return ()
