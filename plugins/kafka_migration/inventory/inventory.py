"""Inventory: what the source has of what the plan selects. Read-only, and complete or honest about what is missing.

What the principal may not ask, or the cluster is too old for, is named under ``unchecked`` with the reason; a cluster
that does not answer ends the inventory, since half of it would look like all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import NotAuthorized
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.groups.looks import MOVABLE_PROTOCOLS, Commits, subscribed_topics
from kafka_migration.kafka.errors import NoAuthorizer, NotSupported
from kafka_migration.kafka.facts import GroupFacts, Inventory, ProducerFacts, TopicFacts, TransactionFacts
from kafka_migration.kafka.types import (
    Acl,
    ActiveProducer,
    ConfigValue,
    DiskUse,
    GroupListing,
    GroupState,
    TimeSpan,
    TopicDescription,
)

if TYPE_CHECKING:
    from kafka_migration.kafka.cluster import Cluster
    from kafka_migration.migration.context import Context

T = TypeVar("T")

#: Long enough to see a rate, short enough not to be noticed.
RATE_WINDOW_SECONDS = 1.0


def take(ctx: Context, *, briefly: bool = False, transactions: bool | None = None) -> Inventory:
    """The inventory of the source, now. Raises ClusterUnreachable, or NotAuthorized if not even topics are shown.

    ``briefly``: topics and the plan's groups alone, without rates, sizes and what else is for people to read; with
    ``transactions``, those as well (by default: unless briefly).
    """
    source = ctx.source
    unchecked: dict[str, str] = {}

    def for_people(what: str, ask: Callable[[], T], *, wanted: bool = not briefly) -> T | None:
        if not wanted:
            return None
        try:
            return ask()
        except (NotAuthorized, NotSupported) as error:
            unchecked[what] = error.message
            return None

    described = {name: topic for name, topic in source.topics().items() if ctx.selects_topic(name)}
    tps = [tp for topic in described.values() for tp in topic.topic_partitions]
    configs = source.topic_configs(described)
    ends, rates = _ends_and_rates(ctx, tps, briefly=briefly)
    disks = for_people("bytes", lambda: source.disk_use(tps))
    spans = for_people("timestamps", lambda: source.time_spans(tps))
    wanted = not briefly if transactions is None else transactions
    producers = for_people("producers", lambda: source.producers(tps), wanted=wanted)
    wrote = None if producers is None else _transactions(producers, source.transactional_ids, own=_way_back(ctx))
    listed = source.groups()
    selected = [name for name in listed if ctx.selects_group(name)]
    read = {name: listed[name] for name in selected} if briefly else listed
    commits = _commits(source, read, unchecked)
    states = source.group_states(selected)
    acls = for_people("acls", lambda: _acls(source.acls))
    return Inventory(
        taken_at=ctx.clock.now(),
        cluster_id=source.cluster_id(),
        brokers=source.broker_count(),
        topics={
            name: _topic(topic, configs[name], ends, rates, disks, spans, producers)
            for name, topic in described.items()
        },
        groups={name: _group(states[name], commits.get(name), described, ends) for name in selected},
        left_behind=_left_behind(listed, selected, commits, described),
        acls=None if acls is None else _concerning(acls, described, selected),
        quotas=for_people("quotas", source.quotas),
        scram_users=for_people("scram users", source.scram_users),
        transactions=wrote,
        unchecked=unchecked,
    )


def _ends_and_rates(
    ctx: Context, tps: list[TopicPartition], *, briefly: bool
) -> tuple[dict[TopicPartition, PartitionEnds], dict[TopicPartition, float]]:
    """The partitions' ends, and how fast each grows, in offsets a second; ``briefly``: without rates (0)."""
    before, began = ctx.source.ends(tps), ctx.clock.monotonic()
    if briefly:
        return before, dict.fromkeys(tps, 0.0)
    ctx.clock.sleep(RATE_WINDOW_SECONDS)
    after, seconds = ctx.source.ends(tps), ctx.clock.monotonic() - began
    return after, {tp: (after[tp].end - before[tp].end) / seconds if seconds > 0 else 0.0 for tp in tps}


def _acls(ask: Callable[[], tuple[Acl, ...]]) -> tuple[Acl, ...]:
    try:
        return ask()
    except NoAuthorizer:
        return ()


def _commits(
    source: Cluster,
    listed: Mapping[str, GroupListing],
    unchecked: dict[str, str],
) -> dict[str, Commits]:
    names = [name for name, group in listed.items() if group.protocol in MOVABLE_PROTOCOLS]
    try:
        return dict(source.committed_of(names, is_stable=False))
    except NotAuthorized as error:
        # One closed group must not hide the others: ask one by one, and name those that stay closed.
        found: dict[str, Commits] = {}
        closed = []
        for name in names:
            try:
                found |= source.committed_of([name], is_stable=False)
            except NotAuthorized:
                closed.append(name)
        unchecked["committed offsets"] = f"{', '.join(closed)}: {error.operation} on group is not granted"
        return found


def _topic(
    topic: TopicDescription,
    configs: Mapping[str, ConfigValue],
    ends: Mapping[TopicPartition, PartitionEnds],
    rates: Mapping[TopicPartition, float],
    disks: DiskUse | None,
    spans: Mapping[TopicPartition, TimeSpan] | None,
    producers: Mapping[TopicPartition, tuple[ActiveProducer, ...]] | None,
) -> TopicFacts:
    tps = topic.topic_partitions
    values = {name: config.value for name, config in configs.items() if config.value is not None}
    return TopicFacts(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs={name: value for name, value in values.items() if configs[name].is_explicit},
        cleanup_policy=values.get("cleanup.policy", "delete"),
        timestamp_type=values.get("message.timestamp.type", "CreateTime"),
        retention_ms=int(values.get("retention.ms", "-1")),
        retention_bytes=int(values.get("retention.bytes", "-1")),
        max_message_bytes=int(values.get("max.message.bytes", "1048588")),
        min_insync_replicas=int(values.get("min.insync.replicas", "1")),
        operations=topic.operations,
        ends={tp.partition: ends[tp] for tp in tps},
        records_per_second=sum(rates[tp] for tp in tps),
        bytes=None if disks is None else _bytes(disks, tps),
        span=None if spans is None else _span([spans[tp] for tp in tps]),
        producers=None if producers is None else _producers(producers, tps),
    )


def _bytes(disks: DiskUse, tps: Iterable[TopicPartition]) -> int:
    return sum(disks.partition_bytes.get(tp, 0) for tp in tps)


def _span(spans: Sequence[TimeSpan]) -> TimeSpan:
    return TimeSpan(
        earliest=min((span.earliest for span in spans if span.earliest is not None), default=None),
        latest=max((span.latest for span in spans if span.latest is not None), default=None),
    )


def _producers(
    producers: Mapping[TopicPartition, tuple[ActiveProducer, ...]], tps: Iterable[TopicPartition]
) -> ProducerFacts:
    # A producer writes several partitions under one id.
    found = [producer for tp in tps for producer in producers.get(tp, ())]
    return ProducerFacts(
        active=len({producer.producer_id for producer in found}),
        transactional=len({producer.producer_id for producer in found if producer.is_transactional}),
        in_transaction=len({producer.producer_id for producer in found if producer.in_transaction}),
    )


def _way_back(ctx: Context) -> frozenset[int]:
    """The producer ids by which reverse links have written to the source: it remembers them for days."""
    links = (link for direction, link in (*ctx.earlier, (ctx.direction, ctx.link)) if direction is Direction.REVERSE)
    return frozenset(identity.producer_id for link in links for identity in link.fences().values())


def _transactions(
    producers: Mapping[TopicPartition, tuple[ActiveProducer, ...]],
    names_of: Callable[[Iterable[int]], Mapping[int, str]],
    *,
    own: Collection[int],
) -> tuple[TransactionFacts, ...]:
    """Transactional producers of more than one topic, without the migration's ``own`` ids. Leaders remember their ids;
    only coordinators know their names, and who may not ask those has the numbers."""
    wrote: dict[int, set[str]] = {}
    for tp, found in producers.items():
        for producer in found:
            if producer.is_transactional and producer.producer_id not in own:
                wrote.setdefault(producer.producer_id, set()).add(tp.topic)
    try:
        names = names_of(wrote)
    except (NotAuthorized, NotSupported):
        names = {}
    # A transactional id has several producer ids over time.
    named: dict[str, set[str]] = {}
    for producer_id, topics in wrote.items():
        named.setdefault(names.get(producer_id, str(producer_id)), set()).update(topics)
    return tuple(TransactionFacts(name=n, topics=frozenset(t)) for n, t in sorted(named.items()) if len(t) > 1)


def _group(
    state: GroupState,
    commits: Commits | None,
    topics: Mapping[str, TopicDescription],
    ends: Mapping[TopicPartition, PartitionEnds],
) -> GroupFacts:
    ours = None if commits is None else {tp: commit for tp, commit in commits.items() if tp.topic in topics}
    read = {tp.topic for tp in commits or ()} | subscribed_topics(state)
    in_plan = read & topics.keys()
    read_now = subscribed_topics(state) or read
    return GroupFacts(
        name=state.group,
        protocol=state.protocol,
        state=state.state,
        members=state.members,
        topics=frozenset(in_plan),
        outside=frozenset(read_now - topics.keys()),
        committed=len(ours or ()),
        lag=None if ours is None else _lag(ours, ends),
        uncommitted=None if ours is None else _uncommitted(ours, [topics[name] for name in sorted(in_plan)]),
    )


def _uncommitted(commits: Commits, topics: Iterable[TopicDescription]) -> tuple[TopicPartition, ...]:
    return tuple(tp for topic in topics for tp in topic.topic_partitions if tp not in commits)


def _lag(commits: Commits, ends: Mapping[TopicPartition, PartitionEnds]) -> int:
    """A commit below the log start (retention passed it) has only the records that are still there before it."""
    return sum(
        max(0, ends[tp].end - max(commit.offset, ends[tp].start)) for tp, commit in commits.items() if tp in ends
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
    """ACLs of the plan's topics and groups, and those (cluster, transactional ids) that name neither.

    Others would void an approval for a change that has nothing to do with it.
    """
    names = {"TOPIC": {*topics}, "GROUP": {*groups}}
    return tuple(acl for acl in acls if acl.resource_type not in names or acl.is_on_any(names))
