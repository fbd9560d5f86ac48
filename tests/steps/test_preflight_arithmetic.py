"""Checks whose answer is arithmetic over facts: room, retention, sizes, ages."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_migration.domain.checks import Verdict
from kafka_migration.domain.errors import NotAuthorized
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.inventory import check_clusters, check_topics
from kafka_migration.inventory.facts import Facts, Finding
from kafka_migration.kafka.facts import Inventory, ProducerFacts, TopicFacts
from kafka_migration.kafka.types import ConfigValue, DiskUse, LogDir, TimeSpan
from kafka_migration.plans.model import DedicatedStreams, Mirror
from kafka_migration.topics.declared import Action
from kafka_migration.topics.specs import HELD_OPEN

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
MIB, GIB = 2**20, 2**30
DAY_MS = 24 * 3600 * 1000

TOPIC = TopicFacts(
    name="t",
    topic_id="id",
    partitions=1,
    replication_factor=2,
    configs={},
    cleanup_policy="delete",
    timestamp_type="CreateTime",
    retention_ms=7 * DAY_MS,
    retention_bytes=-1,
    max_message_bytes=1_000_000,
    min_insync_replicas=1,
    operations=frozenset(),
    ends={0: PartitionEnds(start=0, end=1000)},
    records_per_second=0.0,
    bytes=GIB,
    span=TimeSpan(earliest=NOW_MS - DAY_MS, latest=NOW_MS),
    producers=ProducerFacts(active=0, transactional=0, in_transaction=0),
)


def facts(*topics: TopicFacts, **changes: Any) -> Any:
    """What a check asks of its facts; ``changes`` are the target's."""
    inventory = Inventory(
        taken_at=NOW,
        cluster_id="c",
        brokers=1,
        topics={it.name: it for it in topics},
        groups={},
        left_behind=(),
        acls=(),
        quotas=(),
        scram_users=(),
        unchecked=changes.get("unchecked", {}),
    )
    settings = {
        "message.max.bytes": 1_048_588,
        "socket.request.max.bytes": 104_857_600,
        **changes.get("settings", {}),
    }
    there = changes.get("there", {})
    target = SimpleNamespace(
        topics=lambda names=None: {},
        disk_use=lambda tps: DiskUse(log_dirs=changes.get("dirs", ()), partition_bytes=there),
    )
    steps = [
        SimpleNamespace(
            name=it.name,
            declared=SimpleNamespace(spec=SimpleNamespace(replication_factor=it.replication_factor)),
        )
        for it in topics
    ]
    return SimpleNamespace(
        inventory=inventory,
        bytes_to_copy=changes.get("to_copy", {it.name: it.bytes or 0 for it in topics}),
        steps=steps,
        target_config=settings.get,
        ctx=SimpleNamespace(
            target=target,
            clock=SimpleNamespace(now=lambda: NOW),
            plan=SimpleNamespace(mirror=changes.get("mirror", Mirror(num_streams=2))),
            journal=SimpleNamespace(all=lambda kind: {}),
            link=SimpleNamespace(positions=lambda: changes.get("positions", {})),
        ),
    )


def disk(usable: int | None) -> LogDir:
    return LogDir(broker=1, path="/data", total_bytes=None, usable_bytes=usable)


def test_what_the_plan_leaves_out_of_a_topic_is_not_to_be_copied() -> None:
    topics = {
        "t": replace(TOPIC, ends={0: PartitionEnds(start=0, end=600), 1: PartitionEnds(start=200, end=600)}),
        "empty": replace(TOPIC, name="empty", ends={0: PartitionEnds(start=5, end=5)}, bytes=0),
    }
    asked = []

    def first_since(tps: list[TopicPartition], at_ms: int) -> dict[TopicPartition, int]:
        asked.append(at_ms)
        return {TopicPartition("t", 0): 350}

    def to_copy(begin: str) -> dict[str, int]:
        source = SimpleNamespace(first_since=first_since)
        plan = SimpleNamespace(mirror=SimpleNamespace(start=begin))
        found = Facts(SimpleNamespace(source=source, plan=plan))  # type: ignore[arg-type]
        found._known["inventory"] = SimpleNamespace(topics=topics)
        return found.bytes_to_copy

    assert to_copy("earliest") == {"t": GIB, "empty": 0}
    assert to_copy("latest") == {"t": 0, "empty": 0}
    # Of 1,000 offsets 250 of the first partition, and all 400 of the one that says nothing of times.
    assert to_copy("2030-01-01T00:00:00+00:00") == {"t": round(GIB * 0.65), "empty": 0}
    assert asked == [NOW_MS]


class TestRoom:
    def room(self, *topics: TopicFacts, **changes: Any) -> Finding:
        return check_clusters.room(facts(*topics, **changes))

    def test_bytes_times_replicas_and_a_fifth_must_be_free(self) -> None:
        assert self.room(TOPIC, dirs=(disk(int(2.4 * GIB) + 1),)).verdict is Verdict.PASS
        short = self.room(TOPIC, dirs=(disk(int(2.4 * GIB) - 1),))
        assert short.verdict is Verdict.FAIL
        assert "2.4 GiB needed" in short.evidence

    def test_disks_of_all_brokers_count_together(self) -> None:
        assert self.room(TOPIC, dirs=(disk(2 * GIB), disk(GIB))).verdict is Verdict.PASS

    def test_what_was_mirrored_already_is_not_needed_again(self) -> None:
        mirrored = {TopicPartition("t", 0): GIB}
        assert self.room(TOPIC, dirs=(disk(1),), there=mirrored).verdict is Verdict.PASS

    @pytest.mark.parametrize("dirs", [(), (disk(None),)])
    def test_target_that_does_not_tell_is_unchecked(self, dirs: tuple[LogDir, ...]) -> None:
        assert self.room(TOPIC, dirs=dirs).verdict is Verdict.UNCHECKED

    def test_source_that_does_not_tell_is_unchecked_with_its_reason(self) -> None:
        result = self.room(replace(TOPIC, bytes=None), unchecked={"bytes": "denied"})
        assert (result.verdict, result.evidence) == (Verdict.UNCHECKED, "denied")


class TestRetention:
    def retention(self, *topics: TopicFacts, **changes: Any) -> Finding:
        return check_topics.retention(facts(*topics, **changes))

    def test_long_retention_passes(self) -> None:
        assert self.retention(TOPIC).verdict is Verdict.PASS

    def test_retention_shorter_than_the_copy_with_its_margin_fails(self) -> None:
        # 36 GiB at 20 MiB/s: 1843 s, with a margin 3365 s.
        short = self.retention(replace(TOPIC, bytes=36 * GIB, retention_ms=3_300_000))
        assert short.verdict is Verdict.FAIL
        assert "t after 3300 s" in short.evidence
        assert self.retention(replace(TOPIC, bytes=36 * GIB, retention_ms=3_400_000)).verdict is Verdict.PASS

    @pytest.mark.parametrize(
        "change",
        [{"retention_ms": -1}, {"cleanup_policy": "compact"}, {"ends": {0: PartitionEnds(start=5, end=5)}}],
    )
    def test_topics_that_lose_nothing_pass(self, change: dict[str, Any]) -> None:
        topic = replace(TOPIC, **({"retention_ms": 1000, "bytes": 36 * GIB} | change))
        assert self.retention(topic).verdict is Verdict.PASS

    def test_retention_by_size_counts_by_how_fast_the_topic_grows(self) -> None:
        # 1 GiB in 1000 offsets, 1 a second: about 1 MiB/s, so 100 MiB last 100 s.
        growing = replace(TOPIC, records_per_second=1.0, retention_bytes=100 * MIB)
        short = self.retention(growing)
        assert short.verdict is Verdict.FAIL
        assert "t after 98 s" in short.evidence

    def test_growth_faster_than_the_copy_fails(self) -> None:
        short = self.retention(replace(TOPIC, records_per_second=30.0))
        assert short.verdict is Verdict.FAIL
        assert "would never catch up" in short.evidence

    def test_each_topic_is_reckoned_with_the_tasks_that_copy_it(self) -> None:
        mirror = Mirror(num_streams=1, dedicated_streams=(DedicatedStreams(topics=("small",), num_streams=8),))
        small = replace(TOPIC, name="small", bytes=GIB, retention_ms=3_300_000)
        # 36 GiB at 10 MiB/s: 3686 s, although nine tasks copy something.
        large = replace(TOPIC, bytes=36 * GIB, retention_ms=6_000_000)
        short = self.retention(small, large, mirror=mirror)
        assert (short.verdict, "t after 6000 s" in short.evidence) == (Verdict.FAIL, True)
        assert "small" not in short.evidence
        assert self.retention(small, replace(large, retention_ms=7_000_000), mirror=mirror).verdict is Verdict.PASS
        growing = self.retention(replace(small, records_per_second=100.0), TOPIC, mirror=mirror)
        assert growing.verdict is Verdict.FAIL
        assert "raise mirror.dedicated_streams[0].num_streams" in growing.remedy

    def test_topic_that_is_mirrored_already_is_past_the_danger(self) -> None:
        topic = replace(TOPIC, retention_ms=1000)
        assert self.retention(topic).verdict is Verdict.FAIL
        assert self.retention(topic, positions={TopicPartition("t", 0): object()}).verdict is Verdict.PASS


class TestExpiration:
    def expiration(self, *topics: TopicFacts, **changes: Any) -> Finding:
        return check_clusters.producer_id_expiration(facts(*topics, **changes))

    @pytest.mark.parametrize(
        ("days", "oldest_days", "verdict"),
        [(1, 1, Verdict.WARN), (7, 1, Verdict.PASS), (7, 20, Verdict.WARN), (21, 20, Verdict.PASS)],
    )
    def test_memory_must_reach_back_to_the_oldest_record(self, days: int, oldest_days: int, verdict: Verdict) -> None:
        topic = replace(TOPIC, span=TimeSpan(earliest=NOW_MS - oldest_days * DAY_MS, latest=NOW_MS))
        result = self.expiration(topic, settings={"producer.id.expiration.ms": days * DAY_MS})
        assert result.verdict is verdict

    @pytest.mark.parametrize("earliest", [0, NOW_MS - 24 * DAY_MS])
    def test_no_more_is_advised_than_brokers_take_and_what_remains_is_said(self, earliest: int) -> None:
        topic = replace(TOPIC, span=TimeSpan(earliest=earliest, latest=NOW_MS))
        short = self.expiration(topic, settings={"producer.id.expiration.ms": DAY_MS})
        assert short.remedy.endswith("producer.id.expiration.ms=2147483647")
        most = self.expiration(topic, settings={"producer.id.expiration.ms": 2147483647})
        assert (short.verdict, most.verdict) == (Verdict.WARN, Verdict.PASS)
        assert all("it cannot be longer than 24.9" in it.evidence for it in (short, most))
        assert "the partition halts by name" in most.evidence

    def test_unknown_setting_is_only_a_warning(self) -> None:
        assert self.expiration(TOPIC).verdict is Verdict.WARN

    def test_denied_setting_is_only_a_warning(self) -> None:
        it = facts(TOPIC)

        def denied(_name: str) -> int:
            raise NotAuthorized("target", "DescribeConfigs", "broker 1")

        it.target_config = denied
        assert check_clusters.producer_id_expiration(it).verdict is Verdict.WARN


class TestRecordTimes:
    def times(self, topic: TopicFacts, there: dict[str, str] | None = None, **changes: Any) -> Finding:
        """``there``: settings of the topic where the target has it; else it is to be made, held open."""
        it = facts(topic, settings={"log.message.timestamp.after.max.ms": 3_600_000}, **changes)
        spec = SimpleNamespace(configs=dict(HELD_OPEN))
        declared = SimpleNamespace(spec=spec, configs_source=topic.configs, left_out={})
        it.steps = [
            SimpleNamespace(name="t", action=Action.CREATE if there is None else Action.KEEP, declared=declared)
        ]
        settings = {name: ConfigValue(value=value, is_explicit=True) for name, value in (there or {}).items()}
        it.ctx.target.topics = dict.fromkeys
        it.ctx.target.topic_configs = lambda names: dict.fromkeys(names, settings)
        it.ctx.journal.all = lambda kind: changes.get("records", {})
        return check_clusters.record_times(it)

    @pytest.mark.parametrize("earliest", [0, NOW_MS - DAY_MS, None])
    def test_topic_that_is_held_open_takes_every_time(self, earliest: int | None) -> None:
        found = self.times(replace(TOPIC, span=TimeSpan(earliest=earliest, latest=NOW_MS)))
        assert (found.verdict, "to 2030-01-01" in found.evidence) == (Verdict.PASS, True)

    @pytest.mark.parametrize(
        ("setting", "span", "said"),
        [
            ("message.timestamp.before.max.ms", (NOW_MS - 2 * DAY_MS, NOW_MS), "records of 2029-12-30"),
            ("message.timestamp.after.max.ms", (NOW_MS, NOW_MS + 2 * DAY_MS), "records of 2030-01-03"),
            ("message.timestamp.difference.max.ms", (NOW_MS - 2 * DAY_MS, NOW_MS), "records of 2029-12-30"),
            ("message.timestamp.difference.max.ms", (NOW_MS, NOW_MS + 2 * DAY_MS), "records of 2030-01-03"),
        ],
    )
    def test_bound_that_somebody_set_on_a_target_topic_is_found(
        self, setting: str, span: tuple[int, int], said: str
    ) -> None:
        topic = replace(TOPIC, span=TimeSpan(earliest=span[0], latest=span[1]))
        found = self.times(topic, {setting: str(DAY_MS)})
        assert found.verdict is Verdict.FAIL
        assert found.evidence == f"t: {setting}={DAY_MS}, with {said}"
        assert self.times(topic, {setting: str(2**63 - 1)}).verdict is not Verdict.FAIL
        restored: dict[str, dict[str, Any]] = {"t": {"held_open": {}}}
        assert self.times(topic, {setting: str(DAY_MS)}, records=restored).verdict is not Verdict.FAIL

    @pytest.mark.parametrize(
        ("configs", "verdict"),
        [
            ({}, Verdict.WARN),
            ({"message.timestamp.after.max.ms": str(3 * DAY_MS)}, Verdict.PASS),
            ({"message.timestamp.difference.max.ms": str(3 * DAY_MS)}, Verdict.PASS),
        ],
    )
    def test_times_ahead_of_the_clock_are_named_unless_the_source_keeps_its_own_bound(
        self, configs: dict[str, str], verdict: Verdict
    ) -> None:
        topic = replace(TOPIC, configs=configs, span=TimeSpan(earliest=NOW_MS, latest=NOW_MS + 2 * DAY_MS))
        found = self.times(topic)
        assert found.verdict is verdict
        assert ("t (2030-01-03, 1 h are taken)" in found.evidence) is (verdict is Verdict.WARN)
        assert self.times(replace(topic, timestamp_type="LogAppendTime")).verdict is Verdict.PASS

    def test_time_that_no_calendar_has_is_told_as_a_number(self) -> None:
        found = self.times(replace(TOPIC, span=TimeSpan(earliest=NOW_MS, latest=2**62)))
        assert f"t ({2**62} ms, 1 h are taken)" in found.evidence

    def test_unknown_times_are_only_a_warning(self) -> None:
        found = self.times(replace(TOPIC, span=None), unchecked={"timestamps": "denied"})
        assert (found.verdict, found.evidence) == (Verdict.WARN, "UNCHECKED: denied")


class TestSizes:
    def test_larger_batches_than_the_targets_default_are_raised(self) -> None:
        result = check_topics.message_sizes(facts(replace(TOPIC, max_message_bytes=2_000_000)))
        assert result.verdict is Verdict.PASS
        assert "t (2000000)" in result.evidence

    def test_batches_larger_than_a_request_fail(self) -> None:
        result = check_topics.message_sizes(facts(replace(TOPIC, max_message_bytes=200_000_000)))
        assert result.verdict is Verdict.FAIL
        assert "socket.request.max.bytes" in result.remedy


class TestKinds:
    @pytest.mark.parametrize(("version", "is_old"), [("0.10.2-IV0", True), ("0.11.0-IV2", False), ("3.0-IV1", False)])
    def test_old_message_formats_are_named(self, version: str, is_old: bool) -> None:
        result = check_topics.re_encoded(facts(replace(TOPIC, configs={"message.format.version": version})))
        assert result.verdict is Verdict.PASS
        assert (f"(format {version})" in result.evidence) is is_old

    def test_unknown_producers_are_a_warning_that_says_unchecked(self) -> None:
        result = check_topics.transactions(facts(replace(TOPIC, producers=None), unchecked={"producers": "denied"}))
        assert (result.verdict, result.evidence) == (Verdict.WARN, "UNCHECKED: denied")


def test_room_and_time_are_for_what_the_plan_has_copied_alone() -> None:
    few = facts(TOPIC, to_copy={"t": 0}, dirs=(disk(1),))
    assert check_clusters.room(few).verdict is Verdict.PASS
    brief = replace(TOPIC, bytes=1024 * GIB, retention_ms=10_000_000)
    assert check_topics.retention(facts(brief)).verdict is Verdict.FAIL
    assert check_topics.retention(facts(brief, to_copy={"t": 0})).verdict is Verdict.PASS


def test_sizes_of_tiered_topics_are_said_to_be_less_than_what_is_copied() -> None:
    tiered = replace(TOPIC, configs={"remote.storage.enable": "true"})
    for found in (check_clusters.room(facts(tiered, dirs=(disk(9 * GIB),))), check_topics.retention(facts(tiered))):
        assert found.verdict is Verdict.WARN
        assert "without what lies in remote storage, which brokers do not report: t" in found.evidence


@pytest.mark.parametrize(
    ("theirs", "ours", "is_named"), [(2, "1", True), (2, "2", False), (2, None, False), (1, "1", False)]
)
def test_fewer_replicas_in_sync_by_the_targets_default_are_named(theirs: int, ours: str | None, is_named: bool) -> None:
    some = facts(replace(TOPIC, min_insync_replicas=theirs), settings={"min.insync.replicas": ours and int(ours)})
    some.target_brokers = 3
    for step in some.steps:
        step.declared.spec.configs = {}
    found = check_topics.replication(some)
    assert (found.verdict is Verdict.WARN) is is_named
    assert ("t (2)" in found.evidence) is is_named
