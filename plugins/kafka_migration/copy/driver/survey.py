"""What became of the topics that the link pinned: still there, hidden, gone, or others under the same name.

A halt is for a person to lift, so none is founded on what one broker reports, or on trouble that passes: a broker that
has just started may not know all topics, and one that is cut off goes on with what it knew. A topic is lost once every
broker that answers has reported so for ten seconds.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable

from kafka_migration.domain.codes import UNAUTHORIZED
from kafka_migration.domain.errors import CouldNotFindOut, NotAuthorized
from kafka_migration.domain.types import Halt
from kafka_migration.wire.cluster import NO_TOPIC_ID, WireCluster, code_name, not_authorized
from kafka_migration.wire.selector import Selector

UNKNOWN_TOPIC = 3
GONE_SECONDS = 10.0

BY_METADATA = frozenset({Halt.TOPIC_MISSING, Halt.RECREATED})
"""Halts that nothing but metadata founded: they are void once the pinned topics are there."""

Loss = tuple[Halt, str]
"""Name and detail of the halt that a topic calls for."""


class Survey:
    """One cluster's pinned topics, over many looks. ``lost`` are certain; ``hidden`` may not be described, or are not
    known for another reason, at the newest look, with why."""

    def __init__(self, cluster: WireCluster, net: Selector, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster, self._net, self._clock = cluster, net, clock
        self._since: dict[str, tuple[Halt, float]] = {}
        self.lost: dict[str, Loss] = {}
        self.hidden: dict[str, str] = {}

    @property
    def is_in_doubt(self) -> bool:
        """True if a topic may be lost, and more looks will show it."""
        return bool(self._since)

    def look(self, topics: Collection[str]) -> None:
        """Look once. Raises CouldNotFindOut where the cluster does not answer."""
        cluster = self._cluster
        problems: dict[str, int] = self._net.run(cluster.refresh, set(topics))
        self.hidden = {topic: undescribed(cluster, topic, code) for topic, code in problems.items()}
        doubted = {
            topic for topic in topics if topic not in self.lost and _loss_now(cluster, topic, problems.get(topic, 0))
        }
        found = self._agreed(doubted) if doubted else {}
        for topic in self._since.keys() - found.keys():
            del self._since[topic]
        for topic, loss in found.items():
            reason, since = self._since.setdefault(topic, (loss[0], self._clock()))
            if reason is not loss[0]:
                self._since[topic] = (loss[0], self._clock())
            elif self._clock() - since >= GONE_SECONDS:
                self.lost[topic] = loss
                del self._since[topic]

    def _agreed(self, topics: Collection[str]) -> dict[str, Loss]:
        """Those of ``topics`` of which all brokers that answer report the same, and none the pinned one."""
        reports = self._net.run(self._cluster.reports, topics)
        agreed: dict[str, Loss] = {}
        for topic in topics:
            losses = {
                _loss(self._cluster, topic, report[topic].error, report[topic].topic_id)
                for report in reports
                if topic in report
            }
            loss = losses.pop() if len(losses) == 1 else None
            if loss is not None:
                agreed[topic] = loss
        return agreed


def _loss(cluster: WireCluster, topic: str, error: int, topic_id: uuid.UUID) -> Loss | None:
    if error == UNKNOWN_TOPIC:
        return Halt.TOPIC_MISSING, f"the {cluster.role} has no topic of this name"
    if not error and cluster.is_another(topic, topic_id):
        return Halt.RECREATED, f"the {cluster.role} topic was deleted and created again"
    return None


def _loss_now(cluster: WireCluster, topic: str, error: int = 0) -> Loss | None:
    return _loss(cluster, topic, error, cluster.topic_ids.get(topic, NO_TOPIC_ID))


def recreated(cluster: WireCluster, topic: str) -> Loss | None:
    """Name and detail of the halt of a topic that is another one by the newest metadata; None if it is the pinned one,
    or that is unknown."""
    return _loss_now(cluster, topic)


def undescribed(cluster: WireCluster, topic: str, code: int) -> str:
    """Why a cluster, which answered with error ``code``, does not describe ``topic``."""
    if code in UNAUTHORIZED:
        return not_authorized(cluster.role, "Describe", cluster.name_here(topic))
    return f"{cluster.role}: topic {cluster.name_here(topic)}: {code_name(code)}"


def is_pinned(cluster: WireCluster, topic: str) -> bool:
    """True if ``topic`` is the pinned one by the newest metadata; not where brokers give topics no ids."""
    pinned = cluster.pinned.get(topic, NO_TOPIC_ID)
    return bool(pinned.int) and cluster.topic_ids.get(topic) == pinned


async def survey(cluster: WireCluster, topics: Iterable[str]) -> dict[str, Loss]:
    """Topics that are not the ones in ``cluster.pinned``, by one broker's answer; one counts as missing only after ten
    seconds. For whoever only refuses to go on, and halts nothing.

    Raises NotAuthorized, and CouldNotFindOut for any other answer that stays.
    """
    names, deadline = set(topics), time.monotonic() + GONE_SECONDS
    while True:
        problems = await cluster.refresh(names)
        for name, code in problems.items():
            if code in UNAUTHORIZED:
                raise NotAuthorized(cluster.role, "Describe", f"topic {name}")
        if not problems or time.monotonic() > deadline:
            break
        await cluster.net.sleep(0.2)
    lost: dict[str, Loss] = {}
    for name in sorted(names):
        loss = _loss_now(cluster, name, problems.get(name, 0))
        if loss is not None:
            lost[name] = loss
        elif name in problems:
            raise CouldNotFindOut(
                f"{cluster.role}: topic {name} cannot be described: {code_name(problems[name])}",
                remedy="check the brokers' state, then run this again",
            )
    return lost
