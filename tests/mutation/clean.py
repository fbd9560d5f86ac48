"""Clean runs: a random workload that is mirrored while it is written, validated again and again. Nothing is wrong, so
nothing may be said, whatever compaction, retention and transactions do meanwhile."""

import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, OffsetSpec

from kafka_migration.compare.result import Equality
from kafka_migration.copy.driver.mirror import Settings
from kafka_migration.copy.orders import Limits
from kafka_migration.domain.types import TopicPartition
from kafka_migration.state.store import SegmentStore
from tests.chaos.topics import KINDS, topic
from tests.chaos.workload import Orders, Stream, stream_of
from tests.copy.bench import BRIEF, Bench, bench
from tests.copy.everywhere import running, until_caught_up
from tests.kafka_tools import delete_records, set_topic_config
from tests.mutation.copies import delete
from tests.mutation.validator import Validator
from tests.waiting import wait_until

_KINDS = ("plain", "old", "transactions", "compacted")
_SETTINGS = Settings(streams=1, epoch_seconds=5, limits=Limits(**BRIEF))
_SEGMENT = 1_000
_TICK_SECONDS = 0.1
_RATE = 300.0
#: Of a scene's runs, the last are of both sides compacted, after the mirror has ended: as it is once a migration is
#: completed.
_AFTERWARDS = 0.15
#: Retention by size takes what is older than these two segments.
_SHORT_LIVED = {"segment.bytes": str(1 << 20), "retention.bytes": str(2 << 20), "retention.ms": "-1"}
#: How often a second: not so often that no reading could ever end, which is EXPIRED and rightly so.
_EXPIRES = 0.03


@dataclass
class Clean:
    """How many runs there were, and of how many something was said."""

    runs: int = 0
    alarms: int = 0
    records: int = 0
    compacted: int = 0
    expired: int = 0
    wrong: list[str] = field(default_factory=list)


class _Workload:
    """Writes until it is stopped; now and then the oldest records of a topic are deleted."""

    def __init__(self, it: Bench, anew: Callable[[str], Stream], short_lived: str, chance: random.Random) -> None:
        self._it, self._anew, self._streams, self._short_lived, self._chance = (
            it,
            anew,
            {kind: anew(kind) for kind in _KINDS},
            short_lived,
            chance,
        )
        for stream in self._streams.values():
            stream.write(1_000)
        self._over, self._errors = threading.Event(), list[BaseException]()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _work(self) -> None:
        try:
            while not self._over.wait(_TICK_SECONDS):
                for kind, stream in self._streams.items():
                    count = int(self._chance.random() * 2 * _RATE * _TICK_SECONDS / len(self._streams))
                    try:
                        stream.write(count)
                    except KafkaException:
                        # A transaction that its broker gave up, on a machine that is busy: the next one begins anew.
                        self._streams[kind] = self._anew(kind)
                if self._chance.random() < _EXPIRES * _TICK_SECONDS:
                    self._expire()
            for stream in self._streams.values():
                stream.finish()
        except BaseException as error:
            self._errors.append(error)

    def _expire(self) -> None:
        tps = [TopicPartition(self._short_lived, n) for n in range(self._it.topics[self._short_lived])]
        spans = _spans(self._it.source, tps)
        before = {tp: start + self._chance.randrange((end - start) // 4 + 1) for tp, (start, end) in spans.items()}
        delete_records(self._it.source, before)

    def end(self) -> None:
        self._over.set()
        self._thread.join(120)
        if self._errors:
            raise self._errors[0]


def _spans(servers: str, tps: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Log starts and ends."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    asked = [confluent_kafka.TopicPartition(*tp) for tp in tps]
    starts = admin.list_offsets({request: OffsetSpec.earliest() for request in asked})
    ends = admin.list_offsets({request: OffsetSpec.latest() for request in asked})
    low, high = (
        {TopicPartition(one.topic, one.partition): answer.result(30).offset for one, answer in found.items()}
        for found in (starts, ends)
    )
    return {tp: (low[tp], high[tp]) for tp in tps}


@contextmanager
def _scene(source: str, target: str, chance: random.Random) -> Iterator[tuple[Bench, _Workload, list[str]]]:
    """Topics of every kind, a link, and a workload that has written something."""
    prefix = f"clean-{uuid.uuid4().hex[:6]}"
    names = {kind: topic(prefix, kind) for kind in _KINDS}
    counts = {names[kind]: KINDS[kind].partitions for kind in _KINDS}
    with bench(source, target, counts) as it:
        try:
            for kind, name in names.items():
                set_topic_config(source, name, dict(KINDS[kind].configs) or {"retention.ms": "-1"})
            kept = {"delete.retention.ms": chance.choice(("0", "1000", "86400000"))}
            set_topic_config(source, names["compacted"], kept)
            set_topic_config(source, names["old"], _SHORT_LIVED)
            orders = Orders(source, prefix, _KINDS, chance.getrandbits(32), prefix, 0, 0.0, 0)

            def anew(kind: str) -> Stream:
                return stream_of(orders, kind, random.Random(chance.getrandbits(32)))

            workload = _Workload(it, anew, names["old"], random.Random(chance.getrandbits(32)))
            yield it, workload, [names["compacted"]]
        finally:
            for servers in (source, target):
                delete(servers, counts)


def run(
    validator: Validator,
    source: str,
    target: str,
    *,
    runs: int,
    a_scene: int,
    seed: int,
    log: Callable[[str], None],
) -> Clean:
    """Validate so often, `a_scene` times the same growing topics."""
    found = Clean()
    while found.runs < runs:
        count, began = min(a_scene, runs - found.runs), time.monotonic()
        afterwards = max(1, round(count * _AFTERWARDS)) if count > 1 else 0
        with _scene(source, target, random.Random(f"{seed} {found.runs}")) as (it, workload, compacted):
            workload.start()
            kept = SegmentStore()
            try:
                with running(it, _SETTINGS):
                    wait_until(lambda it=it: _is_running(it), "the mirror runs")
                    for _ in range(count - afterwards):
                        judge(found, validator, it, kept)
                    workload.end()
                    until_caught_up(it)
            finally:
                workload.end()
            for name in compacted:
                set_topic_config(target, name, _both(name))
            for _ in range(afterwards):
                judge(found, validator, it, kept)
        log(
            f"{found.runs} clean runs, {found.alarms} false alarms; {found.records:,} records compared,"
            f" {found.compacted:,} compacted away since they were copied, {found.expired:,} expired;"
            f" {time.monotonic() - began:.0f} s"
        )
    return found


def _is_running(it: Bench) -> bool:
    tps = {TopicPartition(name, n) for name, count in it.topics.items() for n in range(count)}
    return (it.link.run() or {}).get("state") == "running" and tps <= it.link.positions().keys()


def _both(name: str) -> dict[str, str]:
    return {**KINDS["compacted"].configs, "delete.retention.ms": "0"} if name else {}


def judge(found: Clean, validator: Validator, it: Any, kept: SegmentStore) -> None:
    """Validate once more: an alarm is whatever would keep the gate shut, the suite's word, too."""
    # Every third reads everything, the others what is new.
    store = kept if found.runs % 3 else None
    validation = validator.validate(it.link, it.topics, segment_records=_SEGMENT, kept=store)
    result = validation.result
    found.runs += 1
    found.records += result.totals.source_records
    for one in result.partitions:
        found.compacted += sum(segment.source.compacted + segment.target.compacted for segment in one.segments)
        found.expired += one.expired
    if validation.verdict is not Equality.EQUAL:
        found.alarms += 1
        found.wrong += [f"run {found.runs}: the suite says {each}" for each in validation.expectations.failed]
        found.wrong += [
            f"run {found.runs}: {one.tp}: {one.verdict}: {one.detail}; {one.drilled.text if one.drilled else ''}"
            for one in result.partitions
            if one.verdict is not Equality.EQUAL
        ]
