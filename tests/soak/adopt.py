"""Take over what MirrorMaker 2 has copied, and compare with what an independent reader finds: ``make adopt-check``.

A real MirrorMaker 2 copies topics of several codecs, with transactions, from a source that is written to meanwhile; it
is killed twice (SIGKILL), started again each time, and stopped before it is done. Some faults are planted besides:
records doubled at the end, and a copy that lacks records. A consumer that knows nothing of the product then counts, by
unique ids, what is missing and what is doubled, and `adopt` must name the very same offsets. It takes the topics over,
the mirror goes on to the end, validation must find all EQUAL, and random committed offsets must translate to the very
records that they name. Nothing that MirrorMaker had copied may be copied again, but for the topic that is copied again.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from signal import SIGKILL
from typing import Any

import confluent_kafka
import yaml
from confluent_kafka.admin import AdminClient, OffsetSpec

from bench import mirrormaker
from demo.brokers import EmbeddedKafka
from demo.brokers.process import LeashedProcess
from tests.cli.processes import connection
from tests.cli.processes import run as run_command
from tests.kafka_tools import ToSend, commit, create_topics, delete_topic, produce
from tests.soak.translate import Place, Reader, Seen
from tests.waiting import wait_until

ALIAS = "source"
_ID_BYTES = 16
_PARTITIONS = 2
_BATCH = 50
#: Topics by what is done with them: whether they are written in transactions, and with which codec.
TOPICS = {
    "plain": "none",
    "gzip": "gzip",
    "zstd": "zstd",
    "committed": "lz4",
    "aborted": "lz4",
    "doubled": "snappy",
    "missing": "lz4",
}
_IN_TRANSACTIONS = ("committed", "aborted")
#: Records of a transaction.
_IN_ONE = 100
_MASTER = ("--master", "local[2]")


@dataclass(frozen=True)
class Record:
    """A record as the independent reader sees it; ``unique`` is its id."""

    offset: int
    unique: bytes
    key: bytes | None
    value: bytes
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]


def read(servers: str, places: Iterable[Place]) -> dict[Place, list[Record]]:
    """Every committed record of these partitions, by a plain consumer."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "adopt-check.reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    found: dict[Place, list[Record]] = {place: [] for place in places}
    consumer.assign([confluent_kafka.TopicPartition(*place, confluent_kafka.OFFSET_BEGINNING) for place in found])
    unread = set(found)
    message: Any  # which of its parts are None is known here
    while unread:
        for message in consumer.consume(5_000, timeout=1):
            place = (message.topic(), message.partition())
            if message.error() is not None:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                unread.discard(place)
                continue
            value = message.value()
            stamp, headers = message.timestamp()[1], tuple(message.headers() or ())
            record = Record(message.offset(), value[: 2 * _ID_BYTES], message.key(), value, stamp, headers)
            found[place].append(record)
    consumer.close()
    return found


@dataclass(frozen=True)
class Faults:
    """Offsets that are wrong, by partition on the source: of the source what is ``missing``, of the target what is
    ``doubled`` or ``foreign`` to committed records. ``copied`` is how many records of the source both have."""

    missing: frozenset[tuple[Place, int]]
    doubled: frozenset[tuple[Place, int]]
    foreign: frozenset[tuple[Place, int]]
    copied: Mapping[str, int]


def faults(here: Mapping[Place, list[Record]], there: Mapping[Place, list[Record]]) -> Faults:
    """What the reader finds: nothing behind the last record that was copied is missing."""
    missing, doubled, foreign = set(), set(), set()
    copied: Counter[str] = Counter()
    for place, records in here.items():
        known, seen = {record.unique for record in records}, set()
        for record in there[place]:
            if record.unique not in known:
                # Whatever was aborted, and each time that it was copied.
                foreign.add((place, record.offset))
            elif record.unique in seen:
                doubled.add((place, record.offset))
            seen.add(record.unique)
        last = max((n for n, record in enumerate(records) if record.unique in seen), default=-1)
        missing |= {(place, record.offset) for record in records[: last + 1] if record.unique not in seen}
        copied[place[0]] += len(known & seen)
    return Faults(frozenset(missing), frozenset(doubled), frozenset(foreign), copied)


class Scene:
    """Two clusters, topics that only this run has, and a plan for them."""

    def __init__(self, source: str, target: str, folder: Path, chance: random.Random) -> None:
        self.source, self.target, self.folder, self.chance = source, target, folder, chance
        self.name = f"adopt-{chance.getrandbits(32):08x}"
        self.topics = {kind: f"{self.name}.{kind}" for kind in TOPICS}
        self.places = [(topic, n) for topic in self.topics.values() for n in range(_PARTITIONS)]
        self.there = [(f"{ALIAS}.{topic}", n) for topic, n in self.places]
        self.plan = folder / f"{self.name}.yaml"
        self.plan.write_text(
            yaml.safe_dump(
                {
                    "version": 1,
                    "name": self.name,
                    "source": "one",
                    "target": "other",
                    "topics": {"include": [rf"{self.name}\..*"], "adopt": [*self.topics.values()]},
                    "groups": {"include": [rf"{self.name}\..*"]},
                    "naming": {"prefix": ALIAS},
                    "mirror": {"epoch_seconds": 5},
                    "validation": {"sample": 1.0},
                    "approvals": {"plan": False, "cutover": False},
                }
            )
        )

    def command(self, name: str, *options: str, code: int = 0) -> Any:
        """What a command prints as JSON."""
        connections = {"one": connection(self.source), "other": connection(self.target)}
        ended = run_command(
            name, str(self.plan), "--json", *options, connections=connections, directory=self.folder, code=code
        )
        return ended.json

    def fill(self, records: int) -> None:
        """Write so many more records, over all topics and partitions alike."""
        for kind, topic in self.topics.items():
            batch = [*self._records(records // len(TOPICS))]
            codec = {"compression.type": TOPICS[kind], "batch.num.messages": _BATCH}
            if kind not in _IN_TRANSACTIONS:
                produce(self.source, topic, batch, **codec)
            else:
                self._in_transactions(topic, batch, aborts=kind == "aborted", **codec)

    def _records(self, count: int) -> Iterator[ToSend]:
        for n in range(count):
            value = self.chance.randbytes(_ID_BYTES).hex().encode() + b"." * self.chance.randrange(150)
            headers: list[tuple[str, bytes | None]] = [("n", b"%d" % n)] if n % 2 else []
            yield ToSend(value, b"key-%d" % n if n % 3 else None, n % _PARTITIONS, headers=headers)

    def _in_transactions(self, topic: str, records: list[ToSend], *, aborts: bool, **config: object) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self.source, "transactional.id": f"{topic}-{self.chance.random()}", **config}
        )
        producer.init_transactions(60)
        starts = range(0, len(records), _IN_ONE)
        aborted = self.chance.sample(starts, min(3, len(starts) // 2)) if aborts else ()
        for at in starts:
            producer.begin_transaction()
            for record in records[at : at + _IN_ONE]:
                producer.produce(topic, record.value, record.key, record.partition, headers=[*record.headers])
            if at in aborted:
                producer.flush(60)
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)

    def read(self) -> tuple[dict[Place, list[Record]], dict[Place, list[Record]]]:
        """Both sides, by partitions of the source."""
        there = read(self.target, self.there)
        return read(self.source, self.places), {(t.removeprefix(f"{ALIAS}."), n): r for (t, n), r in there.items()}

    def copied(self) -> dict[Place, int]:
        """Where the target's logs end by now, as far as they have leaders."""
        admin = AdminClient({"bootstrap.servers": self.target, "log_level": 0})
        known = admin.list_topics(timeout=30).topics
        wanted = [place for place in self.there if place[0] in known]
        asked = {confluent_kafka.TopicPartition(*at): OffsetSpec.latest() for at in wanted}
        found = {}
        for place, future in zip(wanted, admin.list_offsets(asked).values() if asked else (), strict=True):
            with suppress(confluent_kafka.KafkaException):
                found[place] = future.result(30).offset
        return found

    def mirrormaker(self, records: int, kills: int) -> None:
        """Let MirrorMaker 2 copy, kill it meanwhile, twice at most, and stop it before it has everything."""
        wanted = mirrormaker.properties(self.source, self.target, [rf"{self.name}\..*"], codec="lz4", tasks=2) | {
            "clusters": f"{ALIAS}, target",
            "replication.policy.class": "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
            # A source topic's configs are not a matter of this check, nor is how long a rebalance may take.
            "scheduled.rebalance.max.delay.ms": "0",
            "offset.flush.interval.ms": "3000",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "2000",
            # Small steps, so that it is killed amid them.
            "source.consumer.max.poll.records": "500",
            "target.producer.linger.ms": "5",
            "target.producer.batch.size": "16384",
        }
        each = records // len(self.places)
        for share, is_killed in (*((0.2, True), (0.4, True))[:kills], (0.7, False)):
            goal = max(int(records * share), sum(self.copied().values()) + each // 10)
            with mirrormaker.running(self.folder, wanted) as (process, log):
                self.fill(records // 20)
                # At last some of each: partitions are copied one after the other, mostly.
                has_copied = partial(self._has, goal, 0 if is_killed else each // 2, process, log)
                wait_until(has_copied, f"MirrorMaker 2 copies {goal} records", deadline_seconds=240)
                if is_killed:
                    process.send(SIGKILL)
                    assert process.wait(30)

    def _has(self, total: int, each: int, process: LeashedProcess, log: Path) -> bool:
        assert process.alive(), log.read_text()[-3_000:]
        copied = self.copied()
        return sum(copied.values()) >= total and (not each or min(copied.get(at, 0) for at in self.there) >= each)

    def plant(self) -> None:
        """Double old records at the end of a topic, and write another one again, without some of its records."""
        here, there = self.read()
        topic = self.topics["doubled"]
        for place, records in there.items():
            if place[0] == topic:
                self._again(place, self.chance.sample(records, 7))
        topic = self.topics["missing"]
        delete_topic(self.target, f"{ALIAS}.{topic}")
        create_topics(self.target, {f"{ALIAS}.{topic}": _PARTITIONS})
        for place in [place for place in self.places if place[0] == topic]:
            records = here[place][: len(here[place]) // 2]
            lost = {*range(100, 140), *self.chance.sample(range(200, len(records) - 10), 5)}
            self._again(place, [record for n, record in enumerate(records) if n not in lost])

    def _again(self, place: Place, records: Iterable[Record]) -> None:
        sent = [ToSend(one.value, one.key, place[1], one.timestamp, list(one.headers)) for one in records]
        produce(self.target, f"{ALIAS}.{place[0]}", sent)

    def commits(self, count: int, here: Mapping[Place, list[Record]]) -> dict[tuple[str, Place], int]:
        """Have groups commit so many random offsets, each that of a record."""
        made = dict[tuple[str, Place], int]()
        for number in range(-(-count // len(self.places))):
            group = f"{self.name}.group-{number}"
            offsets = {place: self.chance.choice(here[place]).offset for place in self.places}
            commit(self.source, group, offsets)
            made |= {(group, place): offset for place, offset in offsets.items()}
        return made

    def mistranslated(self, commits: Mapping[tuple[str, Place], int]) -> list[str]:
        """Which commits do not translate to the very record, in words."""
        translated = {
            (group["group"], (at["topic"], at["partition"])): (at["source"], at["target"])
            for group in self.command("translate")["groups"]
            for at in group["positions"]
        }
        wrong = []
        source, target = Reader(self.source), Reader(self.target)
        for name in sorted({group for group, _ in commits}):
            offsets = {place: translated[name, place] for group, place in commits if group == name}
            here = source.at({place: pair[0] for place, pair in offsets.items()})
            there = target.at({(f"{ALIAS}.{topic}", n): pair[1] for (topic, n), pair in offsets.items()})
            for (topic, n), (before, after) in offsets.items():
                mine, its = here.get((topic, n)), there.get((f"{ALIAS}.{topic}", n))
                if before != commits[name, (topic, n)] or mine is None or its != Seen(after, mine.unique):
                    wrong.append(f"{name} {topic}-{n}: {before} is {mine}, {after} is {its}")
        source.close()
        target.close()
        return wrong


def _named(adopted: Any, *kinds: str) -> frozenset[tuple[Place, int]]:
    """The offsets that `adopt` names, of these kinds."""
    return frozenset(
        ((topic["topic"], partition["partition"]), offset)
        for topic in adopted["topics"]
        for partition in topic["partitions"]
        for kind in kinds
        for span in partition["differences"].get(kind, ())
        for offset in range(span["start"], span["end"])
    )


def run(
    source: str, target: str, *, records: int, commits: int, seed: int, folder: Path, kills: int = 2
) -> dict[str, Any]:
    """The whole check; the counts that it ends with."""
    scene = Scene(source, target, folder, random.Random(seed))
    create_topics(source, dict.fromkeys(scene.topics.values(), _PARTITIONS))
    scene.fill(records)
    scene.mirrormaker(records, kills)
    scene.plant()
    here, there = scene.read()
    found = faults(here, there)
    adopted = scene.command("adopt", "--seconds", "2", code=1)
    for topic in adopted["topics"]:
        print(f"{topic['topic']}: {topic['records']:,} records on both; {topic['why'] or 'right'}", flush=True)
    differ = [
        f"{what}: {len(named - seen)} are named wrongly, {len(seen - named)} are not named"
        for what, named, seen in (
            ("missing", _named(adopted, "missing", "expired"), found.missing),
            ("doubled", _named(adopted, "doubled"), found.doubled),
            ("foreign", _named(adopted, "aborted", "foreign", "older", "reordered"), found.foreign),
        )
        if named != seen
    ]
    # Those that are right, and those that were kept; then what is copied again.
    scene.command("adopt", "--seconds", "2", "--apply", "--keep-extra", code=1)
    last = scene.command("adopt", "--seconds", "2", "--apply", "--copy-again", "--yes")
    again = [topic["topic"] for topic in last["topics"] if topic["outcome"] == "copied again"]
    scene.command("create")
    scene.fill(records // 10)
    mirrored = scene.command("mirror", "--until-caught-up", *_MASTER)
    verdict = scene.command("validate", *_MASTER)
    here, _ = scene.read()
    due = sum(map(len, here.values())) - sum(count for topic, count in found.copied.items() if topic not in again)
    wrong = scene.mistranslated(scene.commits(commits, here))
    for line in (*differ, *wrong[:10]):
        print(line, file=sys.stderr)
    return {
        "records": sum(map(len, here.values())),
        "missing_found": len(_named(adopted, "missing", "expired")),
        "doubled_found": len(_named(adopted, "doubled")),
        "aborted_found": len(_named(adopted, "aborted")),
        "mistranslated": len(wrong),
        "recopied": mirrored["records"] - due,
        "copied_again": again,
        "missing_seen": len(found.missing),
        "doubled_seen": len(found.doubled),
        "aborted_seen": len(found.foreign),
        "agrees": not differ,
        "verdict": verdict["verdict"],
        "commits": -(-commits // len(scene.places)) * len(scene.places),
        "seed": seed,
    }


def is_good(result: Mapping[str, Any]) -> bool:
    """Whether both found the same, of each kind some, and nothing was copied twice or translated wrongly."""
    seen = result["missing_seen"] > 0 and result["doubled_seen"] > 0 and result["aborted_found"] > 0
    return bool(
        seen
        and result["agrees"]
        and result["missing_found"] == result["missing_seen"]
        and result["doubled_found"] == result["doubled_seen"]
        and result["aborted_found"] == result["aborted_seen"]
        and result["verdict"] == "EQUAL"
        and result["mistranslated"] == result["recopied"] == 0
    )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.adopt", description=__doc__)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--commits", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="adopt-check-")))
        source, target = (stack.enter_context(EmbeddedKafka(name=f"adopt-{side}")) for side in ("source", "target"))
        result = run(
            source.bootstrap_servers,
            target.bootstrap_servers,
            records=options.records,
            commits=options.commits,
            seed=options.seed,
            folder=folder,
        )
    print(json.dumps(result))
    return 0 if is_good(result) else 1


if __name__ == "__main__":
    sys.exit(main())
