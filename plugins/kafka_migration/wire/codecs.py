"""The five codecs of Kafka's record batches, as its Java client reads and writes them."""

from __future__ import annotations

import struct
import zlib

import cramjam
import lz4.frame

from kafka_migration.wire.batch import CorruptBatch

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_ZSTD_USUAL = 32
"""Records seldom shrink by more: room for so many times the data is tried first."""


def decompress(codec: int, data: bytes, *, most: int | None = None) -> bytes:
    """The records section of a batch, decompressed. Raises :class:`CorruptBatch` if it cannot be.

    Also if it would be more than ``most`` bytes, for zstd, which makes hundreds of megabytes of a few kilobytes; the
    others stay below a thousand times the data.
    """
    try:
        if codec == ZSTD and most is not None:
            return _zstd_decompress(data, most)
        if codec == NONE:
            return data
        if codec == GZIP:
            return zlib.decompress(data, wbits=31)
        if codec == SNAPPY:
            return _snappy_decompress(data)
        if codec == LZ4:
            return bytes(lz4.frame.decompress(data))
        if codec == ZSTD:
            return bytes(cramjam.zstd.decompress(data))
    except (zlib.error, RuntimeError, cramjam.DecompressionError, struct.error) as error:
        raise CorruptBatch(f"{NAMES[codec]} payload cannot be decompressed: {error}") from error
    raise CorruptBatch(f"codec {codec} is unknown")


def compress(codec: int, data: bytes) -> bytes:
    """Compress a records section. LZ4 with independent blocks: Java's reader refuses linked ones."""
    if codec == NONE:
        return data
    if codec == GZIP:
        packer = zlib.compressobj(wbits=31)
        return packer.compress(data) + packer.flush()
    if codec == SNAPPY:
        blocks = (data[at : at + _XERIAL_BLOCK] for at in range(0, len(data), _XERIAL_BLOCK))
        packed = (bytes(cramjam.snappy.compress_raw(block)) for block in blocks)
        return _XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in packed)
    if codec == LZ4:
        return bytes(lz4.frame.compress(data, block_linked=False, store_size=False))
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data))
    raise CorruptBatch(f"codec {codec} is unknown")


def _zstd_decompress(data: bytes, most: int) -> bytes:
    room = min(most, _ZSTD_USUAL * len(data) + _ZSTD_USUAL)
    while True:
        out = bytearray(room)
        try:
            return bytes(memoryview(out)[: cramjam.zstd.decompress_into(data, out)])
        except cramjam.DecompressionError:
            if room >= most:
                raise
            room = most


def _snappy_decompress(data: bytes) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(data))
    out, at = [], len(_XERIAL_HEADER)
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        if not 0 <= size <= len(data) - at - 4:
            raise CorruptBatch(f"a snappy block of {size} bytes does not fit its batch")
        out.append(bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size])))
        at += 4 + size
    return b"".join(out)
