"""Both levels of validation over copies, against the mirror that made them and the brokers: `make bench-validate`.

Rates are record pairs a second: both sides read. "Fetch only" reads the same bytes on both sides and looks at nothing.
Cold counts from the start of the Spark session, warm is the same request again in it. The first case is the one that
counts; of the others (`--cases`) each is copied once. The last line is JSON. See docs/performance.md.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from rich.console import Console

from bench.copying import Copied, watch_copy
from bench.data import Data, fill
from bench.mirror import create_topic, delete_topic
from bench.ours import MASTER, Migration
from bench.processes import end_with_parent
from demo.brokers import EmbeddedKafka
from kafka_migration.compare.decode.columns import kernel
from kafka_migration.compare.digests import SOURCE, TARGET
from kafka_migration.compare.orders import Wires
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.result import Equality
from kafka_migration.compare.session import open_session
from kafka_migration.compare.verdict import judge
from kafka_migration.copy.package import ship
from kafka_migration.domain.levels import Level
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.lookup import find_connection
from kafka_migration.migration.context import open_context
from kafka_migration.plans.load import load_plan
from kafka_migration.validation.job import run
from kafka_migration.validation.pins import pin
from kafka_migration.wire.batch import batches
from kafka_migration.wire.cluster import LATEST, WireCluster
from kafka_migration.wire.fetch import fetch
from kafka_migration.wire.fetch_request import FetchFrom
from kafka_migration.wire.selector import Selector

_PLAIN = Data(topic="plain", partitions=4, records=12_000_000, value_bytes=500, batch_bytes=64 * 1024, codec="lz4")
CASES = {
    "plain": _PLAIN,
    "single": replace(_PLAIN, topic="single", records=400_000, batch_bytes=0),
    "large": replace(_PLAIN, topic="large", records=200_000, value_bytes=10_000),
    "zstd": replace(_PLAIN, topic="zstd", records=1_000_000, codec="zstd"),
    "transactions": replace(_PLAIN, topic="transactions", records=1_000_000, transaction_records=1_000),
    "compacted": replace(_PLAIN, topic="compacted", records=4_000_000, keys=400_000),
}
_ROUNDS = 3
_HEAP_MEGABYTES = 1024
_FETCH_BYTES = 4 * 1024 * 1024

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one level: the first time, the session's start included, and the median of later ones."""

    cold: float
    warm: float


class Comparison:
    """A copy that is there, and how long it takes to compare it. Of one that is ``compacted`` keys count, though no
    cleaner has run."""

    def __init__(self, migration: Migration, data: Data, *, compacted: bool = False) -> None:
        os.environ.update(migration.environment)
        self.plan, self.data = load_plan(migration.path), data
        self._clusters = {SOURCE: find_connection(self.plan.source), TARGET: find_connection(self.plan.target)}
        with open_context(self.plan) as ctx:
            ranges = pin(ctx, data.tps).ranges
        self._ranges: tuple[PartitionRange, ...] = tuple(replace(one, compacted=compacted) for one in ranges)

    def rates(self, level: Level, rounds: int) -> Rates:
        """Compare everything in a session of its own, at first and ``rounds`` times more."""
        began = time.monotonic()
        session = open_session("bench-validate", master=MASTER)
        try:
            ship(session.sparkContext)
            self._once(session, level)
            cold = time.monotonic() - began
            warm = []
            for _ in range(rounds):
                began = time.monotonic()
                self._once(session, level)
                warm.append(time.monotonic() - began)
        finally:
            session.stop()
        return Rates(self.data.records / cold, self.data.records / statistics.median(warm))

    @property
    def wires(self) -> Wires:
        """How both clusters are reached."""
        return {side: cluster.kafka_python() for side, cluster in self._clusters.items()}

    def request(self, level: Level) -> ValidationRequest:
        """Everything, at this level."""
        return ValidationRequest(
            id=str(uuid.uuid4()),
            migration=self.plan.name,
            source=self.plan.source,
            target=self.plan.target,
            segment_records=self.plan.validation.segment_records,
            ranges=self._ranges,
            level=level,
        )

    def _once(self, session: Any, level: Level) -> None:
        request = self.request(level)
        connections = {side: cluster.jvm() for side, cluster in self._clusters.items()}
        report = run(session, request, connections, self.wires)
        results = judge(request, report, {})
        records = sum(it.source.rows for it in results if it.source)
        if any(it.verdict is not Equality.EQUAL for it in results) or records != self.data.records:
            raise RuntimeError(
                f"{records:,} of {self.data.records:,} records compared: {[it.detail for it in results]}"
            )


def fetch_only(source: str, target: str, data: Data) -> float:
    """Pairs a second of two processes, each with its share of the partitions, that only fetch."""
    context = multiprocessing.get_context("spawn")
    gate, times = context.Barrier(3), context.Queue()
    workers = [context.Process(target=_fetch_all, args=(source, target, data.tps[n::2], gate, times)) for n in (0, 1)]
    for worker in workers:
        worker.start()
    gate.wait(60)
    spans = [times.get(timeout=300) for _ in workers]
    for worker in workers:
        worker.join()
    took: float = max(end for _, end in spans) - min(begin for begin, _ in spans)
    return data.records / took


def _fetch_all(source: str, target: str, tps: list[TopicPartition], gate: Any, times: Any) -> None:
    end_with_parent()
    net = Selector()
    clusters = [WireCluster(net, {"bootstrap_servers": it}, "source") for it in (source, target)]

    async def read(cluster: WireCluster, ends: dict[TopicPartition, int]) -> None:
        at = dict.fromkeys(tps, 0)
        while left := [tp for tp in tps if at[tp] < ends[tp]]:
            answers = await fetch(
                cluster,
                cluster.leaders[left[0]].node,
                [FetchFrom(tp, at[tp], _FETCH_BYTES) for tp in left],
                max_wait_ms=100,
                max_bytes=_FETCH_BYTES * len(left),
            )
            for answer in answers:
                for header, _ in batches(answer.records):
                    at[answer.partition] = header.next_offset

    async def ends_of(cluster: WireCluster) -> dict[TopicPartition, int]:
        return await cluster.list_offsets(tps, LATEST, deadline=time.monotonic() + 30)

    async def both() -> None:
        ends = [await ends_of(cluster) for cluster in clusters]
        gate.wait(60)
        began = time.time()
        reads = [net.call_soon_with_future(read, cluster, end) for cluster, end in zip(clusters, ends, strict=True)]
        for it in reads:
            await it
        times.put((began, time.time()))

    for cluster in clusters:
        cluster.connect()
    net.run(both)
    for cluster in clusters:
        cluster.close()
    net.close()


def mirrored(migration: Migration, target: str, data: Data) -> Copied:
    """Copy everything once; how long that took."""
    migration.run("create")
    with migration.mirroring("--until-caught-up") as (process, log):
        copied = watch_copy(
            process, target=target, partitions=data.tps, records=data.records, markers=data.partitions, log=log
        )
        process.wait(120)
    return copied


def _case(
    source: EmbeddedKafka, target: EmbeddedKafka, folder: Path, name: str, data: Data, rounds: int, say: Say
) -> dict[str, Any]:
    """The figures of one case, which is copied and compared so many times."""
    quiet = {"log_level": 0}
    there = AdminClient({"bootstrap.servers": target.bootstrap_servers, **quiet})
    create_topic(AdminClient({"bootstrap.servers": source.bootstrap_servers, **quiet}), data)
    fill(source.bootstrap_servers, data)
    copies = []
    for number in range(1, rounds + 1):
        migration = Migration(folder, source.bootstrap_servers, target.bootstrap_servers, [data.topic])
        copies.append(mirrored(migration, target.bootstrap_servers, data).records_per_s)
        say(f"{name}: mirror, round {number}: {copies[-1]:,.0f} records/s")
        if number < rounds:
            migration.run("release")
            delete_topic(there, data.topic)
    mirror = statistics.median(copies)
    limits = [fetch_only(source.bootstrap_servers, target.bootstrap_servers, data) for _ in range(rounds)]
    limit = statistics.median(limits)
    say(f"{name}: fetch only, both sides: {', '.join(f'{it:,.0f}' for it in limits)} pairs/s")
    comparison = Comparison(migration, data, compacted=name == "compacted")
    rates = {}
    for level in (Level.BATCH, Level.RECORD):
        rates[level] = comparison.rates(level, rounds)
        say(f"{name}: {level} level: cold {rates[level].cold:,.0f}, warm {rates[level].warm:,.0f} pairs/s")
    batch, record = rates[Level.BATCH], rates[Level.RECORD]
    return {
        "batch": {"records_per_s": round(batch.warm)},
        "record": {"cold": round(record.cold), "warm": round(record.warm)},
        "mirror": {"records_per_s": round(mirror)},
        "fetch_only": {"records_per_s": round(limit)},
        "ratio": {
            "batch_to_mirror": round(batch.warm / mirror, 3),
            "batch_to_record": round(batch.warm / record.warm, 2),
            "batch_to_fetch_only": round(batch.warm / limit, 3),
            "record_to_mirror": round(record.warm / mirror, 3),
        },
        "record_to_fetch_only": round(record.warm / limit, 3),
        "kernel": kernel(),
    }


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.validate", description=__doc__)
    parser.add_argument("--rounds", type=int, default=_ROUNDS)
    parser.add_argument("--records", type=int, default=_PLAIN.records, help="of the first case; others in proportion")
    parser.add_argument("--cases", nargs="*", choices=CASES, default=list(CASES))
    options = parser.parse_args()
    console = Console(soft_wrap=True)
    found: dict[str, dict[str, Any]] = {}
    for name in options.cases:
        scale, data = options.records / _PLAIN.records, CASES[name]
        records, keys = round(data.records * scale), round(data.keys * scale)
        with (
            tempfile.TemporaryDirectory(prefix="bench-validate-") as folder,
            EmbeddedKafka(name="bench-source", heap_megabytes=_HEAP_MEGABYTES) as source,
            EmbeddedKafka(name="bench-target", heap_megabytes=_HEAP_MEGABYTES) as target,
        ):
            found[name] = _case(
                source,
                target,
                Path(folder),
                name,
                replace(data, records=records // data.partitions * data.partitions, keys=keys),
                options.rounds if not found else 1,
                lambda text: console.print(text, highlight=False),
            )
    first = found.pop(options.cases[0])
    print(json.dumps({**first, "cases": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
