"""What a fetch answers, taken apart: batches of every format, without what consumers do not see.

Written after the protocol guide ("Record Batch", "Message sets"), and shares no code with the mirror's wire layer: an
error in either would not be in the other. Headers are read as columns, thousands at once. Codecs go through other
bindings than the mirror's, and messages of the old formats through kafka-python's own reader of them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import cramjam
import crc32c
import numpy as np
import pyarrow
import zstandard
from kafka.record.legacy_records import LegacyRecordBatch

from kafka_migration.compare.decode.columns import (
    FACTS,
    NO_STAMP,
    SPARE,
    Bytes,
    Change,
    Columns,
    Damaged,
    Record,
    columns_of,
    decode,
)
from kafka_migration.compare.decode.plain import records, unsigned, varint
from kafka_migration.compare.reading import IN_TRANSACTION, OLD, STAMPED

_GZIP, _SNAPPY, _LZ4, _ZSTD = range(1, 5)
_CODEC, _STAMPED, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
_HEADER = np.dtype(
    [
        ("offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">u2"),
        ("last_delta", ">i4"),
        ("timestamp", ">i8"),
        ("largest", ">i8"),
        ("producer", ">i8"),
        ("producer_epoch", ">i2"),
        ("sequence", ">i4"),
        ("records", ">i4"),
    ]
)
#: Offset, length, CRC-32, magic, attributes: of a message of an old format.
_OLD = struct.Struct(">qiIbB")
_LENGTH = struct.Struct(">i")
_LENGTH_AT, _OVERHEAD, _MAGIC_AT, _CRC_FROM = 8, 12, 16, 21
_NO_TIMESTAMP = -1
_MARKER = struct.Struct(">hh")
_ABORT = 0
_XERIAL, _XERIAL_BYTES = b"\x82SNAPPY\x00", 16
#: Of an answer so much is decompressed at once, and so decoded out of a cache of the processor.
_MOST_DECOMPRESSED = 1 << 20
#: An LZ4 frame as Kafka's clients write it: independent blocks, and neither checksums nor sizes but theirs.
_LZ4_FRAME = b"\x04\x22\x4d\x18\x60"
_LZ4_BLOCK, _LZ4_STORED = struct.Struct("<I"), 1 << 31


class Log:
    """The batches of one answer, in order, those that are whole: brokers cut the last one off where an answer is full.

    ``headers`` are their headers as a structured array; of a message of an old format (``magic`` below 2) what it has,
    and zeros. The records of each stand below its ``ends``. Raises Damaged for what is no batch.
    """

    def __init__(self, answer: Bytes) -> None:
        self._view = memoryview(answer)
        starts, stops, is_old = self._walked()
        self._starts, self._stops = starts, stops
        if is_old:
            rows = [self._header(start, stop) for start, stop in zip(starts, stops, strict=True)]
            self.headers: Any = np.array(rows, _HEADER)
        else:
            data = np.frombuffer(self._view, np.uint8)
            places = np.array(starts, np.int64)[:, None] + np.arange(_HEADER.itemsize)
            self.headers = data[places].view(_HEADER).reshape(-1)
        self.ends = self.headers["offset"].astype(np.int64) + self.headers["last_delta"] + 1
        # One number of an array takes as long as a checksum of a thousand bytes.
        self._crcs = self.headers["crc"].tolist()

    def __len__(self) -> int:
        return len(self._starts)

    def _walked(self) -> tuple[list[int], list[int], bool]:
        view, at, size = self._view, 0, len(self._view)
        starts: list[int] = []
        stops: list[int] = []
        is_old = False
        while at + _MAGIC_AT < size:
            length, magic = _LENGTH.unpack_from(view, at + _LENGTH_AT)[0], view[at + _MAGIC_AT]
            if magic > 2 or length + _OVERHEAD < (_HEADER.itemsize if magic == 2 else _OLD.size):
                if starts:
                    # Whoever goes on behind those before it may pass it over.
                    break
                offset = int.from_bytes(view[at : at + 8], "big", signed=True)
                raise Damaged(f"batch at offset {offset}: format {magic}, {length} bytes")
            is_old |= magic < 2
            stop = at + _OVERHEAD + length
            if stop > size:
                break
            starts.append(at)
            stops.append(stop)
            at = stop
        return starts, stops, is_old

    def _header(self, start: int, stop: int) -> tuple[int, ...]:
        if self._view[start + _MAGIC_AT] == 2:
            found: tuple[int, ...] = np.frombuffer(self._view[start:stop], _HEADER, 1)[0].item()
            return found
        offset, length, crc, magic, attributes = _OLD.unpack_from(self._view, start)
        return (offset, length, 0, magic, crc, attributes, *(0,) * 7)

    def hidden(self, aborted: Iterable[tuple[int, int]], known: Collection[int] = ()) -> Any:
        """Which batches no consumer of committed records sees (KIP-98), as a mask: markers, and what was aborted.

        The broker names the ``aborted`` transactions of an answer by producer and first offset; each ends with its
        marker. Raises Damaged for a marker that cannot be read, unless it is among those ``known`` to be damaged.
        """
        attributes = self.headers["attributes"]
        is_new = self.headers["magic"] == 2
        hidden = is_new & ((attributes & _CONTROL) != 0)
        coming = sorted(((first, producer) for producer, first in aborted), reverse=True)
        if not coming:
            return hidden
        begun: set[int] = set()
        for at in np.flatnonzero(is_new & ((attributes & (_TRANSACTIONAL | _CONTROL)) != 0)).tolist():
            while coming and coming[-1][0] < self.ends[at]:
                begun.add(coming.pop()[1])
            producer = int(self.headers["producer"][at])
            if producer not in begun:
                continue
            if not hidden[at]:
                hidden[at] = True
            elif at in known or self._marker(at) == _ABORT:
                # The first marker behind an aborted transaction is its own.
                begun.discard(producer)
        return hidden

    def controls(self) -> Any:
        """Which batches are markers, as a mask."""
        return self.hidden(())

    def _marker(self, at: int) -> int | None:
        if not self.headers["records"][at]:
            # The cleaner has taken it out of its batch.
            return None
        data, place = self.verified(at), 0
        try:
            _, place = varint(data, place)
            _, place = varint(data, place + 1)
            _, place = varint(data, place)
            size, place = varint(data, place)
            return int(_MARKER.unpack_from(data[place : place + size])[1])
        except (IndexError, struct.error) as error:
            raise self._damaged(at, "a marker that cannot be read") from error

    def verified(self, at: int) -> memoryview:
        """The records section of a batch, as it is stored. Raises Damaged where its checksum is wrong."""
        start, stop = self._starts[at], self._stops[at]
        if self._view[start + _MAGIC_AT] == 2:
            found = crc32c.crc32c(self._view[start + _CRC_FROM : stop])
        else:
            found = zlib.crc32(self._view[start + _MAGIC_AT : stop])
        if found != self._crcs[at]:
            raise self._damaged(at, f"checksum {found:08x}, in its header {self._crcs[at]:08x}")
        return self._view[start + _HEADER.itemsize : stop]

    def traits(self, mask: Any) -> tuple[int, int]:
        """Of the batches of ``mask``: what kinds they are (:mod:`kafka_migration.compare.reading`), and their
        attributes, as bits."""
        found = attributes = 0
        for magic, bits in set(
            zip(self.headers["magic"][mask].tolist(), self.headers["attributes"][mask].tolist(), strict=True)
        ):
            found |= 1 << (bits & _CODEC) | (magic < 2) * OLD
            found |= bool(bits & _TRANSACTIONAL) * IN_TRANSACTION | bool(magic and bits & _STAMPED) * STAMPED
            attributes |= bits
        return found, attributes

    def decoded(self, mask: Any, change: Change | None = None) -> Columns:
        """The records of the batches of ``mask``, or what ``change`` makes of them. Raises Damaged."""
        done: list[Columns] = []
        old: list[Record] = []
        room = _Room(2 * _MOST_DECOMPRESSED)
        which: list[int] = []
        chosen = np.flatnonzero(mask)
        magics, codecs = self.headers["magic"][chosen].tolist(), (self.headers["attributes"][chosen] & _CODEC).tolist()
        for at, magic, codec in zip(chosen.tolist(), magics, codecs, strict=True):
            packed = self.verified(at)
            if magic < 2:
                old += self._old_records(at)
                continue
            if codec != _LZ4 or not room.add_lz4(packed):
                data = self._decompressed(at, codec, packed)
                if len(data) > len(room.free):
                    done.append(room.decoded(self._facts(which), change))
                    room, which = _Room(max(len(data), 2 * _MOST_DECOMPRESSED)), []
                room.add(data)
            which.append(at)
            if room.used >= _MOST_DECOMPRESSED:
                done.append(room.decoded(self._facts(which), change))
                which = []
        if old:
            done.append(columns_of(old if change is None else change(old)))
        if which or not done:
            done.append(room.decoded(self._facts(which), change))
        return done[0] if len(done) == 1 else Columns.joined(done)

    def size(self, at: int) -> int:
        """How many bytes a batch takes."""
        return self._stops[at] - self._starts[at]

    def stored(self, at: int) -> bytes:
        """A batch as it is stored."""
        return bytes(self._view[self._starts[at] : self._stops[at]])

    def records(self, at: int, change: Change | None = None) -> Iterator[Record]:
        """The records of one batch, or what ``change`` makes of them, one by one: as :meth:`decoded` has them. Raises
        Damaged."""
        packed = self.verified(at)
        if self.headers["magic"][at] < 2:
            found: Iterable[Record] = self._old_records(at)
        else:
            data = self._decompressed(at, int(self.headers["attributes"][at]) & _CODEC, packed)
            found = records(data, np.array([len(data)]), self._facts([at]))
        yield from found if change is None else change(found)

    def _facts(self, which: list[int]) -> Any:
        headers = self.headers[which]
        facts = np.empty((len(which), FACTS), np.int64)
        for column, name in enumerate(("records", "offset", "last_delta", "timestamp")):
            facts[:, column] = headers[name]
        # Then all of a batch were appended at its largest timestamp, whatever their deltas are (KIP-32).
        facts[:, 4] = np.where(headers["attributes"] & _STAMPED, headers["largest"], NO_STAMP)
        return facts

    def _decompressed(self, at: int, codec: int, packed: memoryview) -> Bytes:
        if not codec:
            return packed
        try:
            return _DECOMPRESS[codec](packed)
        except KeyError:
            raise self._damaged(at, f"codec {codec} is unknown") from None
        except Exception as error:
            # Each library has errors of its own.
            raise self._damaged(at, f"it cannot be decompressed: {error}") from error

    def _old_records(self, at: int) -> list[Record]:
        try:
            found = LegacyRecordBatch(self._view[self._starts[at] : self._stops[at]], int(self.headers["magic"][at]))
            return [
                (one.offset, _NO_TIMESTAMP if one.timestamp is None else one.timestamp, one.key, one.value, ())
                for one in found
            ]
        except Exception as error:
            raise self._damaged(at, f"it cannot be read: {error}") from error

    def _damaged(self, at: int, problem: str) -> Damaged:
        return Damaged(f"batch at offset {int(self.headers['offset'][at])}: {problem}")


class _Room:
    """Where sections lie one behind the other, decompressed."""

    def __init__(self, size: int) -> None:
        self._data = np.empty(size + SPARE, np.uint8)
        self._all = self._data.data[:size]
        self._ends: list[int] = []

    @property
    def used(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def free(self) -> memoryview:
        return self._all[self.used :]

    def add(self, section: Bytes) -> None:
        end = self.used + len(section)
        self._all[self.used : end] = section
        self._ends.append(end)

    def add_lz4(self, data: memoryview) -> bool:
        """Whether ``data`` is a frame as clients write it, and there was room: it is decompressed by its blocks. The
        library of frames takes longer for a small one than for its content."""
        if data[: len(_LZ4_FRAME)] != _LZ4_FRAME:
            return False
        at, end = len(_LZ4_FRAME) + 2, self.used
        try:
            while size := _LZ4_BLOCK.unpack_from(data, at)[0]:
                at += _LZ4_BLOCK.size
                block, free = data[at : at + (size & ~_LZ4_STORED)], self._all[end:]
                if size & _LZ4_STORED:
                    free[: len(block)] = block
                    end += len(block)
                else:
                    end += cramjam.lz4.decompress_block_into(block, free, len(free))
                at += len(block)
        except (struct.error, ValueError, cramjam.DecompressionError):
            return False
        if at + _LZ4_BLOCK.size != len(data):
            return False
        self._ends.append(end)
        return True

    def decoded(self, facts: Any, change: Change | None) -> Columns:
        """The records of all sections, which make room for others, or what ``change`` makes of them."""
        found = decode(self._data, np.array(self._ends, np.int64), facts, change)
        self._ends.clear()
        return found


def _snappy(data: memoryview) -> bytes:
    """As Java writes it: blocks of raw snappy behind their lengths; librdkafka's is one raw block."""
    if data[: len(_XERIAL)] != _XERIAL:
        return _raw_snappy(data)
    out, at = [], _XERIAL_BYTES
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if size > len(data) - at:
            raise IndexError("a block of snappy that ends early")
        out.append(_raw_snappy(data[at : at + size]))
        at += size
    return b"".join(out)


def _raw_snappy(data: memoryview) -> bytes:
    # The size stands in front, as a varint without a sign.
    size, _ = unsigned(data, 0)
    found: bytes = pyarrow.decompress(data, decompressed_size=size, codec="snappy", asbytes=True)
    return found


def _zstd(data: memoryview) -> bytes:
    found: bytes = zstandard.ZstdDecompressor().decompressobj(read_across_frames=True).decompress(data)
    return found


_DECOMPRESS: dict[int, Callable[[memoryview], Bytes]] = {
    _GZIP: lambda data: memoryview(cramjam.gzip.decompress(data)),
    _SNAPPY: _snappy,
    _LZ4: lambda data: memoryview(cramjam.lz4.decompress(data)),
    _ZSTD: _zstd,
}
"""Other libraries than those of the mirror's wire layer."""
