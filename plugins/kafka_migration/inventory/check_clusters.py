"""Checks about the two clusters as wholes: who they are, what they can, and how much room there is."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_migration.domain.checks import CheckResult
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import TopicPartition
from kafka_migration.inventory.facts import Facts, failed, passed, unchecked

#: API -> (lowest, highest version that we speak), after the features that need them. What clients negotiate by
#: themselves is not listed.
_SPOKEN: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "source": {
        "Fetch": (4, 18),  # record batches as the broker stored them (KIP-98, Kafka 0.11)
        "OffsetFetch": (7, 10),  # require_stable (KIP-447, Kafka 2.5)
        "DescribeConfigs": (1, 4),  # which settings are explicit (KIP-226, Kafka 1.1)
    },
    "target": {
        "Produce": (3, 13),  # record batches of format 2 (KIP-98, Kafka 0.11)
        "InitProducerId": (3, 6),  # epochs that fence (KIP-360, Kafka 2.5)
        "AddPartitionsToTxn": (0, 5),
        "EndTxn": (0, 5),
        "OffsetFetch": (7, 10),
        "IncrementalAlterConfigs": (0, 1),  # settings changed one by one (KIP-339, Kafka 2.3)
    },
}
_ROOM_MARGIN = 1.2


def another_cluster(facts: Facts) -> CheckResult:
    """The target is not the source under another address."""
    name = "target is another cluster"
    source, target = facts.ctx.source.cluster_id(), facts.ctx.target.cluster_id()
    if source == target:
        return failed(
            name,
            f"both connections lead to cluster {source}",
            "point the target's connection at the cluster to migrate to",
        )
    return passed(name, f"source {source}, target {target}")


def versions(facts: Facts) -> CheckResult:
    """Both clusters speak the requests that the migration needs."""
    name = "versions"
    lacking, seen = [], []
    for cluster in (facts.ctx.source, facts.ctx.target):
        spoken = cluster.api_versions()
        for api, (lowest, highest) in _SPOKEN[cluster.role].items():
            has = spoken.get(api)
            if has is None or has[0] > highest or has[1] < lowest:
                have = "none" if has is None else f"{has[0]}-{has[1]}"
                lacking.append(f"{cluster.role}: {api} {have}, needed {lowest}-{highest}")
        seen.append(f"{cluster.role} supports Fetch up to {spoken.get('Fetch', (0, 0))[1]}")
    if lacking:
        return failed(name, listed(lacking), "migrate from and to Kafka 2.5 or later")
    return passed(name, "; ".join(seen))


def room(facts: Facts) -> CheckResult:
    """The target's disks hold what is to come: the source's bytes, times the replicas, and a fifth more."""
    name = "target room"
    inventory = facts.inventory
    if inventory.bytes is None:
        return unchecked(
            name, inventory.unchecked.get("bytes", "sizes unknown"), "grant Describe on the source cluster"
        )
    factors = {step.name: step.declared.spec.replication_factor for step in facts.steps}
    needed = sum((it.bytes or 0) * factors.get(it.name, it.replication_factor) for it in inventory.topics.values())
    mirrored = facts.ctx.target.topics(facts.ctx.journal.all("topic"))
    tps = [TopicPartition(it.name, p) for it in mirrored.values() for p in range(it.partitions)]
    disks = facts.ctx.target.disk_use(tps)
    # What an earlier run has copied is there already, once per replica.
    there = sum(size * factors.get(tp.topic, 1) for tp, size in disks.partition_bytes.items())
    missing = int(max(0, needed - there) * _ROOM_MARGIN)
    usable = [it.usable_bytes for it in disks.log_dirs]
    if not usable or any(size is None for size in usable):
        return unchecked(
            name,
            f"{_gib(missing)} are needed, and the target does not report how much is free (before Kafka 3.3)",
            "look at the target's disks",
        )
    free = sum(size for size in usable if size is not None)
    evidence = f"{_gib(missing)} needed with a margin of 20%, {_gib(free)} free on {len(usable)} disks"
    if missing > free:
        return failed(name, evidence, "add disks or brokers to the target, or migrate fewer topics at once")
    return passed(name, evidence)


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
