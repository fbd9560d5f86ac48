"""Checks whose answer is arithmetic over facts: room, retention, sizes, ages."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_migration.clusters.facts import Inventory, ProducerFacts, TopicFacts
from kafka_migration.clusters.types import DiskUse, LogDir, TimeSpan
from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.errors import NotAuthorized
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.phases import preflight_clusters, preflight_topics

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
        steps=steps,
        target_setting=settings.get,
        ctx=SimpleNamespace(
            target=target,
            clock=SimpleNamespace(now=lambda: NOW),
            plan=SimpleNamespace(mirror=SimpleNamespace(num_streams=2)),
            journal=SimpleNamespace(all=lambda kind: {}),
            link=SimpleNamespace(positions=lambda: changes.get("positions", {})),
        ),
    )


def disk(usable: int | None) -> LogDir:
    return LogDir(broker=1, path="/data", total_bytes=None, usable_bytes=usable)


class TestRoom:
    def room(self, *topics: TopicFacts, **changes: Any) -> CheckResult:
        return preflight_clusters.room(facts(*topics, **changes))

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
    def retention(self, *topics: TopicFacts, **changes: Any) -> CheckResult:
        return preflight_topics.retention(facts(*topics, **changes))

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

    def test_topic_that_is_mirrored_already_is_past_the_danger(self) -> None:
        topic = replace(TOPIC, retention_ms=1000)
        assert self.retention(topic).verdict is Verdict.FAIL
        assert self.retention(topic, positions={TopicPartition("t", 0): object()}).verdict is Verdict.PASS


class TestExpiration:
    def expiration(self, *topics: TopicFacts, **changes: Any) -> CheckResult:
        return preflight_clusters.producer_id_expiration(facts(*topics, **changes))

    @pytest.mark.parametrize(
        ("days", "oldest_days", "verdict"),
        [(1, 1, Verdict.WARN), (7, 1, Verdict.PASS), (7, 30, Verdict.WARN), (31, 30, Verdict.PASS)],
    )
    def test_memory_must_reach_back_to_the_oldest_record(self, days: int, oldest_days: int, verdict: Verdict) -> None:
        topic = replace(TOPIC, span=TimeSpan(earliest=NOW_MS - oldest_days * DAY_MS, latest=NOW_MS))
        result = self.expiration(topic, settings={"producer.id.expiration.ms": days * DAY_MS})
        assert result.verdict is verdict

    def test_unknown_setting_is_only_a_warning(self) -> None:
        assert self.expiration(TOPIC).verdict is Verdict.WARN

    def test_denied_setting_is_only_a_warning(self) -> None:
        it = facts(TOPIC)

        def denied(_name: str) -> int:
            raise NotAuthorized("target", "DescribeConfigs", "broker 1")

        it.target_setting = denied
        assert preflight_clusters.producer_id_expiration(it).verdict is Verdict.WARN


class TestSizes:
    def test_larger_batches_than_the_targets_default_are_raised(self) -> None:
        result = preflight_topics.message_sizes(facts(replace(TOPIC, max_message_bytes=2_000_000)))
        assert result.verdict is Verdict.PASS
        assert "t (2000000)" in result.evidence

    def test_batches_larger_than_a_request_fail(self) -> None:
        result = preflight_topics.message_sizes(facts(replace(TOPIC, max_message_bytes=200_000_000)))
        assert result.verdict is Verdict.FAIL
        assert "socket.request.max.bytes" in result.remedy


class TestKinds:
    @pytest.mark.parametrize(("version", "is_old"), [("0.10.2-IV0", True), ("0.11.0-IV2", False), ("3.0-IV1", False)])
    def test_old_message_formats_are_named(self, version: str, is_old: bool) -> None:
        result = preflight_topics.made_anew(facts(replace(TOPIC, configs={"message.format.version": version})))
        assert result.verdict is Verdict.PASS
        assert (f"(format {version})" in result.evidence) is is_old

    def test_unknown_producers_are_a_warning_that_says_unchecked(self) -> None:
        result = preflight_topics.transactions(facts(replace(TOPIC, producers=None), unchecked={"producers": "denied"}))
        assert (result.verdict, result.evidence) == (Verdict.WARN, "UNCHECKED: denied")
