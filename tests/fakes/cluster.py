"""A Kafka cluster in memory, with the methods of ``kafka_migration.kafka.cluster.Cluster``.

It keeps to what real brokers do, as far as phases can see it: offsets of a group with members cannot be written, a
group is forgotten with its last offset, a topic that is made again has another id. The contract suite in
tests/clusters runs over both. What a broker's users do (write records, join a group, commit) are methods here, too;
``changes`` counts what was changed through the methods that a Cluster has.
"""

from __future__ import annotations

import copy
import itertools
import uuid
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from kafka_migration.domain.errors import CouldNotFindOut, MigrationError, NotAuthorized
from kafka_migration.domain.types import PartitionEnds, TopicPartition, TopicSpec
from kafka_migration.kafka.acls import Denied
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.errors import BrokerRefused, GroupBusy, NoAuthorizer, TopicExists, UnknownTopic
from kafka_migration.kafka.types import (
    Acl,
    ActiveProducer,
    CommittedOffset,
    ConfigValue,
    DiskUse,
    EpochEnd,
    GroupListing,
    GroupMember,
    GroupState,
    LogDir,
    Quota,
    ScramUser,
    TimeSpan,
    TopicDescription,
)

#: A topic's settings where nothing explicit says otherwise, as a broker of 4.x has them.
DEFAULT_CONFIGS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
}
RECORD_BYTES = 100
#: Mechanisms, in the order in which a user is given them.
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ADMIN = "User:admin"


@dataclass(slots=True)
class _Topic:
    description: TopicDescription
    configs: dict[str, str]
    starts: list[int]
    timestamps: list[list[int]] = field(default_factory=list)


@dataclass(slots=True)
class _Group:
    protocol: str = "classic"
    members: dict[str, GroupMember] = field(default_factory=dict)
    commits: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)


_ALL_TOPIC_OPERATIONS = frozenset(
    {"ALTER", "ALTER_CONFIGS", "CREATE", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE"}
)


class FakeCluster:
    """One cluster. ``failing`` makes a method raise, as an unreachable or forbidding cluster does."""

    def __init__(self, role: str = "source", *, brokers: int = 1, has_authorizer: bool = False) -> None:
        self.role = role
        self.connection = ClusterConnection(role, {"bootstrap.servers": "127.0.0.1:1"})
        self.changes: list[str] = []
        self.closed = False
        self._id = uuid.uuid4().hex[:22]
        self._brokers = tuple(range(1, brokers + 1))
        self._topics: dict[str, _Topic] = {}
        self._groups: dict[str, _Group] = {}
        self._errors: dict[str, Callable[[], BaseException | None]] = {}
        self._serial = itertools.count(1)
        #: Who asks. The administrator may do everything; others, with an authorizer, what ACLs let them.
        self.principal = ADMIN
        self.super_users = {ADMIN}
        self._acls: list[Acl] | None = [] if has_authorizer else None
        #: Groups with a commit in an open transaction.
        self.pending: set[str] = set()
        #: Configs of brokers beside the usual ones; None for a value that brokers do not show.
        self.configs_of_brokers: dict[str, str | None] = {}
        self.client_quotas: list[Quota] = []
        self.users: list[ScramUser] = []
        self.passwords: dict[str, str] = {}
        #: What a broker goes by that is behind, or that does not answer (None).
        self._behind: dict[int, tuple[Acl, ...] | None] = {}
        self._producers: dict[TopicPartition, dict[int, ActiveProducer]] = {}
        self._open: dict[TopicPartition, int] = {}
        self._transactions: dict[str, tuple[int, tuple[TopicPartition, ...]]] = {}
        self._epochs: dict[TopicPartition, list[int]] = {}

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.closed = True

    def topic_here(self, topic: str) -> str:
        return topic

    def wire(self) -> dict[str, object]:
        return self.connection.kafka_python()

    @contextmanager
    def failing(self, method: str, error: BaseException, *, on: str = "") -> Iterator[None]:
        """Have ``method`` raise ``error`` meanwhile; with ``on``, only for that group."""
        self._errors[method + on] = lambda: error
        try:
            yield
        finally:
            del self._errors[method + on]

    def _may_fail(self, method: str, names: Iterable[str] = ()) -> None:
        for key in (method, *(method + name for name in names)):
            error = self._errors[key]() if key in self._errors else None
            if error is not None:
                raise error

    # --- the cluster itself ------------------------------------------------------------------------------------------

    def cluster_id(self) -> str:
        self._may_fail("cluster_id")
        return self._id

    def broker_count(self) -> int:
        return len(self.brokers())

    def brokers(self) -> tuple[int, ...]:
        self._may_fail("brokers")
        return self._brokers

    def cluster_operations(self) -> frozenset[str]:
        return frozenset({"ALTER", "ALTER_CONFIGS", "CREATE", "DESCRIBE", "DESCRIBE_CONFIGS"})

    def api_versions(self) -> dict[str, tuple[int, int]]:
        return {"Produce": (3, 13), "Fetch": (4, 18), "InitProducerId": (0, 6)}

    def broker_configs(self) -> dict[str, ConfigValue]:
        hidden = {name: ConfigValue(value=v, is_explicit=False) for name, v in self.configs_of_brokers.items()}
        return hidden | {
            name: ConfigValue(value=value, is_explicit=False)
            for name, value in (
                ("message.max.bytes", "1048588"),
                ("auto.create.topics.enable", "true"),
                ("transactional.id.expiration.ms", "604800000"),
                ("producer.id.expiration.ms", "86400000"),
            )
        }

    # --- topics ------------------------------------------------------------------------------------------------------

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        self._may_fail("topics")
        wanted = sorted(self._topics) if names is None else list(names)
        return {name: self._topics[name].description for name in wanted if name in self._topics}

    def topic_names(self) -> list[str]:
        self._may_fail("topic_names")
        return sorted(self._topics)

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, ConfigValue]]:
        self._may_fail("topic_configs")
        found = {}
        for name in names:
            explicit = self._topic(name).configs
            found[name] = {
                key: ConfigValue(
                    value=explicit.get(key, value), is_explicit=key in explicit, default=DEFAULT_CONFIGS.get(key)
                )
                for key, value in sorted((DEFAULT_CONFIGS | explicit).items())
            }
        return found

    def topic_operations(self, names: Iterable[str], among: Iterable[str]) -> dict[str, frozenset[str]]:
        self._may_fail("topic_operations", names)
        return dict.fromkeys(names, _ALL_TOPIC_OPERATIONS)

    def refused_configs(self, spec: TopicSpec) -> dict[str, str]:
        self._refuse_existing(spec.name)
        self._refuse_replicas(spec)
        return self._unknown(spec)

    def _refuse_replicas(self, spec: TopicSpec) -> None:
        if spec.replication_factor > len(self._brokers):
            reason = f"Replication factor: {spec.replication_factor} larger than available brokers"
            raise BrokerRefused(f"{spec.name}: {reason}", code=38, reason=reason)

    def refused_changes(self, spec: TopicSpec) -> dict[str, str]:
        self._topic(spec.name)
        return self._unknown(spec)

    def _unknown(self, spec: TopicSpec) -> dict[str, str]:
        return {name: f"Unknown topic config name: {name}" for name in spec.configs if name not in DEFAULT_CONFIGS}

    def creatable(self, specs: Iterable[TopicSpec]) -> frozenset[str]:
        fine = set()
        for spec in specs:
            with suppress(MigrationError):
                self.create_topics([spec], dry_run=True)
                fine.add(spec.name)
        return frozenset(fine)

    def create_topics(self, specs: Iterable[TopicSpec], *, dry_run: bool = False) -> None:
        self._may_fail("create_topics")
        for spec in specs:
            self._refuse_existing(spec.name)
            self._refuse_replicas(spec)
            for name in self.refused_configs(spec):
                raise BrokerRefused(f"Unknown topic config name: {name}", code=40, reason="Unknown topic config name")
            if not dry_run:
                self.changes.append(f"create {spec.name}")
                self._make(spec)

    def create_partitions(self, topic: str, partitions: int) -> None:
        self._may_fail("create_partitions", [topic])
        if self._topic(topic).description.partitions >= partitions:
            reason = f"Topic currently has {self._topic(topic).description.partitions} partitions"
            raise BrokerRefused(f"{topic}: {reason}", code=37, reason=reason)
        self.changes.append(f"grow {topic} {partitions}")
        self.add_partitions(topic, partitions)

    def delete_topics(self, names: Iterable[str]) -> None:
        self._may_fail("delete_topics")
        for name in names:
            if name in self._topics:
                self.changes.append(f"delete {name}")
                self.delete_topic(name)

    def alter_configs(self, topic: str, *, set: Mapping[str, str], delete: Iterable[str] = ()) -> None:
        self._may_fail("alter_configs")
        configs = self._topic(topic).configs
        for name in (*set, *delete):
            if name not in DEFAULT_CONFIGS:
                raise BrokerRefused(f"Unknown topic config name: {name}", code=40, reason="Unknown topic config name")
        self.changes.append(f"alter {topic}")
        configs.update(set)
        for name in delete:
            configs.pop(name, None)

    def _refuse_existing(self, name: str) -> None:
        if name in self._topics:
            raise TopicExists(f"{self.role}: topic {name} exists", remedy="choose another name")

    def _make(self, spec: TopicSpec) -> None:
        leader = self._brokers[0]
        self._topics[spec.name] = _Topic(
            TopicDescription(
                name=spec.name,
                topic_id=str(uuid.uuid4()),
                partitions=spec.partitions,
                replication_factor=spec.replication_factor,
                leaders=(leader,) * spec.partitions,
            ),
            dict(spec.configs),
            [0] * spec.partitions,
            [[] for _ in range(spec.partitions)],
        )

    def _topic(self, name: str) -> _Topic:
        if name not in self._topics:
            raise UnknownTopic(f"{self.role}: topic {name} does not exist", remedy="check the name")
        return self._topics[name]

    # --- partitions --------------------------------------------------------------------------------------------------

    def ends(
        self, tps: Iterable[TopicPartition], committed: bool = False, skip_starts_of: Container[TopicPartition] = ()
    ) -> dict[TopicPartition, PartitionEnds]:
        self._may_fail("ends")
        found = {}
        for tp in tps:
            start, timestamps = self._log(tp)
            end = min(len(timestamps), self._open.get(tp, len(timestamps))) if committed else len(timestamps)
            undecided = len(timestamps) - end
            found[tp] = PartitionEnds(
                start=0 if tp in skip_starts_of else min(start, end), end=end, undecided=undecided
            )
        return found

    def log_epochs(self, asked: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, EpochEnd]:
        self._may_fail("log_epochs")
        found = {}
        for tp, epoch in asked.items():
            ends = [*self._epochs.get(tp, ()), len(self._log(tp)[1])]
            newest = len(ends) - 1
            # Of a leader under which nothing was written, a broker remembers nothing once there is another one.
            kept = [e for e in range(len(ends)) if e == newest or (ends[e - 1] if e else 0) < ends[e]]
            before = [e for e in kept if e <= (newest if epoch is None else epoch)]
            if before and (epoch or 0) <= newest:
                found[tp] = EpochEnd(epoch=before[-1], end=ends[before[-1]])
        return found

    def time_spans(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, TimeSpan]:
        found = {}
        for tp in tps:
            start, timestamps = self._log(tp)
            kept = timestamps[start:]
            found[tp] = TimeSpan(earliest=kept[0] if kept else None, latest=max(kept, default=None))
        return found

    def first_since(self, tps: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        ends = self.ends(tps, committed=True)
        return {
            tp: next((at for at in range(it.start, it.end) if self._log(tp)[1][at] >= timestamp), it.end)
            for tp, it in ends.items()
        }

    def disk_use(self, tps: Iterable[TopicPartition] = ()) -> DiskUse:
        self._may_fail("disk_use")
        dirs = tuple(
            LogDir(broker=broker, path="/data", total_bytes=10**12, usable_bytes=10**11) for broker in self._brokers
        )
        sizes = {tp: RECORD_BYTES * (log.end - log.start) for tp, log in self.ends(tps).items()}
        return DiskUse(log_dirs=dirs, partition_bytes=sizes)

    def producers(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        self._may_fail("producers")
        return {
            tp: (
                *self._producers.get(tp, {}).values(),
                *(
                    ActiveProducer(
                        producer_id=producer_id,
                        epoch=0,
                        last_timestamp=1_700_000_000_000,
                        is_transactional=True,
                        in_transaction=False,
                    )
                    for producer_id, written in self._transactions.values()
                    if tp in written
                ),
            )
            for tp in tps
            if tp.topic in self._topics
        }

    def transactional_ids(self, producer_ids: Iterable[int]) -> dict[int, str]:
        self._may_fail("transactional_ids")
        wanted = set(producer_ids)
        return {number: name for name, (number, _) in self._transactions.items() if number in wanted}

    def forget_transaction(self, transactional_id: str) -> None:
        """Leaders and coordinators forget a transactional producer."""
        del self._transactions[transactional_id]

    def transaction(self, transactional_id: str, tps: Iterable[TopicPartition]) -> None:
        """A transactional producer writes these partitions and commits."""
        number, before = self._transactions.get(transactional_id, (next(self._serial), ()))
        written = tuple(tps)
        self._transactions[transactional_id] = (number, (*before, *written))
        for tp in written:
            self.append(tp, 1)

    def _log(self, tp: TopicPartition) -> tuple[int, list[int]]:
        topic = self._topic(tp.topic)
        if tp.partition >= len(topic.starts):
            raise UnknownTopic(f"{self.role}: partition {tp} does not exist", remedy="check the name")
        return topic.starts[tp.partition], topic.timestamps[tp.partition]

    def hold_back(self, tp: TopicPartition, offset: int) -> None:
        """A transaction that is open from ``offset`` on."""
        self._open[tp] = offset

    # --- groups ------------------------------------------------------------------------------------------------------

    def groups(self) -> dict[str, GroupListing]:
        self._may_fail("groups")
        return {
            name: GroupListing(group=name, protocol=it.protocol, state=self._state(name).state)
            for name, it in sorted(self._groups.items())
        }

    def group_states(self, names: Iterable[str]) -> dict[str, GroupState]:
        wanted = sorted(set(names))
        self._may_fail("group_states", wanted)
        return {name: self._state(name) for name in wanted}

    def group_state(self, group: str) -> GroupState:
        return self.group_states([group])[group]

    def group_operations(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        return {name: frozenset({"DELETE", "DESCRIBE", "READ"}) for name in sorted(set(names))}

    def may_use_transactional_id(self, transactional_id: str) -> bool:
        return True

    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        return self.committed_of([group])[group]

    def committed_of(
        self, names: Iterable[str], *, is_stable: bool = True
    ) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        wanted = sorted(set(names))
        self._may_fail("committed", wanted)
        if is_stable and (pending := self.pending.intersection(wanted)):
            raise CouldNotFindOut(f"offsets of {', '.join(sorted(pending))} are in an open transaction")
        return {name: dict(self._groups[name].commits) if name in self._groups else {} for name in wanted}

    def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self._may_fail("commit", [group])
        if not offsets:
            return
        if group in self._groups and self._groups[group].members:
            raise GroupBusy(f"{self.role}: group {group} has members", remedy="stop its consumers")
        for tp in offsets:
            self._log(tp)
        self.changes.append(f"commit {group}")
        self._groups.setdefault(group, _Group()).commits.update(offsets)

    def _state(self, name: str) -> GroupState:
        group = self._groups.get(name)
        if group is None:
            return GroupState(group=name, state="Dead", protocol="classic")
        return GroupState(
            group=name,
            state="Stable" if group.members else "Empty",
            protocol=group.protocol,
            members=tuple(group.members.values()),
        )

    # --- access ------------------------------------------------------------------------------------------------------

    def acls(self) -> tuple[Acl, ...]:
        self._may_fail("acls")
        return tuple(sorted(self._rules(), key=repr))

    def create_acls(self, acls: Iterable[Acl]) -> None:
        rules = self._rules()
        for acl in acls:
            self._may_fail("create_acls")
            self.changes.append(f"create acl {acl.principal} {acl.resource}")
            if acl not in rules:
                rules.append(acl)

    def delete_acls(self, acls: Iterable[Acl]) -> tuple[Acl, ...]:
        removed, rules = [], self._rules()
        for acl in acls:
            self._may_fail("delete_acls")
            if acl in rules:
                self.changes.append(f"delete acl {acl.principal} {acl.resource}")
                rules.remove(acl)
                removed.append(acl)
        return tuple(sorted(removed, key=repr))

    def denied_by_broker(
        self, kind: Denied, operation: str, names: Iterable[str], seconds: float
    ) -> dict[int, frozenset[str]]:
        self._may_fail("denied_by_broker")
        if kind == "GROUP" and operation != "READ":
            raise ValueError(f"a broker cannot be asked about {operation} on a group")
        wanted = sorted(set(names))
        found = {}
        for broker in self._brokers:
            rules = self._behind.get(broker, tuple(self._acls or ()))
            if rules is None:
                raise CouldNotFindOut(f"{self.role}: broker {broker} did not answer", remedy="try again")
            for name in wanted:
                if kind == "TOPIC":
                    self._topic(name)
                    if not self._may(self.principal, "DESCRIBE", kind, name, rules):
                        raise NotAuthorized(self.role, "Describe", f"topic {name}")
            found[broker] = frozenset(
                name for name in wanted if not self._may(self.principal, operation, kind, name, rules)
            )
        return found

    def _rules(self) -> list[Acl]:
        if self._acls is None:
            raise NoAuthorizer(f"{self.role}: the cluster has no authorizer")
        return self._acls

    def _may(self, principal: str, operation: str, kind: str, name: str, rules: Iterable[Acl]) -> bool:
        """As StandardAuthorizer has it: a denial goes first, and some operations imply Describe."""
        if self._acls is None or principal in self.super_users:
            return True
        found = [
            rule
            for rule in rules
            if rule.resource_type == kind
            and (name.startswith(rule.resource) if rule.pattern == "PREFIXED" else rule.resource in (name, "*"))
        ]
        if not found and self.configs_of_brokers.get("allow.everyone.if.no.acl.found") == "true":
            return True
        mine = [rule for rule in found if rule.principal in (principal, "User:*")]
        enough = {operation, "ALL"} | ({"READ", "WRITE", "DELETE", "ALTER"} if operation == "DESCRIBE" else set())
        if any(rule.permission == "DENY" and rule.operation in (operation, "ALL") for rule in mine):
            return False
        return any(rule.permission == "ALLOW" and rule.operation in enough for rule in mine)

    def quotas(self) -> tuple[Quota, ...]:
        return tuple(self.client_quotas)

    def alter_quotas(self, changes: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float | None]]) -> None:
        for entity, limits in changes.items():
            self._may_fail("alter_quotas")
            self.changes.append(f"alter quotas {entity}")
            kept = {key: value for one in self.client_quotas if one.entity == entity for key, value in one.limits}
            now = {key: value for key, value in {**kept, **limits}.items() if value is not None}
            self.client_quotas = [one for one in self.client_quotas if one.entity != entity]
            if now:
                self.client_quotas.append(Quota(entity=entity, limits=tuple(sorted(now.items()))))

    def scram_users(self) -> tuple[ScramUser, ...]:
        return tuple(self.users)

    def alter_scram_users(self, made: Mapping[ScramUser, str], removed: Iterable[ScramUser] = ()) -> None:
        # One mechanism after the other, as brokers want it.
        users = (*made, *removed)
        credentials = [(user, *one) for name in SCRAM for user in users for one in user.credentials if one[0] == name]
        for user, mechanism, iterations in credentials:
            self._may_fail("alter_scram_users", [mechanism])
            self.changes.append(f"alter {mechanism} of {user.user}")
            kept = {name: count for one in self.users if one.user == user.user for name, count in one.credentials}
            if user in made:
                kept[mechanism] = iterations
                self.passwords[user.user] = made[user]
            else:
                kept.pop(mechanism, None)
            self.users = [one for one in self.users if one.user != user.user]
            if kept:
                self.users.append(ScramUser(user=user.user, credentials=tuple(sorted(kept.items()))))
            self.users.sort(key=lambda one: one.user)

    # --- what users of the cluster do --------------------------------------------------------------------------------

    def as_principal(self, principal: str) -> FakeCluster:
        """The same cluster, as another principal sees it."""
        other = copy.copy(self)
        other.principal = principal
        user = {"sasl.username": principal.partition(":")[2], "sasl.password": "secret"}
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **user}
        other.connection = ClusterConnection(self.role, {"bootstrap.servers": "127.0.0.1:1", **login})
        return other

    def fall_behind(self, broker: int, *, silent: bool = False) -> None:
        """A broker goes by the ACLs of now from now on, or does not answer, until :meth:`catch_up`."""
        self._behind[broker] = None if silent else tuple(self._rules())

    def catch_up(self, broker: int) -> None:
        """It goes by what there is."""
        del self._behind[broker]

    def write_as(self, principal: str, tp: TopicPartition, records: int = 1, *, producer_id: int | None = None) -> bool:
        """A client writes, if the partition's leader lets it, by the ACLs that this broker knows."""
        leader = self._topic(tp.topic).description.leaders[tp.partition]
        rules = self._behind.get(leader or 0, tuple(self._acls or ())) or ()
        if not self._may(principal, "WRITE", "TOPIC", tp.topic, rules):
            return False
        self.append(tp, records)
        if producer_id is not None:
            self._producers.setdefault(tp, {})[producer_id] = ActiveProducer(
                producer_id=producer_id,
                epoch=0,
                last_timestamp=self._log(tp)[1][-1],
                is_transactional=False,
                in_transaction=False,
            )
        return True

    def lead(self, tp: TopicPartition, broker: int) -> None:
        """Another broker leads a partition from now on."""
        it = self._topic(tp.topic)
        leaders = list(it.description.leaders)
        leaders[tp.partition] = broker
        self._epochs[tp] = [*self._epochs.get(tp, ()), len(self._log(tp)[1])]
        it.description = replace(it.description, leaders=tuple(leaders))

    def add_topic(self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Somebody makes a topic."""
        self._refuse_existing(name)
        self._make(TopicSpec(name=name, partitions=partitions, replication_factor=1, configs=dict(configs or {})))

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Somebody gives a topic so many partitions in all."""
        it = self._topic(topic)
        more = partitions - it.description.partitions
        leaders = (*it.description.leaders, *[self._brokers[0]] * more)
        it.description = replace(it.description, partitions=partitions, leaders=leaders)
        it.starts += [0] * more
        it.timestamps += [[] for _ in range(more)]

    def delete_topic(self, name: str) -> None:
        """Somebody deletes a topic; groups lose their commits there."""
        del self._topics[name]
        for group in self._groups.values():
            group.commits = {tp: it for tp, it in group.commits.items() if tp.topic != name}

    def append(self, tp: TopicPartition, records: int, *, timestamp: int = 1_700_000_000_000) -> None:
        """Producers write ``records`` records."""
        timestamps = self._log(tp)[1]
        timestamps.extend(range(timestamp + len(timestamps), timestamp + len(timestamps) + records))

    def truncate(self, tp: TopicPartition, end: int) -> None:
        """A new leader, whose log ends at ``end``, takes over: what stood behind is lost."""
        self._epochs[tp] = [*(min(it, end) for it in self._epochs.get(tp, ())), end]
        del self._log(tp)[1][end:]

    def delete_records(self, tp: TopicPartition, before: int) -> None:
        """The log starts at ``before`` from now on."""
        self._log(tp)
        self._topic(tp.topic).starts[tp.partition] = before

    def join(self, group: str, topics: Iterable[str], *, protocol: str = "classic", client_id: str = "app") -> str:
        """A consumer joins, and is assigned every partition of its topics. Returns its member id."""
        member_id = f"{client_id}-{next(self._serial)}"
        wanted = frozenset(topics)
        state = self._groups.setdefault(group, _Group())
        state.protocol = protocol
        state.members[member_id] = GroupMember(
            member_id=member_id,
            client_id=client_id,
            host="/127.0.0.1",
            partitions=tuple(tp for name in sorted(wanted) for tp in self._topic(name).description.topic_partitions),
            topics=wanted,
        )
        return member_id

    def leave(self, group: str, member_id: str) -> None:
        """A consumer leaves. A group without members and offsets is forgotten."""
        state = self._groups[group]
        del state.members[member_id]
        if not state.members and not state.commits:
            del self._groups[group]

    def consumer_commits(self, group: str, tp: TopicPartition, offset: int, metadata: str = "") -> None:
        """A consumer commits, as a member or without being one."""
        self._log(tp)
        commit = CommittedOffset(offset=offset, metadata=metadata)
        self._groups.setdefault(group, _Group()).commits[tp] = commit

    def expire_commit(self, group: str, tp: TopicPartition) -> None:
        """A single committed offset expires."""
        del self._groups[group].commits[tp]

    def forget_group(self, group: str) -> None:
        """The cluster forgets a group whose offsets have expired."""
        del self._groups[group]
