"""MirrorMaker 2 and this mirror copy the same data, in turn: `make bench-mirror` (`python -m bench.mirror`).

Each copy is watched from outside, from the first record that lands on the target to its end; start-up counts apart, CPU
is that of all copying processes in that time. The last line is JSON. See docs/performance.md.

With ``--metrics`` the mirror copies with and without somebody who serves its metrics beside it, in turn, instead.
"""

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table

from bench import limit, mirrormaker
from bench.copying import Copied, watch_copy
from bench.data import Data, fill, shape
from bench.ours import Migration
from bench.processes import CpuMeter, running
from demo.brokers import EmbeddedKafka

KIB = 1024
CASES = {
    "lz4": Data(topic="plain", partitions=4, records=8_000_000, value_bytes=500, batch_bytes=64 * KIB, codec="lz4"),
    "small_batches": Data(topic="small", partitions=4, records=6_000_000, value_bytes=500, batch_bytes=0, codec="none"),
    "10_kb_records": Data(
        topic="large", partitions=4, records=600_000, value_bytes=10_000, batch_bytes=256 * KIB, codec="none"
    ),
    "200_partitions": Data(
        topic="wide", partitions=200, records=12_000_000, value_bytes=500, batch_bytes=64 * KIB, codec="lz4"
    ),
    "transactions": Data(
        topic="transactional",
        partitions=4,
        records=4_000_000,
        value_bytes=500,
        batch_bytes=64 * KIB,
        codec="lz4",
        transaction_records=1_000,
    ),
}
MAIN = "lz4"
_ROUNDS, _ROUNDS_OF_METRICS = 3, 6
_WARM_UP_COPIES = 4
"""Of new brokers the first copies take twice as long as those after them, while their code is compiled."""
_READ_SECONDS, _SCRAPE_SECONDS = 15.0, 5.0
"""How often metrics are read from the clusters, four times as often as by default, and asked for."""
_HEAP_MEGABYTES = 1024


@dataclass(frozen=True, slots=True)
class Round:
    """One copy by each."""

    mirrormaker2: Copied
    mirror: Copied


class Bench:
    """Two clusters, and the copies between them."""

    def __init__(self, source: EmbeddedKafka, target: EmbeddedKafka, folder: Path, say: Callable[[str], None]) -> None:
        """``say`` hears what happens."""
        self.source, self.target, self.folder, self.say = source, target, folder, say
        self.exporter_shares: list[float] = []
        # Brokers end before these clients do: what they say then is not worth a line.
        quiet = {"log_level": 0}
        self._from = AdminClient({"bootstrap.servers": source.bootstrap_servers, **quiet})
        self._to = AdminClient({"bootstrap.servers": target.bootstrap_servers, **quiet})

    def warm_up(self, data: Data) -> None:
        """Have new brokers' code compiled by some copies that do not count."""
        create_topic(self._from, data)
        fill(self.source.bootstrap_servers, data)
        for number in range(1, _WARM_UP_COPIES + 1):
            self.say(f"warm-up {number}: {_one(self._mirror(data))}")
        delete_topic(self._from, data.topic)

    def case(self, name: str, data: Data, rounds: int, *, with_limit: bool) -> dict[str, Any]:
        """Fill the source, let both copy ``rounds`` times, remove what was made. The case's figures."""
        create_topic(self._from, data)
        began = time.monotonic()
        fill(self.source.bootstrap_servers, data)
        seen = shape(self.source.bootstrap_servers, data)
        self.say(
            f"{name}: {data.records:,} records of {data.value_bytes:,} B in {data.partitions} partitions, {data.codec}"
            f" (compressed to {seen.ratio:.2f}), mean batch {seen.batch_bytes / KIB:.1f} KiB of"
            f" {seen.batch_records:.0f} records; filled in {time.monotonic() - began:.0f} s"
        )
        done = []
        limits = []
        for number in range(1, rounds + 1):
            done.append(Round(self._mirrormaker(data), self._mirror(data)))
            self.say(f"  round {number}: MirrorMaker 2 {_one(done[-1].mirrormaker2)}; mirror {_one(done[-1].mirror)}")
            if with_limit:
                limits.append(self._limit(data))
                self.say(f"  round {number}: produce only {limits[-1]:,.0f} records/s")
        delete_topic(self._from, data.topic)
        figures = _figures(done)
        if limits:
            median = statistics.median(limits)
            figures["produce_only"] = {"records_per_s": round(median)}
            figures["ratio"]["of_produce_limit"] = round(figures["mirror"]["records_per_s"] / median, 3)
        return figures

    def cost_of_metrics(self, data: Data, rounds: int) -> dict[str, Any]:
        """Fill the source, and copy ``rounds`` times with and without an exporter, in turn; how fast each was."""
        create_topic(self._from, data)
        fill(self.source.bootstrap_servers, data)
        done: dict[bool, list[Copied]] = {False: [], True: []}
        for number in range(1, rounds + 1):
            # Each comes first every other time: who does finds other caches.
            for is_served in (False, True) if number % 2 else (True, False):
                done[is_served].append(self._mirror(data, is_served=is_served))
                how = "with" if is_served else "without"
                self.say(f"  round {number}, {how} metrics: {_one(done[is_served][-1])}")
        delete_topic(self._from, data.topic)
        without, beside = (
            statistics.median(copy.records_per_s for copy in done[is_served]) for is_served in (False, True)
        )
        return {
            "without": {"records_per_s": round(without)},
            "with_metrics": {"records_per_s": round(beside)},
            "ratio": round(beside / without, 3),
            # Of two copies in turn the rates differ by more than what is looked for: this does not.
            "ratio_by_cpu": round(1 - statistics.median(self.exporter_shares), 4),
        }

    def _mirrormaker(self, data: Data) -> Copied:
        create_topic(self._to, data)
        wanted = mirrormaker.properties(
            self.source.bootstrap_servers, self.target.bootstrap_servers, [data.topic], codec=data.codec
        )
        with mirrormaker.running(self.folder, wanted) as (process, log):
            copied = watch_copy(
                process,
                target=self.target.bootstrap_servers,
                partitions=data.tps,
                records=data.records,
                markers=0,
                log=log,
            )
        delete_topic(self._to, data.topic)
        for admin in (self._from, self._to):
            # What it remembers to have copied: the next round would have nothing to do.
            for name in sorted(it for it in admin.list_topics(timeout=30).topics if mirrormaker.is_its_own(it)):
                delete_topic(admin, name)
        return copied

    def _mirror(self, data: Data, *, is_served: bool = False) -> Copied:
        migration = Migration(self.folder, self.source.bootstrap_servers, self.target.bootstrap_servers, [data.topic])
        migration.run("create")
        served = _served(migration, self.folder, self.exporter_shares) if is_served else nullcontext()
        with served, migration.mirroring("--until-caught-up") as (process, log):
            copied = watch_copy(
                process,
                target=self.target.bootstrap_servers,
                partitions=data.tps,
                records=data.records,
                # One fence before the first batch of every partition: a marker each.
                markers=data.partitions,
                log=log,
            )
            if not process.wait(120):
                raise RuntimeError(f"the mirror has copied everything, and not ended within 120 s; see {log}")
        # The next one is another migration of the same topic.
        migration.run("release")
        delete_topic(self._to, data.topic)
        return copied

    def _limit(self, data: Data) -> float:
        rates = []
        measure: Callable[[], float]
        for measure in (
            lambda: limit.own_loop(
                self.source.bootstrap_servers, self.target.bootstrap_servers, data, data.topic, senders=2
            ),
            lambda: limit.own_loop(
                self.source.bootstrap_servers, self.target.bootstrap_servers, data, data.topic, senders=1
            ),
            lambda: limit.producer_performance(
                self.target.bootstrap_servers, data, data.topic, records=data.records // 2
            ),
        ):
            create_topic(self._to, data)
            rates.append(measure())
            delete_topic(self._to, data.topic)
        self.say("  produce only: own loop, two processes {:,.0f}, one {:,.0f}; Kafka's {:,.0f}".format(*rates))
        return max(rates)


@contextmanager
def _served(migration: Migration, folder: Path, shares: list[float]) -> Iterator[None]:
    """The migration's metrics are served while the block runs, and asked for; from their first reading on. Adds to
    ``shares`` what the exporter takes of this machine's CPU meanwhile."""
    log, ended = folder / f"{migration.name}-metrics.log", threading.Event()
    command = migration.command("metrics", "--listen", "127.0.0.1:0", "--interval", f"{_READ_SECONDS:g}")
    with running(command, log, cwd=folder, env=migration.environment, seconds=30) as process:
        until = time.monotonic() + 60
        while not (served := re.search(r"http://\S+/metrics", log.read_text() if log.exists() else "")):
            if not process.alive() or time.monotonic() > until:
                raise RuntimeError(f"metrics are not served; see {log}")
            time.sleep(0.1)
        while f'kafka_migration_up{{migration="{migration.name}"}} 1.0' not in _asked(served[0]):
            if time.monotonic() > until:
                raise RuntimeError(f"the migration was not read; see {log}")
            time.sleep(0.1)

        def scrape() -> int:
            count = 0
            while not ended.wait(_SCRAPE_SECONDS):
                _asked(served[0])
                count += 1
            return count

        meter, began = CpuMeter(process.pid), time.monotonic()
        before = meter.seconds()
        with ThreadPoolExecutor(1) as pool:
            scraping = pool.submit(scrape)
            try:
                yield
            finally:
                ended.set()
            shares.append((meter.seconds() - before) / (time.monotonic() - began) / (os.cpu_count() or 1))
            if not scraping.result():
                raise RuntimeError("metrics were not asked for once: take more records (--scale)")


def _asked(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read(), "utf-8")


def create_topic(admin: AdminClient, data: Data) -> None:
    """The topic of ``data``, which keeps everything."""
    config = {"retention.ms": "-1", "retention.bytes": "-1", "message.timestamp.type": "CreateTime"}
    topic = NewTopic(data.topic, num_partitions=data.partitions, replication_factor=1, config=config)
    admin.create_topics([topic])[data.topic].result(60)


def delete_topic(admin: AdminClient, topic: str) -> None:
    """Until it is gone."""
    admin.delete_topics([topic])[topic].result(60)
    until = time.monotonic() + 60
    while topic in admin.list_topics(timeout=30).topics:
        if time.monotonic() > until:
            raise RuntimeError(f"{topic} is still there")
        time.sleep(0.2)


def _one(copied: Copied) -> str:
    return (
        f"{copied.records_per_s:,.0f} records/s in {copied.seconds:.1f} s, {copied.cpu_s_per_million:.2f} CPU s per"
        f" million, start-up {copied.start_up_seconds:.1f} s"
    )


def _figures(rounds: list[Round]) -> dict[str, Any]:
    sides = {
        side: {
            "records_per_s": round(statistics.median(getattr(it, side).records_per_s for it in rounds)),
            "cpu_s_per_million": round(statistics.median(getattr(it, side).cpu_s_per_million for it in rounds), 3),
        }
        for side in ("mirrormaker2", "mirror")
    }
    theirs, own = sides["mirrormaker2"], sides["mirror"]
    ratio = {
        "records_per_s": round(own["records_per_s"] / theirs["records_per_s"], 2),
        "cpu": round(own["cpu_s_per_million"] / theirs["cpu_s_per_million"], 4),
    }
    return {**sides, "ratio": ratio}


def _table(figures: dict[str, dict[str, Any]]) -> Table:
    table = Table("case", title="Medians")
    for heading in ("MirrorMaker 2, records/s", "mirror, records/s", "times", "CPU s/million", "mirror", "ratio"):
        table.add_column(heading, justify="right")
    for name, it in figures.items():
        theirs, own = it["mirrormaker2"], it["mirror"]
        table.add_row(
            name,
            f"{theirs['records_per_s']:,}",
            f"{own['records_per_s']:,}",
            f"{it['ratio']['records_per_s']:.1f}",
            f"{theirs['cpu_s_per_million']:.1f}",
            f"{own['cpu_s_per_million']:.2f}",
            f"{it['ratio']['cpu']:.3f}",
        )
    return table


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.mirror", description=__doc__)
    parser.add_argument("--case", action="append", choices=list(CASES), help="only this one; may be repeated")
    parser.add_argument("--rounds", type=int, help=f"default: {_ROUNDS}, with --metrics {_ROUNDS_OF_METRICS}")
    parser.add_argument("--metrics", action="store_true", help="what metrics cost, instead")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the records, for a quick look")
    options = parser.parse_args()
    if options.metrics and options.case:
        parser.error(f"--metrics copies the case {MAIN} alone: leave --case out")
    console = Console(soft_wrap=True)
    figures = {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-mirror-") as folder,
        EmbeddedKafka(name="bench-source", heap_megabytes=_HEAP_MEGABYTES) as source,
        EmbeddedKafka(name="bench-target", heap_megabytes=_HEAP_MEGABYTES) as target,
    ):
        bench = Bench(source, target, Path(folder), lambda text: console.print(text, highlight=False))
        bench.warm_up(_scaled(CASES[MAIN], options.scale))
        if options.metrics:
            rounds = options.rounds or _ROUNDS_OF_METRICS
            print(json.dumps(bench.cost_of_metrics(_scaled(CASES[MAIN], options.scale), rounds)))
            return 0
        for name in options.case or CASES:
            data = _scaled(CASES[name], options.scale)
            figures[name] = bench.case(name, data, options.rounds or _ROUNDS, with_limit=name == MAIN)
    console.print(_table(figures))
    print(json.dumps({**figures.get(MAIN, {}), "cases": figures}))
    return 0


def _scaled(data: Data, scale: float) -> Data:
    return replace(data, records=int(data.records * scale) // data.partitions * data.partitions)


if __name__ == "__main__":
    sys.exit(main())
