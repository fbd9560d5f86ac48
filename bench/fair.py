"""One heavy topic at full rate beside many small ones: how long do the small ones' records take? ``make bench-fair``.

A steady load over the small topics, from producer to an independent consumer of the target as bench/latency.py
measures: alone; beside the heavy topic's backlog, which is copied as fast as the mirror can; beside a heavy topic that
is written as fast as it is copied; and beside one that is written as fast, and copied by nobody: what that takes from
the small ones is the machine's, and not the mirror's. The heavy topic has a task of its own
(``mirror.dedicated_streams``, with a niceness and small requests), or shares one with the others (``--shared``). The
last line is JSON. See docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console

from bench.data import Data, fill
from bench.latency import consume, distribution, produce
from bench.ours import Migration
from bench.processes import end_with_parent
from demo.brokers import EmbeddedKafka

HEAVY, UNMOVED = "heavy", "unmoved"
_HEAP_MEGABYTES = 1024
_COPY_SECONDS = 600
#: As its users would, who care for throughput.
_HEAVY_VALUE_BYTES = 10_000
_BATCH_BYTES = 500_000
_BACKLOG = Data(
    topic=HEAVY, partitions=4, records=0, value_bytes=_HEAVY_VALUE_BYTES, batch_bytes=_BATCH_BYTES, codec="none"
)
_MEGABYTE, _MEBIBYTE = 1_000_000, 1 << 20
#: So that the mirror always has something to copy, and the disk holds what is copied, not what could be written.
_AHEAD_BYTES = 300 * _MEGABYTE
_LOOK_SECONDS = 0.5


def flood(here: str, there: str, topic: str, partitions: int, megabytes_per_second: float, over: Event) -> None:
    """Write the topic until ``over``: at so many MB/s, or (0) as fast as it is copied, a little ahead of that."""
    end_with_parent()
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": here,
            "linger.ms": 20,
            "batch.size": _BATCH_BYTES,
            "queue.buffering.max.kbytes": 65_536,
            "log_level": 2,
        }
    )
    value, began, sent, copied = b"x" * _HEAVY_VALUE_BYTES, time.perf_counter(), 0, 0
    before = 0 if megabytes_per_second else _records(there, topic, partitions)
    while not over.is_set():
        if not megabytes_per_second and (sent - copied) * len(value) > _AHEAD_BYTES:
            producer.poll(_LOOK_SECONDS)
            copied = _records(there, topic, partitions) - before
            continue
        if megabytes_per_second:
            ahead = sent * len(value) / (megabytes_per_second * _MEGABYTE) - (time.perf_counter() - began)
            time.sleep(max(0.0, ahead))
        try:
            producer.produce(topic, value)
            sent += 1
            producer.poll(0)
        except BufferError:
            producer.poll(0.05)
    producer.purge()


def _records(servers: str, topic: str, partitions: int) -> int:
    """How many stand in the log of a cluster, markers included."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "counts", "log_level": 2})
    try:
        places = (confluent_kafka.TopicPartition(topic, p) for p in range(partitions))
        return sum(consumer.get_watermark_offsets(place, timeout=30)[1] for place in places)
    finally:
        consumer.close()


def _await_records(servers: str, topic: str, partitions: int, count: int) -> None:
    """Until so many stand there. Raises RuntimeError if that takes too long."""
    until = time.monotonic() + _COPY_SECONDS
    while (found := _records(servers, topic, partitions)) < count:
        if time.monotonic() > until:
            raise RuntimeError(f"{topic} has {found} records on the target after {_COPY_SECONDS} s, not {count}")
        time.sleep(1.0)


class Small:
    """The small topics' load while the block runs, and what its records took meanwhile, by window."""

    def __init__(self, here: str, there: str, topics: Sequence[str], options: argparse.Namespace) -> None:
        self.found: dict[str, dict[str, float]] = {}
        self._windows: dict[str, tuple[int, int]] = {}
        self._options, self._there, self._last = options, there, topics[-1]
        spawn, places = multiprocessing.get_context("spawn"), [(name, 0) for name in topics]
        self._over, self._results = spawn.Event(), spawn.Queue()
        load = (here, places, options.per_second, options.value_bytes, self._over)
        self._processes = [
            spawn.Process(target=consume, args=(there, places, self._over, self._results), daemon=True),
            spawn.Process(target=produce, args=load, daemon=True),
        ]

    def __enter__(self) -> Small:
        """Once a record of the last topic has arrived."""
        before = _records(self._there, self._last, 1)
        for process in self._processes:
            process.start()
        _await_records(self._there, self._last, 1, before + 1)
        return self

    def window(self, name: str, warm_up: float) -> None:
        """What is sent from ``warm_up`` seconds on counts under this name."""
        time.sleep(warm_up)
        begins = time.time_ns()
        time.sleep(self._options.seconds)
        self._windows[name] = begins, time.time_ns()

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        """Raises RuntimeError if too little arrived."""
        if failed is None:
            time.sleep(2.0)  # what was sent last is on its way still
        self._over.set()
        try:
            sent, took = (array("q", data) for data in self._results.get(timeout=60))
        finally:
            for process in self._processes:
                process.join(30)
        if failed is None:
            expected = self._options.per_second * self._options.seconds
            for name, (begins, ends) in self._windows.items():
                counted = (ns for at, ns in zip(sent, took, strict=True) if begins <= at < ends)
                self.found[name] = distribution(name, counted, expected=expected)


def measure(source: EmbeddedKafka, target: EmbeddedKafka, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All loads, one after the other. Raises RuntimeError if too little of the small ones arrives, or all of the
    backlog before its time is over."""
    here, there = source.bootstrap_servers, target.bootstrap_servers
    small = [f"small-{number:03}" for number in range(options.topics)]
    partitions = {HEAVY: options.partitions, UNMOVED: options.partitions, **dict.fromkeys(small, 1)}
    admin = AdminClient({"bootstrap.servers": here, "log_level": 2})
    topics = [NewTopic(name, num_partitions=count, replication_factor=1) for name, count in partitions.items()]
    for made in admin.create_topics(topics).values():
        made.result(60)
    stream = {name: getattr(options, name) for name in ("niceness", "fetch_bytes", "request_bytes")}
    own = {} if options.shared else {"dedicated_streams": [{"topics": [HEAVY], **stream}]}
    migration = Migration(folder, here, there, [HEAVY, *small], mirror={"num_streams": 1, **own})
    migration.run("create")

    def rates(topic: str, took: Callable[[], None], *clusters: str) -> list[float]:
        """MB/s of the topic's values that each of the clusters gets meanwhile."""
        began, before = time.monotonic(), [_records(servers, topic, options.partitions) for servers in clusters]
        took()
        seconds = time.monotonic() - began
        after = [_records(servers, topic, options.partitions) for servers in clusters]
        sizes = [(now - then) * _HEAVY_VALUE_BYTES / _MEGABYTE for then, now in zip(before, after, strict=True)]
        return [round(size / seconds, 1) for size in sizes]

    def beside(load: Small, name: str, topic: str, megabytes_per_second: float, *clusters: str) -> list[float]:
        """The rates of a topic that is written meanwhile."""
        spawn = multiprocessing.get_context("spawn")
        enough = spawn.Event()
        arguments = (here, there, topic, options.partitions, megabytes_per_second, enough)
        writer = spawn.Process(target=flood, args=arguments, daemon=True)
        writer.start()
        try:
            time.sleep(options.heavy_warm_up)
            return rates(topic, lambda: load.window(name, 0.0), *clusters)
        finally:
            enough.set()
            writer.join(30)

    with migration.mirroring():
        _await_records(there, small[-1], 1, 1)  # the marker of a fence
        with Small(here, there, small, options) as alone:
            alone.window("alone", options.warm_up)
    records = options.backlog_mb * _MEGABYTE // _HEAVY_VALUE_BYTES
    fill(here, replace(_BACKLOG, partitions=options.partitions, records=records))
    # It has been there for long: that it is written does not count.
    os.sync()
    with migration.mirroring():
        _await_records(there, HEAVY, options.partitions, records // 100)
        with Small(here, there, small, options) as busy:
            (backlog,) = rates(HEAVY, lambda: busy.window("backlog", options.warm_up), there)
            if _records(there, HEAVY, options.partitions) >= records:
                raise RuntimeError("all of the backlog was copied before its time was over: --backlog-mb")
            _await_records(there, HEAVY, options.partitions, records)
            produced, copied = beside(busy, "live", HEAVY, options.live_mb_s, here, there)
            (unmoved,) = beside(busy, "unmoved", UNMOVED, copied, here)
    found = {**alone.found, **busy.found}
    ratios = {name: round(found[name]["p99_ms"] / found["alone"]["p99_ms"], 2) for name in busy.found}
    return {
        **{f"small_{key}_{name}": value for name, figures in found.items() for key, value in figures.items()},
        "backlog_mb_s": backlog,
        "live_mb_s": copied,
        "live_produced_mb_s": produced,
        "unmoved_mb_s": unmoved,
        "ratio_live": ratios["live"],
        "ratio_unmoved": ratios["unmoved"],
        "ratio": ratios["backlog"],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns 1 if p99 of the small ones is more than ``--ratio`` times as long beside the backlog."""
    parser = argparse.ArgumentParser(prog="python -m bench.fair", description=__doc__)
    parser.add_argument("--topics", type=int, default=200, help="small ones, of a partition each")
    parser.add_argument("--per-second", type=int, default=1_000, help="records of all small ones together")
    parser.add_argument("--value-bytes", type=int, default=500)
    parser.add_argument("--partitions", type=int, default=4, help="of the heavy one")
    parser.add_argument("--backlog-mb", type=int, default=8_000, help="of the heavy one, before it is copied")
    parser.add_argument("--live-mb-s", type=float, default=0.0, help="of its producer; 0: as fast as it is copied")
    parser.add_argument("--shared", action="store_true", help="the heavy one has no task of its own")
    parser.add_argument("--niceness", type=int, default=10, help="of the heavy one's task")
    parser.add_argument("--fetch-bytes", type=int, default=4 * _MEBIBYTE, help="how much its task asks for at once")
    parser.add_argument("--request-bytes", type=int, default=_MEBIBYTE, help="how much its task sends at once")
    parser.add_argument("--warm-up", type=float, default=30.0, help="seconds")
    parser.add_argument("--heavy-warm-up", type=float, default=15.0, help="seconds, of what is written live")
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds that count, of each load")
    parser.add_argument("--ratio", type=float, default=2.0, help="the most that is accepted")
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="bench-fair-") as folder,
        EmbeddedKafka(name="fair-source", heap_megabytes=_HEAP_MEGABYTES) as source,
        EmbeddedKafka(name="fair-target", heap_megabytes=_HEAP_MEGABYTES) as target,
    ):
        figures = measure(source, target, Path(folder), options)
    Console(highlight=False).print(", ".join(f"{key} {value:,}" for key, value in figures.items()))
    print(json.dumps(figures))
    return 1 if figures["ratio"] > options.ratio else 0


if __name__ == "__main__":
    sys.exit(main())
