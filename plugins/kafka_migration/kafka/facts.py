"""An inventory: what is on the source, of what a plan means, at one moment.

Some facts are stable (names, ids, configs, ACLs), and an approval binds to their digest; others move all the time
(offsets, lag, rates, members) and are evidence only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from kafka_migration.domain.digest import digest_of
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.kafka.types import Acl, GroupMember, Quota, ScramUser, TimeSpan


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerFacts:
    """Who writes a topic: producer ids that leaders remember, and how many of them ever wrote transactions."""

    active: int
    transactional: int
    in_transaction: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionFacts:
    """A transactional producer that wrote several topics. ``name`` is its transactional id, or the number of its
    producer id where the coordinators do not show that one."""

    name: str
    topics: frozenset[str]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"name": self.name, "topics": sorted(self.topics)}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """One topic. ``configs`` are its explicit ones; the named fields below them are effective values.

    Unknown facts are None; the reason is in ``Inventory.unchecked``.
    """

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]
    cleanup_policy: str
    timestamp_type: str
    retention_ms: int
    retention_bytes: int
    max_message_bytes: int
    min_insync_replicas: int
    operations: frozenset[str]
    ends: Mapping[int, PartitionEnds]
    records_per_second: float
    bytes: int | None
    span: TimeSpan | None
    producers: ProducerFacts | None

    @property
    def offsets(self) -> int:
        """Offsets between log starts and ends: never fewer than records, more where compaction left gaps."""
        return sum(log.end - log.start for log in self.ends.values())

    @property
    def bytes_per_second(self) -> float | None:
        """How fast the topic grows, by its mean size of an offset; None without its size."""
        if self.bytes is None:
            return None
        return self.records_per_second * self.bytes / self.offsets if self.offsets else 0.0

    @property
    def kept_seconds(self) -> float:
        """How long it keeps a record: by retention.ms, or by retention.bytes at the rate at which it grows; infinite
        without deletion."""
        if "delete" not in self.cleanup_policy:
            return math.inf
        kept = math.inf if self.retention_ms < 0 else self.retention_ms / 1000
        if self.retention_bytes >= 0 and self.bytes_per_second:
            kept = min(kept, self.retention_bytes * self.partitions / self.bytes_per_second)
        return kept

    def stable(self) -> dict[str, Any]:
        """What an approval binds to."""
        return {
            "topic_id": self.topic_id,
            "partitions": self.partitions,
            "replication_factor": self.replication_factor,
            "configs": dict(sorted(self.configs.items())),
        }

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return self.stable() | {
            "cleanup_policy": self.cleanup_policy,
            "timestamp_type": self.timestamp_type,
            "max_message_bytes": self.max_message_bytes,
            "ends": {str(p): {"start": log.start, "end": log.end} for p, log in sorted(self.ends.items())},
            "offsets": self.offsets,
            "records_per_second": round(self.records_per_second, 1),
            "bytes": self.bytes,
            "earliest_timestamp": self.span.earliest if self.span else None,
            "latest_timestamp": self.span.latest if self.span else None,
            "producers": None if self.producers is None else asdict(self.producers),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """One group that the plan moves. ``lag`` is in source offsets over what it has committed of the plan's topics.

    ``uncommitted`` are partitions of topics that it reads (it committed another partition of them, or a member
    subscribes) which it never committed; None where the protocol keeps no commits, or they could not be read.
    ``outside`` are topics that it reads (while it has no members: has committed) and the plan does not select.
    """

    name: str
    protocol: str
    state: str
    members: tuple[GroupMember, ...]
    topics: frozenset[str]
    outside: frozenset[str] = frozenset()
    committed: int
    lag: int | None
    uncommitted: tuple[TopicPartition, ...] | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "protocol": self.protocol,
            "state": self.state,
            "members": [
                {
                    "member_id": member.member_id,
                    "client_id": member.client_id,
                    "host": member.host,
                    "partitions": len(member.partitions),
                }
                for member in self.members
            ],
            "topics": sorted(self.topics),
            "topics_outside": sorted(self.outside),
            "committed_partitions": self.committed,
            "lag": self.lag,
            "uncommitted": None if self.uncommitted is None else [str(tp) for tp in self.uncommitted],
        }


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """Everything that the plan means, as it stood at ``taken_at``.

    ``left_behind`` are groups that read the plan's topics and that the plan does not move. ``transactions`` are those
    over several topics, as far back as leaders remember their producers. ``unchecked`` names what could not be found
    out, with the reason; those fields are None (or empty).
    """

    taken_at: datetime
    cluster_id: str
    brokers: int
    topics: Mapping[str, TopicFacts]
    groups: Mapping[str, GroupFacts]
    left_behind: tuple[str, ...]
    acls: tuple[Acl, ...] | None
    quotas: tuple[Quota, ...] | None
    scram_users: tuple[ScramUser, ...] | None
    transactions: tuple[TransactionFacts, ...] | None = ()
    unchecked: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """Digest of the stable facts: the same as long as nobody changes topics, configs, groups, ACLs or users."""
        return digest_of(self.stable())

    def stable(self) -> dict[str, Any]:
        """What the digest is taken over."""
        return {
            "cluster_id": self.cluster_id,
            "topics": {name: facts.stable() for name, facts in self.topics.items()},
            "groups": {name: facts.protocol for name, facts in self.groups.items()},
            "acls": _or_none(self.acls, asdict),
            "quotas": _or_none(self.quotas, _quota),
            "scram_users": _or_none(self.scram_users, _user),
        }

    @property
    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """Every partition, in order."""
        return tuple(
            TopicPartition(name, partition)
            for name, facts in sorted(self.topics.items())
            for partition in range(facts.partitions)
        )

    @property
    def bytes(self) -> int | None:
        """Bytes of all topics, one replica each; None if unknown for any."""
        sizes = [facts.bytes for facts in self.topics.values()]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "taken_at": self.taken_at.isoformat(),
            "digest": self.digest,
            "cluster_id": self.cluster_id,
            "brokers": self.brokers,
            "topics": {name: facts.as_dict() for name, facts in sorted(self.topics.items())},
            "groups": {name: facts.as_dict() for name, facts in sorted(self.groups.items())},
            "groups_left_behind": list(self.left_behind),
            "transactions": _or_none(self.transactions, TransactionFacts.as_dict),
            "acls": _or_none(self.acls, asdict),
            "quotas": _or_none(self.quotas, _quota),
            "scram_users": _or_none(self.scram_users, _user),
            "unchecked": dict(self.unchecked),
        }


def _or_none(items: tuple[Any, ...] | None, form: Any) -> list[Any] | None:
    return None if items is None else [form(item) for item in items]


def _quota(quota: Quota) -> dict[str, Any]:
    return {"entity": [list(pair) for pair in quota.entity], "limits": dict(quota.limits)}


def _user(user: ScramUser) -> dict[str, Any]:
    return {"user": user.user, "credentials": [list(pair) for pair in user.credentials]}
