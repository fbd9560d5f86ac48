"""Checks of the two clusters as wholes: their ids, what they support, the target's disk space, and times on the target.

Of times: whether it accepts the records' timestamps, and how long it remembers who wrote them. And of what the
principals may do, by the table of :mod:`kafka_migration.inventory.permissions`: what is missing is named as the ACL to
grant. Whatever a principal may not even describe is hidden from it, so names that the plan spells out are asked for
anyway; what a plan selects by a pattern only can be missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from kafka_migration.domain import ledger
from kafka_migration.domain.errors import NotAuthorized
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import TopicPartition
from kafka_migration.inventory.facts import (
    Facts,
    Finding,
    failed,
    passed,
    sizes_unknown,
    tiered_topics,
    unchecked,
    warned,
)
from kafka_migration.inventory.permissions import CLUSTER, RESOURCE, On, Side, describe, operations
from kafka_migration.kafka.types import DiskUse, TimeSpan
from kafka_migration.topics.declared import KIND, Action, is_restored
from kafka_migration.topics.specs import BOUNDS, LONG_MAX, OLD_BOUND, restorable

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
_HOUR_MS = 3600 * 1000
_DAY_MS = 24 * _HOUR_MS
_EXPIRATION_AT_LEAST_MS = 7 * _DAY_MS
#: The config is an INT of the brokers: 24.9 days.
_EXPIRATION_AT_MOST_MS = 2**31 - 1
_BEFORE, _AFTER = BOUNDS


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
    if tiered := tiered_topics(facts):
        return warned(f"{evidence}; {tiered}", "add what their remote storage holds: all of it is copied")
    return passed(evidence)


def _free_bytes(disks: DiskUse) -> int | None:
    """On all disks together; None if one of them does not report it."""
    usable = [log_dir.usable_bytes for log_dir in disks.log_dirs if log_dir.usable_bytes is not None]
    return sum(usable) if usable and len(usable) == len(disks.log_dirs) else None


def _bytes_to_copy(facts: Facts, there: Mapping[TopicPartition, int]) -> int:
    """Bytes of all replicas, without what an earlier run has copied (``there``, once per replica)."""
    topics = facts.inventory.topics.values()
    factors = {step.name: step.declared.spec.replication_factor for step in facts.steps}
    sizes = facts.bytes_to_copy
    needed = sum(sizes[topic.name] * factors.get(topic.name, topic.replication_factor) for topic in topics)
    return needed - sum(size * factors.get(tp.topic, 1) for tp, size in there.items())


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def record_times(facts: Facts) -> Finding:
    """The target accepts records with the timestamps that the source's have.

    A topic that is to be created or adopted accepts every timestamp while it is mirrored; one that exists may have been
    changed since. What lies ahead of the clock is copied, and refused again once `restore` has set the bounds.
    """
    why = facts.inventory.unchecked.get("timestamps")
    if why is not None:
        return warned(
            f"UNCHECKED: {why}", "nothing to do: target topics accept every timestamp while they are mirrored"
        )
    now = _now(facts)
    spans = {topic.name: topic.span for topic in facts.inventory.topics.values() if topic.span is not None}
    refused = {
        topic: _refusal(spans[topic], configs, now)
        for topic, configs in _target_configs(facts).items()
        if topic in spans
    }
    if any(refused.values()):
        return failed(
            listed(f"{topic}: {why}" for topic, why in refused.items() if why),
            f"set these configs of the target's topics back to {LONG_MAX} until the migration is completed",
        )
    ahead = _ahead(facts, {topic: span.latest for topic, span in spans.items() if span.latest is not None}, now)
    if ahead:
        return warned(
            f"records lie further ahead of the clock than the target accepts after `restore`: {listed(ahead)}; they are"
            " copied, but later the target refuses producers that write such timestamps",
            f"correct the clocks or time units of their producers, or set {_AFTER} on these source topics: `restore`"
            " carries that over",
        )
    return passed(f"{_covered(spans.values())}; target topics accept every timestamp while they are mirrored")


def _covered(spans: Iterable[TimeSpan]) -> str:
    known = [at for span in spans for at in (span.earliest, span.latest) if at is not None]
    return f"from {_day(min(known))} to {_day(max(known))}" if known else "unknown"


def _refusal(span: TimeSpan, configs: Mapping[str, str], now: int) -> str:
    """The config that refuses a record of ``span``, with the record's day; empty if none does."""
    for at, sign, bound in ((span.earliest, -1, _BEFORE), (span.latest, 1, _AFTER)):
        for name in (bound, OLD_BOUND):
            limit = configs.get(name)
            if at is not None and limit is not None and sign * (at - now) > int(limit):
                return f"{name}={limit}, with records of {_day(at)}"
    return ""


def _target_configs(facts: Facts) -> dict[str, Mapping[str, str]]:
    """Topic -> its configs on the target while it is mirrored: as they are there, or would be made. Without topics that
    were restored: nothing is copied to them any more."""
    restored = {name for name, record in facts.ctx.journal.all(KIND).items() if is_restored(record)}
    steps = [step for step in facts.steps if step.name not in restored]
    found: dict[str, Mapping[str, str]] = {step.name: step.declared.spec.configs for step in steps}
    kept = facts.ctx.target.topics([step.name for step in steps if step.action is Action.KEEP])
    for topic, configs in facts.ctx.target.topic_configs(kept).items():
        found[topic] = {name: config.value for name, config in configs.items() if config.value is not None}
    return found


def _ahead(facts: Facts, latest: Mapping[str, int], now: int) -> list[str]:
    """Topics with records further ahead of ``now`` than their target accepts in the end, with the latest time."""
    try:
        default = facts.target_config(f"log.{_AFTER}")
    except NotAuthorized:
        default = None
    found = []
    for step in facts.steps:
        topic, at = facts.inventory.topics.get(step.name), latest.get(step.name)
        if topic is None or at is None or topic.timestamp_type == "LogAppendTime":
            continue
        own = restorable(step.declared.configs_source, step.declared.left_out).get(_AFTER)
        bound = default if own is None else int(own)
        if bound is not None and at - now > bound:
            found.append(f"{step.name} ({_day(at)}, {bound / _HOUR_MS:,.0f} h are taken)")
    return found


def producer_id_expiration(facts: Facts) -> Finding:
    """The target remembers the mirror's producer id for as long as the copy of old records may take.

    A broker forgets a producer id by the *timestamp* of its last record (docs/adr/0006-leases-and-the-hold.md).
    Mirrored records are as old as the source's, so with the default of one day it forgets while the mirror still
    writes, and only the mirror's own rules guard against a doubled batch. The longer memory is a second guard: as
    long as the oldest record is old, and at least the 7 days after which a transactional id is forgotten anyway; at
    most what the config can hold.
    """
    try:
        has = facts.target_config("producer.id.expiration.ms")
    except NotAuthorized as error:
        # Advice only: not worth a closed gate.
        return warned(f"UNCHECKED: {error.message}", error.remedy)
    if has is None:
        return warned("the target does not report producer.id.expiration.ms (before Kafka 3.5)", "nothing to do")
    topics = facts.inventory.topics.values()
    oldest = min(
        (topic.span.earliest for topic in topics if topic.span and topic.span.earliest is not None),
        default=None,
    )
    wanted = max(_EXPIRATION_AT_LEAST_MS, 0 if oldest is None else _now(facts) - oldest + _DAY_MS)
    needed = min(wanted, _EXPIRATION_AT_MOST_MS)
    beyond = (
        f"; it cannot be longer than {_EXPIRATION_AT_MOST_MS / _DAY_MS:.1f}, and the oldest record is older: the"
        " mirror's own fence and hold keep such records from arriving twice, and where a broker forgets the producer id"
        " between two requests the partition halts by name"
        if wanted > needed
        else ""
    )
    evidence = f"producer.id.expiration.ms is {has / _DAY_MS:.1f} days, advised {needed / _DAY_MS:.1f}"
    if has < needed:
        return warned(
            f"{evidence} (the oldest record's age and a day, at least 7){beyond}",
            f"set on the target's brokers, until the migration is completed: producer.id.expiration.ms={needed}",
        )
    return passed(evidence + beyond)


def _now(facts: Facts) -> int:
    """Milliseconds since 1970."""
    return int(facts.ctx.clock.now().timestamp() * 1000)


def _day(milliseconds: int) -> str:
    """The day of a time; of one that no calendar has (such as one in microseconds) the number."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"


#: Enough to see which; `acls` prints them all.
_SHOWN = 50


def may_read_source(facts: Facts) -> Finding:
    """The principal may read every topic of the plan, and its configs."""
    among = [right.code for right in operations("source", On.TOPICS)]
    allowed = facts.ctx.source.topic_operations(facts.topics, among)
    return _judged("source", On.TOPICS, allowed)


def may_read_groups(facts: Facts) -> Finding:
    """The principal may read what the plan's groups have committed."""
    allowed = facts.ctx.source.group_operations(facts.groups)
    return _judged("source", On.GROUPS, allowed)


def may_look_at_source(facts: Facts) -> Finding:
    """The principal may ask the source for sizes on disk."""
    allowed = {CLUSTER: facts.ctx.source.cluster_operations()}
    return _judged("source", On.CLUSTER, allowed)


def may_write_target(facts: Facts) -> Finding:
    """The principal may create and write what the migration needs on the target, whether it exists yet or not."""
    ctx = facts.ctx
    among = {right.code for on in (On.TOPICS, On.STATE) for right in operations("target", on)}
    allowed = ctx.target.topic_operations([*facts.topics, *ledger.PARTITIONS], among)
    # Brokers show Create on a topic to nobody who may create by the cluster; and of what is there nobody needs it.
    for topic in allowed.keys() & set(ctx.target.topic_names()):
        allowed[topic] |= {"CREATE"}
    state = {topic: allowed.pop(topic) for topic in ledger.PARTITIONS}
    # As whoever grants them knows them.
    allowed = {ctx.target.topic_here(topic): has for topic, has in allowed.items()}
    missing = _lacking("target", On.TOPICS, allowed) + _lacking("target", On.STATE, state)
    transactional_id = ctx.link.transactional_id
    if not ctx.target.may_use_transactional_id(transactional_id):
        # That it may be described is all that can be seen without using it, which would fence a running mirror.
        missing += [describe(right, transactional_id) for right in operations("target", On.TRANSACTIONAL_ID)]
    if missing:
        return _refused("target", missing)
    return passed(f"{len(allowed)} topics, {len(state)} internal topics and the transactional id may be used")


def may_write_groups(facts: Facts) -> Finding:
    """The principal may commit for the plan's groups on the target."""
    allowed = facts.ctx.target.group_operations(facts.groups)
    return _judged("target", On.GROUPS, allowed)


def may_look_at_target(facts: Facts) -> Finding:
    """The principal may ask the target for its free space, limits and defaults."""
    target = facts.ctx.target
    allowed = target.cluster_operations()
    if not allowed:
        # Brokers show operations only to who may describe the cluster: the other one has to be tried.
        try:
            target.broker_configs()
            allowed = frozenset({"DESCRIBE_CONFIGS"})
        except NotAuthorized:
            pass
    return _judged("target", On.CLUSTER, {CLUSTER: allowed})


def _judged(side: Side, on: On, allowed: Mapping[str, frozenset[str]]) -> Finding:
    missing = _lacking(side, on, allowed)
    if missing:
        return _refused(side, missing)
    if not allowed:
        return passed(f"the plan selects no {RESOURCE[on]}")
    rights = ", ".join(right.operation for right in operations(side, on))
    what = "the cluster" if on is On.CLUSTER else f"{len(allowed)} {RESOURCE[on]}s"
    return passed(f"{rights} on {what}")


def _lacking(side: Side, on: On, allowed: Mapping[str, frozenset[str]]) -> list[str]:
    """A text for each resource with operations that are not granted: ``Read, Write on topic orders``."""
    found = []
    for name, has in sorted(allowed.items()):
        missing = [right.operation for right in operations(side, on) if right.code not in has]
        if missing:
            found.append(f"{', '.join(missing)} on {RESOURCE[on]} {name}")
    return found


def _refused(side: Side, missing: Iterable[str]) -> Finding:
    texts = list(missing)
    more = f"; and on {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return failed(
        f"missing ACLs: {'; '.join(texts[:_SHOWN])}{more}",
        f"grant these ACLs to the principal of the {side}'s connection; `acls PLAN --principal User:NAME --side {side}`"
        " prints the commands",
    )
