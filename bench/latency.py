"""How long a record takes, from its producer to a consumer of the target: ``make bench-latency``.

A steady load of 2,000 records/s over 50 partitions; an independent consumer of the target compares the clock with the
time that the producer wrote into each record. The same load for both systems, one after the other, each warmed up
first; then without either, from the source itself. The last line is JSON. See docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console

from bench import mirrormaker
from bench.ours import Migration
from bench.processes import end_with_parent
from demo.brokers import EmbeddedKafka

_HEAP_MEGABYTES = 1024
_STAMP_BYTES = 8

System = Callable[[Path, str, str, str], AbstractContextManager[Any]]


Places = Sequence[tuple[str, int]]
"""Topics and their partitions, which a load is spread over."""


def produce(servers: str, places: Places, per_second: int, value_bytes: int, over: Event) -> None:
    """Write steadily until ``over``; each value begins with the time at which it was handed to the producer (ns)."""
    end_with_parent()
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 0, "log_level": 2})
    rest = b"x" * (value_bytes - _STAMP_BYTES)
    began, sent = time.perf_counter(), 0
    while not over.is_set():
        due = int((time.perf_counter() - began) * per_second)
        for _ in range(due - sent):
            topic, partition = places[sent % len(places)]
            producer.produce(topic, time.time_ns().to_bytes(_STAMP_BYTES, "big") + rest, partition=partition)
            sent += 1
        producer.poll(0)
        time.sleep(0.0005)
    producer.flush(30)


def consume(servers: str, places: Places, over: Event, results: Any) -> None:
    """Read from the end on until ``over``: (sent, nanoseconds taken) of every record, in the order of arrival."""
    end_with_parent()
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "latency",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "fetch.min.bytes": 1,
            "log_level": 2,
        }
    )
    end = confluent_kafka.OFFSET_END
    consumer.assign([confluent_kafka.TopicPartition(*place, end) for place in places])
    sent, took = array("q"), array("q")
    while not over.is_set():
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            stamp = int.from_bytes((message.value() or b"")[:_STAMP_BYTES], "big")
            sent.append(stamp)
            took.append(time.time_ns() - stamp)
    consumer.close()
    results.put((sent.tobytes(), took.tobytes()))


class Bench:
    """Two clusters, and one load after the other."""

    def __init__(self, source: EmbeddedKafka, target: EmbeddedKafka, folder: Path, options: argparse.Namespace) -> None:
        """``options`` are those of the command."""
        self.source, self.target, self.folder, self.options = source, target, folder, options
        self._spawn = multiprocessing.get_context("spawn")

    def measure(self, name: str, system: System | None) -> dict[str, float]:
        """Latency with ``system`` between the clusters, or on the source alone. Raises RuntimeError if too little
        arrives."""
        topic = f"latency-{name}"
        here = self.source.bootstrap_servers
        there = here if system is None else self.target.bootstrap_servers
        for servers in {here, there}:
            made = NewTopic(topic, num_partitions=self.options.partitions, replication_factor=1)
            if servers == here or name == "mirrormaker2":
                admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
                admin.create_topics([made])[topic].result(60)
        if system is None:
            return self._loaded(topic, here, there, warm_up=10.0)
        with system(self.folder, here, there, topic):
            return self._loaded(topic, here, there, warm_up=self.options.warm_up)

    def _loaded(self, topic: str, here: str, there: str, *, warm_up: float) -> dict[str, float]:
        options, over, results = self.options, self._spawn.Event(), self._spawn.Queue()
        places = [(topic, partition) for partition in range(options.partitions)]
        load = (here, places, options.per_second, options.value_bytes, over)
        processes = [
            self._spawn.Process(target=consume, args=(there, places, over, results), daemon=True),
            self._spawn.Process(target=produce, args=load, daemon=True),
        ]
        for process in processes:
            process.start()
        try:
            time.sleep(warm_up)
            begins = time.time_ns()
            time.sleep(options.seconds)
            ends = time.time_ns()
            # What was sent last is on its way still.
            time.sleep(2.0)
            over.set()
            sent, took = (array("q", data) for data in results.get(timeout=30))
        finally:
            over.set()
            for process in processes:
                process.join(30)
        counted = [ns for at, ns in zip(sent, took, strict=True) if begins <= at < ends]
        return distribution(topic, counted, expected=options.per_second * options.seconds)


def distribution(name: str, nanoseconds: Iterable[int], *, expected: float) -> dict[str, float]:
    """Of what each record took. Raises RuntimeError if fewer than ``expected`` arrived."""
    counted = sorted(nanoseconds)
    if len(counted) < 0.99 * expected:
        raise RuntimeError(f"{name}: {len(counted)} of {expected:.0f} records arrived in time")
    return {
        "p50_ms": _ms(counted[len(counted) // 2]),
        "p99_ms": _ms(counted[len(counted) * 99 // 100]),
        "p999_ms": _ms(counted[len(counted) * 999 // 1000]),
        "max_ms": _ms(counted[-1]),
        "records": len(counted),
    }


def _ms(nanoseconds: int) -> float:
    return round(nanoseconds / 1e6, 2)


@contextmanager
def _mirrormaker(folder: Path, source: str, target: str, topic: str) -> Iterator[None]:
    """MirrorMaker 2, tuned for latency: it does not wait for more records before it sends."""
    wanted = mirrormaker.properties(source, target, [topic]) | {"target.producer.linger.ms": "0"}
    with mirrormaker.running(folder, wanted):
        yield


@contextmanager
def _mirror(folder: Path, source: str, target: str, topic: str) -> Iterator[None]:
    """This mirror, as a plan's defaults have it."""
    migration = Migration(folder, source, target, [topic], mirror={})
    migration.run("create")
    with migration.mirroring():
        yield


SYSTEMS: dict[str, System | None] = {"mirrormaker2": _mirrormaker, "mirror": _mirror, "direct": None}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns 1 if the mirror's median or p99 is above MirrorMaker 2's."""
    parser = argparse.ArgumentParser(prog="python -m bench.latency", description=__doc__)
    parser.add_argument("--system", action="append", choices=list(SYSTEMS), help="only this one; may be repeated")
    parser.add_argument("--per-second", type=int, default=2_000)
    parser.add_argument("--partitions", type=int, default=50)
    parser.add_argument("--value-bytes", type=int, default=500)
    parser.add_argument("--warm-up", type=float, default=120.0, help="seconds")
    parser.add_argument("--seconds", type=float, default=120.0, help="seconds that count")
    options = parser.parse_args(arguments)
    console = Console(highlight=False)
    figures: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-latency-") as folder,
        EmbeddedKafka(name="latency-source", heap_megabytes=_HEAP_MEGABYTES) as source,
        EmbeddedKafka(name="latency-target", heap_megabytes=_HEAP_MEGABYTES) as target,
    ):
        bench = Bench(source, target, Path(folder), options)
        for name in options.system or SYSTEMS:
            figures[name] = bench.measure(name, SYSTEMS[name])
            console.print(f"{name}: " + ", ".join(f"{key} {value:,}" for key, value in figures[name].items()))
    ratios: dict[str, float] = {}
    if {"mirror", "mirrormaker2"} <= figures.keys():
        ratios = {
            f"ratio_{name}": round(figures["mirror"][f"{name}_ms"] / figures["mirrormaker2"][f"{name}_ms"], 3)
            for name in ("p50", "p99")
        }
    print(json.dumps(figures | ratios))
    return 1 if any(ratio > 1 for ratio in ratios.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
