"""What nobody copies yet: partitions and topics that appeared on the source, and partitions whose halt was lifted.

A partition needs its place on the target first. Whoever runs the mirror makes it (:class:`Growth`), since topics are
made by other rights, and noted elsewhere, than records are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Protocol

from kafka_migration.copy.driver.link import Link, PinnedTopic
from kafka_migration.copy.driver.survey import BY_METADATA, is_pinned
from kafka_migration.domain.errors import CouldNotFindOut, MigrationError, NotAuthorized, Refused, TakenOver
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.cluster import WireCluster
from kafka_migration.wire.selector import Selector

_EVERY_SECONDS, _VISIBLE_SECONDS = 2.0, 30.0


class Growth(Protocol):
    """Makes room on the target, and notes it where the migration keeps its topics."""

    def grow(self, topic: str, partitions: int) -> None:
        """See that the target topic has so many partitions. Raises Refused or NotAuthorized if it cannot be done."""

    def follow(self) -> Mapping[str, PinnedTopic]:
        """Make and pin the topics that are new on the source and meant by the plan, if it has new ones followed;
        those that are pinned now. Raises what making a topic raises."""


class NoGrowth:
    """The target stays as it is."""

    def grow(self, topic: str, partitions: int) -> None:
        raise Refused(f"target topic {topic} is not given {partitions} partitions: nobody may change it here")

    def follow(self) -> Mapping[str, PinnedTopic]:
        return {}


@dataclass(slots=True, kw_only=True, eq=False)
class Newcomers:
    """Looks for newcomers every few seconds. ``topics`` is the run's own, and grows with what is followed; ``lifted``
    is given the topics that were thought gone, or other ones, and are there."""

    link: Link
    growth: Growth
    topics: MutableMapping[str, PinnedTopic]
    source: WireCluster
    target: WireCluster
    net: Selector
    log: Callable[[str], None]
    follow_seconds: float
    lifted: Callable[[Iterable[str]], None] = lambda _topics: None
    clock: Callable[[], float] = time.monotonic
    _looked_at: float = float("-inf")
    _followed_at: float = float("-inf")
    _found: bool = False
    _back: set[str] = field(default_factory=set)
    _shown: str = ""

    def are_there(self, active: Iterable[TopicPartition]) -> bool:
        """True if there is a partition that is neither in ``active`` nor halted, by the newest metadata.

        Raises CouldNotFindOut where a cluster does not answer.
        """
        if self.clock() - self._looked_at >= _EVERY_SECONDS:
            self._looked_at = self.clock()
            self._lift()
            self._follow()
            self._found = bool(self._candidates(active))
        return self._found

    def take(self, active: Iterable[TopicPartition]) -> tuple[set[TopicPartition], dict[TopicPartition, str]]:
        """The partitions that can be copied from now on, and those that cannot, as the target lacks them, with why.

        Raises CouldNotFindOut where a cluster does not answer: then it may be tried again.
        """
        self._found = False
        self._lift()
        self._follow()
        wanted = self._candidates(active)
        stuck: dict[TopicPartition, str] = {}
        for topic in sorted({tp.topic for tp in wanted}):
            lacking = {tp for tp in wanted if tp.topic == topic and not self._is_on_target(tp)}
            if lacking:
                count = 1 + max(self.source.partitions[topic])
                try:
                    self.growth.grow(topic, count)
                    self.log(f"target topic {topic} has {count} partitions now, as its source has")
                except (Refused, NotAuthorized) as error:
                    stuck |= dict.fromkeys(lacking, error.message)
                else:
                    self._await_partitions(topic, lacking)
        return wanted - stuck.keys(), stuck

    def _candidates(self, active: Iterable[TopicPartition]) -> set[TopicPartition]:
        there = {
            TopicPartition(name, partition)
            for name in self.topics
            # Those of another topic under the name are none of ours; ours is gone, and has halted or will.
            # Of what the target does not describe nobody knows whether partitions are lacking there.
            if not self._is_another(name) and name in self.target.partitions
            for partition in self.source.partitions.get(name, ())
        }
        new = there - set(active)
        return new - self.link.halted() if new else new

    def _is_another(self, topic: str) -> bool:
        return any(cluster.is_another(topic) for cluster in (self.source, self.target))

    def _is_on_target(self, tp: TopicPartition) -> bool:
        return tp.partition in self.target.partitions.get(tp.topic, ())

    def _lift(self) -> None:
        """Take halts back for which a topic was gone, or another one, where both clusters have the pinned one."""
        doubted = {tp for tp, halt in self.link.halts().items() if halt.reason in BY_METADATA}
        back = self._as_pinned({tp.topic for tp in doubted if tp.topic in self.topics})
        # Twice in a row, as what takes a topic away is asked more than once.
        lasting, self._back = back & self._back, back
        if lasting:
            self.lifted(lasting)
            self.link.lift({tp: None for tp in doubted if tp.topic in lasting})
            self.log(f"topics that were gone are there again, and are copied on: {', '.join(sorted(lasting))}")

    def _as_pinned(self, topics: set[str]) -> set[str]:
        """Those of ``topics`` that both clusters have, as they were pinned."""
        for cluster in (self.source, self.target):
            problems = self.net.run(cluster.refresh, topics) if topics else {}
            topics = {name for name in topics - problems.keys() if is_pinned(cluster, name)}
        return topics

    def _follow(self) -> None:
        if self.clock() - self._followed_at < self.follow_seconds:
            return
        self._followed_at = self.clock()
        try:
            pinned = self.growth.follow()
        except (CouldNotFindOut, TakenOver):
            raise
        except MigrationError as error:
            # Not worth the end of the copy: what is copied goes on, and a person reads why nothing joins.
            self._show_once(f"new topics do not join: {error}")
            return
        new = {name: topic for name, topic in pinned.items() if name not in self.topics}
        if new:
            self.log(f"new topics join: {', '.join(sorted(new))}")
            for name, topic in new.items():
                self.source.pinned[name], self.target.pinned[name] = topic.source_id, topic.target_id
            for cluster in (self.source, self.target):
                self.net.run(cluster.refresh, set(new))
            self.topics.update(new)

    def _await_partitions(self, topic: str, partitions: set[TopicPartition]) -> None:
        deadline = time.monotonic() + _VISIBLE_SECONDS
        self.net.run(lambda: self.target.wait_for_leaders(partitions, deadline=deadline))

    def _show_once(self, text: str) -> None:
        if text != self._shown:
            self._shown = text
            self.log(text)
