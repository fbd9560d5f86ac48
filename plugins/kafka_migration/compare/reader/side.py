"""One side of a segment: fetched ahead, as batches, and decoded into columns."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import kafka.errors as kafka_errors
import numpy as np
from kafka.future import Future

from kafka_migration.compare.decode.columns import Columns, Damaged, Record
from kafka_migration.compare.reader.client import Client
from kafka_migration.compare.reader.handled import Handled
from kafka_migration.compare.reader.log import Log
from kafka_migration.compare.reading import CannotRead, Unanswered, fetch_size
from kafka_migration.domain.codes import OFFSET_OUT_OF_RANGE, UNAUTHORIZED, UNKNOWN_TOPIC_OR_PARTITION
from kafka_migration.domain.handlers import HandlerFailed
from kafka_migration.domain.types import TopicPartition

_FINAL = UNAUTHORIZED | {OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION}

#: A compacted log that sends nothing for so long has nothing.
_EMPTY_SECONDS = 1.0
_LAGGING_SECONDS = 5.0


class Batches(NamedTuple):
    """Those of one answer. What ``mask`` has of the ``log`` is to be read; the records of each stand from its place in
    ``begins`` on."""

    log: Log
    mask: Any
    begins: Any


class Side:
    """The records of one partition from ``start`` up to, and without, ``end``, as a consumer sees them: of committed
    records (``committed``), or whatever stands there. A few around the bounds may come with them.

    Nothing of ``left_out`` is read but what shares a batch with others: it may be damaged. ``may_lack``: what
    the leader does not send is not there, since the log is compacted. A leader that does not answer is waited for,
    ``seconds`` long. What ``handled`` makes of the records takes their place.
    """

    def __init__(
        self,
        client: Client,
        tp: TopicPartition,
        start: int,
        end: int,
        *,
        committed: bool,
        seconds: float,
        may_lack: bool = False,
        left_out: tuple[tuple[int, int], ...] = (),
        handled: Handled | None = None,
    ) -> None:
        self._client, self._tp, self._committed, self._seconds = client, tp, committed, seconds
        self.start, self._at, self.end, self.left_out = start, start, end, left_out
        self._may_lack, self.handled = may_lack, handled
        self._ahead: Future | None = None
        self._silent_since: float | None = None
        self._bytes = self.traits = self.attributes = 0
        self._pass_over()

    def begin(self) -> None:
        """Ask for what comes next, unless that was done."""
        if self._ahead is None and self._at < self.end and self._client.knows(self._tp):
            self._ahead = self._fetch()

    def _fetch(self) -> Future:
        size = fetch_size(self._at - self.start, self.end - self._at, self._bytes)
        return self._client.begin_fetch(self._tp, self._at, size, committed=self._committed)

    def next(self) -> Columns | None:
        """The records of the next answer; None at the end. Raises CannotRead."""
        found = self.next_batches()
        return self.decoded(found.log, found.mask) if found else None

    def decoded(self, log: Log, mask: Any) -> Columns:
        """The records of these batches. Raises CannotRead."""
        try:
            return log.decoded(mask, self.handled)
        except (Damaged, HandlerFailed) as error:
            raise self._wrong(error) from error

    def records(self, batch: bytes) -> list[Record]:
        """The records of one batch as it is stored, each in its parts. Raises CannotRead."""
        try:
            return [*Log(batch).records(0, self.handled)]
        except (Damaged, HandlerFailed) as error:
            raise self._wrong(error) from error

    def verified(self, log: Log, at: int) -> memoryview:
        """The records section of the batch at this place, as it is stored. Raises CannotRead if its checksum is
        wrong."""
        try:
            return log.verified(at)
        except Damaged as error:
            raise self._wrong(error) from error

    def next_batches(self) -> Batches | None:
        """The batches of the next answer; None at the end. Raises CannotRead."""
        while self._at < self.end:
            answer = self._answer()
            records = answer.records or b""
            self._bytes += len(records)
            try:
                log = Log(records)
                if not len(log):
                    self._nothing(answer)
                    continue
                found = self._of_interest(log, answer.aborted_transactions or ())
            except Damaged as error:
                raise self._cannot(str(error)) from error
            self._silent_since = None
            self._pass_over()
            # Looked at while the broker prepares the next answer.
            self.begin()
            return found
        return None

    def drop(self) -> None:
        """Nobody waits for what was asked for ahead."""
        if self._ahead is not None:
            self._ahead.add_errback(lambda _error: None)
            self._ahead = None

    def _answer(self) -> Any:
        until, is_sure = time.monotonic() + self._seconds, False
        while True:
            left = max(0.1, until - time.monotonic())
            try:
                if not self._client.knows(self._tp):
                    self._client.look_for_leader(self._tp, left)
                ahead, self._ahead = self._ahead or self._fetch(), None
                response = self._client.wait(ahead, left)
                if not response.responses:
                    # A quota: the broker says for how long it gives nothing.
                    until += response.throttle_time_ms / 1000
                    raise kafka_errors.ThrottlingQuotaExceededError()
                answer = response.responses[0].partitions[0]
                if not answer.error_code:
                    return answer
                error: kafka_errors.KafkaError = kafka_errors.for_code(answer.error_code)()
                if answer.error_code in _FINAL and is_sure:
                    is_gone = answer.error_code == OFFSET_OUT_OF_RANGE
                    raise self._cannot("the log holds no such offset by now" if is_gone else type(error).__name__)
                # Of the leader that was looked for now it counts: another broker may know less.
                is_sure = True
            except kafka_errors.KafkaError as found:
                error = found
            if time.monotonic() >= until:
                why = str(error) or type(error).__name__
                raise Unanswered(self._cannot(f"no answer for {self._seconds:g} s: {why}").message)
            self._client.pause()
            try:
                self._client.look_for_leader(self._tp, max(0.1, until - time.monotonic()))
            except kafka_errors.KafkaError:
                continue

    def _of_interest(self, log: Log, aborted: Any) -> Batches:
        """The batches that hold records that count. Moves on behind all that there are."""
        offsets, ends = log.headers["offset"], log.ends
        is_old = log.headers["magic"] < 2
        # No consumer goes back: a batch below what came before it holds nothing.
        behind = np.maximum.accumulate(np.concatenate(([self._at], ends[:-1])))
        # Those in a message of an old format begin anywhere behind the message before it.
        begins = np.where(is_old, behind, offsets)
        is_beyond = begins >= self.end
        mask = (ends > behind) & ~is_beyond
        is_left_out = np.zeros(len(log), np.bool_)
        for low, high in self.left_out:
            is_left_out |= (begins >= low) & (ends <= high)
        mask &= ~is_left_out
        if self._committed:
            transactions = [(one.producer_id, one.first_offset) for one in aborted]
            hidden = log.hidden(transactions, set(np.flatnonzero(is_left_out | is_beyond).tolist()))
        else:
            hidden = log.controls()
        # Of a transaction that compaction has emptied a batch without records stays.
        hidden |= ~is_old & (log.headers["records"] == 0)
        for at in np.flatnonzero(mask & hidden).tolist():
            # What it hides, and where it ends, is as damaged as the batch.
            log.verified(at)
        mask &= ~hidden
        traits, attributes = log.traits(mask)
        self.traits |= traits
        self.attributes |= attributes
        self._at = max(self._at, int(ends.max()))
        return Batches(log, mask, begins)

    def _pass_over(self) -> None:
        for low, high in self.left_out:
            if low <= self._at < high:
                self._at = high

    def _nothing(self, answer: Any) -> None:
        """The answer had room for a batch and holds none: the log ends before what was pinned, or compaction has
        removed all up to its end, or the broker is late with what lies in remote storage. It counts once the answer
        comes twice."""
        now = time.monotonic()
        if self._silent_since is None:
            self._silent_since = now
            return
        upper = answer.last_stable_offset if self._committed else answer.high_watermark
        if upper < self.end and now - self._silent_since < min(_LAGGING_SECONDS, self._seconds):
            # A new leader learns only by and by how far its log is confirmed.
            self._client.forget_leader(self._tp)
            self._client.pause()
        elif upper < self.end:
            raise self._cannot(f"the log ends at {upper} by now, before the pinned end {self.end}")
        elif self._may_lack and now - self._silent_since > _EMPTY_SECONDS:
            self._at = self.end
        elif now - self._silent_since > self._seconds:
            raise Unanswered(self._cannot(f"the broker sends nothing, although the log goes on to {upper}").message)
        else:
            self._client.pause()

    def _cannot(self, problem: str) -> CannotRead:
        where = f"{self._client.role}: {self._tp} from offset {self._at} on"
        return CannotRead(f"{where}: {problem}", remedy="run this again")

    def _wrong(self, error: Exception) -> CannotRead:
        """What names its own offset."""
        remedy = "correct the handler" if isinstance(error, HandlerFailed) else ""
        return CannotRead(f"{self._client.role}: {self._tp}: {error}", remedy=remedy)
