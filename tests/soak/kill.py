"""Kill the mirror again and again, and show that the copy is exact: ``python -m tests.soak.kill`` (make kill-test).

A throttled copy is SIGKILLed at random moments: the driver's Python process, its JVM, a Python worker of Spark. A kill
counts only if the target has grown since the last restart and the copy is not finished. Afterwards an independent
reader compares source and target record by record, and every offset must translate.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from demo.brokers import EmbeddedKafka
from kafka_migration.domain.offset_map import NotMirroredYet, OffsetMap
from kafka_migration.domain.types import TopicPartition
from kafka_migration.state.link import LinkState
from tests.copy.plans import SmallPlan, small_plan
from tests.kafka_tools import Row, ToSend, create_topics, delete_records, log_ends, produce, read_all

ROOT = Path(__file__).resolve().parents[2]
VICTIMS = ("driver", "worker", "jvm")
#: What a copy can have wrong, each counted in records.
WRONG = ("lost", "doubled", "foreign", "reordered", "mistranslated")
_PARTITIONS = 4


def _records(count: int, chance: random.Random) -> Iterator[ToSend]:
    for n in range(count):
        yield ToSend(
            b"%d:" % n + chance.randbytes(100), b"key-%d" % (n % 1000), n % _PARTITIONS, headers=[("n", b"%d" % n)]
        )


class Copy:
    """The mirror as a process of its own, with everything that it starts."""

    def __init__(self, plan: SmallPlan, throttle: int, log: Path) -> None:
        self._plan, self._throttle, self._log = plan, throttle, log
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, str(ROOT / "spark_jobs" / "mirror.py"), str(self._plan.path), "--until-caught-up"]
        environment = {**self._plan.environment, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*command, "--throttle", str(self._throttle)],
                env=environment,
                stdout=log,
                stderr=log,
                cwd=self._log.parent,
            )

    def restart_if_dead(self) -> bool:
        """True if a new process had to be started. What is left of the old one is not waited for: it is a zombie
        as real ones are, and the new one's fence must hold against it."""
        if self.process.poll() is None or self.process.returncode == 0:
            return False
        self.process = self._start()
        return True

    def kill(self, victim: str, chance: random.Random) -> bool:
        """SIGKILL one process of the copy. False if there is none of that kind just now."""
        try:
            children = psutil.Process(self.process.pid).children(recursive=True)
            jvms = [c for c in children if c.name() == "java"]
            workers = [c for c in children if c.name().startswith("python")]
            pids = {"driver": [self.process.pid], "jvm": [c.pid for c in jvms], "worker": [c.pid for c in workers]}[
                victim
            ]
            if not pids:
                return False
            os.kill(chance.choice(pids), signal.SIGKILL)
        except (psutil.NoSuchProcess, ProcessLookupError):
            return False
        return True


def run(*, records: int, kills: int, seed: int, throttle: int, folder: Path) -> dict[str, object]:
    """The whole test: what was killed, and what is wrong with the copy, counted. Times are seconds."""
    chance = random.Random(seed)
    began = time.monotonic()
    with EmbeddedKafka(name="kill-source") as source, EmbeddedKafka(name="kill-target") as target:
        topics = {"killed": _PARTITIONS}
        create_topics(source.bootstrap_servers, topics)
        produce(
            source.bootstrap_servers,
            "killed",
            _records(records, chance),
            **{"compression.type": "lz4", "batch.size": 30_000},
        )
        delete_records(source.bootstrap_servers, {TopicPartition("killed", p): 10 + p for p in range(_PARTITIONS)})
        plan = small_plan(folder, source.bootstrap_servers, target.bootstrap_servers, topics)
        copy = Copy(plan, throttle, folder / "mirror.log")
        done = dict.fromkeys(VICTIMS, 0)
        grown_since = log_ends(target.bootstrap_servers, topics)
        try:
            while copy.process.poll() != 0:
                time.sleep(chance.uniform(0.2, 0.5))
                if copy.restart_if_dead():
                    grown_since = log_ends(target.bootstrap_servers, topics)
                    continue
                now = log_ends(target.bootstrap_servers, topics)
                left = records - now
                if sum(done.values()) < kills and now > grown_since + records // (3 * kills) and left > 0:
                    victim = min(VICTIMS, key=lambda v: (done[v], chance.random()))
                    if copy.process.poll() is None and copy.kill(victim, chance):
                        done[victim] += 1
                        grown_since = now + 100
                        print(f"kill {sum(done.values())} of {kills}: {victim} at {now:,} target offsets", flush=True)
        finally:
            if copy.process.poll() is None:
                copy.process.kill()
        compared = _compare(source.bootstrap_servers, target.bootstrap_servers, plan, topics)
    return {
        "seed": seed,
        "kills": sum(done.values()),
        "killed": done,
        **compared,
        "seconds": round(time.monotonic() - began, 1),
    }


def _compare(source: str, target: str, plan: SmallPlan, topics: dict[str, int]) -> dict[str, int]:
    link = LinkState.on_target(plan.name, {"bootstrap.servers": target})
    maps = link.offset_maps()
    link.close()
    there = read_all(target, topics)
    counts = {"records": 0, **dict.fromkeys(WRONG, 0)}
    for tp, rows in read_all(source, topics).items():
        counts["records"] += len(rows)
        for what, count in differences(rows, there[tp], maps.get(tp)).items():
            counts[what] += count
    return counts


def differences(source: Sequence[Row], target: Sequence[Row], offsets: OffsetMap | None) -> dict[str, int]:
    """What is wrong with the copy of one partition, in records. Every record of the source is another one.

    A record that was altered counts as lost, and as a foreign one. Of those that stand on both sides, reordered are the
    fewest that would have to be moved; mistranslated are those whose offset does not lead to a copy of them.
    """
    here = [row.without_offset() for row in source]
    place = {record: at for at, record in enumerate(here)}
    if len(place) < len(here):
        raise ValueError("records of the source cannot be told from each other")
    copies: dict[int, list[int]] = {}
    for row in target:
        at = place.get(row.without_offset())
        if at is not None:
            copies.setdefault(at, []).append(row.offset)
    first = sorted(copies, key=lambda at: copies[at][0])
    return {
        "lost": len(here) - len(copies),
        "doubled": sum(len(it) - 1 for it in copies.values()),
        "foreign": len(target) - sum(len(it) for it in copies.values()),
        "reordered": len(first) - _longest_rise(first),
        "mistranslated": sum(
            offsets is None or not _leads_to(offsets, source[at].offset, found) for at, found in copies.items()
        ),
    }


def _leads_to(offsets: OffsetMap, source: int, found: list[int]) -> bool:
    try:
        return offsets.to_target(source) in found
    except NotMirroredYet:
        return False


def _longest_rise(numbers: Sequence[int]) -> int:
    """The length of the longest rising subsequence."""
    ends: list[int] = []
    for number in numbers:
        at = bisect_left(ends, number)
        ends[at : at + 1] = [number]
    return len(ends)


def is_exact(result: Mapping[str, object]) -> bool:
    """Whether nothing is wrong with the copy."""
    return not any(result[what] for what in WRONG)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.kill", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--throttle", type=int, default=2_500_000, help="bytes per second")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kill-test-") as folder:
        result = run(
            records=options.records,
            kills=options.kills,
            seed=options.seed,
            throttle=options.throttle,
            folder=Path(folder),
        )
        print(json.dumps(result))
        if not is_exact(result):
            print((Path(folder) / "mirror.log").read_text()[-5000:], file=sys.stderr)
    return 0 if result["kills"] == options.kills and is_exact(result) else 1


if __name__ == "__main__":
    sys.exit(main())
