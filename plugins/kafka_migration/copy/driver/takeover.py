"""Taking a link over: fence every partition, explain every record above what is known, and find where to go on.

The tail of each target partition is read from the last verified offset up to the fence's marker. Each batch must be
one that the link itself wrote, at the place of its sequence (docs/mirror.md, rule 5). What cannot be explained
halts the partition: counting it as progress would turn a duplicate, a hole or a foreign record into silent loss.

It has two halves, because state must be read *between* them: until the marker is visible an earlier attempt may still
write an opening and then its batch. Openings read before the fence would miss it, and the batch's records would be
taken for the continuation of the run before, that is for other source offsets.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from kafka_migration.copy.driver.survey import survey
from kafka_migration.domain.errors import CouldNotFindOut, NotAuthorized, StateConflict
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.openings import Openings
from kafka_migration.domain.skips import Skip, goes_on_at
from kafka_migration.domain.types import Halt, Identity, Position, TopicPartition
from kafka_migration.wire.batch import MAX_SEQUENCE, BatchHeader
from kafka_migration.wire.cluster import EARLIEST, LATEST, WireCluster
from kafka_migration.wire.fence import UNREAD_SECONDS, await_completion, await_markers, take_identity, write_markers
from kafka_migration.wire.markers import write_markers_directly


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the link's state knows of a partition.

    ``openings`` of its newest fence, in order (empty if it was never fenced); ``writer`` is who wrote since that
    fence; ``verified`` a target offset below which everything is known to be ours; ``reached`` the furthest confirmed
    position since that fence. ``skips`` are what a person gave up.

    ``history`` are the openings of all fences. A log that lost its tail ``is_rewound``: it goes on behind the newest
    fence that it still has, whose marker is the first thing in it to be verified; ``verified`` is that marker's offset,
    and ``confirmed`` how far the log reached before.
    """

    openings: Sequence[RunOpening]
    writer: Identity | None
    verified: int
    reached: Position | None = None
    skips: Sequence[Skip] = ()
    history: Openings | None = None
    is_rewound: bool = False
    confirmed: int = 0

    @property
    def newest_fence(self) -> int | None:
        """The number of the newest fence of all."""
        return self.history[-1].fence if self.history else self.fence

    @property
    def fence(self) -> int | None:
        """The number of its newest fence, or None."""
        return self.openings[0].fence if self.openings else None

    @property
    def fence_end(self) -> int:
        """The target offset after that fence's marker, where its first record belongs."""
        return self.openings[0].target if self.openings else self.verified

    def rewound(self, fences: Mapping[int, Identity], start: int, end: int) -> Known | None:
        """The same of a log from ``start`` to ``end``, before what is verified; None if no fence is left in it."""
        openings = self.history.before(end) if self.history is not None else ()
        writer = fences.get(openings[0].fence) if openings else None
        if not openings or writer is None or openings[0].target <= start:
            return None
        return replace(
            self,
            openings=openings,
            writer=writer,
            # Where its marker stands.
            verified=openings[0].target - 1,
            reached=None,
            is_rewound=True,
            confirmed=self.verified,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """Where a partition goes on after a fence; ``opening`` must be made durable before anything is sent.

    ``target_start`` is where the target's log began just before. ``rewound_from``: the target offset up to which
    records were confirmed, of which the target has lost the last ones; -1 if it lost none.
    """

    position: Position
    opening: RunOpening
    target_start: int = 0
    rewound_from: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """Why a partition cannot go on. ``target_offset`` is where the trouble was seen."""

    reason: Halt
    detail: str
    target_offset: int


@dataclass(frozen=True, slots=True)
class Unread:
    """Nothing of a partition's log could be read behind a fence, for some seconds, because of ``why``: it is as if its
    author had died before the fence was recorded, and the next fence finds out where it stands."""

    why: str


class Overtaken(CouldNotFindOut):
    """Another mirror of the link fenced at the same time: state moved on, and only a new fence can judge it."""


class Tail:
    """Judges the batches of one target partition, from ``known.verified`` up to the fence's marker.

    First of all the one that ends there, of a log that begins at ``start`` (at ``scan_from``): one that lost its last
    records is as long as before once fences that came to nothing have left as many markers there. ``has_lost``: it is
    such a one.
    """

    def __init__(self, known: Known, start: int) -> None:
        self.known = known
        self.markers: set[Identity] = set()
        self._awaits_marker = known.is_rewound
        is_cut = known.verified == known.fence_end and known.openings and known.openings[0].is_cut
        self._awaits_last = not (known.is_rewound or known.writer is None or is_cut or start >= known.verified)
        self.scan_from = known.verified - self._awaits_last
        self.has_lost = False
        # What a rewound one begins with is its own fence's marker.
        self.data_end = self._next = known.verified + known.is_rewound
        self.records = self._next - known.fence_end
        self.marker_seen = False
        self.stopped: Stopped | None = None

    def see(self, header: BatchHeader, producer_id: int) -> bool:
        """One batch, in log order. False once there was trouble: what follows it is not judged."""
        if self.stopped is None:
            self._judge(header, producer_id)
        return self.stopped is None

    def _judge(self, header: BatchHeader, producer_id: int) -> None:
        author, writer = Identity(header.producer_id, header.producer_epoch), self.known.writer
        if self._awaits_marker:
            self._awaits_marker = False
            if not header.is_control or author != writer or header.base_offset != self.known.verified:
                detail = (
                    f"the marker of fence {self.known.fence} is not at target offset {self.known.verified} any more"
                )
                self._lose(header, detail)
            return
        if self._awaits_last:
            self._awaits_last = False
            # Nothing before that offset: it was compacted since, and nothing else stands there.
            if header.base_offset < self.known.verified:
                self._judge_last(header, is_ours=author == writer)
                return
        # The writer's own id is another one only where brokers forgot it.
        is_marker = header.is_control and header.producer_id in (producer_id, writer.producer_id if writer else -1)
        # Of a transaction that wrote nothing here: one that a fence of producers has cut short ends so behind the cut.
        is_gap = not is_marker and header.is_control and header.is_transactional
        is_ours = not header.is_control and author == writer
        trouble = self._trouble(header, is_marker=is_marker or is_gap, is_ours=is_ours)
        if trouble is not None:
            self._stop(trouble[0], header, trouble[1])
            return
        self._next = header.next_offset
        if is_marker:
            self.markers.add(author)
        if header.is_control:
            # What of ours follows any marker is not at its place.
            self.marker_seen = True
        else:
            self.data_end = header.next_offset
            self.records = header.base_offset - self.known.fence_end + header.records

    def follows(self, identity: Identity) -> None:
        """``identity`` made the fence: if it is the one right behind the writer, no other fence has left a marker, and
        a log that has lost records would be shorter than before."""
        writer = self.known.writer
        if writer is not None and identity == Identity(writer.producer_id, writer.producer_epoch + 1):
            self.scan_from, self._awaits_last = max(self.scan_from, self.known.verified), False

    def _judge_last(self, header: BatchHeader, *, is_ours: bool) -> None:
        verified, writer = self.known.verified, self.known.writer
        # Of a fence behind which nothing was written its own marker.
        is_right = is_ours and header.is_control == (verified == self.known.fence_end)
        if not is_ours and not header.is_control and writer is not None and header.producer_id != writer.producer_id:
            detail = f"a batch of producer {header.producer_id}, epoch {header.producer_epoch}, is not this link's"
            self._stop(Halt.FOREIGN_WRITER, header, detail)
        elif not is_right or header.next_offset != verified:
            what = f"producer {header.producer_id}, epoch {header.producer_epoch}"
            detail = (
                f"everything up to {verified} was confirmed, and what ends there is of {what}, to {header.next_offset}"
            )
            self._lose(header, detail)

    def _lose(self, header: BatchHeader, detail: str) -> None:
        self.has_lost = True
        self._stop(Halt.LOG_REGRESSED, header, detail)

    @property
    def lost_from(self) -> int:
        """A target offset up to which the log may be what the link wrote: the first that was seen to be another."""
        return self.known.verified if self.known.is_rewound else self.known.verified - 1

    def _trouble(self, header: BatchHeader, *, is_marker: bool, is_ours: bool) -> tuple[Halt, str] | None:
        """Why what stands here cannot be explained; None if it can."""
        if not is_marker and (not is_ours or self.marker_seen):
            detail = f"a batch of producer {header.producer_id}, epoch {header.producer_epoch}, is not this link's"
            return Halt.FOREIGN_WRITER, detail
        place = header.base_offset - self.known.fence_end
        if is_ours and place % MAX_SEQUENCE != header.base_sequence:
            ahead = (place - header.base_sequence) % MAX_SEQUENCE < MAX_SEQUENCE // 2
            # More records stand before it than were sent before it, or fewer.
            what = "records before it come twice" if ahead else "records before it are missing"
            detail = f"the batch with sequence {header.base_sequence} stands at place {place}: {what}"
            return (Halt.DUPLICATED if ahead else Halt.LOG_REGRESSED), detail
        if header.base_offset != self._next:
            return Halt.LOG_REGRESSED, f"nothing begins at target offset {self._next}"
        return None

    def shows(self, fence: Identity) -> bool:
        """True if a marker of ``fence``, or of a later one of the same producer, stands in what was seen."""
        return any(
            marker.producer_id == fence.producer_id and marker.producer_epoch >= fence.producer_epoch
            for marker in self.markers
        )

    def _stop(self, reason: Halt, header: BatchHeader, detail: str) -> None:
        self.stopped = Stopped(reason=reason, detail=detail, target_offset=header.base_offset)

    def resume(
        self,
        openings: Sequence[RunOpening],
        *,
        fence: int,
        marker: int,
        source_start: int,
        target_start: int = 0,
        skips: Sequence[Skip] = (),
    ) -> Resumed:
        """Where to go on behind ``marker``. ``source_start`` is where the source's log began a while ago.

        ``openings`` are those of the newest fence before, read *after* the marker became visible.
        """
        source, leader_epoch = source_start, -1
        # Searched: a source with gaps has made millions of them.
        last = bisect_right(openings, self.records, key=lambda opening: opening.records) - 1
        if last >= 0:
            newest = openings[last]
            source, leader_epoch = newest.source + (self.records - newest.records), newest.epoch
        reached = self.known.reached
        if (
            reached is not None
            and reached.records == self.records
            and last >= 0
            and source < source_start <= reached.source
        ):
            # Nothing but markers, aborted or compacted records stood in between, and retention has taken those: not a
            # loss. The leader epoch there is not known.
            source, leader_epoch = reached.source, -1
        stands = source
        if reached is not None and reached.records == self.records:
            # Behind the last record, what has none may have been passed over; a skip begins where the position stood.
            stands = max(source, reached.source)
        if (behind := goes_on_at(skips, stands)) != stands:
            # Nobody knows in which leader epoch the record before it was written.
            source, leader_epoch = behind, -1
        opening = RunOpening(
            fence=fence, records=0, source=source, target=marker + 1, closes=self.data_end, epoch=leader_epoch
        )
        position = Position(source=source, target=marker + 1, fence=fence, records=0)
        # By the word of a broker that was cut off it may have ended too early, and it did not.
        has_lost = self.known.is_rewound and self.data_end < self.known.confirmed
        rewound_from = self.known.confirmed if has_lost else -1
        return Resumed(position=position, opening=opening, target_start=target_start, rewound_from=rewound_from)


_EPOCHS = 1 << 15
_ASK_SECONDS = 15.0
#: So long a fence may take, unless somebody waits for it who has less.
SECONDS = 120.0


def fence_number(fences: Mapping[int, Identity], identity: Identity, *, above: int = -1) -> int:
    """The name of ``identity``'s fence after ``fences``: its producer epoch, counted on where the producer is another.

    The broker hands out a producer epoch once, so two mirrors that fence at the same time cannot take the same name,
    and a later fence has a higher one. A transactional id gets another producer, and producer epochs from 0, once
    32,766 of them are used up, or the brokers forgot it. ``above`` is the newest fence that the offset map knows:
    ``fences`` may be lost.
    """
    newest = max(fences, default=0)
    generation = newest // _EPOCHS + (bool(fences) and identity.producer_id != fences[newest].producer_id)
    while generation * _EPOCHS + identity.producer_epoch <= above:
        generation += 1
    return generation * _EPOCHS + identity.producer_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """Partitions behind a visible fence: nothing that an earlier attempt sent can land in them any more."""

    fence: int
    identity: Identity
    markers: Mapping[TopicPartition, int]
    tails: Mapping[TopicPartition, Tail]
    stopped: Mapping[TopicPartition, Stopped]
    unread: Mapping[TopicPartition, str] = field(default_factory=dict)
    target_starts: Mapping[TopicPartition, int] = field(default_factory=dict)

    def resume(
        self, known: Mapping[TopicPartition, Known], source_starts: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Resumed | Stopped | Unread]:
        """Where each partition goes on, by the state as it is *now*. Raises Overtaken if a fence appeared meanwhile."""
        outcome: dict[TopicPartition, Resumed | Stopped | Unread] = dict(self.stopped)
        outcome |= {tp: Unread(why) for tp, why in self.unread.items()}
        for tp, tail in self.tails.items():
            if tp in self.unread:
                continue
            if known[tp].newest_fence != tail.known.newest_fence:
                raise Overtaken(f"{tp}: another mirror fenced it at the same time")
            # Of a fence before the newest one nothing is written any more.
            is_newest = known[tp].fence == tail.known.fence
            outcome[tp] = tail.stopped or tail.resume(
                known[tp].openings if is_newest else tail.known.openings,
                fence=self.fence,
                marker=self.markers[tp],
                source_start=source_starts.get(tp, 0),
                target_start=self.target_starts.get(tp, 0),
                skips=known[tp].skips,
            )
        return outcome


async def take_over(
    target: WireCluster,
    *,
    transactional_id: str,
    known: Mapping[TopicPartition, Known],
    fences: Mapping[int, Identity],
    may_rewind: Callable[[], bool] = lambda: False,
    needs_all: bool = True,
    timeout: float = SECONDS,
) -> Fenced:
    """Fence all partitions of ``known``, and read what stands in them above what is verified.

    ``fences`` are all so far. ``may_rewind``: whether a log that lost its tail is gone on with where it ends now.
    Unless it ``needs_all``, partitions of whose log nothing can be read within some seconds come back as unread.
    Raises TakenOver, CouldNotFindOut, NotAuthorized, and StateConflict if the transactional id means another producer
    now, and the target does not let us fence the one before directly.
    Partitions whose topic is gone or whose log contradicts what is verified are not fenced, but come back as stopped.
    """
    deadline, may_rewind = time.monotonic() + timeout, cache(may_rewind)
    stopped = await _gone(target, known)
    left = [tp for tp in known if tp not in stopped]
    # Not for long: until the marker is begun, whose leader is gone can still be left out of the fence.
    soon = min(deadline, time.monotonic() + _ASK_SECONDS)
    unread: dict[TopicPartition, str] | None = None if needs_all else {}
    both = [target.net.call_soon_with_future(_listed, target, left, when, soon, unread) for when in (EARLIEST, LATEST)]
    starts, ends = [await listing for listing in both]
    tails: dict[TopicPartition, Tail] = {}
    for tp in left:
        if unread and tp in unread:
            continue
        found = _tail_of(known[tp], starts[tp], ends[tp], fences, may_rewind)
        if isinstance(found, Stopped):
            stopped[tp] = found
        else:
            tails[tp] = found
    identity = await take_identity(target, transactional_id, deadline=deadline)
    previous = fences[max(fences)] if fences else identity
    is_forgotten = identity.producer_id != previous.producer_id
    forgotten = Identity(previous.producer_id, previous.producer_epoch + 1)
    if is_forgotten:
        await _fence_forgotten(target, transactional_id, forgotten, sorted(tails), deadline=deadline)
    markers: dict[TopicPartition, int] = {}
    if tails:
        await write_markers(target, transactional_id, identity, sorted(tails), deadline=deadline)
        await await_completion(target, transactional_id, identity, deadline=deadline)
        # Only now: no more than what stands there by now is written for any fence.
        written = await _listed(target, sorted(tails), LATEST, deadline, unread)

        async def read(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
            return await await_markers(
                target,
                identity,
                {tp: tails[tp].scan_from for tp in partitions},
                lambda tp, header: tails[tp].see(header, identity.producer_id),
                deadline=deadline,
                ends=written,
                unread=unread,
            )

        # By the word of a broker that was cut off a log may have ended too early, and it did not: seen by its own end.
        tails |= {
            tp: Tail(known[tp], starts[tp])
            for tp, end in written.items()
            if tails[tp].known.is_rewound and end > known[tp].verified
        }
        if needs_all:
            # Whoever waits here has everything copied. Where no fence lies between, none can have left a marker.
            for tail in tails.values():
                tail.follows(identity)
        markers, reading = await read(written), set(written)
        while lost := [tp for tp in reading if tails[tp].has_lost and may_rewind()]:
            # From fence to fence, until one is found that the log still has.
            states = {tp: known[tp].rewound(fences, starts[tp], tails[tp].lost_from) for tp in lost}
            rewound = {tp: Tail(state, starts[tp]) for tp, state in states.items() if state is not None}
            tails |= rewound
            reading = set(rewound)
            markers |= await read(reading)
    unbound = [tp for tp in markers if not tails[tp].shows(forgotten)] if is_forgotten else []
    if unbound:
        raise CouldNotFindOut(
            f"target: {len(unbound)} partitions do not show the marker of the forgotten producer, first {min(unbound)}",
            remedy="run this again",
        )
    above = max((state.fence for state in known.values() if state.fence is not None), default=-1)
    return Fenced(
        fence=fence_number(fences, identity, above=above),
        identity=identity,
        markers=markers,
        tails=tails,
        stopped=stopped,
        unread=unread or {},
        target_starts=starts,
    )


async def _listed(
    target: WireCluster,
    partitions: list[TopicPartition],
    when: int,
    until: float,
    unread: dict[TopicPartition, str] | None,
) -> dict[TopicPartition, int]:
    """Offsets of ``partitions``: of all until the time ``until``, or, if ``unread`` are kept apart, of as many as their
    leaders report within some seconds."""
    if unread is None:
        return await target.list_offsets(partitions, when, deadline=until)
    found = await target.offsets_in_reach(partitions, when, seconds=UNREAD_SECONDS)
    unread.update(dict.fromkeys(set(partitions) - found.keys(), "its leader does not report its offsets"))
    return found


def _tail_of(
    state: Known, start: int, end: int, fences: Mapping[int, Identity], may_rewind: Callable[[], bool]
) -> Tail | Stopped:
    """What judges the batches of a log from ``start`` to ``end``; Stopped if these contradict what is verified."""
    if not state.openings:
        # A fence whose author died before it was recorded left its marker: so even a partition that nothing is known of
        # is read from its log start, and only markers of ours may stand there.
        return Tail(Known(openings=(), writer=None, verified=start), start)
    if end < state.verified:
        rewound = state.rewound(fences, start, end) if may_rewind() else None
        if rewound is not None:
            return Tail(rewound, start)
        detail = f"the target's log ends at {end}, although everything up to {state.verified} was confirmed"
        return Stopped(reason=Halt.LOG_REGRESSED, detail=detail, target_offset=end)
    if start > state.verified:
        detail = f"the target's log starts at {start}: what was written from {state.verified} on was deleted"
        return Stopped(reason=Halt.LOG_REGRESSED, detail=detail, target_offset=start)
    return Tail(state, start)


async def _gone(target: WireCluster, known: Mapping[TopicPartition, Known]) -> dict[TopicPartition, Stopped]:
    lost = await survey(target, {tp.topic for tp in known})
    stopped = {}
    for tp, state in known.items():
        if tp.topic in lost:
            reason, detail = lost[tp.topic]
        elif tp.partition not in target.partitions.get(tp.topic, ()):
            reason, detail = Halt.NO_PARTITION, f"the target topic has no partition {tp.partition}"
        else:
            continue
        stopped[tp] = Stopped(reason=reason, detail=detail, target_offset=state.verified)
    return stopped


async def _fence_forgotten(
    target: WireCluster,
    transactional_id: str,
    forgotten: Identity,
    partitions: list[TopicPartition],
    *,
    deadline: float,
) -> None:
    """Bind what an earlier attempt may still send, although its transactional id means another producer now."""
    try:
        await write_markers_directly(target, forgotten, partitions, deadline=deadline)
    except NotAuthorized as error:
        raise StateConflict(
            f"the target forgot transactional id {transactional_id}, or it used up its producer epochs: it was producer"
            f" {forgotten.producer_id}, and now is another, so this fence does not bind what that one may still send",
            remedy="grant ClusterAction on the cluster to the target's principal for this run, which then fences the"
            " earlier producer directly; or see that no earlier mirror of this link runs, and copy its topics again"
            " (`mirror --again TOPIC`)",
        ) from error
