"""One segment compared batch by batch, both sides side by side.

Where a batch of the source and one of the target hold the same bytes (records section, and what the header holds of
them: codec, timestamps, count), and by the offset map their records stand at each other's offsets, all records
in them are equal, and no one needs to decode them. Each side counts such a batch by its own header, bytes and place, so
that the two digests stay two numbers: a pair that was taken for equal and is not would still make them differ.
Everything else (joined or re-encoded, cut at the segment's bounds, wrong) is decoded on both sides, and goes into the
same digest as record level's. Both sums add up whatever the order, so which batches are decoded changes what a digest
looks like, and never whether two are equal.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import xxhash

from kafka_migration.compare.digests import Digest
from kafka_migration.compare.placing import SourceSums, Sums, TargetSums
from kafka_migration.compare.reader.side import Batches, Side
from kafka_migration.compare.request import PartitionRange

_CODEC, _STAMPED = 0x07, 0x08
#: Offset and length, behind which a batch's length counts, and the rest of a header before the records section.
_BEFORE = 61 - 12
_PLACE = struct.Struct(">qiqqii16s")
_xxh128, _xxh128_number = xxhash.xxh3_128_digest, xxhash.xxh3_128_intdigest


def compare(
    segment: PartitionRange, both: tuple[Side, Side], *, decode_all: bool = False
) -> tuple[Digest, Digest, int]:
    """The digests of both sides of ``segment``, and traits of the source's batches (:class:`.digests.SegmentOutcome`).
    ``decode_all`` proves nothing by bytes.

    Raises CannotRead where either side cannot be read, or a batch is damaged.
    """
    source, target = _Source(segment, both[0]), _Target(segment, both[1])
    try:
        # Both clusters read ahead.
        for side in both:
            side.begin()
        while source.has_more() | target.has_more():
            if not (source.left and target.left):
                source.decode(source.left)
                target.decode(target.left)
            elif twins := [] if decode_all else _twins(source, target):
                source.prove([body for body, _ in twins])
                target.prove([body for _, body in twins])
            elif count := source.until(target.last):
                # The source first, up to where the target's batch ends: behind it both may begin at one place again.
                source.decode(count)
            else:
                target.decode(1)
    finally:
        for side in both:
            side.drop()
    target.sums.see(both[1].attributes)
    return source.sums.digest(), target.sums.digest(), both[0].traits


def _twins(source: _Batches, target: _Batches) -> list[tuple[bytes, bytes]]:
    """The hashes of both sides' records sections, of the next batches that hold the same, up to the first that do not.
    Raises CannotRead."""
    ours, theirs = source.facts, target.facts
    if ours[0].tobytes() != theirs[0].tobytes():
        return []
    count = min(len(ours), len(theirs))
    differs = (ours[:count] != theirs[:count]).any(axis=1)
    found = []
    for n in range(int(differs.argmax()) if differs.any() else count):
        bodies = source.body(n), target.body(n)
        if bodies[0] != bodies[1]:
            break
        found.append(bodies)
    return found


class _Batches:
    """One side: what is ``left`` of the batches of one answer, and the ``sums`` over all that came before."""

    #: As places of batches that prove nothing: on both sides another.
    no_place: int

    def __init__(self, segment: PartitionRange, side: Side, sums: Sums) -> None:
        self.segment, self.sums, self._side = segment, sums, side
        self._at, self._which = 0, np.empty(0, np.int64)
        self._to_decode: Any = np.empty(0, np.bool_)

    @property
    def left(self) -> int:
        """How many batches."""
        return len(self._which) - self._at

    @property
    def facts(self) -> Any:
        """What batches of the same records have in common, as rows of int64: the source offset of the first record,
        codec, both timestamps, the last offset's distance from the first, how many there are, and their bytes."""
        return self._facts[self._at :]

    def has_more(self) -> bool:
        """Whether any is left: of the next answer, if this one's are through. Raises CannotRead."""
        while not self.left:
            if self._to_decode.any():
                self.sums.add(self._side.decoded(self._log, self._to_decode))
                self._to_decode[:] = False
            answer = self._side.next_batches()
            if answer is None:
                return False
            self._begin(answer)
        return True

    def _begin(self, answer: Batches) -> None:
        self._log, self._at, self._which = answer.log, 0, np.flatnonzero(answer.mask)
        self._to_decode = np.zeros(len(answer.log), np.bool_)
        headers = answer.log.headers[self._which]
        attributes = headers["attributes"].astype(np.int64)
        places = self._places(headers, answer.begins[self._which], answer.log.ends[self._which])
        proves = (headers["magic"] == 2) & ((attributes & _STAMPED) == 0) & (places >= 0)
        columns = [headers[name].astype(np.int64) for name in ("timestamp", "largest", "last_delta", "records")]
        size = headers["length"].astype(np.int64)
        self._facts = np.column_stack([np.where(proves, places, self.no_place), attributes & _CODEC, *columns, size])

    def _places(self, headers: Any, begins: Any, ends: Any) -> Any:
        """Of each batch the source offset of its first record; negative where it is cut by the segment's bounds, or its
        records do not stand in a row there."""
        raise NotImplementedError

    def body(self, n: int) -> bytes:
        """The hash of the records section of the batch ``n`` further on. Raises CannotRead."""
        return _xxh128(self._side.verified(self._log, int(self._which[self._at + n])))

    def prove(self, bodies: list[bytes]) -> None:
        """Count the next batches, which need no decoding: by what this side has of them, and the hashes of their
        records sections."""
        facts = self.facts[: len(bodies)]
        *_, records, size = facts.sum(axis=0).tolist()
        rows = facts[:, :-1].tolist()
        numbers = [_xxh128_number(_PLACE.pack(*row, body)) for row, body in zip(rows, bodies, strict=True)]
        self.sums.prove(numbers, records=records, size=size - _BEFORE * len(bodies))
        self._at += len(bodies)

    def decode(self, count: int) -> None:
        """Have the next batches decoded."""
        self._to_decode[self._which[self._at : self._at + count]] = True
        self._at += count


class _Source(_Batches):
    no_place = -1

    def __init__(self, segment: PartitionRange, side: Side) -> None:
        super().__init__(segment, side, SourceSums(segment))

    def _places(self, headers: Any, begins: Any, ends: Any) -> Any:
        self._begins = begins
        segment = self.segment
        is_whole = (begins >= segment.source_start) & (ends <= segment.source_end)
        is_whole &= headers["last_delta"] + 1 == headers["records"]
        for low, high in segment.left_out:
            is_whole &= (ends <= low) | (begins >= high)
        return np.where(is_whole, begins, self.no_place)

    def until(self, last: int) -> int:
        """How many of the next batches begin at this offset or before it."""
        return int(np.searchsorted(self._begins[self._at :], last, "right"))


class _Target(_Batches):
    no_place = -2

    def __init__(self, segment: PartitionRange, side: Side) -> None:
        super().__init__(segment, side, TargetSums(segment))

    def _places(self, headers: Any, begins: Any, ends: Any) -> Any:
        segment, runs = self.segment, self.segment.runs
        if not len(runs):
            self._lasts = np.full(len(begins), segment.source_end)
            return np.full(len(begins), self.no_place)
        behind = runs.targets + runs.lengths
        run = np.minimum(np.searchsorted(behind, begins, "right"), len(runs) - 1)
        in_one = (begins >= runs.targets[run]) & (ends <= behind[run])
        # A batch that was joined may hold records of many runs.
        end_in = np.maximum(run, np.searchsorted(runs.targets, ends, "left") - 1)
        self._lasts = runs.sources[end_in] + np.maximum(0, np.minimum(ends, behind[end_in]) - runs.targets[end_in] - 1)
        in_one &= (begins >= segment.target_start) & (ends <= segment.target_end)
        return np.where(in_one, runs.sources[run] + begins - runs.targets[run], self.no_place)

    @property
    def last(self) -> int:
        """The source offset of the next batch's last record, by the offset map."""
        return int(self._lasts[self._at])
