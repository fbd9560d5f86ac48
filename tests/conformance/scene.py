"""A migration of a few topics and groups on real brokers, with real consumers on both sides, as the peers' own suites
play theirs through: the create phase makes the topics, the mirror copies, the cutover phase moves the groups."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from demo.brokers import EmbeddedKafka
from kafka_migration.approvals.cutover import CutoverGate
from kafka_migration.copy.driver.mirror import MirrorEnd, Settings
from kafka_migration.copy.orders import Limits
from kafka_migration.domain.types import Desired, TopicPartition
from kafka_migration.groups import translate
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.migration.context import Context
from kafka_migration.plans.load import restore_plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.link import LinkState, Wish
from kafka_migration.state.store import MemoryStore
from kafka_migration.steps import cutover, mirror
from kafka_migration.steps.cutover import GroupOutcome
from kafka_migration.topics import create
from tests.copy.bench import BRIEF, Bench
from tests.copy.everywhere import assert_same_everywhere
from tests.copy.test_watching import Running, running
from tests.kafka_tools import ToSend, commit, create_topics, forget_clients, produce, read_all, stable_ends
from tests.waiting import wait_until

LIVE = Settings(streams=2, epoch_seconds=5, follow_seconds=1, limits=Limits(**BRIEF))
_PATIENCE_SECONDS = 180.0
Values = dict[TopicPartition, list[bytes | None]]


@dataclass
class Scene:
    """One migration. ``topics`` are those on the source by now (name to partition count)."""

    ctx: Context
    bench: Bench
    topics: dict[str, int]
    prefix: str
    links: list[LinkState] = field(default_factory=list)

    @property
    def source(self) -> str:
        return self.bench.source

    @property
    def target(self) -> str:
        return self.bench.target

    def name(self, name: str) -> str:
        """A name of this migration's own."""
        return f"{self.prefix}.{name}"

    def make(self, name: str, partitions: int, **config: str) -> str:
        """A topic on the source."""
        topic = self.name(name)
        create_topics(self.source, {topic: partitions}, {"retention.ms": "-1", **config})
        # The bench sees it, too: it has the same mapping.
        self.topics[topic] = partitions
        self.until_led(topic)
        return topic

    def write(
        self,
        topic: str,
        count: int,
        *,
        partitions: Sequence[int] | None = None,
        transactions: bool = False,
        first: int = 0,
        **config: object,
    ) -> None:
        """``count`` numbered records, in turn over ``partitions``, or all of them. With ``transactions`` in a committed
        one, behind an aborted one of as many."""
        places = range(self.topics[topic]) if partitions is None else partitions
        rows = [ToSend(b"%d" % n, b"k%d" % n, places[n % len(places)]) for n in range(first, first + count)]
        if not transactions:
            produce(self.source, topic, rows, **config)
            return
        producer = Producer({"bootstrap.servers": self.source, "transactional.id": uuid.uuid4().hex, **config})
        producer.init_transactions(30)
        for whole in (False, True):
            producer.begin_transaction()
            for row in rows:
                value = row.value if whole else b"aborted"
                producer.produce(topic, value, row.key, row.partition)
            assert producer.flush(30) == 0
            (producer.commit_transaction if whole else producer.abort_transaction)(30)

    def until_led(self, topic: str) -> None:
        """Until every partition of a topic of the source has a leader that answers."""
        count = self.topics[topic]
        wait_until(lambda: _is_led(self.source, topic, count), f"{topic} has leaders")

    def begin(self) -> None:
        """Make the topics on the target, and pin them, as the first run of `mirror` does."""
        create.apply(self.ctx)
        mirror.pin(self.ctx)

    def copy(self) -> MirrorEnd:
        """A run of the mirror up to the source's present ends."""
        return self.bench.mirror(settings=LIVE).run(until_caught_up=True)

    def mirroring(self, settings: Settings = LIVE, **through: Any) -> AbstractContextManager[Running]:
        """A mirror that runs beside; `source_through` and `target_through` are proxies that it goes through."""
        # As `mirror` does that is started again: what an earlier run obeyed is taken back.
        self.ctx.link.wish(Wish(desired=Desired.RUN, reason="the mirror was started", at=self.ctx.stamp()))
        link = LinkState.on_target(self.ctx.link.name, {"bootstrap.servers": self.target})
        self.links.append(link)
        ctx = replace(self.ctx, link=link)
        return running(
            self.bench,
            settings,
            growth=create.TargetGrowth(ctx, mirror.pin),
            **through,
        )

    def until_caught_up(self) -> None:
        """Until the mirror stands where a consumer of committed records stops."""

        def is_there() -> bool:
            positions = self.bench.link.positions()
            ends = stable_ends(self.source, self.topics)
            return all(tp in positions and positions[tp].source >= end for tp, end in ends.items())

        wait_until(is_there, "the mirror has caught up", deadline_seconds=_PATIENCE_SECONDS)

    def read(self, side: str, group: str, *topics: str, members: int = 1, most: int | None = None) -> Values:
        """What a group of so many consumers reads on, and commits: up to the end of every partition, or ``most``
        records of each; then it leaves. On the target it must have been told where to go on."""
        servers = self.source if side == "source" else self.target
        reset = "earliest" if side == "source" else "error"
        return read_as(servers, group, {name: self.topics[name] for name in topics}, reset, members, most)

    def committed(self, side: str, group: str) -> dict[TopicPartition, int]:
        cluster = self.ctx.source if side == "source" else self.ctx.target
        return {tp: it.offset for tp, it in cluster.committed(group).items()}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits of a group without members on the source."""
        commit(self.source, group, offsets)

    def translated(self, group: str) -> dict[TopicPartition, int]:
        """Where the group would go on if it were moved now; it must be said of all that it has committed."""
        (preview,) = translate.preview(self.ctx, [group]).groups
        assert preview.problems == ()
        return {it.tp: it.destination for it in preview.translations}

    def until_translated(self, group: str) -> dict[TopicPartition, int]:
        """As `translated`, once all that it has committed is mirrored."""

        def is_mirrored() -> bool:
            (preview,) = translate.preview(self.ctx, [group]).groups
            return preview.problems == ()

        wait_until(is_mirrored, f"what {group} has committed is mirrored", deadline_seconds=_PATIENCE_SECONDS)
        return self.translated(group)

    def move(self, *groups: str) -> tuple[GroupOutcome, ...]:
        """Cut groups over. The gate is open: no validation has been, and none is meant here."""
        with patch.object(CutoverGate, "ask", lambda _gate: "open"):
            return cutover.apply(self.ctx, groups).groups

    def all_values(self, *topics: str) -> Values:
        """What a consumer of committed records finds on the source."""
        rows = read_all(self.source, {name: self.topics[name] for name in topics})
        return {tp: [it.value for it in found] for tp, found in rows.items()}

    def assert_same(self) -> int:
        """Both sides hold the same records, and every offset translates, both ways. How many records those are."""
        return assert_same_everywhere(self.bench)

    def assert_each_once(self, *parts: Values) -> None:
        """What was read first and then is what the source holds: every record once, in order."""
        topics = {tp.topic for part in parts for tp in part}
        for tp, values in self.all_values(*sorted(topics)).items():
            assert [value for part in parts for value in part.get(tp, [])] == values, tp


@contextmanager
def scene(
    source: EmbeddedKafka | str, target: EmbeddedKafka | str, *, stopped: Sequence[str] = (), **plan: Any
) -> Iterator[Scene]:
    """A migration of all topics and groups that get a name of it. Groups ``stopped`` start nowhere by themselves."""
    servers = [it if isinstance(it, str) else it.bootstrap_servers for it in (source, target)]
    prefix = f"peers-{uuid.uuid4().hex[:8]}"
    link = LinkState.on_target(prefix, {"bootstrap.servers": servers[1]}, create=True)
    document = {
        "version": 1,
        "name": prefix,
        "source": "a",
        "target": "b",
        "topics": {"include": [rf"{prefix}\..*"]},
        "groups": {"include": [rf"{prefix}\..*"]},
        "cutover": {"rest_seconds": 0.3, "watch_seconds": 6, "stopped_groups": [f"{prefix}.{it}" for it in stopped]},
        "consumers": {"wait_seconds": 5},
        "drain": {"window_seconds": 1, "deadline_seconds": 60},
    }
    ctx = Context(
        plan=restore_plan({**document, **plan}),
        source=_cluster("source", servers[0]),
        target=_cluster("target", servers[1]),
        journal=Journal(MemoryStore(), prefix),
        link=link,
    )
    topics: dict[str, int] = {}
    found = Scene(ctx, Bench(link, topics, *servers), topics, prefix)
    try:
        yield found
    finally:
        for state in (*found.links, link):
            state.close()
        for cluster in (ctx.source, ctx.target):
            cluster.close()


def _cluster(side: str, servers: str) -> Cluster:
    return Cluster(side, ClusterConnection(conn_id=side, properties={"bootstrap.servers": servers}))  # type: ignore[arg-type]


def _is_led(servers: str, topic: str, partitions: int) -> bool:
    try:
        return len(stable_ends(servers, {topic: partitions})) == partitions
    except KafkaException:
        # One that was just created has no leader yet, and of one that has grown a client knows too little.
        forget_clients()
        return False


class _Member:
    """A consumer of a group that takes nothing until all have their share."""

    def __init__(self, servers: str, group: str, topics: Sequence[str], reset: str) -> None:
        self.mine: set[TopicPartition] = set()
        self.assignments = 0
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": reset,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        self.consumer.subscribe(list(topics), on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, consumer: Consumer, shares: list[confluent_kafka.TopicPartition]) -> None:
        consumer.assign(shares)
        consumer.pause(shares)
        self.mine = {TopicPartition(it.topic, it.partition) for it in shares}
        self.assignments += 1

    def _revoked(self, _consumer: Consumer, _shares: list[confluent_kafka.TopicPartition]) -> None:
        self.mine = set()

    def go(self) -> None:
        self.consumer.resume([confluent_kafka.TopicPartition(tp.topic, tp.partition) for tp in self.mine])


def read_as(
    servers: str, group: str, topics: Mapping[str, int], reset: str, members: int = 1, most: int | None = None
) -> Values:
    """See :meth:`Scene.read`. Records past ``most`` are neither taken nor committed."""
    tps = {TopicPartition(name, p) for name, count in topics.items() for p in range(count)}
    ends = stable_ends(servers, topics)
    taken: Values = {tp: [] for tp in tps}
    places: dict[TopicPartition, int] = {}
    unread = set(tps)
    group_members = [_Member(servers, group, list(topics), reset) for _ in range(members)]

    def all_have_their_share() -> bool:
        for it in group_members:
            it.consumer.poll(0.02)
        shares = [it.mine for it in group_members]
        return set().union(*shares) == tps and sum(map(len, shares)) == len(tps) and all(shares)

    def took_all() -> bool:
        for it in group_members:
            for message in it.consumer.consume(500, timeout=0.05):
                _take(message, taken, places, unread, ends, most)
        return not unread

    def where_it_is() -> str:
        left = {str(tp): (len(taken[tp]), places.get(tp), ends[tp]) for tp in sorted(unread)}
        shares = [(member.assignments, len(member.mine)) for member in group_members]
        return f"{group} has read all; records, place and end of what is left: {left}, shares {shares}"

    try:
        wait_until(all_have_their_share, f"{group}: every member has its share", deadline_seconds=_PATIENCE_SECONDS)
        for it in group_members:
            it.go()
        wait_until(took_all, where_it_is, deadline_seconds=_PATIENCE_SECONDS)
        for it in group_members:
            offsets = [confluent_kafka.TopicPartition(tp.topic, tp.partition, places[tp]) for tp in it.mine]
            it.consumer.commit(offsets=offsets, asynchronous=False)
    finally:
        for it in group_members:
            it.consumer.close()
    return taken


def _take(
    message: Any,
    taken: Values,
    places: dict[TopicPartition, int],
    unread: set[TopicPartition],
    ends: Mapping[TopicPartition, int],
    most: int | None,
) -> None:
    tp = TopicPartition(message.topic(), message.partition())
    error = message.error()
    if error is not None:
        assert error.code() == KafkaError._PARTITION_EOF, error
        if message.offset() >= ends[tp] and tp in unread:
            unread.discard(tp)
            # Nothing more to read: that is committed, too, as consumers do.
            places[tp] = message.offset()
    elif tp in unread:
        taken[tp].append(message.value())
        places[tp] = message.offset() + 1
        if most is not None and len(taken[tp]) == most:
            unread.discard(tp)
