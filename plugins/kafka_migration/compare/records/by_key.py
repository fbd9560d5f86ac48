"""A compacted partition's records by their keys: what one task finds of a stretch, and what another makes of all of it.

The rule of :func:`kafka_migration.compare.records.compacted.is_explained`, on arrays, as far as one read of both logs
can show it. What it cannot explain counts as a difference, though a pass of the cleaner may run meanwhile: then a later
reading explains it, by this same rule.

A record that both logs hold at its place was not taken by compaction, and is digested where it is read; so is one that
has a newer one of its key in its stretch. What is left is settled where all is known of its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from kafka_migration.compare.decode.columns import Columns, ordered_sum
from kafka_migration.compare.digests import SOURCE, TARGET, Digest
from kafka_migration.compare.orders import Orders
from kafka_migration.compare.placing import SourceSums, TargetSums
from kafka_migration.compare.reader.client import Client
from kafka_migration.compare.reading import CannotRead
from kafka_migration.compare.record_digest import KEY_IS_NULL, VALUE_IS_NULL, ordered_hashes
from kafka_migration.compare.records.compacted import BEHIND, NOT_MIRRORED, UNREAD, Digested, Stretch
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.task import CONNECTIONS, in_turns, side_of

#: Arrays of records, or of keys; or something :data:`Digested`.
Found = Any

RECORDS = np.dtype(
    [
        ("number", "i4"),
        ("attributes", "i4"),
        ("is_source", "?"),
        ("in_run", "?"),
        ("has_key", "?"),
        ("is_tombstone", "?"),
        ("place", "i8"),
        ("key", "u8"),
        ("hash", "u8"),
        ("size", "i8"),
        ("time", "i8"),
    ]
)
"""Records with their places (source offsets) in the partition of this number, whether the offset map has a record
there, and the attributes of the target that the mirror never writes. ``key`` hashes that of the record together with
the number."""
KEYS = np.dtype(
    [("key", "u8"), ("newest", "i8"), ("newest_target", "i8"), ("oldest_source", "i8"), ("oldest_target", "i8")]
)
"""Of each key the newest place that either log has, and that the target has had, and the oldest that each side has."""
_NOWHERE, _NEVER = -1, 2**63 - 1
_MASK = 2**64 - 1


def read(
    orders: Orders, stretches: Iterable[Stretch], segment_records: int, buckets: int
) -> Iterator[tuple[int, Found]]:
    """What is found in ``stretches``, with its bucket: arrays are divided among ``buckets`` by their keys. A partition
    that cannot be read has :data:`UNREAD` and the reason in place of a digest's segment and side."""
    bounds = np.array([(bucket << 64) // buckets for bucket in range(1, buckets)], np.uint64)
    for one in _found(orders, stretches, segment_records):
        if isinstance(one, tuple):
            yield 0, one
            continue
        # Keys are hashes, and sorted: those of a bucket stand together.
        for bucket, part in enumerate(np.split(one, np.searchsorted(one["key"], bounds))):
            if len(part):
                yield bucket, part


def _found(orders: Orders, stretches: Iterable[Stretch], segment_records: int) -> Iterator[Found]:
    with CONNECTIONS.reach(orders.wires) as both:
        for stretch in stretches:
            try:
                yield from (_behind if stretch.side else _both)(orders, both, stretch, segment_records)
            except CannotRead as error:
                yield (stretch.number, UNREAD, error.message), Digest()


def _both(orders: Orders, both: dict[str, Client], stretch: Stretch, segment_records: int) -> Iterator[Found]:
    """Both sides of a stretch, compared. Raises CannotRead."""
    number, tile = stretch.number, stretch.tile
    sums, found = (SourceSums(tile), TargetSums(tile)), ([np.empty(0, RECORDS)], [np.empty(0, RECORDS)])
    sides = [side_of(role, tile, both[role], orders) for role in (SOURCE, TARGET)]
    for which, records in in_turns(sides):
        sums[which].see(sides[which].attributes)
        mine, places, in_run = sums[which].place(records)
        rows = rows_of(number, (SOURCE, TARGET)[which], mine, places)
        rows["in_run"], rows["attributes"] = in_run, sums[which].digest().attributes
        if not in_run.all():
            # However many somebody else wrote there: no cleaner has to explain them.
            foreign, rows = rows[~in_run], rows[in_run]
            yield merged([keys_of(foreign)])
            yield from digests(foreign, np.zeros(len(foreign), np.bool_), segment_records)
        found[which].append(rows)
    yield from compared(tile, np.concatenate(found[0]), np.concatenate(found[1]), segment_records)


def _behind(orders: Orders, both: dict[str, Client], stretch: Stretch, _segment_records: int) -> Iterator[Found]:
    """The keys of what one side has behind the pinned end. Raises CannotRead."""
    span, found = (stretch.start, stretch.end), [np.empty(0, KEYS)]
    for _, records in in_turns([side_of(stretch.side, stretch.tile, both[stretch.side], orders, span=span)]):
        mine = records.between(*span)
        is_late = (mine.offsets >= stretch.tile.source_mirrored) & (stretch.side == SOURCE)
        found.append(keys_of(rows_of(stretch.number, stretch.side, mine, np.where(is_late, NOT_MIRRORED, BEHIND))))
    yield merged(found)


def rows_of(number: int, side: str, records: Columns, places: Any) -> Any:
    """Records of one side of a partition at their places; all in the map, and in batches as the mirror writes them."""
    rows = np.zeros(len(records), RECORDS)
    rows["number"], rows["is_source"], rows["in_run"] = number, side == SOURCE, True
    rows["has_key"] = (records.flags & KEY_IS_NULL) == 0
    rows["is_tombstone"] = (records.flags & VALUE_IS_NULL) != 0
    rows["key"] = ordered_hashes(records.keys, np.full(len(records), number))
    rows["place"], rows["hash"], rows["size"], rows["time"] = places, records.hashes, records.sizes, records.times
    return rows


def keys_of(rows: Any) -> Any:
    """A row of :data:`KEYS` for each record."""
    keys, places = np.empty(len(rows), KEYS), rows["place"]
    keys["key"], keys["newest"] = rows["key"], places
    keys["newest_target"] = np.where(places <= BEHIND, places, _NOWHERE)
    keys["oldest_source"] = np.where(rows["is_source"], places, _NEVER)
    keys["oldest_target"] = np.where(rows["is_source"], _NEVER, places)
    return keys


def merged(parts: Sequence[Any]) -> Any:
    """One row for each key of ``parts`` (at least one array), sorted by key."""
    every = np.concatenate(parts)
    every = every[np.argsort(every["key"], kind="stable")]
    starts = np.flatnonzero(np.append(True, every["key"][1:] != every["key"][:-1])[: len(every)])
    found = every[starts]
    if len(found):
        for name in ("newest", "newest_target"):
            found[name] = np.maximum.reduceat(every[name], starts)
        for name in ("oldest_source", "oldest_target"):
            found[name] = np.minimum.reduceat(every[name], starts)
    return found


def compared(tile: PartitionRange, source: Any, target: Any, segment_records: int) -> Iterator[Found]:
    """Of the records of a stretch, all of which the offset map has: a row for each key, digests of the records that are
    settled, and the records that are not."""
    keys = merged([keys_of(source), keys_of(target)])
    yield keys
    for mine, other, may_lack in ((source, target, tile.target_compacted), (target, source, tile.compacted)):
        is_open, is_compacted = np.zeros(len(mine), np.bool_), np.zeros(len(mine), np.bool_)
        if may_lack:
            alone = np.flatnonzero(~np.isin(mine["place"], other["place"]))
            rows = mine[alone]
            is_compacted[alone] = ~rows["has_key"] | _is_older(rows, keys)
            is_open[alone] = ~is_compacted[alone]
        yield from digests(mine[~is_open], is_compacted[~is_open], segment_records)
        left = mine[is_open]
        yield left[np.argsort(left["key"])]


def settled(
    found: Iterable[Found], segment_records: int, tombstones_ms: Sequence[tuple[int, int]], now_ms: int
) -> Iterator[Digested]:
    """The digests among ``found``, all that is known of some keys, and those of the records that were not settled.
    ``tombstones_ms``: how long each partition's tombstones stay on the source, and on the target."""
    keys, records = [np.empty(0, KEYS)], [np.empty(0, RECORDS)]
    for one in found:
        if isinstance(one, tuple):
            yield one
        else:
            (keys if one.dtype == KEYS else records).append(one)
    rows = np.concatenate(records)
    if not len(rows):
        return
    known = merged(keys)
    at, is_source = np.searchsorted(known["key"], rows["key"]), rows["is_source"]
    # Of the side that lacks it.
    oldest = np.where(is_source, known["oldest_target"][at], known["oldest_source"][at])
    kept = np.array(tombstones_ms, np.int64)[rows["number"], is_source.astype(np.intp)]
    age = now_ms - rows["time"]
    # A time that is yet to come does not show when it was written.
    is_gone_tombstone = rows["is_tombstone"] & ((age < 0) | (age >= kept)) & (oldest > rows["place"])
    yield from digests(rows, _is_older(rows, known) | is_gone_tombstone, segment_records)


def _is_older(rows: Any, keys: Any) -> Any:
    """Of each record whether the side that lacks it has had a newer one of its key."""
    at = np.searchsorted(keys["key"], rows["key"])
    return np.where(rows["is_source"], keys["newest_target"][at], keys["newest"][at]) > rows["place"]


def digests(rows: Any, is_compacted: Any, segment_records: int) -> Iterator[Digested]:
    """One of each side of each segment. Records that compaction took from the other side are counted, and no more."""
    segments = rows["place"] // segment_records
    order = np.lexsort((segments, rows["is_source"], rows["number"]))
    rows, is_compacted, segments = rows[order], is_compacted[order], segments[order]
    is_next = np.diff(segments) | np.diff(rows["number"]) | np.diff(rows["is_source"])
    bounds = [0, *(np.flatnonzero(is_next) + 1).tolist(), len(rows)]
    for start, end in pairwise(bounds):
        if start == end:
            continue
        counted = rows[start:end][~is_compacted[start:end]]
        hashes = np.ascontiguousarray(counted["hash"])
        digest = Digest(
            rows=len(counted),
            bytes=int(counted["size"].sum()),
            total=int(hashes.sum()) & _MASK,
            ordered=ordered_sum(hashes, np.ascontiguousarray(counted["place"])),
            misplaced=int((~counted["in_run"]).sum()),
            compacted=end - start - len(counted),
            attributes=int(np.bitwise_or.reduce(rows["attributes"][start:end])),
        )
        side = SOURCE if rows["is_source"][start] else TARGET
        yield (int(rows["number"][start]), int(segments[start]), side), digest
