"""Which batches of a fetched record set were taken back by their producer: those of aborted transactions (KIP-98).

With a fetch of committed records the broker names the aborted transactions that reach into its answer, each by producer
id and first offset. Such a transaction ends with its marker, which the answer holds unless it ends before.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from kafka_migration.wire.batch import TRANSACTIONAL, BatchHeader, CorruptBatch, batches, verify_crc
from kafka_migration.wire.records import key_value, raw_records

_ABORT = 0
_CONTROL_KEY = struct.Struct(">hh")


def aborted_batches(records: bytes | memoryview, aborted: Iterable[tuple[int, int]]) -> frozenset[int]:
    """Base offsets of the batches that belong to one of the ``aborted`` transactions, as the broker named them.

    Goes no further than the first damaged batch: whoever reads the records stops there, too. Raises CorruptBatch for a
    marker whose checksum is right, and which cannot be read: without it nobody knows which batches after it count.
    """
    coming = sorted(((first, producer) for producer, first in aborted), reverse=True)
    begun: set[int] = set()
    found: set[int] = set()
    for header, batch in _of_transactions(records):
        while coming and coming[-1][0] < header.next_offset:
            begun.add(coming.pop()[1])
        if header.producer_id not in begun:
            continue
        if not header.is_control:
            found.add(header.base_offset)
        elif _is_abort(header, batch):
            begun.discard(header.producer_id)
    return frozenset(found)


def _of_transactions(records: bytes | memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Transactional batches and markers before the first batch that is damaged; markers with a wrong checksum are."""
    try:
        for header, batch in batches(records):
            if header.magic == 2 and header.is_control:
                verify_crc(header, batch)
            if header.magic == 2 and (header.is_transactional or header.is_control):
                yield header, batch
    except CorruptBatch:
        return


def is_left_out(header: BatchHeader, aborted: frozenset[int]) -> bool:
    """True for a batch that holds nothing to copy: a marker, one of an aborted transaction, or an emptied one.

    Compaction empties batches that it keeps for their producers' state.
    """
    return (
        header.records == 0
        or header.is_control
        or (bool(header.attributes & TRANSACTIONAL) and header.base_offset in aborted)
    )


def _is_abort(header: BatchHeader, batch: memoryview) -> bool:
    for record in raw_records(header, batch):
        key, _ = key_value(record)
        return key is not None and len(key) >= _CONTROL_KEY.size and _CONTROL_KEY.unpack_from(key)[1] == _ABORT
    # Emptied by compaction: nothing of its transaction is left either.
    return False
