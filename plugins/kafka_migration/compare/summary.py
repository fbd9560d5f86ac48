"""The result as a small table, one row a partition: what the Great Expectations suite is run over."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from kafka_migration.compare.result import Equality, PartitionResult, ValidationResult

#: Column -> what it holds. Digests are None where nothing was read.
COLUMNS = {
    "partition": "topic and partition",
    "verdict": "EQUAL, DIFFERENT, EXPIRED or INCONCLUSIVE",
    "expected_records": "records that the offset map has in the pinned range, without those compacted away since",
    "source_records": "records read from the source",
    "target_records": "records read from the target",
    "source_sum": "order-independent sum of the source's record hashes, hexadecimal; then that of batches proved equal",
    "target_sum": "the same of the target",
    "source_ordered_sum": "order-dependent sum of the source's record hashes, hexadecimal",
    "target_ordered_sum": "the same of the target",
    "pinned_offsets": "source offsets in the pinned range",
    "covered_offsets": "source offsets in the segments that were read",
    "unequal_segments": "segments that are not equal",
    "lag_offsets": "source offsets that the mirror is short of the pinned end",
    "unstable_offsets": "target offsets in the pinned range that consumers of committed records cannot read yet",
    "age_seconds": "how long before the ends were pinned the oldest of what is compared was read",
    "pinned_seconds": "how long before this verdict the ends were pinned",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How old a verdict's parts may be: what the columns of these names may hold at the most."""

    age_seconds: float
    pinned_seconds: float


def summary(result: ValidationResult, *, now: datetime, limits: Limits, is_partial: bool = False) -> dict[str, Any]:
    """JSON types only: the table's rows, and what a person should read beside them. ``now`` is when it was judged.

    ``is_partial``: it is of some topics only.
    """
    pinned = datetime.fromisoformat(result.at)
    return {
        "migration": result.migration,
        "id": result.id,
        "at": result.at,
        "of": "some topics" if is_partial else "",
        "partitions": len(result.partitions),
        "limits": asdict(limits),
        "rows": [
            {**_row(partition, pinned), "pinned_seconds": _seconds(pinned, now)} for partition in result.partitions
        ],
    }


def _row(partition: PartitionResult, pinned: datetime) -> dict[str, Any]:
    source, target = partition.source, partition.target
    read = [datetime.fromisoformat(segment.read_at) for segment in partition.segments if segment.read_at]
    return {
        "partition": str(partition.tp),
        "verdict": str(partition.verdict),
        "expected_records": partition.expected,
        "source_records": source.rows if source else None,
        "target_records": target.rows if target else None,
        "source_sum": source.sum_text if source else None,
        "target_sum": target.sum_text if target else None,
        "source_ordered_sum": f"{source.ordered:016x}" if source else None,
        "target_ordered_sum": f"{target.ordered:016x}" if target else None,
        "pinned_offsets": partition.source_end - partition.source_start,
        "covered_offsets": partition.covered,
        "unequal_segments": sum(segment.verdict is not Equality.EQUAL for segment in partition.segments),
        "lag_offsets": partition.lag,
        "unstable_offsets": partition.unstable,
        "age_seconds": _seconds(min(read, default=pinned), pinned),
    }


def _seconds(since: datetime, until: datetime) -> int:
    return max(0, round((until - since).total_seconds()))
