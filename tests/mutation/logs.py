"""A partition's log as something to put a fault into: batches as they are stored, of which only touched ones are
encoded anew."""

import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import crc32c

from kafka_migration.wire import codecs
from kafka_migration.wire.batch import BatchHeader, assemble, batches, readdress
from kafka_migration.wire.records import RawRecord, encode_records, raw_records, read_varint, write_varint

_ATTRIBUTES, _STAMP, _CRC = struct.Struct(">H"), struct.Struct(">q"), struct.Struct(">I")

Headers = tuple[tuple[bytes, bytes | None], ...]


class Content(NamedTuple):
    """What a record is, wherever it stands."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


def decoded(timestamp: int, rest: bytes) -> Content:
    """The content of a record whose key, value and headers are encoded."""
    key, at = _sized(rest, 0)
    value, at = _sized(rest, at)
    count, at = read_varint(rest, at)
    headers = []
    for _ in range(count):
        name, at = _sized(rest, at)
        content, at = _sized(rest, at)
        headers.append((name or b"", content))
    return Content(key, value, tuple(headers), timestamp)


@lru_cache(maxsize=50_000)
def encoded(content: Content) -> bytes:
    """Its inverse, without the timestamp."""
    parts = [_field(content.key), _field(content.value), write_varint(len(content.headers))]
    for name, value in content.headers:
        parts += (_field(name), _field(value))
    return b"".join(parts)


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = read_varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _field(value: bytes | None) -> bytes:
    return write_varint(-1) if value is None else write_varint(len(value)) + value


@dataclass
class Stored:
    """One batch. `raw` is as it was stored; None once it was touched. `attributes` are more bits for its header, and
    `later` is added to its base timestamp: neither touches the records' bytes."""

    codec: int
    count: int
    raw: bytes | None
    records: list[tuple[int, bytes]] = field(default_factory=list)
    attributes: int = 0
    later: int = 0

    @classmethod
    def of(cls, header: BatchHeader, batch: bytes) -> "Stored":
        return cls(header.codec, header.records, batch)

    def open(self) -> list[tuple[int, bytes]]:
        """Its records, to be changed: timestamps, and the rest as encoded."""
        if self.raw is not None:
            ((header, batch),) = batches(self.raw)
            base = header.base_timestamp
            self.records = [(base + one.timestamp_delta, one.rest) for one in raw_records(header, batch)]
            self.raw = None
        return self.records

    def copy(self) -> "Stored":
        return replace(self, records=list(self.records))

    def to_append(self) -> bytes:
        """What a broker takes."""
        made = self._encoded()
        if not self.attributes and not self.later:
            return made
        odd = bytearray(made)
        (attributes,) = _ATTRIBUTES.unpack_from(odd, 21)
        _ATTRIBUTES.pack_into(odd, 21, attributes | self.attributes)
        for at in (27, 35):
            (stamp,) = _STAMP.unpack_from(odd, at)
            _STAMP.pack_into(odd, at, stamp + self.later)
        _CRC.pack_into(odd, 17, crc32c.crc32c(bytes(odd[21:])))
        return bytes(odd)

    def _encoded(self) -> bytes:
        if self.raw is not None:
            return bytes(readdress(self.raw, producer_id=-1, producer_epoch=-1, sequence=-1 % 2**31))
        base = self.records[0][0]
        raw = [RawRecord(stamp - base, n, 0, rest) for n, (stamp, rest) in enumerate(self.records)]
        return assemble(
            attributes=self.codec,
            base_timestamp=base,
            max_timestamp=max(stamp for stamp, _ in self.records),
            count=len(raw),
            payload=codecs.compress(self.codec, encode_records(raw)),
        )


@dataclass
class Log:
    """Batches in `sections`, before each of which stand so many markers (`gaps`)."""

    sections: list[list[Stored]]
    gaps: list[int]

    @classmethod
    def stored(cls, found: Iterable[tuple[BatchHeader, bytes]]) -> "Log":
        """A log as a broker stores it."""
        log = cls([], [])
        is_gap = True
        for header, batch in found:
            if header.is_control:
                if is_gap and log.gaps:
                    log.gaps[-1] += 1
                else:
                    log._begin(1)
                is_gap = True
                continue
            if not log.sections:
                log._begin(0)
            log.sections[-1].append(Stored.of(header, batch))
            is_gap = False
        return log

    def _begin(self, gap: int) -> None:
        self.sections.append([])
        self.gaps.append(gap)

    def copy(self) -> "Log":
        return Log([[batch.copy() for batch in section] for section in self.sections], list(self.gaps))

    def __len__(self) -> int:
        return sum(batch.count for section in self.sections for batch in section)

    def _place(self, n: int) -> tuple[list[Stored], int, int]:
        """The section of record `n`, the batch in it, and its place in that."""
        for section in self.sections:
            for at, one in enumerate(section):
                if n < one.count:
                    return section, at, n
                n -= one.count
        raise IndexError(n)

    def raw(self, n: int) -> tuple[int, bytes]:
        section, at, place = self._place(n)
        return section[at].open()[place]

    def peek(self, n: int) -> Content:
        """Record `n`; its batch stays as it was stored."""
        section, at, place = self._place(n)
        return decoded(*section[at].copy().open()[place])

    def __getitem__(self, n: int) -> Content:
        return decoded(*self.raw(n))

    def __setitem__(self, n: int, record: Content | tuple[int, bytes]) -> None:
        section, at, place = self._place(n)
        section[at].open()[place] = _raw(record)

    def remove(self, n: int) -> tuple[int, bytes]:
        section, at, place = self._place(n)
        record = section[at].open().pop(place)
        section[at].count -= 1
        if not section[at].count:
            del section[at]
        return record

    def insert(self, n: int, record: Content | tuple[int, bytes]) -> None:
        """Before record `n`, into its batch; at the end, into the last one."""
        if n == len(self):
            last = self.sections[-1][-1]
            last.open().append(_raw(record))
            last.count += 1
            return
        section, at, place = self._place(n)
        section[at].open().insert(place, _raw(record))
        section[at].count += 1

    def batch(self, n: int) -> tuple[Stored, int]:
        """The batch of record `n`, and its first record."""
        section, at, place = self._place(n)
        return section[at], n - place

    def batches(self) -> Iterator[tuple[int, int]]:
        """Each batch: its first record, and how many it has."""
        n = 0
        for one in itertools.chain.from_iterable(self.sections):
            yield n, one.count
            n += one.count

    def split_batch(self, n: int) -> None:
        """The batch of record `n` in two halves."""
        section, at, _ = self._place(n)
        it = section[at]
        half, records = it.count // 2, it.open()
        section.insert(at + 1, replace(it, records=records[half:], count=it.count - half))
        it.records, it.count = records[:half], half

    def drop_batch(self, n: int) -> None:
        section, at, _ = self._place(n)
        del section[at]

    def double_batch(self, n: int) -> None:
        """The batch of record `n` once more, right behind itself."""
        section, at, _ = self._place(n)
        section.insert(at + 1, section[at].copy())

    def swap_batch(self, n: int) -> Stored | None:
        """The batch of record `n` changes places with the one behind it, which is returned; None if none is."""
        section, at, _ = self._place(n)
        if at + 1 == len(section):
            return None
        section[at], section[at + 1] = section[at + 1], section[at]
        return section[at]

    def append(self, record: Content) -> None:
        """At the end, in a batch of its own."""
        self.sections[-1].append(Stored(self.sections[-1][-1].codec, 1, None, [_raw(record)]))

    def offset(self, n: int) -> int:
        """Where record `n` stands, in a log that begins at 0."""
        at = n
        for section, gap in zip(self.sections, self.gaps, strict=True):
            at += gap
            count = sum(batch.count for batch in section)
            if n < count:
                return at
            n -= count
        raise IndexError(n)

    def offsets(self) -> Iterator[int]:
        """All of them, in order."""
        at = 0
        for section, gap in zip(self.sections, self.gaps, strict=True):
            at += gap
            for batch in section:
                yield from range(at, at + batch.count)
                at += batch.count


def log_of(contents: Sequence[Content], sizes: Sequence[int], *, codec: int = codecs.NONE, gaps: int = 1) -> Log:
    """A log of these records, in batches of `sizes` in turn, behind so many markers."""
    section, at, turn = list[Stored](), 0, 0
    while at < len(contents):
        part = contents[at : at + sizes[turn % len(sizes)]]
        section.append(Stored(codec, len(part), None, [_raw(one) for one in part]))
        at, turn = at + len(part), turn + 1
    return Log([section], [gaps])


def _raw(record: Content | tuple[int, bytes]) -> tuple[int, bytes]:
    return (record.timestamp, encoded(record)) if isinstance(record, Content) else record
