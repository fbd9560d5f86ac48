"""How evenly a validation's work is spread, and whom an executor or a broker takes with it: `make bench-spread`.

Record level on a standalone master with four workers of one core, over a source of three brokers, three times: with
nothing in its way; with one executor killed in the midst; and with one of the source's brokers stopped for 90 s. Each
share notes where and when it was read, and brokers count what they send. The last line is JSON.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
from confluent_kafka.admin import AdminClient
from rich.console import Console

from bench import validate
from bench.data import Data, fill
from bench.mirror import create_topic
from bench.ours import Migration
from demo.brokers import EmbeddedKafka
from demo.java import java_executable
from kafka_migration.compare import job
from kafka_migration.compare.digests import SOURCE, SegmentOutcome
from kafka_migration.compare.orders import Answer, Orders, Tile
from kafka_migration.compare.reading import SHORT_SECONDS
from kafka_migration.compare.request import ValidationRequest
from kafka_migration.compare.session import open_session
from kafka_migration.compare.task import clients
from kafka_migration.copy.package import package_zip
from kafka_migration.domain.levels import Level
from kafka_migration.domain.types import TopicPartition
from tests.spark_standalone import spark_standalone
from tests.waiting import wait_until

_WORKERS, _BROKERS, _STOPPED = 4, 3, 2
#: A leader may be idle while another has so many shares waiting.
_MOST_WAITING = 4
_DATA = Data(topic="spread", partitions=12, records=12_000_000, value_bytes=500, batch_bytes=64 * 1024, codec="lz4")
_SOURCE_FILE = Path(__file__).with_name("BytesOut.java")

#: A share of a wave, by the wave's number and its own.
Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Read:
    """A share that was begun, and on which executor (its process id); ``end`` is 0 where that was killed."""

    key: Key
    executor: int
    begin: float
    end: float = 0.0


class Watched:
    """A Spark session as far as waves ask for it; tasks note in ``folder`` when they begin and end."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.sparkContext = self
        self.waves: list[Sequence[Sequence[Tile]]] = []
        self._context, self._folder, self._lock = spark.sparkContext, folder, threading.Lock()

    @property
    def defaultParallelism(self) -> int:  # noqa: N802
        """Slots."""
        return int(self._context.defaultParallelism)

    def setJobGroup(self, *words: str) -> None:  # noqa: N802
        """As Spark's."""
        self._context.setJobGroup(*words)

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        """As Spark's."""
        self._context.cancelJobGroup(group)

    def parallelize(self, shares: Sequence[Sequence[Tile]], slices: int) -> Any:
        """A job of these tasks."""
        with self._lock:
            wave = len(self.waves)
            self.waves.append(shares)
        rows = self._context.parallelize(list(enumerate(shares)), slices)
        return SimpleNamespace(map=lambda task: rows.map(_noted(task, str(self._folder), wave)))

    def reads(self) -> list[Read]:
        """So far, in the order in which they began."""
        begun: dict[tuple[Key, int], Read] = {}
        for file in sorted(self._folder.iterdir()):
            for line in file.read_text().splitlines():
                what, wave, share, executor, at = json.loads(line)
                place = (wave, share), executor
                begun[place] = Read((wave, share), executor, at) if what == "begin" else replace(begun[place], end=at)
        return sorted(begun.values(), key=lambda read: read.begin)


def _noted(task: Callable[[Any], Answer], folder: str, wave: int) -> Callable[[tuple[int, Any]], Answer]:
    def work(numbered: tuple[int, Any]) -> Answer:
        share, tiles = numbered
        with open(f"/proc/{os.getppid()}/stat", encoding="ascii") as stat:
            executor = int(stat.read().rpartition(")")[2].split()[1])
        with open(f"{folder}/{os.getpid()}", "a", encoding="ascii") as notes:
            for what in ("begin", "end"):
                print(json.dumps([what, wave, share, executor, time.time()]), file=notes, flush=True)
                if what == "begin":
                    answer = task(tiles)
        return answer

    return work


class Bench:
    """Both clusters, the copy, and Spark."""

    def __init__(self, folder: Path, source: EmbeddedKafka, master: str, comparison: validate.Comparison) -> None:
        self.folder, self.source, self.comparison = folder, source, comparison
        self.data = comparison.data
        self._master, self._runs = master, 0

    def sent(self) -> int:
        """Bytes that the source's brokers have sent of the topic, by their metrics."""
        pids = map(str, self.source.pids.values())
        command = [str(java_executable()), str(_SOURCE_FILE), self.data.topic, *pids]
        return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)

    def validated(self, disturb: Callable[[Watched], None]) -> tuple[Watched, list[SegmentOutcome], float]:
        """One validation, ``disturb`` beside it; what was read where, what came out, and when it began."""
        self._runs += 1
        notes = self.folder / f"notes-{self._runs}"
        notes.mkdir()
        conf = {"spark.executor.memory": "700m", "spark.executor.cores": "1"}
        session = open_session("bench-spread", master=self._master, conf=conf)
        try:
            session.sparkContext.addPyFile(str(package_zip()))
            slots = session.sparkContext
            wait_until(lambda: slots.defaultParallelism == _WORKERS, "all executors are there", deadline_seconds=60)
            watched = Watched(session, notes)
            request = self.comparison.request(Level.RECORD)
            orders = Orders(level=Level.RECORD, committed=True, seconds=SHORT_SECONDS, wires=self.comparison.wires)
            side = threading.Thread(target=disturb, args=(watched,), daemon=True)
            began = time.time()
            side.start()
            spark: Any = watched
            found = job.run(spark, request, request.ranges, orders, leaders=self.leaders(request))
            side.join(300)
        finally:
            session.stop()
        return watched, found, began

    def leaders(self, request: ValidationRequest) -> dict[TopicPartition, int]:
        """Of the source's partitions."""
        with clients({SOURCE: self.comparison.wires[SOURCE]}) as found:
            return found[SOURCE].leaders({range_.topic for range_ in request.ranges}, 30.0)


def evenness(watched: Watched, leaders: dict[TopicPartition, int]) -> dict[str, float]:
    """Of shares behind the first two waves, which are small on purpose: the longest one's time to the median; and for
    how many seconds, in all and at once, a leader was idle, though shares of its own waited, while more than four of
    another's did."""
    reads = [read for read in watched.reads() if read.end]
    times = [read.end - read.begin for read in reads if read.key[0] > 1]
    of = {
        (wave, share): {leaders[tile.tp] for _, tile in tiles}
        for wave, shares in enumerate(watched.waves)
        for share, tiles in enumerate(shares)
    }
    first = {wave: min(read.begin for read in reads if read.key[0] == wave) for wave in range(len(watched.waves))}
    moments = sorted({moment for read in reads for moment in (read.begin, read.end)})
    idle = longest = 0.0
    since: dict[int, float] = {}
    for now, then in pairwise(moments):
        busy = {leader for read in reads if read.begin <= now < read.end for leader in of[read.key]}
        waiting = Counter(leader for read in reads if first[read.key[0]] <= now < read.begin for leader in of[read.key])
        are_waiting = any(count > _MOST_WAITING for count in waiting.values())
        since = {leader: since.get(leader, now) for leader in waiting.keys() - busy if are_waiting}
        idle += then - now if since else 0.0
        longest = max([longest, *(then - begun for begun in since.values())])
    return {
        "shares": len(reads),
        "longest_to_median": round(max(times) / statistics.median(times), 2),
        "idle_leader_seconds": round(idle, 2),
        "longest_idle_seconds": round(longest, 2),
    }


def kill_one(killed: list[int]) -> Callable[[Watched], None]:
    """Kill the executor that began a share last, once the third wave is under way."""

    def disturb(watched: Watched) -> None:
        wait_until(lambda: any(read.key[0] >= 2 for read in watched.reads()), "the third wave", deadline_seconds=120)
        killed.append(watched.reads()[-1].executor)
        psutil.Process(killed[0]).kill()

    return disturb


def stop_one(source: EmbeddedKafka, seconds: float, times: list[float]) -> Callable[[Watched], None]:
    """Stop a broker for so long, once the second wave is under way."""

    def disturb(watched: Watched) -> None:
        wait_until(lambda: any(read.key[0] >= 1 for read in watched.reads()), "the second wave", deadline_seconds=120)
        source.kill(_STOPPED)
        times.append(time.time())
        time.sleep(seconds)
        source.restart(_STOPPED)
        times.append(time.time())

    return disturb


def figures(bench: Bench, stopped_seconds: float, say: Callable[[str], None]) -> Iterator[tuple[str, dict[str, Any]]]:
    """One after the other."""
    leaders = bench.leaders(bench.comparison.request(Level.RECORD))
    before = bench.sent()
    watched, found, began = bench.validated(lambda _watched: None)
    quiet = bench.sent() - before
    yield (
        "quiet",
        {
            **evenness(watched, leaders),
            "equal": _equal(found, bench.data),
            "seconds": round(max(read.end for read in watched.reads()) - began, 1),
            "source_megabytes": round(quiet / 1e6),
        },
    )
    killed: list[int] = []
    before = bench.sent()
    watched, found, _ = bench.validated(kill_one(killed))
    more = bench.sent() - before - quiet
    twice = {key for key, count in Counter(read.key for read in watched.reads()).items() if count > 1}
    lost = {read.key for read in watched.reads() if read.executor == killed[0] and not read.end}
    yield (
        "killed",
        {
            "equal": _equal(found, bench.data),
            "read_twice": len(twice),
            "of_the_killed": len(lost),
            "only_its_own": twice <= lost,
            "megabytes_more": round(more / 1e6, 1),
            "share_megabytes": round(quiet / 1e6 / max(1, len({read.key for read in watched.reads()})), 1),
        },
    )
    times: list[float] = []
    watched, found, _ = bench.validated(stop_one(bench.source, stopped_seconds, times))
    ends: dict[bool, list[float]] = defaultdict(list)
    for read in watched.reads():
        tiles = watched.waves[read.key[0]][read.key[1]]
        ends[any(leaders[tile.tp] == _STOPPED for _, tile in tiles)].append(read.end)
    yield (
        "stopped",
        {
            "equal": _equal(found, bench.data),
            "unread": sum(bool(one.failure) for one in found),
            "others_done_s": round(max(ends[False]) - times[0], 1),
            "back_s": round(times[1] - times[0], 1),
            "its_own_done_s": round(max(ends[True]) - times[0], 1),
        },
    )


def _equal(found: Sequence[SegmentOutcome], data: Data) -> bool:
    return all(one.is_same for one in found) and sum(one.source.rows for one in found) == data.records


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.spread", description=__doc__)
    parser.add_argument("--records", type=int, default=_DATA.records)
    parser.add_argument("--stopped-seconds", type=float, default=90.0)
    options = parser.parse_args()
    console = Console(soft_wrap=True)
    data = replace(_DATA, records=options.records // _DATA.partitions * _DATA.partitions)
    found = {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-spread-") as place,
        EmbeddedKafka(name="bench-source", nodes=_BROKERS) as source,
        EmbeddedKafka(name="bench-target", heap_megabytes=1024) as target,
    ):
        folder = Path(place)
        create_topic(AdminClient({"bootstrap.servers": source.bootstrap_servers, "log_level": 0}), data)
        fill(source.bootstrap_servers, data)
        migration = Migration(folder, source.bootstrap_servers, target.bootstrap_servers, [data.topic])
        validate.mirrored(migration, target.bootstrap_servers, data)
        with spark_standalone(folder, workers=_WORKERS) as master:
            bench = Bench(folder, source, master, validate.Comparison(migration, data))
            for name, figure in figures(bench, options.stopped_seconds, console.print):
                console.print(f"{name}: {figure}", highlight=False)
                found[name] = figure
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
