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
from collections.abc import Iterator
from pathlib import Path

import psutil

from demo.brokers import EmbeddedKafka
from kafka_migration.domain.types import TopicPartition
from kafka_migration.state.link import LinkState
from tests.kafka_tools import ToSend, create_topics, delete_records, log_ends, produce, read_all
from tests.mirror.plans import SmallPlan, small_plan

ROOT = Path(__file__).resolve().parents[2]
VICTIMS = ("driver", "worker", "jvm")
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
    """The whole test; raises AssertionError where the copy is not exact. Times are seconds."""
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
        "records": compared,
        "kills": sum(done.values()),
        "killed": done,
        "lost": 0,
        "doubled": 0,
        "reordered": 0,
        "mistranslated": 0,
        "seconds": round(time.monotonic() - began, 1),
    }


def _compare(source: str, target: str, plan: SmallPlan, topics: dict[str, int]) -> int:
    link = LinkState.on_target(plan.name, {"bootstrap.servers": target})
    maps = link.offset_maps()
    link.close()
    there, count = read_all(target, topics), 0
    for tp, rows in read_all(source, topics).items():
        assert [r.without_offset() for r in there[tp]] == [r.without_offset() for r in rows], f"{tp} differs"
        assert [maps[tp].to_target(r.offset) for r in rows] == [r.offset for r in there[tp]], f"{tp} mistranslated"
        count += len(rows)
    return count


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
        try:
            result = run(
                records=options.records,
                kills=options.kills,
                seed=options.seed,
                throttle=options.throttle,
                folder=Path(folder),
            )
        except AssertionError:
            print((Path(folder) / "mirror.log").read_text()[-5000:], file=sys.stderr)
            raise
    print(json.dumps(result))
    return 0 if result["kills"] == options.kills else 1


if __name__ == "__main__":
    sys.exit(main())
