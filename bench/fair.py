"""One heavy topic at full rate beside many small ones: how long do the small ones' records take? ``make bench-fair``.

A steady load over the small topics, from producer to an independent consumer of the target as bench/latency.py
measures; first alone, then with the heavy topic beside it, in one run of one mirror. The heavy topic has a task of its
own (``mirror.dedicated_streams``), or shares one with the others (``--shared``). At last as much is written to a topic
that nobody copies: what that takes from the small ones is the machine's, and not the mirror's. The last line is JSON.
See docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from array import array
from collections.abc import Sequence
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console

from bench.latency import consume, distribution, produce
from bench.ours import Migration
from bench.processes import end_with_parent
from demo.brokers import EmbeddedKafka

HEAVY, UNMOVED = "heavy", "unmoved"
_HEAP_MEGABYTES = 1024
_BEGIN_SECONDS = 180
#: As its users would, who care for throughput.
_HEAVY_VALUE_BYTES = 10_000
_MEGABYTE = 1_000_000
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
            "batch.size": 500_000,
            "queue.buffering.max.kbytes": 65_536,
            "log_level": 2,
        }
    )
    value, began, sent, copied = b"x" * _HEAVY_VALUE_BYTES, time.perf_counter(), 0, 0
    while not over.is_set():
        if not megabytes_per_second and (sent - copied) * len(value) > _AHEAD_BYTES:
            producer.poll(_LOOK_SECONDS)
            copied = _records(there, topic, partitions)
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


def _await_copy(servers: str, topic: str) -> None:
    until = time.monotonic() + _BEGIN_SECONDS
    # The marker of a fence stands there before.
    while _records(servers, topic, 1) < 2:
        if time.monotonic() > until:
            raise RuntimeError(f"the mirror has copied nothing of {topic} after {_BEGIN_SECONDS} s")
        time.sleep(1.0)


def measure(source: EmbeddedKafka, target: EmbeddedKafka, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """All loads, one after the other. Raises RuntimeError if too little of the small ones arrives."""
    here, there = source.bootstrap_servers, target.bootstrap_servers
    small = [f"small-{number:03}" for number in range(options.topics)]
    partitions = {HEAVY: options.partitions, UNMOVED: options.partitions, **dict.fromkeys(small, 1)}
    admin = AdminClient({"bootstrap.servers": here, "log_level": 2})
    topics = [NewTopic(name, num_partitions=count, replication_factor=1) for name, count in partitions.items()]
    for made in admin.create_topics(topics).values():
        made.result(60)
    own = {} if options.shared else {"dedicated_streams": [{"topics": [HEAVY], "niceness": options.niceness}]}
    migration = Migration(folder, here, there, [HEAVY, *small], mirror={"num_streams": 1, **own})
    migration.run("create")
    spawn = multiprocessing.get_context("spawn")
    places, over, results = [(name, 0) for name in small], spawn.Event(), spawn.Queue()
    steady = (here, places, options.per_second, options.value_bytes, over)
    processes = [
        spawn.Process(target=consume, args=(there, places, over, results), daemon=True),
        spawn.Process(target=produce, args=steady, daemon=True),
    ]
    windows: dict[str, tuple[int, int]] = {}

    def window(name: str, warm_up: float) -> None:
        time.sleep(warm_up)
        begins = time.time_ns()
        time.sleep(options.seconds)
        windows[name] = begins, time.time_ns()

    def rush(name: str, topic: str, megabytes_per_second: float, *clusters: str) -> list[float]:
        """A window beside a topic that is written meanwhile; MB/s that each of the clusters takes of it."""
        enough = spawn.Event()
        arguments = (here, there, topic, options.partitions, megabytes_per_second, enough)
        processes.append(writer := spawn.Process(target=flood, args=arguments, daemon=True))
        writer.start()
        try:
            time.sleep(options.heavy_warm_up)
            before = [_records(servers, topic, options.partitions) for servers in clusters]
            window(name, 0.0)
            after = [_records(servers, topic, options.partitions) for servers in clusters]
        finally:
            enough.set()
        writer.join(30)
        sizes = [(now - then) * _HEAVY_VALUE_BYTES / _MEGABYTE for then, now in zip(before, after, strict=True)]
        return [round(size / options.seconds, 1) for size in sizes]

    with migration.mirroring():
        try:
            for process in processes:
                process.start()
            _await_copy(there, small[-1])
            window("alone", options.warm_up)
            produced, copied = rush("beside", HEAVY, options.heavy_mb_s, here, there)
            (unmoved,) = rush("unmoved", UNMOVED, copied, here)
            # What was sent last is on its way still.
            time.sleep(2.0)
            over.set()
            sent, took = (array("q", data) for data in results.get(timeout=60))
        finally:
            over.set()
            for process in processes:
                if process.pid is not None:
                    process.join(30)
    found = {
        name: distribution(
            name,
            (ns for at, ns in zip(sent, took, strict=True) if begins <= at < ends),
            expected=options.per_second * options.seconds,
        )
        for name, (begins, ends) in windows.items()
    }
    return {
        **{f"small_{key}_{name}": value for name, figures in found.items() for key, value in figures.items()},
        "ratio": round(found["beside"]["p99_ms"] / found["alone"]["p99_ms"], 2),
        "ratio_to_unmoved": round(found["beside"]["p99_ms"] / found["unmoved"]["p99_ms"], 2),
        "heavy_mb_s": copied,
        "heavy_produced_mb_s": produced,
        "unmoved_mb_s": unmoved,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns 1 if p99 of the small ones is more than ``--ratio`` times as long beside the heavy one."""
    parser = argparse.ArgumentParser(prog="python -m bench.fair", description=__doc__)
    parser.add_argument("--topics", type=int, default=200, help="small ones, of a partition each")
    parser.add_argument("--per-second", type=int, default=1_000, help="records of all small ones together")
    parser.add_argument("--value-bytes", type=int, default=500)
    parser.add_argument("--partitions", type=int, default=4, help="of the heavy one")
    parser.add_argument("--heavy-mb-s", type=float, default=0.0, help="of its producer; 0: as fast as it is copied")
    parser.add_argument("--shared", action="store_true", help="the heavy one has no task of its own")
    parser.add_argument("--niceness", type=int, default=10, help="of the heavy one's task")
    parser.add_argument("--warm-up", type=float, default=60.0, help="seconds")
    parser.add_argument("--heavy-warm-up", type=float, default=15.0, help="seconds, of the heavy one")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds that count, of each load")
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
