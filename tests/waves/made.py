"""Inventories as a source might show them, with no more in them than waves are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from kafka_migration.domain.types import PartitionEnds
from kafka_migration.kafka.facts import GroupFacts, Inventory, TopicFacts, TransactionFacts
from kafka_migration.plans.load import restore_plan
from kafka_migration.plans.model import Plan

DAY_MS = 86_400_000


def topic(
    name: str, *, partitions: int = 1, records: int = 100, bytes: int | None = 10_000, **changes: Any
) -> TopicFacts:
    fields: dict[str, Any] = {
        "retention_ms": 7 * DAY_MS,
        "retention_bytes": -1,
        "cleanup_policy": "delete",
        "records_per_second": 0.0,
        **changes,
    }
    return TopicFacts(
        name=name,
        topic_id=f"id of {name}",
        partitions=partitions,
        replication_factor=1,
        configs={},
        timestamp_type="CreateTime",
        max_message_bytes=1_000_000,
        min_insync_replicas=1,
        operations=frozenset(),
        ends={p: PartitionEnds(start=0, end=records) for p in range(partitions)},
        bytes=bytes,
        span=None,
        producers=None,
        **fields,
    )


def group(name: str, topics: Iterable[str], *, protocol: str = "classic") -> GroupFacts:
    return GroupFacts(
        name=name,
        protocol=protocol,
        state="Empty",
        members=(),
        topics=frozenset(topics),
        committed=1,
        lag=0,
        uncommitted=(),
    )


def inventory(
    topics: Iterable[str | TopicFacts],
    groups: Mapping[str, Iterable[str]] | Iterable[GroupFacts] = (),
    *,
    transactions: Mapping[str, Iterable[str]] | None = None,
    left_behind: tuple[str, ...] = (),
    **fields: Any,
) -> Inventory:
    """``groups`` and ``transactions`` by name, with the topics that they read or write."""
    facts = [topic(one) if isinstance(one, str) else one for one in topics]
    readers = [group(n, t) for n, t in groups.items()] if isinstance(groups, Mapping) else list(groups)
    written = [TransactionFacts(name=n, topics=frozenset(t)) for n, t in (transactions or {}).items()]
    values: dict[str, Any] = {"transactions": tuple(written), "unchecked": {}, **fields}
    return Inventory(
        taken_at=datetime(2030, 1, 1, tzinfo=UTC),
        cluster_id="c",
        brokers=1,
        topics={one.name: one for one in facts},
        groups={one.name: one for one in readers},
        left_behind=left_behind,
        acls=(),
        quotas=(),
        scram_users=(),
        **values,
    )


def plan(**waves: Any) -> Plan:
    """A plan of all topics and groups with a section ``waves``; without arguments, without one."""
    return restore_plan(
        {
            "version": 1,
            "name": "shop",
            "source": "a",
            "target": "b",
            "topics": {"include": [".*"]},
            "groups": {"include": [".*"]},
            "waves": waves or None,
        }
    )


def given(**waves: Any) -> list[dict[str, Any]]:
    """``waves.given`` by name: patterns of topics, or all fields of a wave."""
    return [{"name": name, **(w if isinstance(w, dict) else {"topics": w})} for name, w in waves.items()]
