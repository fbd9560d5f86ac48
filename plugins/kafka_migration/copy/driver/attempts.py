"""The driver's side of rule 7: one claim per run, and for how long what came before it may still write.

A run claims the link before its first fence, durably, under a name of its own. Tasks of earlier runs see the claim at
their next look (:mod:`kafka_migration.copy.lease`), or lose their lease without one. So everything that an earlier
attempt ever sends is sent within a lease of the claim, and what it sent has landed, or never will, within the time that
an append is waited for, and what a broker needs for what it has received. Until then the fence must not be forgotten.
If all earlier attempts recorded that they had ended, with every request answered, nothing is held.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping

import kafka.errors as kafka_errors
from kafka.protocol.admin import DescribeConfigsRequest

from kafka_migration.copy.driver.fencing import now
from kafka_migration.copy.driver.link import Link
from kafka_migration.copy.lease import seconds_passed
from kafka_migration.copy.orders import Limits
from kafka_migration.domain.direction import HOME
from kafka_migration.domain.errors import Refused, StateConflict, TakenOver
from kafka_migration.domain.ledger import LINKS_TOPIC, OFFSET_MAP_TOPIC, PROGRESS_TOPIC
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.cluster import NO_TOPIC_ID, WireCluster

_STATE = (LINKS_TOPIC, OFFSET_MAP_TOPIC, PROGRESS_TOPIC)
_BROKER, _MEMORY = 4, "producer.id.expiration.ms"
#: What brokers before 3.4 go by instead (KIP-854).
_MEMORY_BEFORE = "transactional.id.expiration.ms"


class Attempts:
    """The attempts of one run, and those before it."""

    def __init__(
        self,
        link: Link,
        target: WireCluster,
        limits: Limits,
        log: Callable[[str], None],
        *,
        home: WireCluster | None = None,
        clock: Callable[[], float] = seconds_passed,
    ) -> None:
        """``home`` is the cluster with the state of the link, unless that is where it copies to."""
        self._link, self._target, self._limits, self._log, self._clock = link, target, limits, log, clock
        self._home = home or target
        self.name = uuid.uuid4().hex
        self.state_ids: dict[str, uuid.UUID] = {}
        self._before: set[str] = set()
        self._dead_at = float("-inf")
        self._lost_at: dict[TopicPartition, float] = {}
        self._held: dict[TopicPartition, float] = {}
        self._lands: dict[TopicPartition, float] = {}
        self._landed_at: dict[TopicPartition, float] = {}
        self._memory_ms: int | None = None
        self._memory_known = False

    # -- who may write ----------------------------------------------------------------------------------------

    def claim(self) -> None:
        """Claim the link, durably. Raises Refused if it is sealed, TakenOver if somebody claims it just after."""
        refuse_sealed(self._link)
        before = self._link.attempts()
        self._link.claim(self.name, at=now())
        claimed = self._clock()
        found = list(self._link.attempts().items())
        mine = next((at for at, (name, _) in enumerate(found) if name == self.name), len(found))
        if any(is_running for _, is_running in found[mine + 1 :]):
            raise TakenOver(f"link {self._link.name}")
        self._before = {name for name, _ in found} | set(before)
        if any(is_running for name, is_running in found if name != self.name):
            self._dead_at = claimed + self._unseen
            self._log(
                f"an earlier run did not record how it ended: records with old timestamps are held back for"
                f" {self._unseen:g} s after the fence"
            )

    def check(self) -> None:
        """Raises TakenOver if a later run claimed the link, Refused if it was sealed."""
        refuse_sealed(self._link)
        found = self._link.attempts()
        if self.name not in found or not self._before.issuperset(found):
            raise TakenOver(f"link {self._link.name}")
        if not any(is_running for name, is_running in found.items() if name != self.name):
            # They have recorded their end since; until then nobody knew of it.
            self._dead_at = float("-inf")

    def ended(self) -> None:
        """This run has ended, and every request that it ever sent was answered, or is fenced and dead."""
        if any(self._clock() < self._own(tp) for tp in self._lost_at.keys() | self._landed_at.keys()):
            return
        if self._clock() >= self._dead_at:
            self._link.forget_attempts(name for name in self._before if name != self.name)
        self._link.end_attempt(self.name, at=now())

    # -- the hold ---------------------------------------------------------------------------------------------

    @property
    def _unseen(self) -> float:
        return self._limits.lease_seconds + self._limits.late_seconds

    def lost(self, round_id: int, partitions: Iterable[TopicPartition]) -> None:
        """Nobody saw how those of a round's tasks ended that copied ``partitions``: they may be alive. They are
        recalled."""
        self._link.recall(round_id)
        self._lost_at |= dict.fromkeys(partitions, self._clock() + self._unseen)

    def closed(self, partitions: Mapping[TopicPartition, float]) -> None:
        """Connections were closed with requests of ``partitions`` unanswered: these may land for so many seconds, and
        not for less than a broker may need for them."""
        for tp, seconds in partitions.items():
            # What came before may be under way still.
            is_landing = self._clock() < self._landed_at.get(tp, float("-inf"))
            self._lands[tp] = max(seconds, self._lands.get(tp, 0.0) if is_landing else 0.0)
        self._await_landing(partitions)

    def answered(self, partitions: Iterable[TopicPartition]) -> None:
        """All that a task has sent of ``partitions`` was answered: what came before is dead, if it had the time."""
        for tp in partitions:
            if self._clock() >= max(self._dead_at, self._own(tp)):
                self._lands[tp] = 0.0

    def stalled(self, partitions: Iterable[TopicPartition]) -> None:
        """The leaders of ``partitions`` did not answer until just now, and may take only now what they were sent."""
        self._await_landing(partitions)

    def _await_landing(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            # What an earlier run has sent, whose end nobody saw, is not known.
            unknown = 0.0 if self._dead_at == float("-inf") else self._limits.late_seconds
            seconds = max(self._limits.closed_seconds, self._lands.get(tp, unknown))
            self._landed_at[tp] = max(self._landed_at.get(tp, float("-inf")), self._clock() + seconds)

    def hold(self, partitions: Iterable[TopicPartition]) -> None:
        """``partitions`` were fenced: until whatever came before is dead, the fence must not be forgotten."""
        for tp in partitions:
            self._held[tp] = self._own(tp)

    def _own(self, tp: TopicPartition) -> float:
        """Until when something of ``tp`` that this run has sent may land."""
        return max(self._lost_at.get(tp, float("-inf")), self._landed_at.get(tp, float("-inf")))

    def hold_seconds(self, tp: TopicPartition) -> float:
        """For how much longer ``tp`` is held."""
        return max(0.0, max(self._dead_at, self._held.get(tp, float("-inf"))) - self._clock())

    def young_ms(self) -> int | None:
        """How old a record may be that is appended in spite of a hold; None if none may, or nothing is held.

        Half of the brokers' memory of producers is left for their clocks and ours, the hold itself for its length.
        """
        if not any(until > self._clock() for until in (self._dead_at, *self._held.values())):
            return None
        if not self._memory_known:
            self._memory_ms = self._target.net.run(producer_memory_ms, self._target)
            self._memory_known = True
            if self._memory_ms is not None and self._memory_ms < 2_000 * self._unseen:
                self._log(
                    f"{self._target.role}: {_MEMORY} is {self._memory_ms}, so brokers may forget a fence while it is"
                    f" still needed; set {_MEMORY} to {int(2_000 * self._unseen)} or more on every broker"
                )
        young = None if self._memory_ms is None else int(self._memory_ms / 2 - 1000 * self._unseen)
        return young if young is not None and young > 0 else None

    # -- the state itself -------------------------------------------------------------------------------------

    def check_state(self) -> None:
        """Raises StateConflict if an internal topic is another one now than when this run began.

        Openings and claims would go on in a log that knows nothing of what came before, and translate wrongly.
        """
        problems = self._home.net.run(self._home.refresh, _STATE)
        found = {name: self._home.topic_ids.get(name, NO_TOPIC_ID) for name in _STATE if name not in problems}
        for name, topic_id in found.items():
            known = self.state_ids.get(name, NO_TOPIC_ID)
            # A broker that gives none, as one that is not upgraded yet, is no proof of whose topic it is.
            self.state_ids[name] = known if known.int else topic_id
            if known.int and topic_id.int and topic_id != known:
                raise StateConflict(
                    f"{HOME}: internal topic {name} was deleted and created again while the mirror ran",
                    remedy="find out who deleted it, and start the mirror again: it halts each partition whose records"
                    " it can no longer explain, and `mirror --again TOPIC` copies such a topic again",
                )


def refuse_sealed(link: Link) -> None:
    """Raises Refused if ``link`` is sealed, completely or about to be."""
    seal = link.seal()
    if seal is not None:
        raise Refused(
            f"link {link.name} was sealed at {seal.at}: its mirror may not write any more",
            remedy="if producers write to the source again, `mirror --unseal` takes the seal away and goes on",
        )


async def producer_memory_ms(cluster: WireCluster) -> int | None:
    """For how long brokers remember a producer, the shortest of all, or None if any does not report it. Needs
    DescribeConfigs on the cluster."""
    found: list[int] = []
    for broker in cluster.manager.cluster.brokers():
        resource = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=_BROKER, resource_name=str(broker.node_id), configuration_keys=[_MEMORY, _MEMORY_BEFORE]
        )
        try:
            response = await cluster.send(DescribeConfigsRequest(resources=[resource]), broker.node_id)
        except kafka_errors.KafkaError:
            return None
        values = {
            config.name: int(config.value)
            for result in response.results
            if not result.error_code
            for config in result.configs
            if config.value is not None
        }
        if not values:
            return None
        found.append(values.get(_MEMORY, values.get(_MEMORY_BEFORE, 0)))
    return min(found, default=None)
