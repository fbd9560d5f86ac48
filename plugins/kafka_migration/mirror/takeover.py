"""Taking a link over: fence every partition, explain every record above what is known, and say where to go on.

The tail of each target partition is read from the last verified offset up to the fence's marker. Each batch must be
one that the link itself wrote, at the place that its sequence says (MIRROR.md, rule 5). What cannot be explained halts
the partition: counting it as progress would turn a duplicate, a hole or a foreign record into silent loss.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_migration.domain.errors import StateConflict
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.types import Halt, Identity, Position, TopicPartition
from kafka_migration.wire.batch import MAX_SEQUENCE, BatchHeader
from kafka_migration.wire.cluster import EARLIEST, LATEST, WireCluster
from kafka_migration.wire.fence import await_markers, take_identity, write_markers


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What state says of a partition before a takeover.

    ``openings`` of its newest fence, in order (empty if it was never fenced); ``writer`` is who wrote since that
    fence; ``verified`` a target offset below which everything is known to be ours.
    """

    openings: tuple[RunOpening, ...]
    writer: Identity | None
    verified: int

    @property
    def fence_end(self) -> int:
        return self.openings[0].target if self.openings else self.verified


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """Where a partition goes on after a fence; ``opening`` must be made durable before anything is sent."""

    position: Position
    opening: RunOpening


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """Why a partition cannot go on. ``target_offset`` is where the trouble was seen."""

    reason: Halt
    detail: str
    target_offset: int


class Tail:
    """Judges the batches of one target partition, from ``known.verified`` up to the fence's marker."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self.records = known.verified - known.fence_end
        self.data_end = known.verified
        self.marker_seen = False
        self.stopped: Stopped | None = None

    def see(self, header: BatchHeader, producer_id: int) -> None:
        """One batch, in log order. The first trouble counts; what follows it is not judged."""
        if self.stopped is not None:
            return
        if header.is_control and header.producer_id == producer_id:
            if not self.marker_seen:
                self.marker_seen, self.data_end = True, header.base_offset
            return
        writer = self.known.writer
        ours = (
            writer is not None
            and not header.is_control
            and (header.producer_id, header.producer_epoch) == (writer.producer_id, writer.producer_epoch)
        )
        if not ours or self.marker_seen:
            self._stop(Halt.FOREIGN_WRITER, header, f"a batch of producer {header.producer_id}, which is not this link")
            return
        place = header.base_offset - self.known.fence_end
        if place % MAX_SEQUENCE != header.base_sequence:
            what = "comes twice or after something foreign" if place > header.base_sequence else "leaves a hole"
            self._stop(
                Halt.DUPLICATED, header, f"the batch with sequence {header.base_sequence} {what}, at place {place}"
            )
            return
        if header.base_offset != self.data_end:
            self._stop(Halt.LOG_REGRESSED, header, f"nothing stands at {self.data_end}")
            return
        self.data_end = header.next_offset
        self.records = place + header.records

    def _stop(self, reason: Halt, header: BatchHeader, detail: str) -> None:
        self.stopped = Stopped(reason=reason, detail=detail, target_offset=header.base_offset)

    def resume(self, *, fence: int, marker: int, source_start: int) -> Resumed | Stopped:
        """Where to go on behind ``marker``. ``source_start`` counts only if nothing was ever mirrored."""
        if self.stopped is not None:
            return self.stopped
        source = source_start
        for opening in self.known.openings:
            if opening.records <= self.records:
                source = opening.source + (self.records - opening.records)
        opening = RunOpening(fence=fence, records=0, source=source, target=marker + 1, closes=self.data_end)
        return Resumed(position=Position(source=source, target=marker + 1, fence=fence, records=0), opening=opening)


async def take_over(
    target: WireCluster,
    *,
    transactional_id: str,
    fence: int,
    known: Mapping[TopicPartition, Known],
    source_starts: Mapping[TopicPartition, int],
    previous: Identity | None,
    timeout: float = 120.0,
) -> tuple[Identity, dict[TopicPartition, Resumed | Stopped]]:
    """Fence all partitions of ``known`` and find where each goes on. ``fence`` is the new fence's ordinal.

    Raises TakenOver, CouldNotFindOut, NotAuthorized. Partitions whose log ends before what is verified, or that hold
    records before the first fence, are not fenced: they come back as :class:`Stopped`.
    """
    deadline = time.monotonic() + timeout
    starts = await target.list_offsets(known, EARLIEST, deadline=deadline)
    ends = await target.list_offsets(known, LATEST, deadline=deadline)
    outcome: dict[TopicPartition, Resumed | Stopped] = {}
    tails: dict[TopicPartition, Tail] = {}
    for tp, state in known.items():
        if state.openings and ends[tp] < state.verified:
            detail = f"the target's log ends at {ends[tp]}, although everything up to {state.verified} was confirmed"
            outcome[tp] = Stopped(reason=Halt.LOG_REGRESSED, detail=detail, target_offset=ends[tp])
        else:
            # A fence whose author died before it was recorded left its marker: so even a partition that nothing is
            # known of is read from its log start, and only markers of ours may stand there.
            never = Known(openings=(), writer=None, verified=starts[tp])
            tails[tp] = Tail(state if state.openings else never)
    node, identity = await take_identity(target, transactional_id, deadline=deadline)
    if previous is not None and identity.producer_id != previous.producer_id:
        raise _identity_lost(transactional_id, previous, identity)
    if tails:
        await write_markers(target, node, transactional_id, identity, sorted(tails), deadline=deadline)
        markers = await await_markers(
            target,
            identity,
            {tp: tail.known.verified for tp, tail in tails.items()},
            lambda tp, header: tails[tp].see(header, identity.producer_id),
            deadline=deadline,
        )
        for tp, tail in tails.items():
            outcome[tp] = tail.resume(fence=fence, marker=markers[tp], source_start=source_starts.get(tp, 0))
    return identity, outcome


def _identity_lost(transactional_id: str, previous: Identity, identity: Identity) -> StateConflict:
    return StateConflict(
        f"the target forgot transactional id {transactional_id}: its producer id was {previous.producer_id},"
        f" now it is {identity.producer_id}, so this fence does not bind what the earlier one may still send",
        remedy="make sure that no earlier mirror of this link runs, then mirror its topics again from the beginning",
    )
