"""What the runs of one partition cost a validation's driver, from the map to the slices that its tasks get."""

from __future__ import annotations

import json
import pickle
import resource
import time
from pathlib import Path
from typing import Any

from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.segments import expected_records, places_hash, tiles
from kafka_migration.domain.offset_map import OffsetMap
from kafka_migration.domain.runs import FenceRuns
from kafka_migration.domain.types import PartitionEnds, TopicPartition

#: As many as a transactional topic may have in a partition; promised are 2 s and 100 MB.
MOST_RUNS, MOST_SECONDS, MOST_MB = 1_000_000, 2.0, 100
_RUN_RECORDS = 5
_SEGMENT = 1_000_000


def map_of(runs: int) -> OffsetMap:
    """A map of so many runs, each of some records behind a transaction's marker."""
    fence = FenceRuns(1, 0)
    for run in range(runs):
        fence.add(_RUN_RECORDS * run, (_RUN_RECORDS + 1) * run)
    return OffsetMap.of_fences([fence], source_end=(_RUN_RECORDS + 1) * runs, target_end=_RUN_RECORDS * runs)


def on_driver(offset_map: OffsetMap) -> dict[str, Any]:
    """Pin a partition of this map, write and read its request, cut it, ship every slice, and judge what is expected.
    Returns how many segments there are, and megabytes of the request and of all slices."""
    ends = [PartitionEnds(start=0, end=end) for end in (offset_map.source_end, offset_map.target_end)]
    pinned = PartitionRange.pinned(TopicPartition("t", 0), offset_map, source=ends[0], target=ends[1])
    asked = ValidationRequest(
        id="1", migration="scale", source="s", target="t", segment_records=_SEGMENT, ranges=(pinned,)
    )
    written = json.dumps(asked.as_dict())
    (it,) = ValidationRequest.from_dict(json.loads(written)).ranges
    shipped = []
    for _, tile in tiles(it, _SEGMENT):
        shipped.append(len(pickle.dumps(tile)))
        places_hash(tile.runs)
    expected_records(it, _SEGMENT)
    return {
        "segments": len(shipped),
        "request_mb": round(len(written) / 1e6, 1),
        "shipped_mb": round(sum(shipped) / 1e6, 1),
    }


def validation_runs(_plan: Path, runs: int) -> dict[str, Any]:
    """All of this in this process."""
    offset_map = map_of(min(runs, MOST_RUNS))
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    found = on_driver(offset_map)
    return {
        "runs": len(offset_map),
        **found,
        "cpu_seconds": round(time.process_time() - began, 3),
        "grown_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024,
    }
