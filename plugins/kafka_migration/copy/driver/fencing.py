"""The driver's fences: who may write, from where on, and what of it is durable before anybody does.

Killed at any point it leaves state that the next fence can judge by. Before ``record_fence`` there is a marker at most,
and markers of the link's own producer are known; before ``record_openings`` nobody writes with the new producer epoch,
and partitions that have their opening already simply have an empty run.

A link is sealed by a fence whose producer epoch no mirror gets, read back in each partition (docs/mirror.md, rule 8).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from kafka.future import Future

from kafka_migration.copy.driver.link import Link, PinnedTopic
from kafka_migration.copy.driver.takeover import SECONDS, Fenced, Known, Resumed, Stopped, Unread, take_over
from kafka_migration.domain.errors import CouldNotFindOut, HaltedPartition, Refused, TakenOver
from kafka_migration.domain.openings import Openings
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.skips import Skip
from kafka_migration.domain.types import Halt, Identity, Position, TopicPartition
from kafka_migration.wire.cluster import LATEST, WireCluster
from kafka_migration.wire.fence import Forgotten, await_markers, is_marker_of
from kafka_migration.wire.markers import keep_alive
from kafka_migration.wire.selector import Selector

_KEEP_ALIVE_SECONDS, _KEEP_ALIVE_PATIENCE = 3600.0, 10.0
_LOOK_SECONDS = 0.01
_SECONDS, _ASK_SECONDS = 120.0, 30.0

Outcome = dict[TopicPartition, Resumed | Stopped | Unread]


@dataclass(frozen=True, slots=True)
class FenceUnderWay:
    """A fence that was begun. ``future`` is of what it found."""

    wanted: set[TopicPartition]
    positions: Mapping[TopicPartition, Position]
    source_starts: Mapping[TopicPartition, int]
    future: Future


class Fences:
    """The fences of one run of the mirror. ``count`` is how many succeeded."""

    def __init__(
        self,
        link: Link,
        target: WireCluster,
        net: Selector,
        log: Callable[[str], None],
        *,
        topics: Mapping[str, PinnedTopic],
        may_rewind: Callable[[], bool] = lambda: False,
    ) -> None:
        """``topics`` are those that this run copies into: later others may be pinned under their names.

        ``may_rewind``: whether nobody depends yet on target offsets that a log may have lost.
        """
        self._link, self._target, self._net, self._log, self._topics = link, target, net, log, topics
        self._may_rewind = may_rewind
        self._newest: Identity | None = None
        self._used_at = time.monotonic()
        self.count = 0

    def begin(
        self,
        partitions: Iterable[TopicPartition],
        *,
        positions: Mapping[TopicPartition, Position],
        source_starts: Mapping[TopicPartition, int],
    ) -> FenceUnderWay:
        """Fence ``partitions``, beside whatever else the loop does, until :meth:`is_over`; then comes :meth:`result`.
        One at a time.

        ``positions`` are what this run itself has confirmed, ``source_starts`` where a partition begins that was
        never mirrored. Raises TakenOver if somebody fenced after this run did.
        """
        wanted, fences = set(partitions), dict(self._link.fences())
        previous = fences[max(fences)] if fences else None
        if self._newest is not None and previous is not None and _is_later(previous, self._newest):
            raise TakenOver(f"link {self._link.name}")
        known = known_of(self._link, wanted, fences, positions)
        work = partial(
            take_over,
            self._target,
            transactional_id=self._link.transactional_id,
            known=known,
            fences=fences,
            may_rewind=self._may_rewind,
            needs_all=False,
        )
        # Also if it comes to nothing, brokers do not forget an id that was used.
        self._used_at = time.monotonic()
        future = self._net.call_soon_with_future(work)
        return FenceUnderWay(wanted, dict(positions), dict(source_starts), future)

    def is_over(self, under_way: FenceUnderWay, seconds: float | None) -> bool:
        """True if the fence is over; waits for that so long, or to its end."""
        until = float("inf") if seconds is None else time.monotonic() + seconds
        while not under_way.future.is_done and time.monotonic() < until:
            self._net.run(self._net.sleep, _LOOK_SECONDS)
        return bool(under_way.future.is_done)

    def keep_alive(self, *, every: float = _KEEP_ALIVE_SECONDS) -> None:
        """Use the transactional id once in a while: brokers forget one that nobody used for days.

        Raises TakenOver. A failure is shown, and costs nothing yet: the next fence copes with a forgotten id.
        """
        if self._newest is None or time.monotonic() - self._used_at < every:
            return
        identity, deadline = self._newest, time.monotonic() + _KEEP_ALIVE_PATIENCE
        try:
            self._net.run(lambda: keep_alive(self._target, self._link.transactional_id, identity, deadline=deadline))
        except CouldNotFindOut as error:
            self._log(f"the transactional id could not be kept from expiring: {error.message}")
        self._used_at = time.monotonic()

    def result(self, under_way: FenceUnderWay) -> tuple[Identity, Outcome]:
        """Where each partition of a fence that is over stands; openings are durable on return.

        Raises TakenOver, CouldNotFindOut (then it may be tried again), NotAuthorized, StateConflict; Overtaken if state
        moved on meanwhile.
        """
        if under_way.future.exception is not None:
            raise under_way.future.exception
        fenced: Fenced = under_way.future.value
        self._newest, self._used_at = fenced.identity, time.monotonic()
        # Only now: an earlier attempt may have made openings durable until the very marker (see takeover).
        known = known_of(self._link, under_way.wanted, dict(self._link.fences()), under_way.positions)
        outcome = fenced.resume(known, under_way.source_starts)
        self._link.record_fence(fenced.fence, fenced.identity, at=now())
        self._note_rewound(outcome)
        resumed = ((tp, r.opening) for tp, r in outcome.items() if isinstance(r, Resumed))
        self._link.record_openings(resumed, {name: topic.key for name, topic in self._topics.items()})
        self.count += 1
        self._log(f"fence {fenced.fence}: {len(outcome) - len(fenced.unread)} partitions fenced")
        return fenced.identity, outcome

    def _note_rewound(self, outcome: Outcome) -> None:
        """Keep what was lost, before the offset map forgets it; halt instead where a group was moved meanwhile."""
        for tp, result in outcome.items():
            if not isinstance(result, Resumed) or result.rewound_from < 0:
                continue
            end, confirmed, source = result.opening.closes or 0, result.rewound_from, result.position.source
            if not self._may_rewind():
                detail = f"the target's log ends at {end}, although everything up to {confirmed} was confirmed"
                outcome[tp] = Stopped(reason=Halt.LOG_REGRESSED, detail=detail, target_offset=end)
                continue
            self._link.record_rewind(tp, fence=result.opening.fence, lost=(end, confirmed), source=source, at=now())
            self._log(
                f"{tp}: the target lost its offsets {end} to {confirmed - 1}, which were confirmed; they are copied"
                f" again from source offset {source}"
            )


def known_of(
    link: Link,
    partitions: Iterable[TopicPartition],
    fences: Mapping[int, Identity],
    positions: Mapping[TopicPartition, Position],
) -> dict[TopicPartition, Known]:
    """What the link's state knows of each partition now. ``positions`` are confirmed as the caller itself knows."""
    wanted = list(partitions)
    openings, skips, reported = link.openings(wanted), link.skips(), link.progress()
    known = {}
    for tp in wanted:
        confirmed = [positions[tp]] if tp in positions else []
        confirmed += [reported[tp][0]] if tp in reported else []
        known[tp] = _known(openings.get(tp), fences, confirmed, skips.get(tp, ()))
    return known


def _known(
    history: Openings | None, fences: Mapping[int, Identity], positions: list[Position], skips: Sequence[Skip]
) -> Known:
    mine = history.newest() if history is not None else ()
    fence = mine[0].fence if mine else None
    confirmed = [position for position in positions if position.fence == fence]
    return Known(
        openings=mine,
        writer=None if fence is None else fences.get(fence),
        verified=max([o.target for o in mine[:1]] + [position.target for position in confirmed], default=0),
        reached=max(confirmed, key=lambda position: (position.target, position.source), default=None),
        skips=skips,
        history=history,
    )


def _is_later(one: Identity, other: Identity) -> bool:
    return one.producer_id != other.producer_id or one.producer_epoch > other.producer_epoch


def now() -> str:
    """The wall clock as stored values hold it: ISO-8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def warm(link: Link, cluster: WireCluster) -> None:
    """Open the connections that :func:`seal` needs, before somebody waits for it."""
    _connect(link, cluster)

    async def ask() -> None:
        await cluster.refresh(link.topics())
        await cluster.offsets_in_reach(list(cluster.leaders), LATEST, seconds=0)

    cluster.net.run(ask)


def _connect(link: Link, cluster: WireCluster) -> None:
    cluster.net.run(cluster.ensure_connected)
    for topic in link.topics().values():
        cluster.pinned[topic.name] = topic.target_id


def seal(
    link: Link, cluster: WireCluster, log: Callable[[str], None] = lambda _text: None, *, seconds: float = SECONDS
) -> Seal:
    """Seal ``link``, which was drained; a second call proves the seal again. Killed anywhere, the next call converges.

    The wish stands first, and durably: from then on every task stops at its next look, and no mirror begins. The seal
    itself is the marker. ``cluster`` is the link's destination; its brokers are waited for ``seconds`` at most.

    Raises HaltedPartition where the log is not what the link wrote, Refused if it holds more than the link knows of,
    CouldNotFindOut if it stays unknown whether the seal holds.
    """
    _connect(link, cluster)
    found = _begun_seal(link)
    if found.is_complete and found.identity is not None and _still_holds(cluster, link, found, found.identity, seconds):
        return found
    fenced = _fence(cluster, link, seconds)
    done = replace(found, identity=fenced.identity, ends=dict(fenced.markers))
    link.record_seal(done)
    log(f"sealed {len(done.ends)} partitions: {_shown(done)}")
    return done


def _begun_seal(link: Link) -> Seal:
    """The seal of ``link``, durable by now: every task stops at its next look, and no mirror begins."""
    found = link.seal()
    if found is None:
        found = Seal(at=now(), ends={})
        link.record_seal(found)
    return found


def cut_off(
    link: Link,
    cluster: WireCluster,
    partitions: Iterable[TopicPartition],
    log: Callable[[str], None] = lambda _text: None,
) -> Mapping[TopicPartition, Stopped]:
    """Seal ``link`` wherever it stands, for good: as :func:`seal`, but nobody needs what was copied any more.

    ``partitions`` are all of its topics that are left. Returns those whose log holds what the link does not explain.
    Killed anywhere, the next call converges. Raises CouldNotFindOut where a partition could not be fenced.
    """
    wanted, found = sorted(partitions), _begun_seal(link)
    if not wanted:
        return {}
    _connect(link, cluster)
    fences = dict(link.fences())
    known = known_of(link, wanted, fences, link.positions())
    fenced: Fenced = cluster.net.run(
        lambda: take_over(cluster, transactional_id=link.transactional_id, known=known, fences=fences, needs_all=False)
    )
    link.record_fence(fenced.fence, fenced.identity, at=now())
    if fenced.unread:
        first = min(fenced.unread)
        raise CouldNotFindOut(
            f"{len(fenced.unread)} partitions could not be fenced, first {first}: {fenced.unread[first]}",
            remedy="see that their brokers answer, then run this again",
        )
    link.record_seal(replace(found, identity=fenced.identity, ends=dict(fenced.markers)))
    log(f"fenced {len(fenced.markers)} partitions: no mirror of this migration may write to them any more")
    return dict(fenced.stopped) | {tp: tail.stopped for tp, tail in fenced.tails.items() if tail.stopped is not None}


def _fence(cluster: WireCluster, link: Link, seconds: float) -> Fenced:
    fences, positions = dict(link.fences()), link.positions()
    known = known_of(link, positions, fences, positions)
    fenced: Fenced = cluster.net.run(
        lambda: take_over(cluster, transactional_id=link.transactional_id, known=known, fences=fences, timeout=seconds)
    )
    for tp, tail in fenced.tails.items():
        if tail.stopped is not None:
            raise _halted(tp, tail.stopped)
        if tail.data_end != positions[tp].target:
            raise Refused(
                f"{tp}: the target's records end at offset {tail.data_end}, but the mirror's position is"
                f" {positions[tp].target}",
                remedy="a mirror wrote until just now: run `mirror --unseal --until-caught-up`, then stop again",
            )
    for tp, stopped in fenced.stopped.items():
        raise _halted(tp, stopped)
    link.record_fence(fenced.fence, fenced.identity, at=now())
    return fenced


def _halted(tp: TopicPartition, stopped: Stopped) -> HaltedPartition:
    return HaltedPartition(
        topic=tp.topic,
        partition=tp.partition,
        reason=str(stopped.reason),
        detail=stopped.detail,
        target_offset=stopped.target_offset,
        remedy="`mirror --unseal` goes on, and halts this partition; `status` then shows what can be done",
    )


def _still_holds(cluster: WireCluster, link: Link, found: Seal, identity: Identity, seconds: float) -> bool:
    """True if nobody has fenced the link since, and the seal's markers stand where they stood; found out within so many
    ``seconds``.

    Raises CouldNotFindOut where that stays unknown: no reason to fence again, which moves the final ends.
    """
    fences, ends, until = link.fences(), dict(found.ends), _in(seconds)
    if not fences or fences[max(fences)] != identity:
        return False
    try:
        cluster.net.run(
            lambda: keep_alive(cluster, link.transactional_id, identity, deadline=min(until, _in(_ASK_SECONDS)))
        )
    except TakenOver:
        return False
    except Forgotten:
        # Nobody has used it for days, as is right for a sealed link. Of a later fence its state would know.
        pass
    log_ends = cluster.net.run(lambda: cluster.list_offsets(ends, LATEST, deadline=min(until, _in(_ASK_SECONDS))))
    if any(log_ends[tp] <= end for tp, end in ends.items()):
        return False
    # What stands at a marker's offset is that marker, or the log is another one.
    there = cluster.net.run(
        lambda: await_markers(
            cluster,
            identity,
            ends,
            lambda _tp, header: is_marker_of(header, identity),
            deadline=min(until, _in(_SECONDS)),
        )
    )
    return dict(there) == ends


def _in(seconds: float) -> float:
    return time.monotonic() + seconds


def _shown(found: Seal) -> str:
    ends = [f"{tp} ends at {end}" for tp, end in sorted(found.ends.items())]
    return ", ".join(ends[:3]) + (", …" if len(ends) > 3 else "")
