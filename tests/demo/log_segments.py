"""Record batches as a broker stored them, read from its files: no client shows where one ends."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Record batch, format v2: baseOffset @0, batchLength @8, attributes @21, lastOffsetDelta @23.
_LENGTH_END = 12
_HEADER = struct.Struct(">qi9xhi")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBatch:
    """Offsets of the first and the last record, the codec, and the size in bytes."""

    first: int
    last: int
    codec: str
    size: int


def stored_batches(data_dir: Path, topic: str, partition: int) -> Iterator[StoredBatch]:
    """All batches in the segments of a partition that still exist, in order."""
    for segment in sorted(data_dir.rglob(f"{topic}-{partition}/*.log")):
        data = segment.read_bytes()
        at = 0
        while at + _HEADER.size <= len(data):
            first, length, attributes, last_delta = _HEADER.unpack_from(data, at)
            yield StoredBatch(
                first=first, last=first + last_delta, codec=CODECS[attributes & 0b111], size=_LENGTH_END + length
            )
            at += _LENGTH_END + length
