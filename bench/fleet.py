"""How a validation of a hundred terabytes would be driven: `make bench-fleet`.

The driver's own code runs, over partitions of the size that is asked for, each with an offset map of `--runs` runs;
tasks are played by a clock: each takes what its bytes take at `--rate`, which `make bench-validate` measures, and
answers at once. So the number of jobs, the driver's own time, and its memory are measured, and how long it all takes is
computed. The last line is JSON.
"""

import argparse
import heapq
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from kafka_migration.compare import job, task
from kafka_migration.compare.digests import Digest, SegmentOutcome
from kafka_migration.compare.orders import Answer, Orders, Tile
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.runs import Runs
from kafka_migration.domain.levels import Level
from kafka_migration.domain.types import TopicPartition

_ORDERS = Orders(level=Level.RECORD, committed=True, seconds=1.0, wires={})
_SEGMENT = 1_000_000
#: A task's own overhead, and a job's: connections, scheduling.
_TASK_SECONDS, _JOB_SECONDS = 0.1, 0.25


class Slots:
    """Spark, as far as a wave asks for it: tasks go to the slot that is free first, and jobs begin in order."""

    def __init__(self, count: int, rate: float, record_bytes: int) -> None:
        self.sparkContext = self
        self.defaultParallelism = count
        self.jobs = self.tasks = self.largest = 0
        self._free = [0.0] * count
        self._seconds_a_record = record_bytes / rate

    def setJobGroup(self, *_: Any) -> None:  # noqa: N802
        """Nobody looks."""

    def parallelize(self, shares: Sequence[Sequence[Tile]], _slices: int) -> Any:
        """A job of these tasks."""
        self.jobs += 1
        self.tasks += len(shares)
        self.largest = max(self.largest, len(shares))
        begins = self._free[0] + _JOB_SECONDS
        for share in shares:
            records = sum(tile.source_end - tile.source_start for _, tile in share)
            free = max(heapq.heappop(self._free), begins)
            heapq.heappush(self._free, free + _TASK_SECONDS + records * self._seconds_a_record)

        def mapped(task: Callable[[Any], Answer]) -> Any:
            return SimpleNamespace(collect=lambda: [task(share) for share in shares])

        return SimpleNamespace(map=mapped)

    @property
    def seconds(self) -> float:
        """Until the last task ends."""
        return max(self._free)


def ranges(partitions: int, records: int, runs: int) -> Iterator[PartitionRange]:
    """Partitions of so many records, whose maps have so many runs: a marker between two of them."""
    length = records // runs
    starts = np.arange(runs, dtype=np.int64) * (length + 1)
    for number in range(partitions):
        end = int(starts[-1]) + length
        yield PartitionRange(
            topic=f"topic-{number // 50}",
            partition=number % 50,
            source_start=0,
            source_end=end,
            target_start=0,
            target_end=end,
            runs=Runs.of(starts, starts, np.full(runs, length, np.int64)),
        )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--terabytes", type=float, default=100.0)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--executors", type=int, default=50)
    parser.add_argument("--cores", type=int, default=4, help="of an executor")
    parser.add_argument("--brokers", type=int, default=30)
    parser.add_argument("--record-bytes", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=10_000, help="of a partition's offset map")
    parser.add_argument("--rate", type=float, default=250e6, help="bytes a second and slot, on one side")
    options = parser.parse_args()
    records = int(options.terabytes * 1e12 / options.partitions / options.record_bytes)
    every = tuple(ranges(options.partitions, records, options.runs))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    request = ValidationRequest(
        id="fleet", migration="fleet", source="a", target="b", segment_records=_SEGMENT, ranges=every
    )
    slots = Slots(options.executors * options.cores, options.rate, options.record_bytes)

    def obey(orders: Orders, tiles: Sequence[Tile], _reach: object) -> Answer:
        answer = Answer()
        for number, tile in tiles:
            rows = tile.source_end - tile.source_start
            digest = Digest(rows=rows, bytes=rows * options.record_bytes, total=number, ordered=number)
            answer.outcomes.append(SegmentOutcome.of(number, tile, orders.level, source=digest, target=digest))
        return answer

    leaders = {range_.tp: at % options.brokers for at, range_ in enumerate(every)}
    began = time.process_time()
    with patch.object(task, "obey", obey):
        found = run(slots, request, every, leaders)
    figures = {
        "terabytes": options.terabytes,
        "slots": options.executors * options.cores,
        "segments": len(found),
        "jobs": slots.jobs,
        "tasks": slots.tasks,
        "driver_seconds": round(time.process_time() - began, 1),
        "driver_megabytes": round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024),
        "hours": round(slots.seconds / 3600, 2),
        "least_hours": round(options.terabytes * 1e12 / options.rate / options.executors / options.cores / 3600, 2),
    }
    print(json.dumps(figures))
    return 0


def run(
    slots: Slots, request: ValidationRequest, every: Sequence[PartitionRange], leaders: dict[TopicPartition, int]
) -> list[SegmentOutcome]:
    """What the driver does."""
    spark: Any = slots
    return job.run(spark, request, every, _ORDERS, leaders=leaders)


if __name__ == "__main__":
    sys.exit(main())
