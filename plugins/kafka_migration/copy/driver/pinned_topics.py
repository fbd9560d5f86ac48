"""What becomes of the pinned topics on both clusters while the mirror runs.

Tasks only see a topic that answers. One that was deleted has no leader to ask, and in a long round nobody would notice;
so the driver asks for metadata beside them.

Somebody else may look after the target's topics, and set configs back that the create phase had set. Then old records
are deleted as they land, and lag shows 0. So the driver looks at these configs, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from kafka_migration.copy.driver.survey import Loss, Survey
from kafka_migration.domain.types import Halt, TopicPartition
from kafka_migration.wire.cluster import LATEST, WireCluster, code_name
from kafka_migration.wire.configs import described
from kafka_migration.wire.selector import Selector

_EVERY_SECONDS, _IN_DOUBT_SECONDS = 5.0, 1.0

_AT_ONCE = 1_000
"""Topics a look: an answer about so many takes 20 ms to be read."""


class PinnedTopics:
    """Looks at both clusters every few seconds, and reports partitions without a leader."""

    def __init__(
        self,
        source: WireCluster,
        target: WireCluster,
        net: Selector,
        log: Callable[[str], None],
        *,
        held_open: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``held_open`` are the configs that the target's topics must have."""
        self._source, self._clusters, self._net, self._log, self._clock = source, (source, target), net, log, clock
        self._configs = ConfigDrift(target, net, log, held_open=held_open)
        self._looked_at = float("-inf")
        self._surveys = {cluster.role: Survey(cluster, net, clock=clock) for cluster in self._clusters}
        self._leaderless: dict[str, set[TopicPartition]] = {}
        self._reported: dict[str, set[TopicPartition]] = {}
        self._hidden_before: dict[str, set[str]] = {}

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The source's last stable offsets, without partitions whose leader does not answer: the others do not wait."""
        wanted, work = list(partitions), partial(self._source.offsets_in_reach, when=LATEST, committed=True)
        return self._net.run(lambda: work(wanted, seconds=1, answer_seconds=1))  # type: ignore[no-any-return]

    def lost(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Loss]:
        """Those of ``partitions`` whose topic is gone or another one now, as all brokers have reported for ten seconds,
        or whose configs on the target are wrong: reason and detail.

        Raises CouldNotFindOut where a cluster does not answer.
        """
        wanted = list(partitions)
        every = _IN_DOUBT_SECONDS if any(survey.is_in_doubt for survey in self._surveys.values()) else _EVERY_SECONDS
        if self._clock() - self._looked_at >= every:
            self._looked_at = self._clock()
            for cluster in self._clusters:
                self._look(cluster, wanted)
            self._configs.look({tp.topic for tp in wanted} - self._lost().keys())
        drifted = self._configs.drifted({tp.topic for tp in wanted})
        lost = {topic: (Halt.CONFIG_DRIFT, detail) for topic, detail in drifted.items()} | self._lost()
        return {tp: lost[tp.topic] for tp in wanted if tp.topic in lost}

    def forget(self, topics: Iterable[str]) -> None:
        """``topics`` are there again, whatever earlier looks found."""
        for survey in self._surveys.values():
            for topic in topics:
                survey.lost.pop(topic, None)

    def hidden(self) -> dict[str, str]:
        """Topics that a cluster did not describe at the newest look, with why."""
        return {topic: why for survey in self._surveys.values() for topic, why in survey.hidden.items()}

    def _lost(self) -> dict[str, Loss]:
        return {topic: loss for survey in self._surveys.values() for topic, loss in survey.lost.items()}

    def leads(self, tp: TopicPartition) -> bool:
        """True if both clusters named a leader at the newest look."""
        return not any(tp in found for found in self._leaderless.values())

    def _look(self, cluster: WireCluster, partitions: list[TopicPartition]) -> None:
        self._surveys[cluster.role].look({tp.topic for tp in partitions})
        leaderless = {tp for tp in partitions if tp not in cluster.leaders and tp.topic not in self._lost()}
        # Twice in a row: between two leaders there is always a moment without one.
        hidden = self._surveys[cluster.role].hidden
        lasting = {tp for tp in leaderless & self._leaderless.get(cluster.role, set()) if tp.topic not in hidden}
        self._leaderless[cluster.role] = leaderless
        if lasting and lasting != self._reported.get(cluster.role):
            first = min(lasting)
            self._log(f"{cluster.role}: {len(lasting)} partitions without a leader, first {first}; the others go on")
        self._reported[cluster.role] = lasting
        for topic in sorted(hidden.keys() - self._hidden_before.get(cluster.role, set())):
            self._log(f"{hidden[topic]}; the others go on")
        self._hidden_before[cluster.role] = set(hidden)


class ConfigDrift:
    """Looks at a part of the topics each time; the broker's defaults count where a topic has no value of its own."""

    def __init__(
        self, target: WireCluster, net: Selector, log: Callable[[str], None], *, held_open: Mapping[str, str]
    ) -> None:
        """``held_open`` are the configs that every topic must have; nothing is looked at if there are none."""
        self._target, self._net, self._log, self._held_open = target, net, log, held_open
        self._suspected: dict[str, str] = {}
        self._found: dict[str, str] = {}
        self._last = ""
        self._unread: set[str] = set()

    def look(self, topics: Collection[str]) -> None:
        """Ask for the next ones of ``topics``. Raises CouldNotFindOut if the target does not answer."""
        if not (self._held_open and topics):
            return
        asked = {*self._next(topics), *(self._suspected.keys() & set(topics))}
        configs, refused = self._net.run(described, self._target, asked, self._held_open)
        if refused.keys() - self._unread:
            first = min(refused.keys() - self._unread)
            self._unread |= refused.keys()
            self._log(
                f"target: cannot read the configs of topic {first}, so a change of them goes unnoticed:"
                f" {code_name(refused[first])}"
            )
        wrong = {topic: text for topic, found in configs.items() if (text := self._wrong(found))}
        # Twice in a row: for a moment after a change a broker may answer with what was before it.
        self._found = {topic: text for topic, text in wrong.items() if topic in self._suspected}
        self._suspected = wrong

    def drifted(self, topics: Collection[str]) -> dict[str, str]:
        """Those of ``topics`` whose configs were wrong at two looks in a row, and how. What was seen of others is
        forgotten: one that comes back is looked at anew."""
        self._suspected = {topic: text for topic, text in self._suspected.items() if topic in topics}
        self._found = {topic: text for topic, text in self._found.items() if topic in topics}
        return dict(self._found)

    def _next(self, topics: Collection[str]) -> list[str]:
        ordered = sorted(topics)
        part = [topic for topic in ordered if topic > self._last][:_AT_ONCE]
        part += [topic for topic in ordered if topic <= self._last][: _AT_ONCE - len(part)]
        self._last = part[-1]
        return part

    def _wrong(self, found: Mapping[str, str]) -> str:
        changed = [
            f"{name} of the target topic is {found[name]}, and must be {value} while the topic is mirrored"
            for name, value in self._held_open.items()
            if found.get(name, value) != value
        ]
        return "; ".join(changed)
