"""Translate random committed offsets and look at the very records: ``make translate-check``.

Topics of every codec, whose logs begin amid a batch, are mirrored in several runs, so that several fences stand in the
target's logs. Groups commit random offsets on the source, and `translate` says where each would go on. An independent
reader then reads the record at each source offset and the one at its translation: both must bear the same unique id.

With ``--back`` the link is sealed after that, records are written on the target and mirrored back, and groups commit
random offsets on the target, below and above the cut: `translate --reverse` must name the very records on the source.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import yaml

from demo.brokers import EmbeddedKafka
from kafka_migration.domain.types import TopicPartition
from tests.kafka_tools import ToSend, create_topics, delete_records, produce, set_topic_config

ROOT = Path(__file__).resolve().parents[2]
#: Codec, and partitions of its topic.
CODECS = {"none": 3, "gzip": 4, "snappy": 2, "lz4": 5, "zstd": 6}
PARTITIONS = sum(CODECS.values())
DIFFER_SHARE = 0.9
"""The least share of offsets for which source and target must differ: equal ones would prove nothing."""
_BATCH_RECORDS = 97
_ID_BYTES = 16

Place = tuple[str, int]  # topic, partition


@dataclass(frozen=True)
class Seen:
    """The first record that a consumer standing at some offset gets."""

    offset: int
    unique: bytes


class Scene:
    """Two clusters, topics that only this run has, and a plan for them."""

    def __init__(self, source: str, target: str, folder: Path, chance: random.Random) -> None:
        self.source, self.target, self.folder, self.chance = source, target, folder, chance
        self.name = f"translate-{chance.getrandbits(32):08x}"
        self.topics = {f"{self.name}.{codec}": count for codec, count in CODECS.items()}
        self.places = [(topic, p) for topic, count in self.topics.items() for p in range(count)]
        self.plan = folder / f"{self.name}.yaml"
        self.plan.write_text(
            yaml.safe_dump(
                {
                    "version": 1,
                    "name": self.name,
                    "source": "soak_source",
                    "target": "soak_target",
                    "topics": {"include": [rf"{self.name}\..*"]},
                    "groups": {"include": [rf"{self.name}\..*"]},
                    "mirror": {"epoch_seconds": 5},
                    "drain": {"window_seconds": 1},
                    "approvals": {"plan": False, "cutover": False},
                }
            )
        )

    def command(self, name: str, *options: str) -> dict[str, object]:
        """Run `python -m kafka_migration NAME PLAN --json`; its JSON. Raises AssertionError unless it exits with 0."""
        connections = {
            f"AIRFLOW_CONN_SOAK_{side}": json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": servers}})
            for side, servers in (("SOURCE", self.source), ("TARGET", self.target))
        }
        environment = {
            **os.environ,
            **connections,
            "PYTHONPATH": f"{ROOT / 'plugins'}{os.pathsep}{ROOT}",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        done = subprocess.run(
            [sys.executable, "-m", "kafka_migration", name, str(self.plan), "--json", *options],
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, f"{name}: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    def fill(self, records: int, servers: str = "") -> None:
        """Produce so many more records, over all partitions alike; on the source, unless ``servers`` are others."""
        for topic, count in self.topics.items():
            produce(
                servers or self.source,
                topic,
                self._records(count, records * count // PARTITIONS),
                **{
                    "compression.type": topic.rpartition(".")[2],
                    "batch.num.messages": _BATCH_RECORDS,
                    "enable.idempotence": True,
                },
            )

    def _records(self, partitions: int, records: int) -> Iterator[ToSend]:
        for n in range(records):
            unique = self.chance.randbytes(_ID_BYTES).hex().encode()
            padding = b"." * self.chance.randrange(200)
            yield ToSend(unique + padding, b"%d" % n if n % 3 else None, n % partitions, headers=[("n", b"%d" % n)])

    def raise_log_starts(self, most: int) -> dict[Place, int]:
        """Delete the first records of every partition, so that its log begins amid a batch; where it begins."""
        batches = max(1, most // _BATCH_RECORDS - 1)
        # Never at a batch's first record, and always past the offsets that fences take on the target.
        starts = {
            place: self.chance.randrange(batches) * _BATCH_RECORDS + self.chance.randrange(10, 90)
            for place in self.places
        }
        delete_records(self.source, {TopicPartition(*place): offset for place, offset in starts.items()})
        return starts

    def commit(self, groups: int, servers: str = "", name: str = "group") -> dict[tuple[str, Place], int]:
        """Have each of so many groups commit one random offset of every partition; what they committed."""
        commits = {}
        for number in range(groups):
            group = f"{self.name}.{name}-{number}"
            consumer = confluent_kafka.Consumer({"bootstrap.servers": servers or self.source, "group.id": group})
            offsets = []
            for topic, partition in self.places:
                low, end = consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, partition), timeout=30)
                offset = self.chance.randrange(low, end)
                offsets.append(confluent_kafka.TopicPartition(topic, partition, offset))
                commits[group, (topic, partition)] = offset
            consumer.commit(offsets=offsets, asynchronous=False)
            consumer.close()
        return commits

    def translations(self, *options: str) -> dict[tuple[str, Place], tuple[int, int]]:
        """What `translate` says of all groups: source and target offset of each commit."""
        answer = self.command("translate", *options)
        groups = answer["groups"]
        assert isinstance(groups, list)
        assert not [group for group in groups if group["problems"]], groups
        return {
            (group["group"], (it["topic"], it["partition"])): (it["source"], it["target"])
            for group in groups
            for it in group["positions"]
        }


class Reader:
    """Reads single records through librdkafka: none of the library's code is involved."""

    def __init__(self, servers: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "translate-check.reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "check.crcs": True,
                # One record is wanted of each partition, not a megabyte.
                "fetch.message.max.bytes": 50_000,
                "fetch.wait.max.ms": 20,
            }
        )

    def at(self, offsets: Mapping[Place, int]) -> dict[Place, Seen]:
        """The record that a consumer standing at each of `offsets` reads first; without those where it gets none."""
        self._consumer.assign([confluent_kafka.TopicPartition(*place, offset) for place, offset in offsets.items()])
        found: dict[Place, Seen] = {}
        deadline = time.monotonic() + 60
        message: Any  # which of its parts are None is known here
        while len(found) < len(offsets) and time.monotonic() < deadline:
            for message in self._consumer.consume(1_000, timeout=0.05):
                if message.error() is not None:
                    print(message.error(), file=sys.stderr)
                    continue
                place = (message.topic(), message.partition())
                found.setdefault(place, Seen(message.offset(), message.value()[: 2 * _ID_BYTES]))
        return found

    def close(self) -> None:
        self._consumer.close()


def run(
    source: str, target: str, *, offsets: int, records: int, runs: int, seed: int, folder: Path, back: bool = False
) -> dict[str, object]:
    """The whole check. `offsets` is rounded up to groups that commit in every partition; `runs` of the mirror, each
    way."""
    chance = random.Random(seed)
    scene = Scene(source, target, folder, chance)
    create_topics(source, scene.topics)
    fences = 0
    for number in range(runs):
        scene.fill(records // runs)
        if number == 0:
            starts = scene.raise_log_starts(records // runs // PARTITIONS)
            scene.command("create")
        outcome = scene.command("mirror", "--until-caught-up", "--master", "local[2]")
        fences += int(str(outcome["fences"]))
    assert fences >= runs, f"{fences} fences in {runs} runs"
    commits = scene.commit(-(-offsets // PARTITIONS))
    translated = scene.translations()
    assert {key: pair[0] for key, pair in translated.items()} == commits, "translate speaks of other commits"
    assert all(offset >= starts[place] > 0 for (_, place), offset in commits.items())
    wrong = _compare(scene, translated)
    for line in wrong[:10]:
        print(line, file=sys.stderr)
    result: dict[str, object] = {**_counts(translated, wrong), "seed": seed}
    return result | {"back": _and_back(scene, records, runs, offsets)} if back else result


def _counts(translated: Mapping[Any, tuple[int, int]], wrong: list[str]) -> dict[str, object]:
    differ = sum(1 for before, after in translated.values() if before != after)
    return {
        "offsets": len(translated),
        "exact": len(translated) - len(wrong),
        "differ_share": round(differ / len(translated), 4),
    }


def _and_back(scene: Scene, records: int, runs: int, offsets: int) -> dict[str, object]:
    """Seal, write on the target, mirror back, and have groups that only the target knows commit there."""
    stopped: Any = scene.command("stop")
    ends = {
        (topic, int(partition)): offset
        for topic, of in stopped["seal"]["ends"].items()
        for partition, offset in of.items()
    }
    for topic in scene.topics:
        # As the target's topics are while they are mirrored (docs/rollback.md).
        set_topic_config(scene.source, topic, {"retention.ms": "-1"})
    for _ in range(runs):
        scene.fill(records // runs, scene.target)
        scene.command("mirror", "--reverse", "--until-caught-up", "--master", "local[2]")
    commits = scene.commit(-(-offsets // PARTITIONS), scene.target, "there")
    found = {key: pair for key, pair in scene.translations("--reverse").items() if key in commits}
    assert {key: pair[1] for key, pair in found.items()} == commits, "translate speaks of other commits"
    wrong = _compare(scene, found, back=True)
    for line in wrong[:10]:
        print(line, file=sys.stderr)
    above = sum(1 for (_, place), offset in commits.items() if offset > ends[place])
    return {**_counts(found, wrong), "above_the_cut": above, "below_the_cut": len(commits) - above}


def _compare(scene: Scene, translated: Mapping[tuple[str, Place], tuple[int, int]], *, back: bool = False) -> list[str]:
    """What does not land on its record, in words. ``back``: the commits are of the target."""
    wrong = []
    readers = Reader(scene.source), Reader(scene.target)
    try:
        for group in sorted({group for group, _ in translated}):
            pairs = {place: pair for (name, place), pair in translated.items() if name == group}
            here, there = (
                reader.at({place: pair[side] for place, pair in pairs.items()}) for side, reader in enumerate(readers)
            )
            if back:
                here, there, pairs = there, here, {place: (after, before) for place, (before, after) in pairs.items()}
            for place, (before, after) in pairs.items():
                # On the target one may stand on a fence's marker: the first record behind it is meant.
                assert back or here.get(place, Seen(-1, b"")).offset == before, (
                    f"{place}: source offset {before} names no record"
                )
                if there.get(place) != Seen(after, here[place].unique):
                    wrong.append(f"{group} {place}: {before} is {here[place]}, {after} is {there.get(place)}")
    finally:
        for reader in readers:
            reader.close()
    return wrong


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.translate", description=__doc__)
    parser.add_argument("--offsets", type=int, default=1_000)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--runs", type=int, default=3, help="of the mirror; each begins with a fence")
    parser.add_argument("--back", action="store_true", help="and from the target back to the source, behind a seal")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="translate-check-") as folder,
        EmbeddedKafka(name="translate-source") as source,
        EmbeddedKafka(name="translate-target") as target,
    ):
        result = run(
            source.bootstrap_servers,
            target.bootstrap_servers,
            offsets=options.offsets,
            records=options.records,
            runs=options.runs,
            seed=options.seed,
            folder=Path(folder),
            back=options.back,
        )
    print(json.dumps(result))
    return 0 if is_good(result) else 1


def is_good(result: Mapping[str, object]) -> bool:
    """Whether every offset landed on its record, and enough of them differ; and so on the way back, if that was tried,
    on both sides of the cut."""
    back: Any = result.get("back")
    if back is not None and not (is_good(back) and min(back["above_the_cut"], back["below_the_cut"]) > 0):
        return False
    return result["exact"] == result["offsets"] and float(str(result["differ_share"])) >= DIFFER_SHARE


if __name__ == "__main__":
    sys.exit(main())
