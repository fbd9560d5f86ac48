"""Checks of the two clusters as wholes: their ids, what they support, and the target's disk space."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import TopicPartition
from kafka_migration.inventory.facts import Facts, Finding, failed, passed, sizes_unknown, unchecked
from kafka_migration.kafka.types import DiskUse

#: API -> (lowest, highest version that we speak), after the features that need them. What clients negotiate by
#: themselves is not listed.
_SPOKEN: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "source": {
        "Fetch": (4, 18),  # record batches as the broker stored them (KIP-98, Kafka 0.11)
        "OffsetFetch": (7, 10),  # require_stable (KIP-447, Kafka 2.5)
        "DescribeConfigs": (1, 4),  # which configs are explicit (KIP-226, Kafka 1.1)
    },
    "target": {
        "Produce": (3, 13),  # record batches of format 2 (KIP-98, Kafka 0.11)
        "InitProducerId": (3, 6),  # epochs that fence (KIP-360, Kafka 2.5)
        "AddPartitionsToTxn": (0, 5),
        "EndTxn": (0, 5),
        "OffsetFetch": (7, 10),
        "IncrementalAlterConfigs": (0, 1),  # configs changed one by one (KIP-339, Kafka 2.3)
    },
}
_ROOM_MARGIN = 1.2


def another_cluster(facts: Facts) -> Finding:
    """The target is not the source under another address."""
    source, target = facts.ctx.source.cluster_id(), facts.ctx.target.cluster_id()
    if source == target:
        return failed(
            f"the connections of source and target lead to one and the same cluster, {source}",
            "point the target's connection at the cluster to migrate to",
        )
    return passed(f"source {source}, target {target}")


def versions(facts: Facts) -> Finding:
    """Both clusters speak the requests that the migration needs."""
    lacking, seen = [], []
    for cluster in (facts.ctx.source, facts.ctx.target):
        spoken = cluster.api_versions()
        for api, (lowest, highest) in _SPOKEN[cluster.role].items():
            has = spoken.get(api)
            if has is None or has[0] > highest or has[1] < lowest:
                have = "no version" if has is None else f"versions {has[0]}-{has[1]}"
                lacking.append(f"the {cluster.role} supports {have} of {api}, and {lowest}-{highest} are needed")
        seen.append(f"{cluster.role} supports Fetch up to {spoken.get('Fetch', (0, 0))[1]}")
    if lacking:
        return failed(listed(lacking), "upgrade that cluster: source and target must be Kafka 2.5 or later")
    return passed("; ".join(seen))


def room(facts: Facts) -> Finding:
    """The target's disks hold what is to come: the source's bytes, times the replicas, and a fifth more."""
    if facts.inventory.bytes is None:
        return sizes_unknown(facts.inventory)
    topics = facts.ctx.target.topics(facts.ctx.journal.all("topic"))
    disks = facts.ctx.target.disk_use([tp for topic in topics.values() for tp in topic.topic_partitions])
    missing = int(max(0, _bytes_to_copy(facts, disks.partition_bytes)) * _ROOM_MARGIN)
    free = _free_bytes(disks)
    if free is None:
        return unchecked(
            f"{_gib(missing)} are needed, and the target does not report its free disk space (before Kafka 3.3)",
            "check the free space on the target's disks by hand",
        )
    evidence = f"{_gib(missing)} needed with a margin of 20%, {_gib(free)} free on {len(disks.log_dirs)} disks"
    if missing > free:
        return failed(evidence, "add disks or brokers to the target, or migrate fewer topics at once")
    return passed(evidence)


def _free_bytes(disks: DiskUse) -> int | None:
    """On all disks together; None if one of them does not report it."""
    usable = [log_dir.usable_bytes for log_dir in disks.log_dirs if log_dir.usable_bytes is not None]
    return sum(usable) if usable and len(usable) == len(disks.log_dirs) else None


def _bytes_to_copy(facts: Facts, there: Mapping[TopicPartition, int]) -> int:
    """Bytes of all replicas, without what an earlier run has copied (``there``, once per replica)."""
    topics = facts.inventory.topics.values()
    factors = {step.name: step.declared.spec.replication_factor for step in facts.steps}
    needed = sum((topic.bytes or 0) * factors.get(topic.name, topic.replication_factor) for topic in topics)
    return needed - sum(size * factors.get(tp.topic, 1) for tp, size in there.items())


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
