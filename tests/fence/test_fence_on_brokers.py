"""The fence on real brokers with an authorizer, while producers write as fast as they are let."""

from __future__ import annotations

import statistics
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from demo.brokers import EmbeddedKafka
from kafka_migration.domain.checks import Verdict
from kafka_migration.domain.errors import CouldNotFindOut, NotAuthorized, Refused
from kafka_migration.domain.types import TopicPartition, TopicSpec
from kafka_migration.fence import fence, record
from kafka_migration.fence.bans import GROUP_READS, WRITES
from kafka_migration.fence.fence import Fenced, Lifted
from kafka_migration.fence.proof import Straggler
from kafka_migration.fence.record import FenceState
from kafka_migration.inventory import preflight
from kafka_migration.kafka import jaas
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.types import Acl, CommittedOffset
from kafka_migration.migration.context import Context, SystemClock
from kafka_migration.plans.load import restore_plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.link import LinkState
from tests.fakes.cluster import FakeCluster
from tests.shared import SharedCluster
from tests.steps.gates import PlainStore
from tests.waiting import wait_until

#: A measurement of ten takes as long again; five do for the claim.
ROUNDS = 5
PARTITIONS = 4
#: ``root`` is a super user; ``mover`` is the migration's own principal.
USERS = ("mover", "probe", "web", "billing", "root")
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def gated() -> Iterator[EmbeddedKafka]:
    """Two brokers that let nobody do anything without an ACL."""
    with brokers("gated", nodes=2) as cluster:
        yield cluster


@contextmanager
def brokers(name: str, *, nodes: int, **more: str) -> Iterator[EmbeddedKafka]:
    """Brokers with an authorizer, and ``more`` properties."""
    properties = {
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": jaas.entry(_PLAIN, {f"user_{user}": user for user in USERS}),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:root",
        **more,
    }
    with EmbeddedKafka(
        name=name, nodes=nodes, properties=properties, heap_megabytes=256, start_timeout_seconds=300
    ) as cluster:
        yield cluster


def connection(cluster: EmbeddedKafka, user: str) -> ClusterConnection:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    who = {"sasl.username": user, "sasl.password": user}
    return ClusterConnection(user, {"bootstrap.servers": cluster.bootstrap_servers, **login, **who})


class Shop:
    """A topic, ACLs of its clients, and a plan that fences it. ``acls`` are those that there were before any fence."""

    def __init__(self, cluster: EmbeddedKafka) -> None:
        self.cluster, self.topic = cluster, f"f{uuid.uuid4().hex[:8]}.orders"
        servers = {"bootstrap.servers": cluster.internal_servers}
        self.admin = Cluster("source", ClusterConnection("admin", servers))
        self.own = Cluster("source", connection(cluster, "mover"))
        self.store, self.links = PlainStore(), PlainStore()
        self.admin.create_topics([TopicSpec(name=self.topic, partitions=PARTITIONS, replication_factor=2)])
        allowed = {("User:web", "WRITE"), ("User:billing", "ALL"), ("User:probe", "WRITE"), ("User:mover", "READ")}
        self.admin.create_acls(self.acl("TOPIC", self.topic, *it) for it in sorted(allowed))
        # What docs/security.md has a fence need, and nothing more.
        needed = ("ALTER", "DESCRIBE_CONFIGS")
        self.admin.create_acls(self.acl("CLUSTER", "kafka-cluster", "User:mover", it) for it in needed)
        with Cluster("source", connection(cluster, "probe")) as probe:
            wait_until(lambda: self._lets(probe, "WRITE") and self._lets(self.own, "READ"), "the ACLs are in force")
        wait_until(lambda: sum(self.topic in it.resource for it in self.admin.acls()) == len(allowed), "all are known")
        self.acls = self.admin.acls()

    def _lets(self, cluster: Cluster, operation: str) -> bool:
        try:
            return not any(cluster.denied_by_broker("TOPIC", operation, [self.topic], 20).values())
        except NotAuthorized:
            return False

    @staticmethod
    def acl(kind: str, name: str, principal: str, operation: str) -> Acl:
        return Acl(
            resource_type=kind,
            resource=name,
            pattern="LITERAL",
            principal=principal,
            host="*",
            operation=operation,
            permission="ALLOW",
        )

    def ctx(self, **fields: Any) -> Context:
        found = restore_plan(
            {
                "version": 1,
                "name": "shop",
                "source": "mover",
                "target": "b",
                "topics": {"include": [self.topic.replace(".", r"\.")]},
                "producers": {
                    "fence": {"probe": "probe", "super_users": ["User:root"], "settle_seconds": 0.5, **fields}
                },
            }
        )
        return Context(
            plan=found,
            source=self.own,
            target=FakeCluster("target"),  # type: ignore[arg-type]
            journal=Journal(self.store, "shop"),
            link=LinkState("shop", self.links, None, None, selects=found.topics.matches),
            clock=SystemClock(),
            connect=lambda role, user, seconds: Cluster(role, connection(self.cluster, user), timeout_seconds=seconds),
        )

    def fence(self, **fields: Any) -> Fenced:
        return fence.apply(self.ctx(**fields), _no_hooks)

    def lift(self) -> Lifted:
        return fence.lift(self.ctx(), _no_hooks)

    def ends(self) -> dict[TopicPartition, int]:
        tps = [TopicPartition(self.topic, partition) for partition in range(PARTITIONS)]
        return {tp: found.end for tp, found in self.admin.log_epochs(dict.fromkeys(tps)).items()}

    def close(self) -> None:
        self.admin.delete_acls([it for it in self.admin.acls() if self.topic in it.resource])
        self.admin.close()
        self.own.close()


def _no_hooks(hooks: Iterable[Any], phase: str) -> None:
    assert not list(hooks)


@pytest.fixture
def shop(gated: EmbeddedKafka) -> Iterator[Shop]:
    found = Shop(gated)
    yield found
    found.close()


@dataclass(eq=False)
class Writer:
    """A producer that writes on and on, and notes what was acknowledged, by partition, and how often it was refused."""

    properties: dict[str, Any]
    topic: str
    ends: dict[int, int] = field(default_factory=dict)
    refused: int = 0
    acknowledged: int = 0

    def __enter__(self) -> Self:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(30)

    def _write(self) -> None:
        producer = Producer(self.properties)
        number = 0
        while not self._stopping.is_set():
            number += 1
            try:
                producer.produce(self.topic, b"x", partition=number % PARTITIONS, on_delivery=self._note)
            except KafkaException as error:
                # Once it was refused, the client refuses by itself, until metadata show the topic again.
                if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise
                self.refused += 1
            producer.poll(0.01)
        producer.purge()
        producer.poll(0)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused += 1
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        self.acknowledged += 1
        if offset is not None and offset >= 0:
            self.ends[partition] = max(self.ends.get(partition, 0), offset + 1)


@contextmanager
def writing(shop: Shop, user: str, **properties: Any) -> Iterator[Writer]:
    base = connection(shop.cluster, user).librdkafka() | {"message.timeout.ms": 60_000, "linger.ms": 0}
    with Writer({**base, "enable.idempotence": True, **properties}, shop.topic) as writer:
        wait_until(lambda: writer.acknowledged > 20, f"{user} writes")
        yield writer


def test_nothing_is_acknowledged_behind_the_proved_ends_and_producers_go_on_once_it_is_lifted(
    shop: Shop, record_property: Any
) -> None:
    proved = []
    with writing(shop, "web") as web, writing(shop, "billing") as billing:
        for _ in range(ROUNDS):
            proof = shop.fence().proof
            assert proof is not None
            proved.append(proof.proved_ms)
            assert set(proof.denied_ms) == {1, 2}
            # Both try on, and are refused.
            before = {writer: writer.refused for writer in (web, billing)}
            wait_until(lambda b=before: all(it.refused > b[it] + 20 for it in b), "both are refused")
            assert shop.ends() == proof.ends
            for writer in (web, billing):
                late = {p: end for p, end in writer.ends.items() if end > proof.ends[TopicPartition(shop.topic, p)]}
                assert not late
            lifted = shop.lift()
            assert lifted.equal
            # A broker may be behind the one that showed it.
            wait_until(lambda: shop.admin.acls() == shop.acls, "ACLs are what they were")
            so_far = {writer: writer.acknowledged for writer in (web, billing)}
            wait_until(lambda s=so_far: all(it.acknowledged > s[it] + 20 for it in s), "both go on")
    record_property("proved_ms_median", statistics.median(proved))
    print("proved after ms:", [round(it) for it in proved], "median", round(statistics.median(proved)))


@pytest.mark.parametrize("has_id", [True, False])
def test_super_user_that_writes_on_is_named_and_the_fence_is_lifted_at_once(shop: Shop, has_id: bool) -> None:
    known: Any = {} if has_id else {"enable.idempotence": False, "acks": 0}
    with writing(shop, "web") as web, writing(shop, "root", **known):
        with pytest.raises(Straggler) as caught:
            shop.fence()
        written = caught.value.written
        assert {it.tp.topic for it in written} == {shop.topic}
        assert any(it.producers for it in written) == has_id
        wait_until(lambda: shop.admin.acls() == shop.acls, "ACLs are what they were")
        found = record.read(shop.ctx(), WRITES)
        assert found is not None
        assert found.state is FenceState.LIFTED
        so_far = web.acknowledged
        wait_until(lambda: web.acknowledged > so_far + 20, "who was fenced goes on")


def test_principal_named_as_a_super_user_is_refused_and_nothing_is_changed(shop: Shop) -> None:
    found = {it.name: it for it in fence.check(shop.ctx(super_users=["User:probe"])).checks}
    assert found["fence: super users"].verdict is Verdict.FAIL
    # Brokers show theirs to nobody.
    found = {it.name: it for it in fence.check(shop.ctx(super_users=[])).checks}
    assert found["fence: super users"].verdict is Verdict.WARN
    assert shop.admin.acls() == shop.acls


def test_consumers_are_shut_out_of_their_group_where_everybody_is_let_in_without_acls() -> None:
    with brokers("open-door", nodes=2, **{"allow.everyone.if.no.acl.found": "true"}) as cluster:
        shop = Shop(cluster)
        group = f"{shop.topic}.app"
        allowed = {("User:web", "READ"), ("User:probe", "READ"), ("User:mover", "DESCRIBE")}
        shop.admin.create_acls(shop.acl("GROUP", group, *one) for one in sorted(allowed))
        shop.admin.create_acls([shop.acl("TOPIC", shop.topic, "User:web", "READ")])
        place = TopicPartition(shop.topic, 0)

        def commits(offset: int) -> bool:
            with Cluster("source", connection(cluster, "web")) as client:
                try:
                    client.commit(group, {place: CommittedOffset(offset=offset)})
                except (NotAuthorized, CouldNotFindOut):
                    return False
            return True

        wait_until(lambda: commits(3), "the consumer may commit")
        done = fence.apply(shop.ctx(), _no_hooks, GROUP_READS, (group,))
        assert done.proof is not None
        assert not commits(5)
        # The migration sees what was committed, and that it stays so.
        assert shop.own.committed(group)[place].offset == 3
        fence.lift(shop.ctx(), _no_hooks, GROUP_READS)
        wait_until(lambda: commits(7), "the consumer may commit again")
        shop.close()


def test_cluster_without_an_authorizer_is_refused_with_a_remedy(source_cluster: SharedCluster) -> None:
    servers = {"bootstrap.servers": source_cluster.bootstrap_servers}
    name = f"f{uuid.uuid4().hex[:8]}"
    with Cluster("source", ClusterConnection("own", servers)) as source:
        source.create_topics([TopicSpec(name=name, partitions=1, replication_factor=1)])
        wait_until(lambda: name in source.topics([name]), "the topic is visible")
        section = {"fence": {"probe": "probe", "probe_principal": "User:probe"}}
        plan = restore_plan(
            {
                "version": 1,
                "name": "shop",
                "source": "own",
                "target": "b",
                "topics": {"include": [name]},
                "producers": section,
            }
        )
        ctx = Context(
            plan=plan,
            source=source,
            target=FakeCluster("target"),  # type: ignore[arg-type]
            journal=Journal(PlainStore(), "shop"),
            link=LinkState("shop", PlainStore(), None, None, selects=plan.topics.matches),
            connect=lambda role, conn_id, seconds: Cluster(role, ClusterConnection(conn_id, servers)),
        )
        with pytest.raises(Refused, match="no authorizer") as caught:
            fence.apply(ctx, _no_hooks)
        assert "kind hook" in caught.value.remedy
        results = {it.name: it for it in preflight.check(ctx, environ={}).gate.results}
        assert results["fence: principals to deny"].verdict is Verdict.FAIL
