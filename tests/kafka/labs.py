"""A cluster and what its users do to it: real, or in memory. The contract of ``Cluster`` runs over both."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer

from kafka_migration.domain.names import TopicNames
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.cluster import Cluster, Role
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.renamed import renamed
from tests import kafka_tools
from tests.fakes.cluster import FakeCluster
from tests.waiting import wait_until


class Lab:
    """What the two have in common. Names are unique, so that tests share a real cluster."""

    cluster: Any

    def __init__(self) -> None:
        self.prefix = f"c{uuid.uuid4().hex[:8]}"

    def name(self, name: str) -> str:
        return f"{self.prefix}.{name}"

    def topic(self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """A topic as somebody else made it."""
        raise NotImplementedError

    def produce(self, tp: TopicPartition, records: int, *, timestamp: int) -> None:
        """Records with timestamps ``timestamp``, ``timestamp`` + 1, …"""
        raise NotImplementedError

    def delete_records(self, tp: TopicPartition, before: int) -> None:
        raise NotImplementedError

    def delete_topic(self, name: str) -> None:
        raise NotImplementedError

    def join(self, group: str, topics: Iterable[str], *, protocol: str = "classic") -> Callable[[], None]:
        """A consumer joins, and stays until what this returns is called."""
        raise NotImplementedError

    def close(self) -> None:
        """End what was started."""


class FakeLab(Lab):
    def __init__(self, role: Role = "source") -> None:
        super().__init__()
        self.cluster = FakeCluster(role)

    def topic(self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        self.cluster.add_topic(self.name(name), partitions=partitions, configs=configs)
        return self.name(name)

    def produce(self, tp: TopicPartition, records: int, *, timestamp: int) -> None:
        self.cluster.append(tp, records, timestamp=timestamp)

    def delete_records(self, tp: TopicPartition, before: int) -> None:
        self.cluster.delete_records(tp, before)

    def delete_topic(self, name: str) -> None:
        self.cluster.delete_topic(name)

    def join(self, group: str, topics: Iterable[str], *, protocol: str = "classic") -> Callable[[], None]:
        member = self.cluster.join(group, topics, protocol=protocol, client_id="shop")
        return lambda: self.cluster.leave(group, member)


class RealLab(Lab):
    """``servers`` are open to its users; the product comes by ``connection``, if it is another way in."""

    def __init__(self, servers: str, role: Role = "source", connection: ClusterConnection | None = None) -> None:
        super().__init__()
        self.servers = servers
        by_default = ClusterConnection(f"kafka_{role}", {"bootstrap.servers": servers})
        self.cluster = Cluster(role, connection or by_default)
        self._leaving: list[Callable[[], None]] = []

    def topic(self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        full = self.name(name)
        kafka_tools.create_topics(self.servers, {full: partitions}, configs)
        # The controller acknowledges before every broker knows.
        wait_until(
            lambda: full in self.cluster.topics() and None not in self.cluster.topics([full])[full].leaders,
            full,
        )
        return full

    def produce(self, tp: TopicPartition, records: int, *, timestamp: int) -> None:
        kafka_tools.produce(
            self.servers,
            tp.topic,
            (kafka_tools.ToSend(b"x", partition=tp.partition, timestamp=timestamp + n) for n in range(records)),
        )

    def delete_records(self, tp: TopicPartition, before: int) -> None:
        kafka_tools.delete_records(self.servers, {tp: before})

    def delete_topic(self, name: str) -> None:
        kafka_tools.delete_topic(self.servers, name)

    def join(self, group: str, topics: Iterable[str], *, protocol: str = "classic") -> Callable[[], None]:
        wanted = list(topics)
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": group,
                "group.protocol": protocol,
                "client.id": "shop",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        stopping, assigned = threading.Event(), threading.Event()

        def live() -> None:
            consumer.subscribe(wanted, on_assign=lambda _, tps: assigned.set() if tps else None)
            while not stopping.is_set():
                consumer.poll(0.05)
            consumer.close()

        thread = threading.Thread(target=live, daemon=True)
        thread.start()

        def leave() -> None:
            stopping.set()
            thread.join(30)

        self._leaving.append(leave)
        wait_until(assigned.is_set, f"{group} has partitions")
        wait_until(lambda: self.cluster.group_state(group).state == "Stable", f"{group} is stable")
        return leave

    def close(self) -> None:
        for leave in self._leaving:
            leave()
        self.cluster.close()


class RenamedLab(Lab):
    """The same cluster, on which each topic has a prefix that the product does not see."""

    PREFIX = "west."

    def __init__(self, plain: Lab) -> None:
        super().__init__()
        self._plain = plain
        plain.prefix = self.PREFIX + self.prefix
        self.cluster = renamed(plain.cluster, TopicNames(prefix=self.PREFIX))

    def topic(self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        return self._plain.topic(name, partitions=partitions, configs=configs).removeprefix(self.PREFIX)

    def produce(self, tp: TopicPartition, records: int, *, timestamp: int) -> None:
        self._plain.produce(self._there(tp), records, timestamp=timestamp)

    def delete_records(self, tp: TopicPartition, before: int) -> None:
        self._plain.delete_records(self._there(tp), before)

    def delete_topic(self, name: str) -> None:
        self._plain.delete_topic(self.PREFIX + name)

    def join(self, group: str, topics: Iterable[str], *, protocol: str = "classic") -> Callable[[], None]:
        return self._plain.join(group, [self.PREFIX + topic for topic in topics], protocol=protocol)

    def close(self) -> None:
        self._plain.close()

    def _there(self, tp: TopicPartition) -> TopicPartition:
        return TopicPartition(self.PREFIX + tp.topic, tp.partition)
