"""One copy, watched from outside: from the first record that lands on the target to its end."""

import time
from dataclasses import dataclass
from pathlib import Path

from bench.ends import LogEnds
from bench.processes import CpuMeter
from demo.brokers.process import LeashedProcess
from kafka_migration.domain.types import TopicPartition

_LOOK_SECONDS = 0.1
_LONGEST_SECONDS = 900.0


class CopyFailed(RuntimeError):
    """A copy ended, or did not, without the target being complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What one copy took. Times in seconds; ``start_up_seconds`` is what passed before the first record landed."""

    records: int
    start_up_seconds: float
    seconds: float
    cpu_seconds: float

    @property
    def records_per_s(self) -> float:
        """Records a second, from the first that landed."""
        return self.records / self.seconds

    @property
    def cpu_s_per_million(self) -> float:
        """CPU seconds of all copying processes for a million records, from the first that landed."""
        return self.cpu_seconds / self.records * 1_000_000


def watch_copy(
    process: LeashedProcess,
    *,
    target: str,
    partitions: list[TopicPartition],
    records: int,
    markers: int,
    log: Path,
) -> Copied:
    """Watch ``process`` fill ``partitions``, all empty before, with ``records`` records and ``markers`` fence markers.

    Raises:
        CopyFailed: it ended early, or needed over a quarter of an hour; the end of its log is in the message.
    """
    began = time.monotonic()
    meter = CpuMeter(process.pid)
    first: tuple[float, float, int] | None = None
    with LogEnds(target, partitions) as ends:
        while True:
            there, now, cpu = ends.total(), time.monotonic(), meter.seconds()
            if there >= records + markers:
                break
            if there > markers and first is None:
                first = now, cpu, there - markers
            if not process.alive() or now - began > _LONGEST_SECONDS:
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
                raise CopyFailed(f"{there - markers:,} of {records:,} records arrived. Its log ends with:\n{tail}")
            time.sleep(_LOOK_SECONDS)
    if there != records + markers:
        raise CopyFailed(f"the target holds {there - markers:,} records, the source {records:,}: something came twice")
    if first is None:
        raise CopyFailed("the copy was too fast to be watched: take more records")
    at, cpu_before, landed = first
    return Copied(records=records - landed, start_up_seconds=at - began, seconds=now - at, cpu_seconds=cpu - cpu_before)
