"""What every Cluster does, real or in memory: phases are tested against one and run against the other."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kafka_migration.domain.errors import NotAuthorized
from kafka_migration.domain.types import PartitionEnds, TopicPartition, TopicSpec
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.errors import BrokerRefused, GroupBusy, NoAuthorizer, TopicExists, UnknownTopic
from kafka_migration.kafka.types import Acl, CommittedOffset, EpochEnd, ScramUser, TimeSpan
from tests.fakes.cluster import FakeCluster
from tests.kafka.guarded import Guarded
from tests.kafka.labs import FakeLab, Lab, RealLab
from tests.waiting import wait_until

THEN = 1_700_000_000_000


def spec(name: str, *, partitions: int = 1, replication_factor: int = 1, **configs: str) -> TopicSpec:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    return TopicSpec(name=name, partitions=partitions, replication_factor=replication_factor, configs=settings)


def rule(
    principal: str, operation: str, resource: str, *, kind: str = "TOPIC", permission: str = "ALLOW", **fields: str
) -> Acl:
    more = {"pattern": "LITERAL", "host": "*"} | fields
    return Acl(
        resource_type=kind,
        resource=resource,
        principal=principal,
        operation=operation,
        permission=permission,
        **more,
    )


class TestTopics:
    def test_created_topic_is_described_as_declared(self, lab: Lab) -> None:
        name = lab.name("made")
        lab.cluster.create_topics([spec(name, partitions=3, retention_ms="1000")])
        wait_until(lambda: name in lab.cluster.topics([name]), "the topic is visible")
        it = lab.cluster.topics([name])[name]
        assert (it.name, it.partitions, it.replication_factor, len(it.leaders)) == (name, 3, 1, 3)
        assert it.topic_id
        assert it.topic_partitions == tuple(TopicPartition(name, p) for p in range(3))
        explicit = {n: c.value for n, c in lab.cluster.topic_configs([name])[name].items() if c.is_explicit}
        assert explicit == {"retention.ms": "1000"}

    def test_topics_without_names_are_all_and_unknown_names_are_left_out(self, lab: Lab) -> None:
        name = lab.topic("there")
        assert name in lab.cluster.topics()
        assert set(lab.cluster.topics([name, lab.name("not-there")])) == {name}

    def test_inherited_settings_are_told_apart_from_explicit_ones(self, lab: Lab) -> None:
        name = lab.topic("settings", configs={"cleanup.policy": "compact"})
        configs = lab.cluster.topic_configs([name])[name]
        assert (configs["cleanup.policy"].value, configs["cleanup.policy"].is_explicit) == ("compact", True)
        assert (configs["max.message.bytes"].value, configs["max.message.bytes"].is_explicit) == (
            "1048588",
            False,
        )

    def test_dry_run_creates_nothing(self, lab: Lab) -> None:
        lab.cluster.create_topics([spec(lab.name("dry"))], dry_run=True)
        assert lab.cluster.topics([lab.name("dry")]) == {}

    @pytest.mark.parametrize("dry_run", [False, True])
    def test_existing_topic_is_not_created_again(self, lab: Lab, dry_run: bool) -> None:
        name = lab.topic("twice", configs={"retention.ms": "1000"})
        with pytest.raises(TopicExists):
            lab.cluster.create_topics([spec(name)], dry_run=dry_run)
        assert lab.cluster.topic_configs([name])[name]["retention.ms"].value == "1000"

    def test_more_replicas_than_brokers_are_refused(self, lab: Lab) -> None:
        with pytest.raises(BrokerRefused) as caught:
            lab.cluster.create_topics([spec(lab.name("wide"), replication_factor=5)])
        assert caught.value.code == 38
        assert lab.cluster.topics([lab.name("wide")]) == {}

    def test_unknown_setting_is_refused_by_name(self, lab: Lab) -> None:
        wrong = spec(lab.name("odd"), retention_ms="1000", no_such_setting="1")
        with pytest.raises(BrokerRefused) as caught:
            lab.cluster.create_topics([wrong])
        assert caught.value.code == 40
        assert set(lab.cluster.refused_configs(wrong)) == {"no.such.setting"}
        assert lab.cluster.refused_configs(spec(lab.name("odd"), retention_ms="1000")) == {}
        assert lab.cluster.topics([lab.name("odd")]) == {}

    def test_settings_of_an_existing_topic_cannot_be_tried(self, lab: Lab) -> None:
        with pytest.raises(TopicExists):
            lab.cluster.refused_configs(spec(lab.topic("tried")))

    def test_settings_that_an_existing_topic_would_not_take_are_told_by_name_and_none_is_changed(
        self, lab: Lab
    ) -> None:
        name = lab.topic("changed")
        assert set(lab.cluster.refused_changes(spec(name, retention_ms="1000", no_such_setting="1"))) == {
            "no.such.setting"
        }
        assert lab.cluster.refused_changes(spec(name, retention_ms="1000")) == {}
        assert not lab.cluster.topic_configs([name])[name]["retention.ms"].is_explicit

    def test_altered_settings_leave_the_others_alone(self, lab: Lab) -> None:
        name = lab.topic("altered", configs={"retention.ms": "1000", "segment.bytes": "2000000"})
        lab.cluster.alter_configs(name, set={"retention.ms": "-1"}, delete=["segment.bytes"])
        lab.cluster.alter_configs(name, set={"cleanup.policy": "compact"})

        def explicit() -> dict[str, str]:
            return {n: c.value for n, c in lab.cluster.topic_configs([name])[name].items() if c.is_explicit}

        wait_until(lambda: "cleanup.policy" in explicit(), "the change is visible")
        assert explicit() == {"retention.ms": "-1", "cleanup.policy": "compact"}

    def test_unknown_setting_is_not_altered(self, lab: Lab) -> None:
        name = lab.topic("unaltered")
        with pytest.raises(BrokerRefused):
            lab.cluster.alter_configs(name, set={"no.such.setting": "1"})

    def test_partitions_are_added_up_to_the_number_asked_for_and_never_taken_away(self, lab: Lab) -> None:
        name = lab.topic("grown")
        lab.cluster.create_partitions(name, 3)
        wait_until(lambda: lab.cluster.topics([name])[name].partitions == 3, "it has grown")
        for fewer in (2, 3):
            with pytest.raises(BrokerRefused) as caught:
                lab.cluster.create_partitions(name, fewer)
            assert caught.value.code == 37
        assert name in lab.cluster.topic_names()

    def test_recreated_topic_has_another_id(self, lab: Lab) -> None:
        name = lab.topic("again")
        before = lab.cluster.topics([name])[name].topic_id
        lab.delete_topic(name)
        lab.topic("again")
        assert lab.cluster.topics([name])[name].topic_id not in ("", before)

    def test_deleted_topic_is_gone_and_one_that_never_was_is_no_error(self, lab: Lab) -> None:
        name, other = lab.topic("deleted"), lab.topic("kept")
        lab.cluster.delete_topics([name, lab.name("never")])
        wait_until(lambda: list(lab.cluster.topics([name, other])) == [other], "it is gone")

    def test_settings_of_an_unknown_topic_are_an_error(self, lab: Lab) -> None:
        with pytest.raises(UnknownTopic):
            lab.cluster.topic_configs([lab.name("nowhere")])


class TestPartitions:
    def test_ends_follow_writes_and_deletions(self, lab: Lab) -> None:
        name = lab.topic("log", partitions=2)
        first, second = TopicPartition(name, 0), TopicPartition(name, 1)
        assert lab.cluster.ends([first, second])[first] == PartitionEnds(start=0, end=0)
        lab.produce(first, 10, timestamp=THEN)
        lab.delete_records(first, 4)
        assert lab.cluster.ends([first, second]) == {
            first: PartitionEnds(start=4, end=10),
            second: PartitionEnds(start=0, end=0),
        }
        assert lab.cluster.ends([first], committed=True)[first].end == 10

    def test_starts_that_nobody_asks_for_are_0(self, lab: Lab) -> None:
        name = lab.topic("starts", partitions=2)
        first, second = TopicPartition(name, 0), TopicPartition(name, 1)
        for tp in (first, second):
            lab.produce(tp, 10, timestamp=THEN)
            lab.delete_records(tp, 4)
        assert lab.cluster.ends([first, second], committed=True, skip_starts_of={first}) == {
            first: PartitionEnds(start=0, end=10),
            second: PartitionEnds(start=4, end=10),
        }

    def test_ends_of_no_partition_are_none(self, lab: Lab) -> None:
        assert lab.cluster.ends([]) == {}

    @pytest.mark.parametrize("partition", [0, 7])
    def test_ends_of_an_unknown_partition_are_an_error(self, lab: Lab, partition: int) -> None:
        name = lab.name("unknown") if partition == 0 else lab.topic("short")
        with pytest.raises(UnknownTopic):
            lab.cluster.ends([TopicPartition(name, partition)])

    def test_leader_epoch_of_now_ends_with_the_log_and_one_to_come_is_unknown(self, lab: Lab) -> None:
        tp = TopicPartition(lab.topic("epochs"), 0)
        lab.produce(tp, 7, timestamp=THEN)
        now = lab.cluster.log_epochs({tp: None})[tp]
        assert now.end == 7
        lab.produce(tp, 3, timestamp=THEN)
        assert lab.cluster.log_epochs({tp: now.epoch})[tp] == EpochEnd(epoch=now.epoch, end=10)
        assert lab.cluster.log_epochs({tp: now.epoch + 1}) == {}
        assert lab.cluster.log_epochs({}) == {}

    def test_time_spans_are_those_of_the_records_that_are_kept(self, lab: Lab) -> None:
        tp = TopicPartition(lab.topic("times", partitions=2), 0)
        empty = TopicPartition(tp.topic, 1)
        lab.produce(tp, 10, timestamp=THEN)
        lab.delete_records(tp, 3)
        spans = lab.cluster.time_spans([tp, empty])
        assert spans[tp] == TimeSpan(earliest=THEN + 3, latest=THEN + 9)
        assert spans[empty] == TimeSpan(earliest=None, latest=None)

    def test_first_record_since_a_time_is_found_by_its_offset(self, lab: Lab) -> None:
        tp = TopicPartition(lab.topic("since", partitions=2), 0)
        empty = TopicPartition(tp.topic, 1)
        lab.produce(tp, 10, timestamp=THEN)
        assert lab.cluster.first_since([tp, empty], THEN + 4) == {tp: 4, empty: 0}
        lab.delete_records(tp, 6)
        assert lab.cluster.first_since([tp], THEN + 4) == {tp: 6}
        assert lab.cluster.first_since([tp, empty], THEN + 10) == {tp: 10, empty: 0}

    def test_disk_use_grows_with_records(self, lab: Lab) -> None:
        tp = TopicPartition(lab.topic("size"), 0)
        before = lab.cluster.disk_use([tp])
        assert len(before.log_dirs) == lab.cluster.broker_count()
        lab.produce(tp, 10, timestamp=THEN)
        after = lab.cluster.disk_use([tp])
        assert after.partition_bytes[tp] > before.partition_bytes[tp]
        assert set(after.partition_bytes) == {tp}


class TestGroups:
    def test_unknown_group_is_dead_and_has_committed_nothing(self, lab: Lab) -> None:
        state = lab.cluster.group_state(lab.name("nobody"))
        assert (state.state, state.members, state.exists, state.is_empty) == ("Dead", (), False, True)
        assert lab.cluster.committed(lab.name("nobody")) == {}
        assert lab.name("nobody") not in lab.cluster.groups()

    def test_commit_without_members_is_read_back_with_its_metadata(self, lab: Lab) -> None:
        name, group = lab.topic("read", partitions=3), lab.name("empty")
        tps = [TopicPartition(name, p) for p in range(3)]
        lab.cluster.commit(
            group, {tps[0]: CommittedOffset(offset=5, metadata="note"), tps[1]: CommittedOffset(offset=1)}
        )
        lab.cluster.commit(group, {tps[1]: CommittedOffset(offset=0)})
        assert lab.cluster.committed(group) == {
            tps[0]: CommittedOffset(offset=5, metadata="note"),
            tps[1]: CommittedOffset(offset=0),
        }
        state = lab.cluster.group_state(group)
        assert (state.state, state.exists, state.is_empty) == ("Empty", True, True)
        assert lab.cluster.groups()[group].state == "Empty"

    def test_committing_nothing_makes_no_group(self, lab: Lab) -> None:
        lab.cluster.commit(lab.name("nothing"), {})
        assert not lab.cluster.group_state(lab.name("nothing")).exists

    def test_many_groups_are_asked_at_once(self, lab: Lab) -> None:
        tp = TopicPartition(lab.topic("shared"), 0)
        groups = [lab.name(f"g{n}") for n in range(3)]
        for n, group in enumerate(groups):
            lab.cluster.commit(group, {tp: CommittedOffset(offset=n)})
        assert lab.cluster.committed_of([*groups, lab.name("none")]) == {
            **{group: {tp: CommittedOffset(offset=n)} for n, group in enumerate(groups)},
            lab.name("none"): {},
        }
        assert [it.state for it in lab.cluster.group_states(groups).values()] == ["Empty"] * 3

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_live_member_shows_what_it_reads(self, lab: Lab, protocol: str) -> None:
        name, group = lab.topic("live", partitions=2), lab.name("live")
        leave = lab.join(group, [name], protocol=protocol)
        state = lab.cluster.group_state(group)
        assert (state.state, state.protocol, state.is_empty) == ("Stable", protocol, False)
        (member,) = state.members
        assert (member.client_id, member.topics) == ("shop", frozenset({name}))
        assert member.partitions == (TopicPartition(name, 0), TopicPartition(name, 1))
        assert member.member_id
        assert member.host
        assert lab.cluster.groups()[group].protocol == protocol
        leave()
        wait_until(lambda: lab.cluster.group_state(group).is_empty, "the member is gone")

    @pytest.mark.parametrize("protocol", ["classic", "consumer"])
    def test_offsets_of_a_group_with_members_are_not_written(self, lab: Lab, protocol: str) -> None:
        name, group = lab.topic("busy"), lab.name("busy")
        lab.join(group, [name], protocol=protocol)
        with pytest.raises(GroupBusy):
            lab.cluster.commit(group, {TopicPartition(name, 0): CommittedOffset(offset=3)})
        assert lab.cluster.committed(group) == {}

    def test_commit_of_an_unknown_topic_is_an_error(self, lab: Lab) -> None:
        with pytest.raises(UnknownTopic):
            lab.cluster.commit(lab.name("lost"), {TopicPartition(lab.name("gone"), 0): CommittedOffset(offset=1)})


class TestCluster:
    def test_cluster_knows_itself(self, lab: Lab) -> None:
        assert lab.cluster.cluster_id() == lab.cluster.cluster_id()
        assert lab.cluster.broker_count() == len(lab.cluster.brokers()) == 1
        assert int(lab.cluster.broker_configs()["message.max.bytes"].value) > 0
        lowest, highest = lab.cluster.api_versions()["Produce"]
        assert lowest <= 3 <= highest

    def test_cluster_without_an_authorizer_has_no_rules_to_tell(self, lab: Lab) -> None:
        with pytest.raises(NoAuthorizer):
            lab.cluster.acls()
        with pytest.raises(NoAuthorizer):
            lab.cluster.create_acls([rule("User:a", "WRITE", "a")])
        with pytest.raises(NoAuthorizer):
            lab.cluster.delete_acls([rule("User:a", "WRITE", "a")])
        assert not any(lab.cluster.denied_by_broker("TOPIC", "WRITE", [lab.topic("free")], 10).values())
        assert isinstance(lab.cluster.quotas(), tuple)
        assert isinstance(lab.cluster.scram_users(), tuple)

    def test_limits_of_client_quotas_are_set_one_by_one_and_removed(self, lab: Lab) -> None:
        entity = (("client-id", "a batch"), ("user", lab.name("app")))

        def limits() -> dict[str, float]:
            found = [quota.limits for quota in lab.cluster.quotas() if quota.entity == entity]
            return dict(found[0]) if found else {}

        lab.cluster.alter_quotas({entity: {"producer_byte_rate": 1e6, "consumer_byte_rate": 2e6}})
        wait_until(lambda: limits() == {"producer_byte_rate": 1e6, "consumer_byte_rate": 2e6}, "both are set")
        lab.cluster.alter_quotas({entity: {"producer_byte_rate": None, "request_percentage": 12.5}})
        wait_until(lambda: limits() == {"consumer_byte_rate": 2e6, "request_percentage": 12.5}, "one is gone")
        lab.cluster.alter_quotas({entity: {"consumer_byte_rate": None, "request_percentage": None}})
        wait_until(lambda: not limits(), "none is left")

    def test_scram_users_are_made_and_their_credentials_removed_one_by_one(
        self, lab: Lab, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        salted, derive = list[bytes](), hashlib.pbkdf2_hmac

        def noted(*of: Any) -> bytes:
            salted.append(derive(*of))
            return salted[-1]

        monkeypatch.setattr(hashlib, "pbkdf2_hmac", noted)
        for logger in (None, "kafka.net.connection", "kafka.protocol.parser"):
            caplog.set_level(logging.DEBUG, logger)
        strong, weak = ("SCRAM-SHA-512", 8192), ("SCRAM-SHA-256", 4096)
        app, other = (ScramUser(user=lab.name(name), credentials=(weak, strong)) for name in ("app", "o,th=er"))

        def users() -> set[ScramUser]:
            return {user for user in lab.cluster.scram_users() if user.user in (app.user, other.user)}

        lab.cluster.alter_scram_users({app: "of app", other: "of another"})
        wait_until(lambda: users() == {app, other}, "both are there")
        half = replace(app, credentials=(weak,))
        for _ in range(2):
            lab.cluster.alter_scram_users({}, removed=[half, other])
            wait_until(lambda: users() == {replace(app, credentials=(strong,))}, "one credential is left")
        lab.cluster.alter_scram_users({}, removed=[app])
        wait_until(lambda: not users(), "none is left")
        assert ("<hidden>" in caplog.text) is bool(salted), "requests are logged, where there are any"
        assert not [one for one in salted if repr(one)[2:-1] in caplog.text]


class AclLab:
    """A cluster with an authorizer: ``cluster`` as its administrator, ``reader`` as the principal READER."""

    def __init__(self, lab: Lab, reader: Any) -> None:
        self.name, self.cluster, self.reader = lab.name, lab.cluster, reader

    def topic(self, name: str) -> str:
        self.cluster.create_topics([spec(self.name(name))])
        wait_until(lambda: self.name(name) in self.cluster.topics([self.name(name)]), "the topic is visible")
        return self.name(name)

    def mine(self) -> set[Acl]:
        return {it for it in self.cluster.acls() if self.name("") in it.resource}

    def made(self, *acls: Acl) -> None:
        self.cluster.create_acls(acls)
        wait_until(lambda: {*acls} <= self.mine(), "the ACLs are known")

    def denied(self, kind: Any, operation: str, name: str) -> set[bool]:
        """Whether brokers deny it to the reader: all of them, none, or some."""
        found = self.reader.denied_by_broker(kind, operation, [name], 20.0)
        assert set(found) == set(self.cluster.brokers())
        return {name in denied for denied in found.values()}


READER = "User:reader"


class Acls:
    """The contract; below it is run over both kinds of clusters."""

    def test_acls_are_made_exactly_and_once(self, acl_lab: AclLab) -> None:
        name = acl_lab.name("exact")
        wanted = {
            rule(READER, "WRITE", name, permission="DENY"),
            rule(READER, "WRITE", name, permission="DENY", pattern="PREFIXED"),
            rule("User:CN=a,O=b", "READ", name, kind="GROUP", host="10.0.0.1"),
        }
        acl_lab.made(*wanted)
        acl_lab.made(*wanted)
        assert acl_lab.mine() == wanted

    def test_exactly_those_are_removed_and_returned_that_were_there(self, acl_lab: AclLab) -> None:
        name = acl_lab.name("removed")
        first, second = (rule(f"User:{user}", "WRITE", name, permission="DENY") for user in ("a", "b"))
        kept = [
            rule("User:a", "WRITE", name),
            rule("User:a", "READ", name, permission="DENY"),
            rule("User:a", "WRITE", name, permission="DENY", pattern="PREFIXED"),
            rule("User:a", "WRITE", name, permission="DENY", host="10.0.0.1"),
        ]
        acl_lab.made(first, second, *kept)
        assert acl_lab.cluster.delete_acls([first, rule("User:c", "WRITE", name, permission="DENY")]) == (first,)
        wait_until(lambda: first not in acl_lab.mine(), "the removal is known")
        assert acl_lab.mine() == {second, *kept}
        assert acl_lab.cluster.delete_acls([first]) == ()

    def test_each_broker_shows_what_it_denies(self, acl_lab: AclLab) -> None:
        topic = acl_lab.topic("denied")
        acl_lab.made(rule(READER, "WRITE", topic))
        wait_until(lambda: acl_lab.denied("TOPIC", "WRITE", topic) == {False}, "it may write")
        assert acl_lab.denied("TOPIC", "READ", topic) == {True}
        denial = rule(READER, "WRITE", topic, permission="DENY")
        acl_lab.made(denial)
        wait_until(lambda: acl_lab.denied("TOPIC", "WRITE", topic) == {True}, "it may not")
        acl_lab.cluster.delete_acls([denial])
        wait_until(lambda: acl_lab.denied("TOPIC", "WRITE", topic) == {False}, "it may again")

    def test_denial_cannot_be_seen_where_nothing_is(self, acl_lab: AclLab) -> None:
        topic = acl_lab.topic("hidden")
        with pytest.raises(NotAuthorized, match="Describe on topic"):
            acl_lab.denied("TOPIC", "WRITE", topic)
        with pytest.raises(UnknownTopic):
            acl_lab.cluster.denied_by_broker("TOPIC", "WRITE", [acl_lab.name("nowhere")], 20.0)

    def test_each_broker_shows_whether_a_group_may_be_read(self, acl_lab: AclLab) -> None:
        group = acl_lab.name("group")
        assert acl_lab.denied("GROUP", "READ", group) == {True}
        acl_lab.made(rule(READER, "READ", group, kind="GROUP"))
        wait_until(lambda: acl_lab.denied("GROUP", "READ", group) == {False}, "it may read")
        acl_lab.made(rule(READER, "READ", group, kind="GROUP", permission="DENY"))
        wait_until(lambda: acl_lab.denied("GROUP", "READ", group) == {True}, "it may not")
        assert not acl_lab.cluster.group_state(group).exists
        with pytest.raises(ValueError, match="WRITE on a group"):
            acl_lab.denied("GROUP", "WRITE", group)


class TestAclsInMemory(Acls):
    @pytest.fixture
    def acl_lab(self) -> AclLab:
        lab = FakeLab()
        lab.cluster = FakeCluster("source", brokers=2, has_authorizer=True)
        return AclLab(lab, lab.cluster.as_principal(READER))


class TestAclsOnBrokers(Acls):
    @pytest.fixture
    def acl_lab(self, guarded: Guarded) -> Iterator[AclLab]:
        lab = RealLab(guarded.cluster.internal_servers)
        with Cluster("source", guarded.connection("reader")) as reader:
            yield AclLab(lab, reader)
        lab.close()
