"""Inventory: what is on the source, of what the plan means. Read-only, and complete or honest about what is missing.

A question that the principal may not ask, or that the cluster is too old for, leaves its answer open under
``unchecked``; a cluster that does not answer ends the inventory, since half of it would look like all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from kafka_migration.domain.errors import NotAuthorized
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.groups.looks import MOVABLE_PROTOCOLS
from kafka_migration.kafka.errors import NoAuthorizer, NotSupported
from kafka_migration.kafka.facts import GroupFacts, Inventory, ProducerFacts, TopicFacts
from kafka_migration.kafka.types import (
    Acl,
    ActiveProducer,
    CommittedOffset,
    ConfigValue,
    DiskUse,
    GroupListing,
    GroupState,
    TimeSpan,
    TopicDescription,
)

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

T = TypeVar("T")
Commits = Mapping[TopicPartition, CommittedOffset]

#: Long enough to see a rate, short enough not to be noticed.
RATE_WINDOW_SECONDS = 1.0


def take(ctx: Context, *, briefly: bool = False) -> Inventory:
    """The inventory of the source, now. Raises ClusterUnreachable, or NotAuthorized if not even topics are shown.

    ``briefly``: topics and the plan's groups alone, without rates, sizes and what else is for people to read.
    """
    source, plan = ctx.source, ctx.plan
    unchecked: dict[str, str] = {}

    def unless_denied(what: str, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except (NotAuthorized, NotSupported) as error:
            unchecked[what] = error.message
            return None

    described = {name: it for name, it in source.topics().items() if plan.topics.matches(name)}
    tps = [tp for it in described.values() for tp in it.topic_partitions]
    configs = source.topic_configs(described)
    before, began = source.ends(tps), ctx.clock.monotonic()
    if not briefly:
        ctx.clock.sleep(RATE_WINDOW_SECONDS)
    after, seconds = before if briefly else source.ends(tps), ctx.clock.monotonic() - began
    rates = {tp: (after[tp].end - before[tp].end) / seconds if seconds > 0 else 0.0 for tp in tps}
    disks = None if briefly else unless_denied("bytes", lambda: source.disk_use(tps))
    spans = None if briefly else unless_denied("timestamps", lambda: source.time_spans(tps))
    producers = None if briefly else unless_denied("producers", lambda: source.producers(tps))
    listed = source.groups()
    selected = [name for name in listed if plan.groups.matches(name)]
    read = {name: listed[name] for name in selected} if briefly else listed
    commits = _commits(source.committed_of, read, unchecked)
    states = source.group_states(selected)
    acls = None if briefly else unless_denied("acls", lambda: _acls(source.acls))
    return Inventory(
        taken_at=ctx.clock.now(),
        cluster_id=source.cluster_id(),
        brokers=source.broker_count(),
        topics={
            name: _topic(it, configs[name], after, rates, disks, spans, producers) for name, it in described.items()
        },
        groups={name: _group(states[name], commits.get(name), described, after) for name in selected},
        left_behind=_left_behind(listed, selected, commits, described),
        acls=None if acls is None else _concerning(acls, described, selected),
        quotas=None if briefly else unless_denied("quotas", source.quotas),
        scram_users=None if briefly else unless_denied("scram users", source.scram_users),
        unchecked=unchecked,
    )


def _acls(ask: Callable[[], tuple[Acl, ...]]) -> tuple[Acl, ...]:
    try:
        return ask()
    except NoAuthorizer:
        return ()


def _commits(
    committed_of: Callable[[Iterable[str]], dict[str, dict[TopicPartition, CommittedOffset]]],
    listed: Mapping[str, GroupListing],
    unchecked: dict[str, str],
) -> dict[str, Commits]:
    names = [name for name, it in listed.items() if it.protocol in MOVABLE_PROTOCOLS]
    try:
        return dict(committed_of(names))
    except NotAuthorized as error:
        # One closed group must not hide the others: ask one by one, and name those that stay closed.
        found: dict[str, Commits] = {}
        closed = []
        for name in names:
            try:
                found |= committed_of([name])
            except NotAuthorized:
                closed.append(name)
        unchecked["committed offsets"] = f"{', '.join(closed)}: {error.operation} on group is not granted"
        return found


def _topic(
    it: TopicDescription,
    configs: Mapping[str, ConfigValue],
    ends: Mapping[TopicPartition, PartitionEnds],
    rates: Mapping[TopicPartition, float],
    disks: DiskUse | None,
    spans: Mapping[TopicPartition, TimeSpan] | None,
    producers: Mapping[TopicPartition, tuple[ActiveProducer, ...]] | None,
) -> TopicFacts:
    def effective(name: str, otherwise: str) -> str:
        setting = configs.get(name)
        return setting.value if setting is not None and setting.value is not None else otherwise

    tps = it.topic_partitions
    return TopicFacts(
        name=it.name,
        topic_id=it.topic_id,
        partitions=it.partitions,
        replication_factor=it.replication_factor,
        configs={n: c.value for n, c in configs.items() if c.is_explicit and c.value is not None},
        cleanup_policy=effective("cleanup.policy", "delete"),
        timestamp_type=effective("message.timestamp.type", "CreateTime"),
        retention_ms=int(effective("retention.ms", "-1")),
        retention_bytes=int(effective("retention.bytes", "-1")),
        max_message_bytes=int(effective("max.message.bytes", "1048588")),
        min_insync_replicas=int(effective("min.insync.replicas", "1")),
        operations=it.operations,
        ends={tp.partition: ends[tp] for tp in tps},
        records_per_second=sum(rates[tp] for tp in tps),
        bytes=None if disks is None else sum(disks.partition_bytes.get(tp, 0) for tp in tps),
        span=None if spans is None else _span([spans[tp] for tp in tps]),
        producers=None if producers is None else _producers(producers, tps),
    )


def _span(spans: Iterable[TimeSpan]) -> TimeSpan:
    known = list(spans)
    return TimeSpan(
        earliest=min((it.earliest for it in known if it.earliest is not None), default=None),
        latest=max((it.latest for it in known if it.latest is not None), default=None),
    )


def _producers(
    producers: Mapping[TopicPartition, tuple[ActiveProducer, ...]], tps: Iterable[TopicPartition]
) -> ProducerFacts:
    # A producer writes several partitions under one id.
    all_of = [it for tp in tps for it in producers.get(tp, ())]
    return ProducerFacts(
        active=len({it.producer_id for it in all_of}),
        transactional=len({it.producer_id for it in all_of if it.is_transactional}),
        in_transaction=len({it.producer_id for it in all_of if it.in_transaction}),
    )


def _group(
    state: GroupState,
    commits: Commits | None,
    topics: Mapping[str, TopicDescription],
    ends: Mapping[TopicPartition, PartitionEnds],
) -> GroupFacts:
    ours = None if commits is None else {tp: it for tp, it in commits.items() if tp.topic in topics}
    read = {tp.topic for tp in ours or ()}
    for member in state.members:
        read |= {topic for topic in member.topics or () if topic in topics}
        read |= {tp.topic for tp in member.partitions if tp.topic in topics}
    lag = None
    if ours is not None:
        # A commit below the log start (retention passed it) has only the records that are still there before it.
        lag = sum(max(0, ends[tp].end - max(it.offset, ends[tp].start)) for tp, it in ours.items() if tp in ends)
    return GroupFacts(
        name=state.group,
        protocol=state.protocol,
        state=state.state,
        members=state.members,
        topics=frozenset(read),
        committed=len(ours or ()),
        lag=lag,
        uncommitted=None
        if ours is None
        else tuple(tp for topic in sorted(read) for tp in topics[topic].topic_partitions if tp not in ours),
    )


def _left_behind(
    listed: Mapping[str, GroupListing],
    selected: Iterable[str],
    commits: Mapping[str, Commits],
    topics: Mapping[str, TopicDescription],
) -> tuple[str, ...]:
    others = listed.keys() - set(selected)
    return tuple(sorted(name for name in others if any(tp.topic in topics for tp in commits.get(name, ()))))


def _concerning(acls: Iterable[Acl], topics: Mapping[str, TopicDescription], groups: Iterable[str]) -> tuple[Acl, ...]:
    """Rules about the plan's topics and groups, and those (cluster, transactional ids) that name neither.

    Others would void an approval for a change that has nothing to do with it.
    """
    names = {"TOPIC": set(topics), "GROUP": set(groups)}

    def concerns(acl: Acl) -> bool:
        mine = names.get(acl.resource_type)
        if mine is None or acl.resource == "*":
            return True
        if acl.pattern == "PREFIXED":
            return any(name.startswith(acl.resource) for name in mine)
        return acl.resource in mine

    return tuple(acl for acl in acls if concerns(acl))
