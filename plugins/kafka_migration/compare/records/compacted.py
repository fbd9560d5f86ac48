"""What compaction may take: when a record that one side has, and the other has not, is no difference.

The cleaner removes a record only if its log holds a newer one of the same key, if it has no key, or if it is a
tombstone that is older than ``delete.retention.ms`` and nothing older of its key is left. So a key's newest record at
the pinned end shows whether the two sides are equal, as long as it is known what was written behind that end: newer
records there may have swept away what was pinned.

What the other side holds counts as far as this one has held it, too, though it may be gone from here by now: all that
was mirrored. What the source has got since sweeps nothing from the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_migration.compare.digests import SOURCE, TARGET
from kafka_migration.compare.request import PartitionRange

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Of every record behind the pinned ends: newer than any place. And of those that only the source has had so far.
BEHIND, NOT_MIRRORED = 2**62, 2**62 + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A record that only one side has: its key and ``place`` (a source offset), and whether it is a tombstone."""

    place: int
    key: bytes | None
    is_tombstone: bool
    timestamp: int


@dataclass(slots=True)
class Seen:
    """The places of all records of one key, by side; those behind the pinned end are :data:`BEHIND`, or
    :data:`NOT_MIRRORED`."""

    places: dict[str, set[int]] = field(default_factory=lambda: {SOURCE: set(), TARGET: set()})


def is_explained(missing: Missing, seen: Seen, *, missing_on: str, now_ms: int, tombstones_ms: int) -> bool:
    """Whether compaction alone may have taken a record from the side ``missing_on``, whose ``delete.retention.ms`` is
    ``tombstones_ms``; ``seen`` is what both logs hold of its key by now."""
    other = TARGET if missing_on == SOURCE else SOURCE
    mine = seen.places[missing_on]
    if missing.place in mine or missing.place not in seen.places[other]:
        # Read between two passes of the cleaner: by now it is there, or on neither side.
        return True
    had = mine | (seen.places[other] - {NOT_MIRRORED})
    if missing.key is None or max(had, default=-1) > missing.place:
        return True
    if not missing.is_tombstone:
        return False
    # A time that is yet to come does not show when it was written.
    is_old = missing.timestamp > now_ms or now_ms - missing.timestamp >= tombstones_ms
    return is_old and min(mine, default=BEHIND) > missing.place


def with_compacted(both: DataFrame, ranges: Iterable[PartitionRange], now_ms: int) -> DataFrame:
    """The records of both sides, with those marked (``compacted``) that the other side lost to compaction.

    By the rule of :func:`is_explained`, as far as one read of both logs can show; those ``behind`` the pinned ends
    (by their places) are left out afterwards. What it cannot explain counts as a difference, though a pass of the
    cleaner may run meanwhile: then a later reading explains it, by this same rule. Costs a sort by place and one by
    key, which topics that nobody compacts are spared.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    by_topic = {range_.topic: range_ for range_ in ranges}
    place = f.col("source_offset")
    is_source = f.col("side") == SOURCE
    by_place = Window.partitionBy("topic", "partition", "source_offset", "behind")
    by_key = Window.partitionBy("topic", "partition", "key_hash")

    def of_topic(value_of: Callable[[PartitionRange], int | bool]) -> Column:
        chain = None
        for topic, range_ in by_topic.items():
            chain = (f if chain is None else chain).when(f.col("topic") == topic, f.lit(value_of(range_)))
        return f.lit(None) if chain is None else chain

    both = both.withColumns(
        {
            "on_source": f.max(is_source).over(by_place),
            "on_target": f.max(~is_source).over(by_place),
            "newest": f.max(place).over(by_key),
            "newest_target": f.max(f.when(place <= BEHIND, place)).over(by_key),
            "oldest_source": f.min(f.when(is_source, place)).over(by_key),
            "oldest_target": f.min(f.when(~is_source, place)).over(by_key),
        }
    )
    gone_from_source = ~is_source & ~f.col("on_source") & of_topic(lambda range_: range_.compacted)
    gone_from_target = is_source & ~f.col("on_target") & of_topic(lambda range_: range_.target_compacted)
    oldest = f.when(is_source, f.col("oldest_target")).otherwise(f.col("oldest_source"))
    kept_for = f.when(is_source, of_topic(lambda range_: range_.target_tombstones_ms)).otherwise(
        of_topic(lambda range_: range_.source_tombstones_ms)
    )
    age = f.lit(now_ms) - f.col("timestamp_ms")
    is_gone_tombstone = f.col("is_tombstone") & ((age < 0) | (age >= kept_for)) & (oldest.isNull() | (oldest > place))
    # Of both sides, what the side that lacks it has had.
    newest = f.when(is_source, f.col("newest_target")).otherwise(f.col("newest"))
    is_explained_here = f.col("key_hash").isNull() | (newest > place) | is_gone_tombstone
    compacted = (gone_from_source | gone_from_target) & f.col("in_run") & is_explained_here
    return both.withColumn("compacted", f.coalesce(compacted, f.lit(False))).where(~f.col("behind"))
