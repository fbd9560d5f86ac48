"""A large cluster to migrate: many topics, partitions and groups, made through librdkafka alone."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import confluent_kafka
import yaml
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from demo.brokers import EmbeddedKafka

T = TypeVar("T")

_AT_ONCE = 100
_WAIT_SECONDS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large; every partition gets ``records`` records."""

    topics: int
    partitions: int
    groups: int
    records: int = 2

    def __post_init__(self) -> None:
        if self.partitions % self.topics:
            raise ValueError(f"{self.partitions} partitions are not the same number for each of {self.topics} topics")

    @property
    def per_topic(self) -> int:
        """Partitions of each topic."""
        return self.partitions // self.topics


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Two clusters, the source filled, and the plan that moves all of it."""

    source: str
    target: str
    plan: Path
    size: Size


def cluster(name: str) -> EmbeddedKafka:
    """A broker for thousands of partitions on a small machine."""
    # An index is mapped at its full size for each partition: 20 MB of address space each, by default.
    return EmbeddedKafka(name=name, heap_megabytes=1024, properties={"log.index.size.max.bytes": "102400"})


def fill(source: str, target: str, size: Size, folder: Path) -> World:
    """Make topics, records and groups on ``source``, and a plan of them; set the connections' environment."""
    name = f"scale-{uuid.uuid4().hex[:8]}"
    topics = [f"{name}.topic-{n:04}" for n in range(size.topics)]
    admin = AdminClient({"bootstrap.servers": source, "log_level": 2})
    for some in _chunks(topics):
        made = admin.create_topics([NewTopic(it, num_partitions=size.per_topic, replication_factor=1) for it in some])
        _await(made.values())
    _await_leaders(admin, topics)
    _produce(source, topics, size)
    groups = [(f"{name}.group-{n:04}", topics[n % len(topics)]) for n in range(size.groups)]
    for pairs in _chunks(groups):
        _commit(admin, pairs, size)
    document = {
        "version": 1,
        "name": name,
        "source": f"{name}_source".replace("-", "_"),
        "target": f"{name}_target".replace("-", "_"),
        "topics": {"include": [rf"{name}\..*"]},
        "groups": {"include": [rf"{name}\..*"]},
        "mirror": {"num_streams": 2, "epoch_seconds": 15},
        "approvals": {"plan": False, "cutover": False},
    }
    plan = folder / f"{name}.yaml"
    plan.write_text(yaml.safe_dump(document))
    for side, servers in (("source", source), ("target", target)):
        extra = {"conn_type": "kafka", "extra": {"bootstrap.servers": servers}}
        os.environ[f"AIRFLOW_CONN_{str(document[side]).upper()}"] = json.dumps(extra)
    return World(source=source, target=target, plan=plan, size=size)


def _await_leaders(admin: AdminClient, topics: list[str]) -> None:
    """The controller has made them; the broker learns of them a little later."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        known = admin.list_topics(timeout=_WAIT_SECONDS).topics
        if all(name in known and all(p.leader >= 0 for p in known[name].partitions.values()) for name in topics):
            return
        if time.monotonic() > deadline:
            raise RuntimeError("the source does not show its topics")
        time.sleep(0.2)


def _commit(admin: AdminClient, pairs: list[tuple[str, str]], size: Size) -> None:
    """An offset for each group in every partition of its topic; again where a coordinator was not ready."""
    deadline = time.monotonic() + _WAIT_SECONDS
    left = dict(pairs)
    while left:
        asked = {
            group: admin.alter_consumer_group_offsets(
                [
                    ConsumerGroupTopicPartitions(
                        group, [confluent_kafka.TopicPartition(topic, p, 1) for p in range(size.per_topic)]
                    )
                ]
            )[group]
            for group, topic in left.items()
        }
        for group, future in asked.items():
            if all(it.error is None for it in future.result(_WAIT_SECONDS).topic_partitions):
                del left[group]
        if left and time.monotonic() > deadline:
            raise RuntimeError(f"{len(left)} groups could not commit")


def _produce(source: str, topics: list[str], size: Size) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": source, "linger.ms": 50, "log_level": 2})
    failures: list[Any] = []
    for topic in topics:
        for partition in range(size.per_topic):
            for n in range(size.records):
                value = b"%d" % n
                producer.produce(
                    topic, value, partition=partition, on_delivery=lambda e, _: failures.append(e) if e else None
                )
        producer.poll(0)
    if producer.flush(_WAIT_SECONDS) or failures:
        raise RuntimeError(f"the source could not be filled: {failures[:1]}")


def _await(futures: Iterable[Any]) -> None:
    for future in list(futures):
        future.result(_WAIT_SECONDS)


def _chunks(items: list[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, _AT_ONCE)):
        yield chunk
