"""A cluster on which the plan's topics have other names: asked, and answering, by their names on the source."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from kafka_migration.domain.names import TopicNames
from kafka_migration.domain.types import PartitionEnds, TopicPartition, TopicSpec
from kafka_migration.kafka.acls import Denied
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.types import (
    ActiveProducer,
    CommittedOffset,
    ConfigValue,
    DiskUse,
    EpochEnd,
    GroupState,
    TimeSpan,
    TopicDescription,
)

V = TypeVar("V")


def renamed(cluster: Cluster, names: TopicNames) -> Cluster:
    """``cluster``, with other names for topics. ACLs, and messages of the cluster, have its own: they are what a person
    looks for there."""
    return cluster if names.are_same else cast("Cluster", _Renamed(cluster, names))


def other_names(cluster: Cluster, topics: Iterable[str]) -> dict[str, str]:
    """What ``cluster`` calls those of ``topics`` that it has another name for."""
    here = {topic: cluster.topic_here(topic) for topic in topics}
    return {topic: name for topic, name in here.items() if name != topic}


class _Renamed:
    """What names no topic is the cluster's own."""

    def __init__(self, cluster: Cluster, names: TopicNames) -> None:
        self._cluster, self._names = cluster, names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def topic_here(self, topic: str) -> str:
        return self._names.on_target(topic)

    def wire(self) -> dict[str, object]:
        return {**self._cluster.wire(), "topic_names": self._names}

    # --- topics ------------------------------------------------------------------------------------------------------

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        if names is None:
            found = {self._names.known_as(name): topic for name, topic in self._cluster.topics().items()}
        else:
            found = self._by_name(self._cluster.topics, names)
        return {mine: replace(topic, name=mine) for mine, topic in sorted(found.items())}

    def topic_names(self) -> list[str]:
        return sorted(map(self._names.known_as, self._cluster.topic_names()))

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, ConfigValue]]:
        return self._by_name(self._cluster.topic_configs, names)

    def topic_operations(self, names: Iterable[str], among: Iterable[str]) -> dict[str, frozenset[str]]:
        return self._by_name(lambda here: self._cluster.topic_operations(here, among), names)

    def refused_configs(self, spec: TopicSpec) -> dict[str, str]:
        return self._cluster.refused_configs(self._spec(spec))

    def refused_changes(self, spec: TopicSpec) -> dict[str, str]:
        return self._cluster.refused_changes(self._spec(spec))

    def creatable(self, specs: Iterable[TopicSpec]) -> frozenset[str]:
        mine = list(specs)
        wanted = {self._names.on_target(spec.name): spec.name for spec in mine}
        return frozenset(wanted[name] for name in self._cluster.creatable(map(self._spec, mine)))

    def create_topics(self, specs: Iterable[TopicSpec], *, dry_run: bool = False) -> None:
        self._cluster.create_topics(map(self._spec, specs), dry_run=dry_run)

    def create_partitions(self, topic: str, partitions: int) -> None:
        self._cluster.create_partitions(self._names.on_target(topic), partitions)

    def delete_topics(self, names: Iterable[str]) -> None:
        self._cluster.delete_topics(map(self._names.on_target, names))

    def alter_configs(self, topic: str, *, set: Mapping[str, str], delete: Iterable[str] = ()) -> None:
        self._cluster.alter_configs(self._names.on_target(topic), set=set, delete=delete)

    # --- partitions --------------------------------------------------------------------------------------------------

    def ends(
        self, tps: Iterable[TopicPartition], committed: bool = False, skip_starts_of: Container[TopicPartition] = ()
    ) -> dict[TopicPartition, PartitionEnds]:
        wanted = list(tps)
        skipped = {self._here(tp) for tp in wanted if tp in skip_starts_of}
        return self._by_partition(lambda here: self._cluster.ends(here, committed, skipped), wanted)

    def time_spans(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, TimeSpan]:
        return self._by_partition(self._cluster.time_spans, tps)

    def first_since(self, tps: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        return self._by_partition(lambda here: self._cluster.first_since(here, timestamp), tps)

    def log_epochs(self, asked: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, EpochEnd]:
        epochs = {self._here(tp): epoch for tp, epoch in asked.items()}
        return self._by_partition(lambda _here: self._cluster.log_epochs(epochs), asked)

    def producers(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        return self._by_partition(self._cluster.producers, tps)

    def disk_use(self, tps: Iterable[TopicPartition] = ()) -> DiskUse:
        wanted = {self._here(tp): tp for tp in tps}
        found = self._cluster.disk_use(wanted)
        return replace(found, partition_bytes={wanted[tp]: size for tp, size in found.partition_bytes.items()})

    # --- groups ------------------------------------------------------------------------------------------------------

    def group_states(self, names: Iterable[str]) -> dict[str, GroupState]:
        return {group: self._state(state) for group, state in self._cluster.group_states(names).items()}

    def group_state(self, group: str) -> GroupState:
        return self._state(self._cluster.group_state(group))

    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        return self._commits(self._cluster.committed(group))

    def committed_of(
        self, names: Iterable[str], *, is_stable: bool = True
    ) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        found = self._cluster.committed_of(names, is_stable=is_stable)
        return {group: self._commits(commits) for group, commits in found.items()}

    def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self._cluster.commit(group, {self._here(tp): offset for tp, offset in offsets.items()})

    # --- what is denied ----------------------------------------------------------------------------------------------

    def denied_by_broker(
        self, kind: Denied, operation: str, names: Iterable[str], seconds: float
    ) -> dict[int, frozenset[str]]:
        if kind != "TOPIC":
            return self._cluster.denied_by_broker(kind, operation, names, seconds)
        wanted = {self._names.on_target(name): name for name in names}
        found = self._cluster.denied_by_broker(kind, operation, wanted, seconds)
        return {broker: frozenset(wanted[name] for name in denied) for broker, denied in found.items()}

    # --- inside ------------------------------------------------------------------------------------------------------

    def _here(self, tp: TopicPartition) -> TopicPartition:
        return TopicPartition(self._names.on_target(tp.topic), tp.partition)

    def _by_name(self, ask: Callable[[Iterable[str]], Mapping[str, V]], names: Iterable[str]) -> dict[str, V]:
        wanted = {self._names.on_target(name): name for name in names}
        return {wanted[name]: value for name, value in ask(wanted).items()}

    def _by_partition(
        self, ask: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, V]], tps: Iterable[TopicPartition]
    ) -> dict[TopicPartition, V]:
        wanted = {self._here(tp): tp for tp in tps}
        return {wanted[tp]: value for tp, value in ask(wanted).items()}

    def _spec(self, spec: TopicSpec) -> TopicSpec:
        return replace(spec, name=self._names.on_target(spec.name))

    def _commits(self, commits: Mapping[TopicPartition, V]) -> dict[TopicPartition, V]:
        return {TopicPartition(self._names.known_as(tp.topic), tp.partition): at for tp, at in commits.items()}

    def _state(self, state: GroupState) -> GroupState:
        known = self._names.known_as
        return replace(
            state,
            members=tuple(
                replace(
                    member,
                    partitions=tuple(
                        sorted(TopicPartition(known(topic), number) for topic, number in member.partitions)
                    ),
                    topics=None if member.topics is None else frozenset(map(known, member.topics)),
                )
                for member in state.members
            ),
        )
