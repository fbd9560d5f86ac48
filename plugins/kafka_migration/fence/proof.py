"""The proof of a fence: every broker denies, then log ends stand still; and who wrote nevertheless.

Every broker, not one: each goes by an ACL when it gets to know of it. A broker is asked as the probe, which was denied
last, so where the probe is denied everybody is. Then the true end of each log is read twice (the high watermark is not
it: records wait below it for their replicas), and all of a log must be decided and replicated. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from kafka_migration.domain.errors import CouldNotFindOut, MigrationError, NotAuthorized, Refused, Retryable
from kafka_migration.domain.ledger import pack_ends, unpack_ends
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.fence.bans import Ban
from kafka_migration.kafka.types import ActiveProducer, EpochEnd

if TYPE_CHECKING:
    from kafka_migration.kafka.cluster import Cluster
    from kafka_migration.migration.context import Clock

_PAUSE_SECONDS = 0.02
#: From one look to the next, at the least: between two that are closer, hardly anybody writes.
APART_SECONDS = 0.02
#: Who writes is seen by what a leader remembers of producers, twice.
_NAMING_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a straggler wrote: from ``start`` to ``end`` (offsets), in ``seconds``. ``producers`` are ids that the
    leader has seen write meanwhile; none for producers without ids (not idempotent)."""

    tp: TopicPartition
    start: int
    end: int
    seconds: float
    producers: tuple[int, ...] = ()

    def __str__(self) -> str:
        ids = listed(self.producers) or "none (not idempotent)"
        rate = (self.end - self.start) / self.seconds if self.seconds > 0 else 0.0
        return f"{self.tp}: offsets {self.start} to {self.end} ({rate:,.0f}/s), producer ids: {ids}"

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "start": self.start,
            "end": self.end,
            "seconds": round(self.seconds, 3),
            "producers": list(self.producers),
        }


class Straggler(Refused):
    """Somebody wrote although the fence holds. ``written`` names what, where, and by which producer ids."""

    def __init__(self, written: Sequence[Written]) -> None:
        self.written = tuple(written)
        super().__init__(
            f"still written to, although every broker denies: {listed(self.written, separator='; ')}",
            remedy="find the producer (its principal may be a super user, or one that no ACL names), stop it or add its"
            " principal to producers.fence.principals; then fence again",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One look at log ends. ``at`` is in monotonic seconds; ``leaders`` are broker ids."""

    at: float
    leaders: Mapping[TopicPartition, int | None]
    true_ends: Mapping[TopicPartition, EpochEnd]
    ends: Mapping[TopicPartition, PartitionEnds]

    def open(self) -> list[TopicPartition]:
        """Partitions that are not decided and replicated to their end."""
        return [tp for tp, ends in sorted(self.ends.items()) if ends.undecided or ends.end != self.end_of(tp)]

    def end_of(self, tp: TopicPartition) -> int | None:
        """The log's end; None while it is not known, for want of a leader."""
        found = self.true_ends.get(tp)
        return None if found is None else found.end


def look(cluster: Cluster, clock: Clock, topics: Iterable[str]) -> Look:
    """The ends of every partition of ``topics``, as their leaders have them now."""
    described = cluster.topics(topics)
    leaders = {tp: topic.leaders[tp.partition] for topic in described.values() for tp in topic.topic_partitions}
    true_ends = cluster.log_epochs(dict.fromkeys(leaders))
    # Later than the true ends: a mark that has reached them by now stands for all that was there.
    ends = cluster.ends(leaders, committed=True, skip_starts_of=leaders)
    return Look(at=clock.monotonic(), leaders=leaders, true_ends=true_ends, ends=ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Evidence. Times are milliseconds since the first change that the fence made, which was at ``began_at`` (wall
    clock, ISO-8601): ``applied`` when the last ACL was made, ``denied`` by when each broker denied, ``proved`` when all
    was. ``ends`` are the logs' ends; ``promises`` is false where nothing keeps anybody from writing."""

    promises: bool
    began_at: str
    applied_ms: float
    proved_ms: float
    denied_ms: Mapping[int, float] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    looks: int = 0

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "promises": self.promises,
            "began_at": self.began_at,
            "applied_ms": round(self.applied_ms, 1),
            "proved_ms": round(self.proved_ms, 1),
            "denied_ms": {str(broker): round(ms, 1) for broker, ms in sorted(self.denied_ms.items())},
            "ends": pack_ends(self.ends),
            "looks": self.looks,
        }


def ends_of(proof: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """The ends of a proof that was recorded."""
    return unpack_ends(proof.get("ends", {}))


@dataclass(slots=True, kw_only=True)
class Prover:
    """Proves one fence. ``began`` and ``until`` are in monotonic seconds: its first change, and when a proof is too
    late. ``call_seconds`` is how long a broker may take to answer."""

    cluster: Cluster
    clock: Clock
    ban: Ban
    names: tuple[str, ...]
    began: float
    until: float
    call_seconds: float
    looks: int = 0
    _since: dict[int, float] = field(default_factory=dict)

    def denied(self, probe: Cluster) -> dict[int, float]:
        """Wait until every broker denies the probe on all names; milliseconds by which each did. Raises CouldNotFindOut
        when the time is over."""
        since, why = self._since, ""
        while True:
            try:
                found = self._ask(probe)
            except NotAuthorized:
                raise
            except Retryable as error:
                found, why = {}, error.message
            for broker, denied in found.items():
                if denied >= set(self.names):
                    since.setdefault(broker, self._milliseconds())
                else:
                    since.pop(broker, None)
                    why = f"broker {broker} still lets the probe {self.ban.operation.lower()}"
            if found and since.keys() >= found.keys():
                self.require_time("brokers were slow to answer")
                return {broker: since[broker] for broker in found}
            self._pause(f"not every broker denies: {why}")

    def allowed(self, probe: Cluster) -> None:
        """Wait until no broker denies the probe: only what may be done can be seen to be denied."""
        while True:
            denied = {broker: names for broker, names in self._ask(probe).items() if names}
            if not denied:
                return
            self._pause(f"the probe is denied already, by brokers {listed(sorted(denied))}")

    def _ask(self, probe: Cluster) -> dict[int, frozenset[str]]:
        return probe.denied_by_broker(self.ban.kind, self.ban.operation, self.names, self.call_seconds)

    def rest(self, probe: Cluster | None, *, settle: float, window: float = 0.0) -> tuple[dict[int, float], Look]:
        """Wait until log ends stand still from one look to the next, ``window`` seconds later, every broker that leads
        a partition denying before each look (with a ``probe``).

        Raises Straggler for a log that grows more than ``settle`` seconds after every broker denied; CouldNotFindOut
        when the time is over.
        """
        first_denied: float | None = None
        suspects: dict[TopicPartition, tuple[ActiveProducer, ...]] = {}
        last: Look | None = None
        while True:
            denied = {} if probe is None else self.denied(probe)
            if first_denied is None:
                first_denied = self.clock.monotonic()
            if last is not None:
                self.clock.sleep(max(0.0, max(window, APART_SECONDS) - (self.clock.monotonic() - last.at)))
            now = self._look()
            if probe is not None and not set(now.leaders.values()) <= denied.keys():
                last = None
                self._pause("partitions are led by a broker that was not asked yet, or by none")
                continue
            # Each look is compared with the one before, whatever came in between: nothing is written unseen.
            before, last = last, now
            if before is None:
                continue
            if _moved(before, now):
                self._pause("leaders of partitions move")
                continue
            grown = _grown(before, now)
            # The end of a transaction that was open is no client's write; it has another look taken all the same.
            wrote = {tp: ends for tp, ends in grown.items() if not before.ends[tp].undecided}
            if wrote and probe is not None and before.at - first_denied > settle:
                raise Straggler(self._named(wrote, suspects, now.at - before.at))
            if grown:
                suspects |= self._producers(grown)
                self._pause(f"log ends still grow: {listed(sorted(grown))}")
                continue
            if unfinished := now.open():
                self._pause(f"transactions are open, or replicas are behind: {listed(unfinished)}")
                continue
            self.require_time("brokers were slow to answer")
            return denied, now

    def _look(self) -> Look:
        self.looks += 1
        return look(self.cluster, self.clock, self.names)

    def _named(
        self,
        grown: Mapping[TopicPartition, tuple[int, int]],
        before: Mapping[TopicPartition, tuple[ActiveProducer, ...]],
        seconds: float,
    ) -> list[Written]:
        if not before.keys() >= grown.keys():
            before = self._producers(grown)
            self.clock.sleep(_NAMING_SECONDS)
        now = self._producers(grown)
        return [
            Written(
                tp=tp,
                start=start,
                end=end,
                seconds=seconds,
                producers=tuple(sorted({one.producer_id for one in {*now.get(tp, ())} - {*before.get(tp, ())}})),
            )
            for tp, (start, end) in sorted(grown.items())
        ]

    def _producers(
        self, grown: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        try:
            return dict.fromkeys(grown, ()) | self.cluster.producers(grown)
        except MigrationError:
            # Names are a help; that somebody writes is known without them.
            return dict.fromkeys(grown, ())

    def _milliseconds(self) -> float:
        return (self.clock.monotonic() - self.began) * 1000

    def require_time(self, why: str) -> None:
        """Raise CouldNotFindOut once the last call should have ended: ``why`` it took so long."""
        if self.clock.monotonic() > self.until + self.call_seconds:
            self._too_late(why)

    def _pause(self, why: str) -> None:
        if self.clock.monotonic() + _PAUSE_SECONDS > self.until:
            self._too_late(why)
        self.clock.sleep(_PAUSE_SECONDS)

    def _too_late(self, why: str) -> NoReturn:
        raise CouldNotFindOut(
            f"the fence was not proved in time: {why}",
            remedy="look at what the message names; then fence again, or give producers.fence.deadline_seconds a"
            " larger value",
        )


def _moved(before: Look, after: Look) -> bool:
    return before.leaders != after.leaders or any(
        tp not in after.true_ends or after.true_ends[tp].epoch != found.epoch for tp, found in before.true_ends.items()
    )


def _grown(before: Look, after: Look) -> dict[TopicPartition, tuple[int, int]]:
    """Where a log grew from and to."""
    return {
        tp: (found.end, after.true_ends[tp].end)
        for tp, found in before.true_ends.items()
        if after.true_ends[tp].end > found.end
    }
