"""The two clusters of a run, and the network before them. They outlive rounds: six brokers take long to start."""

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from demo.brokers import EmbeddedKafka
from demo.brokers.ports import PortReservation
from kafka_migration.kafka import jaas
from tests.chaos.network import Network
from tests.chaos.schedule import SIDES
from tests.chaos.short import PRODUCER_MEMORY_SECONDS
from tests.waiting import wait_until

_QUICK = {
    # Soon is seconds here: that a broker is dead, that segments can be compacted, that they are, that a transaction
    # has timed out.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "log.cleaner.backoff.ms": "500",
    "log.initial.task.delay.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "replica.fetch.max.bytes": "8388608",
}
_FORGETFUL = {
    # A producer whose newest record is two minutes old is forgotten, and its fence with it, where nothing holds it.
    "producer.id.expiration.ms": f"{1000 * PRODUCER_MEMORY_SECONDS:.0f}",
    "producer.id.expiration.check.interval.ms": "500",
}
_HEAP_MEGABYTES = 384
MIRROR_USER = "mirror"
_PASSWORD = "of the mirror"
_AUTHORIZED = {
    # The mirror has a name on the target, so that a permission can be taken from it. What is not the mirror's own
    # comes in elsewhere, and may do everything.
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.client.plain.sasl.jaas.config": jaas.entry(
        "org.apache.kafka.common.security.plain.PlainLoginModule", {f"user_{MIRROR_USER}": _PASSWORD}
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}
AS_MIRROR = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": MIRROR_USER,
    "sasl.password": _PASSWORD,
}


@dataclass
class Cluster:
    """One side: brokers which advertise their proxies. What is not the mirror's own goes past those."""

    kafka: EmbeddedKafka
    nodes: int
    ports: tuple[int, ...] = ()
    """Where each broker listens behind its proxy."""

    @property
    def servers(self) -> str:
        """For the mirror: through the network."""
        return self.kafka.bootstrap_servers

    @property
    def direct(self) -> str:
        """For everybody else."""
        return self.kafka.internal_servers

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.direct, "log_level": 0})

    def wait_healthy(self, *, deadline_seconds: float = 90.0) -> None:
        """Until every replica of every partition is in sync again."""
        admin = self.admin()

        def is_healthy() -> bool:
            with suppress(KafkaException):
                found = admin.list_topics(timeout=5)
                parts = [part for topic in found.topics.values() for part in topic.partitions.values()]
                return len(found.brokers) == self.nodes and all(
                    part.leader >= 0 and len(part.isrs) == len(part.replicas) for part in parts
                )
            return False

        wait_until(is_healthy, f"all replicas of {self.kafka.name} are in sync", deadline_seconds=deadline_seconds)

    def delete(self, names: Collection[str]) -> None:
        """Delete topics, as far as they exist, and wait until they are gone."""
        admin = self.admin()
        there = sorted(set(admin.list_topics(timeout=30).topics) & set(names))
        if there:
            for future in admin.delete_topics(there).values():
                future.result(30)
        wait_until(lambda: not set(admin.list_topics(timeout=30).topics) & set(names), "topics are gone")


@dataclass
class Stage:
    """Both clusters, by side, and the network."""

    clusters: dict[str, Cluster]
    network: Network

    @property
    def source(self) -> Cluster:
        return self.clusters["source"]

    @property
    def target(self) -> Cluster:
        return self.clusters["target"]


@contextmanager
def stage(*, brokers: int, properties: Mapping[str, Mapping[str, str]] | None = None) -> Iterator[Stage]:
    """Start it: `brokers` a side, with `properties` of each side besides those of all; by default a target that forgets
    producers, and knows the mirror by name."""
    own = {"source": {}, "target": _FORGETFUL | _AUTHORIZED} if properties is None else properties
    ports = PortReservation(2 * brokers * len(SIDES))
    with contextlib.ExitStack() as stack:
        stack.callback(ports.release)
        free = list(ports)
        network: dict[str, list[tuple[int, int]]] = {}
        clusters = {}
        for side in SIDES:
            advertised, real = [[free.pop() for _ in range(brokers)] for _ in range(2)]
            network[side] = list(zip(advertised, real, strict=True))
            kafka = EmbeddedKafka(
                name=f"chaos-{side}",
                nodes=brokers,
                client_ports=real,
                advertised_ports=advertised,
                heap_megabytes=_HEAP_MEGABYTES,
                properties={**_QUICK, **own[side]},
                # Six at once on two cores.
                start_timeout_seconds=180,
            )
            stack.callback(kafka.stop, grace_seconds=5)
            clusters[side] = Cluster(kafka, brokers, tuple(real))
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda it: it.kafka.start(), clusters.values()))
        yield Stage(clusters, stack.enter_context(Network(network)))


def seconds_since(moment: float) -> float:
    """Rounded, for a line that people read."""
    return round(time.monotonic() - moment, 1)
