"""One partition's copy: what may be sent, where it must land, and what stops it. No I/O, so every rule is testable.

The rules are those of docs/mirror.md, "Exactly-once". In short: the target offset of every record is known *before* it
is sent (fence end + records since the fence), each answer must confirm it, and anything unexplained stops this
partition, and only this one.
"""

from __future__ import annotations

import enum
import logging
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kafka_migration.copy.orders import Assignment, Limits
from kafka_migration.domain.codes import REFUSED_FOR_GOOD, STALE_LEADER, TAKEN_OVER, TOO_LARGE, UNAUTHORIZED
from kafka_migration.domain.handlers import Handle, HandlerFailed, Record
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.types import Halt, Position, Receipt
from kafka_migration.wire.batch import CorruptBatch, readdress
from kafka_migration.wire.cluster import Leader, code_name, not_authorized
from kafka_migration.wire.fetch_request import Fetched
from kafka_migration.wire.join import Piece
from kafka_migration.wire.pieces import pieces
from kafka_migration.wire.produce_request import Appended

log = logging.getLogger(__name__)

_PAST_LAST_OFFSET = 1 << 63
_PASSING = STALE_LEADER | {3, 7, 13, 19, 20, 100, 103}
"""Answers about the state of a broker or a topic, not about a batch: a timeout, too few replicas, an unknown topic."""


class Stand(enum.StrEnum):
    """How a partition stands within its task."""

    RUN = "run"
    UNSETTLED = "unsettled"
    """A request got no clear answer. Only a fence shows what was appended (docs/mirror.md, rules 2 and 4)."""
    FORBIDDEN = "forbidden"
    """A cluster does not permit what the copy needs. Once it does, a fence shows what was appended."""
    TAKEN_OVER = "taken_over"
    HALTED = "halted"


@dataclass(slots=True, eq=False)
class Prepared:
    """A batch ready to be sent. ``records_before`` counts records since the fence; it is also its first sequence.

    ``continues`` is the source offset after its last record; ``source_end`` may lie further, where nothing follows it.
    ``joined`` is how many of the source's batches it holds, ``openings`` are of the runs that begin in it, ``leader``
    is who was sent it.
    """

    source_start: int
    source_end: int
    continues: int
    source_epoch: int
    records_before: int
    records: int
    max_timestamp: int
    data: bytearray
    joined: int
    openings: tuple[RunOpening, ...]
    openings_durable: bool
    leader: Leader | None = None


class _TimeIsUp(HandlerFailed):
    """No failure: the copy goes on at that record."""


def _within(seconds: float, handle: Handle) -> Handle:
    """``handle``, which begins with no other record once it has taken so many seconds."""
    until = 0.0

    def timed(record: Record) -> Record | None:
        nonlocal until
        now = time.monotonic()
        until = until or now + seconds
        if now > until:
            raise _TimeIsUp("", record.offset, "")
        return handle(record)

    return timed


class PartitionCopy:
    """The copy of one partition within one task."""

    def __init__(
        self, assignment: Assignment, limits: Limits, is_held: Callable[[int], bool] = lambda _max_timestamp: False
    ) -> None:
        """``is_held``: whether what has such a newest timestamp may not be sent yet (rule 7)."""
        self.assignment, self.limits, self._is_held = assignment, limits, is_held
        self.partition = assignment.partition
        self.fetch_offset = assignment.position.source
        self.until = assignment.until
        """Where its copy ends, if it does: a drain that is asked for meanwhile says so, too."""
        self.last_epoch = assignment.source_epoch
        self.stand, self.halt, self.detail = Stand.RUN, "", ""
        self.halting: tuple[Halt, str] | None = None
        self.queue: deque[Prepared] = deque()
        self.queued_bytes = 0
        self.in_flight: deque[Prepared] = deque()
        self.handle: Handle | None = None
        """What its handler makes of each record, if it has one."""
        self.leader: Leader | None = None
        """Of the target, as far as known: who gets what is sent next."""
        self.armed_by: Leader | None = None
        """Who has confirmed a batch, the newest."""
        self.join_bytes, self.most_bytes = assignment.join_bytes, assignment.most_bytes
        self.source = assignment.position.source
        self.continues = self._next_in_run = assignment.continues
        self.source_epoch = assignment.source_epoch
        self.records = self._prepared_records = assignment.position.records
        self.bytes = self.batches = self.unclear = self.passing = 0
        self.lands_seconds = 0.0
        self._empty_up_to: tuple[int, int] | None = None
        self._waits_with: int | None = None

    # -- fetching ---------------------------------------------------------------------------------------------

    @property
    def wants_fetch(self) -> bool:
        return (
            self.stand is Stand.RUN
            and self.halting is None
            and not self.is_past_end
            and self.queued_bytes < self.limits.partition_queue_bytes
            and not self.is_held
        )

    @property
    def is_held(self) -> bool:
        """True if what was fetched last may not be sent yet, and is to be fetched again."""
        return self._waits_with is not None and self._is_held(self._waits_with)

    @property
    def is_past_end(self) -> bool:
        """True once everything up to ``until`` has been fetched."""
        return self.until is not None and self.fetch_offset >= self.until

    def take(self, fetched: Fetched, handling_seconds: float = float("inf")) -> list[RunOpening]:
        """Queue what was fetched; of what a handler handles, as much as it manages in so many seconds. Returns openings
        that must be durable before their batches may be sent."""
        openings: list[RunOpening] = []
        if self.stand is not Stand.RUN or self.halting is not None:
            return openings
        if fetched.diverging_end is not None:
            self.stop_after_queue(
                Halt.TRUNCATED, f"the source's log was truncated to {fetched.diverging_end}, below our position"
            )
            return openings
        try:
            for piece in pieces(
                fetched.records,
                since=self.fetch_offset,
                aborted=fetched.aborted,
                join_bytes=self.join_bytes,
                most_bytes=self.most_bytes,
                handle=None if self.handle is None else _within(handling_seconds, self.handle),
            ):
                if self.is_past_end:
                    break
                if not self.fetch_offset < piece.end < _PAST_LAST_OFFSET:
                    raise CorruptBatch(f"a batch claims to end at offset {piece.end}")
                if piece.batch is None:
                    self._pass_over(piece.end, piece.epoch)
                elif self._is_held(piece.header.max_timestamp):
                    # Fetched again once it may be sent. Queued, its openings would be written ahead, and at the end of
                    # the round it would be waited for in vain, and take another fence.
                    # So it is not true that nothing stands there.
                    self._waits_with, self._empty_up_to = piece.header.max_timestamp, None
                    break
                else:
                    openings += self._prepare(piece, piece.batch)
        except CorruptBatch as error:
            self.stop_after_queue(Halt.CORRUPT, str(error))
        except _TimeIsUp:
            # What is left is fetched again.
            pass
        except HandlerFailed as error:
            self.stop_after_queue(Halt.HANDLER, f"{error}; behind that record: source offset {error.offset + 1}")
        except Exception as error:
            # What nobody foresaw is in this partition's bytes, and would come again: the others have no part in it.
            log.exception("%s: at source offset %d", self.partition, self.fetch_offset)
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{place.filename.rpartition('/')[2]}, line {place.lineno}"
            self.stop_after_queue(Halt.UNREADABLE, f"{type(error).__name__}: {error} ({where})")
        return openings

    def found_nothing(self, fetched: Fetched) -> int | None:
        """The source had room for a batch in its answer, and put none in, of any partition.

        Below its end, that may mean that compaction has removed everything up to there (brokers before 4.0 remove even
        the last batch of a log; KAFKA-17076), or that the broker was late with what lies in remote storage. At the
        second such answer the end is returned up to which there seems to be nothing: whoever knows more may have it
        passed over.
        """
        end, before = fetched.last_stable_offset, self._empty_up_to
        if self.stand is not Stand.RUN or self.halting is not None or end <= self.fetch_offset or self.is_past_end:
            return None
        self._empty_up_to = (self.fetch_offset, end)
        return end if before == self._empty_up_to else None

    def pass_over_nothing(self, end: int) -> None:
        """What :meth:`found_nothing` returned is so: compaction has removed all up to ``end``. Lag would never end
        otherwise. Nothing happens if something came from there meanwhile."""
        if self.stand is Stand.RUN and self.halting is None and self._empty_up_to == (self.fetch_offset, end):
            # Of what stood there nobody knows the leader epoch.
            self._pass_over(end, -1)

    def _pass_over(self, end: int, leader_epoch: int) -> None:
        """Up to ``end`` there is no record to copy: markers, aborted transactions, what compaction left of batches.

        The position moves past it together with what stands before it. The run does not go on behind it: the next
        batch needs an opening, as after any gap.
        """
        self.fetch_offset, self.last_epoch = end, leader_epoch
        last = self.queue[-1] if self.queue else self.in_flight[-1] if self.in_flight else None
        if last is not None:
            last.source_end, last.source_epoch = end, leader_epoch
        else:
            self.source, self.source_epoch = end, leader_epoch

    def _prepare(self, piece: Piece, batch: memoryview) -> Sequence[RunOpening]:
        header, before, leader_epoch = piece.header, self._prepared_records, piece.epoch
        openings: tuple[RunOpening, ...] = ()
        # A new leader epoch begins a run, too: by it a later attempt recognises a source that was truncated meanwhile.
        if header.base_offset != self._next_in_run or header.leader_epoch != self.last_epoch:
            openings = (self._opening(before, header.base_offset, header.leader_epoch),)
        if piece.runs:
            openings += tuple(self._opening(before + run.before, run.source, run.epoch) for run in piece.runs[1:])
        data = readdress(
            batch,
            producer_id=self.assignment.producer_id,
            producer_epoch=self.assignment.producer_epoch,
            sequence=before,
        )
        self.queue.append(
            Prepared(
                source_start=header.base_offset,
                source_end=piece.end,
                continues=piece.continues,
                source_epoch=leader_epoch,
                records_before=before,
                records=header.records,
                max_timestamp=header.max_timestamp,
                data=data,
                joined=piece.joined,
                openings=openings,
                openings_durable=not openings,
            )
        )
        self.queued_bytes += len(data)
        self._prepared_records += header.records
        self.fetch_offset, self._next_in_run, self.last_epoch = piece.end, piece.continues, leader_epoch
        return openings

    def _opening(self, records: int, source: int, leader_epoch: int) -> RunOpening:
        return RunOpening(
            fence=self.assignment.position.fence,
            records=records,
            source=source,
            target=self.assignment.fence_end + records,
            closes=self.assignment.closes if records == 0 else None,
            epoch=leader_epoch,
        )

    def openings_are_durable(self, openings: list[RunOpening]) -> None:
        """The write-ahead of these openings succeeded (docs/mirror.md, rule 6)."""
        durable = set(openings)
        for prepared in self.queue:
            if prepared.openings and durable.issuperset(prepared.openings):
                prepared.openings_durable = True

    # -- sending ----------------------------------------------------------------------------------------------

    @property
    def sendable(self) -> Prepared | None:
        """The batch to send next, or None. To a leader that has confirmed none yet, one request at a time (rule 4)."""
        if self.stand is not Stand.RUN or not self.queue or not self.queue[0].openings_durable:
            return None
        is_armed = self.leader is not None and self.leader == self.armed_by
        window = self.limits.in_flight_requests if is_armed else 1
        return self.queue[0] if len(self.in_flight) < window else None

    def sent(self) -> Prepared:
        """The sendable batch is on its way."""
        prepared = self.queue.popleft()
        self.queued_bytes -= len(prepared.data)
        prepared.leader = self.leader
        self.in_flight.append(prepared)
        return prepared

    def not_sent(self, prepared: Prepared) -> None:
        """The connection took nothing: the batch stands first in the queue again, as it was."""
        if not self.in_flight or self.in_flight[-1] is not prepared:
            raise ValueError(f"{self.partition}: only the batch sent last can be taken back")
        self.in_flight.pop()
        self.queue.appendleft(prepared)
        self.queued_bytes += len(prepared.data)

    def answered(self, prepared: Prepared, answer: Appended) -> None:
        """The broker's answer. Success counts only at the offset where the record count puts the batch."""
        if not self._settle(prepared) or self.stand is not Stand.RUN:
            return
        if answer.error == 0:
            self._confirm(prepared, answer)
        elif answer.error in TAKEN_OVER:
            self.stand, self.detail = Stand.TAKEN_OVER, code_name(answer.error)
        elif answer.error in UNAUTHORIZED:
            self.forbid("target", "Write")
        elif answer.error in TOO_LARGE and prepared.records > 1:
            # The topic takes less than what we joined, or re-encoded, or than the source's. Nothing was appended, but
            # what was sent after it waits in vain.
            if prepared.joined > 1:
                self.join_bytes = len(prepared.data) // 2
            else:
                self.most_bytes = len(prepared.data) // 2
            self._unsettle(
                f"a batch of {len(prepared.data)} bytes is too large for the target; smaller ones are sent from now on"
            )
        elif answer.error in REFUSED_FOR_GOOD:
            why = f"{code_name(answer.error)} {answer.message}".strip()
            offsets = f"{prepared.source_start} to {prepared.source_end - 1}"
            self._halt(
                Halt.REFUSED,
                f"the target refuses the batch of source offsets {offsets}: {why}; the next one begins at source offset"
                f" {prepared.source_end}",
            )
        else:
            self._doubt(code_name(answer.error), is_passing=answer.error in _PASSING)

    def unanswered(self, prepared: Prepared, why: str, *, is_passing: bool = False, lands_seconds: float = 0.0) -> None:
        """No answer came: the batch may have been appended, or still be, for so many seconds. ``is_passing``: by no
        fault of its own."""
        self.lands_seconds = max(self.lands_seconds, lands_seconds)
        if self._settle(prepared) and self.stand is Stand.RUN:
            self._doubt(why, is_passing=is_passing)

    def forbid(self, role: str, operation: str) -> None:
        """A broker of cluster ``role`` refuses ``operation`` on the topic."""
        if self.stand is Stand.RUN:
            self.stand, self.detail = Stand.FORBIDDEN, not_authorized(role, operation, self.partition.topic)

    def _doubt(self, why: str, *, is_passing: bool) -> None:
        if is_passing:
            self.passing += 1
        else:
            self.unclear += 1
        self._unsettle(why)

    def _unsettle(self, why: str) -> None:
        self.stand, self.detail = Stand.UNSETTLED, why

    def _settle(self, prepared: Prepared) -> bool:
        """False if the batch was given up before: an answer that comes so late changes nothing any more."""
        if prepared not in self.in_flight:
            return False
        self.in_flight.remove(prepared)
        return True

    def _confirm(self, prepared: Prepared, answer: Appended) -> None:
        base_offset, log_start = answer.base_offset, answer.log_start_offset
        expected = self.assignment.fence_end + prepared.records_before
        if prepared.records_before != self.records:
            # An earlier batch of this partition failed, and this later one was accepted all the same (case C).
            detail = (
                f"the batch that begins with record {prepared.records_before} was accepted at {base_offset}, although"
                f" {self.records} records are confirmed"
            )
            self._halt(Halt.FOREIGN_WRITER, detail)
        elif base_offset != expected:
            reason = Halt.FOREIGN_WRITER if base_offset > expected else Halt.LOG_REGRESSED
            self._halt(reason, f"a batch landed at {base_offset}, it belongs at {expected}")
        elif answer.log_append_time_ms >= 0:
            self._halt(
                Halt.ALTERED,
                f"the target gave source offsets {prepared.source_start} to {prepared.source_end} the timestamp"
                f" {answer.log_append_time_ms} instead of their own: message.timestamp.type is not CreateTime there",
            )
        elif log_start > self.assignment.target_start:
            self._halt(
                Halt.LOG_REGRESSED,
                f"the target's log began at {self.assignment.target_start}, and begins at {log_start} now: the records"
                " between were deleted",
            )
        else:
            self.armed_by = prepared.leader
            self.source, self.continues = prepared.source_end, prepared.continues
            self.source_epoch = prepared.source_epoch
            self.records += prepared.records
            self.bytes += len(prepared.data)
            self.batches += 1

    # -- stopping ---------------------------------------------------------------------------------------------

    def stop_after_queue(self, reason: Halt, detail: str) -> None:
        """Halt, once what was fetched before the obstacle has been copied."""
        if self.halting is None:
            self.halting = (reason, f"at source offset {self.fetch_offset}: {detail}")

    def _halt(self, reason: Halt, detail: str) -> None:
        self.stand, self.halt, self.detail = Stand.HALTED, str(reason), detail

    def settle_halt(self) -> None:
        """Turn a pending halt into one, once nothing before it is left to copy."""
        if self.halting is not None and self.stand is Stand.RUN and not self.queue and not self.in_flight:
            self._halt(*self.halting)

    @property
    def is_done(self) -> bool:
        """True if this task can do nothing more for the partition."""
        if self.in_flight:
            return False
        return self.stand is not Stand.RUN or (self.is_past_end and not self.queue)

    @property
    def has_runs_ahead(self) -> bool:
        """True if dropping the queue would take a fence."""
        return self.stand is Stand.RUN and any(prepared.openings for prepared in self.queue)

    @property
    def is_dear(self) -> bool:
        """True if dropping the queue would take a fence, or what may have taken a handler as long as a round."""
        return self.has_runs_ahead or (self.handle is not None and self.stand is Stand.RUN and bool(self.queue))

    def drop_queue(self) -> None:
        """Forget what was fetched but not sent; the position knows nothing of it.

        Openings written ahead for it stay behind in the offset map, and are void only after a fence
        (docs/mirror.md, rule 6): should the source be compacted before the partition goes on, the same record
        counts would mean others.
        """
        if self.has_runs_ahead:
            self._unsettle("runs were written ahead for batches that were not sent")
        self.queue.clear()
        self.queued_bytes = 0

    # -- reporting --------------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """Everything before it is confirmed by the target."""
        return Position(
            source=self.source,
            target=self.assignment.fence_end + self.records,
            fence=self.assignment.position.fence,
            records=self.records,
        )

    def receipt(self) -> Receipt:
        """What this task did for the partition."""
        start = self.assignment.position
        return Receipt(
            topic=self.partition.topic,
            partition=self.partition.partition,
            fence=start.fence,
            source_start=start.source,
            source_end=self.source,
            continues=self.continues,
            target_start=start.target,
            target_end=self.position.target,
            records=self.records - start.records,
            bytes=self.bytes,
            batches=self.batches,
            source_epoch=self.source_epoch,
            join_bytes=self.join_bytes,
            most_bytes=self.most_bytes,
            stand=str(self.stand),
            halt=self.halt,
            detail=self.detail,
            unclear=self.unclear,
            passing=self.passing,
            lands_seconds=self.lands_seconds,
        )
