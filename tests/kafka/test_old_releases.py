"""What an inventory asks of a cluster, asked of old releases: what they have is read, what they lack is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from demo.brokers import EmbeddedKafka
from kafka_migration.copy.driver.attempts import producer_memory_ms
from kafka_migration.domain.types import PartitionEnds, TopicPartition, TopicSpec
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.types import CommittedOffset, Quota, ScramUser, TimeSpan
from kafka_migration.migration.context import SystemClock
from kafka_migration.topics import create
from kafka_migration.topics.declared import Action
from kafka_migration.topics.specs import OLD_BOUND
from tests.kafka.labs import FakeLab, RealLab
from tests.kafka.migration import Migration
from tests.kafka_tools import ToSend, commit, create_topics, produce
from tests.waiting import wait_until
from tests.wire.made import wired

TOPIC, TP = "shop.orders", TopicPartition("shop.orders", 0)
OPEN_TO_ALL = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module", params=["2.8", "3.9"])
def version(request: pytest.FixtureRequest) -> str:
    """The release."""
    return str(request.param)


@pytest.fixture(scope="module")
def servers(version: str) -> Iterator[str]:
    """A cluster of that release with an authorizer, a topic of 100 records, a group, a user, a rule and a quota."""
    with EmbeddedKafka(name="old", version=version, properties=OPEN_TO_ALL) as cluster:
        found = cluster.bootstrap_servers
        create_topics(found, {TOPIC: 1}, {"retention.ms": "-1", "segment.bytes": "1048576"})
        produce(found, TOPIC, (ToSend(b"%d" % n, timestamp=1_700_000_000_000 + n) for n in range(100)))
        if version == "2.8":
            create_topics(found, {"shop.v0": 1}, {"message.format.version": "0.9.0"})
            produce(found, "shop.v0", [ToSend(b"without a time")])
        commit(found, "shop.app", {(TOPIC, 0): 40})
        admin = AdminClient({"bootstrap.servers": found})
        user = UserScramCredentialUpsertion(
            "carol", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192), b"a password"
        )
        rule = AclBinding(
            ResourceType.TOPIC,
            TOPIC,
            ResourcePatternType.LITERAL,
            "User:carol",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        for futures in (admin.alter_user_scram_credentials([user]), admin.create_acls([rule])):
            for future in futures.values():
                future.result(30)
        with _connected(found) as client:
            client.alter_quotas({(("user", "carol"),): {"producer_byte_rate": 1000.0}})
        yield found


def _connected(servers: str) -> Cluster:
    return Cluster("source", ClusterConnection(conn_id="old", properties={"bootstrap.servers": servers}))


@pytest.fixture
def cluster(servers: str) -> Iterator[Cluster]:
    """The cluster as the phases see it."""
    with _connected(servers) as found:
        yield found


def test_topics_settings_and_log_ends_are_read(cluster: Cluster) -> None:
    described = cluster.topics([TOPIC])[TOPIC]
    assert (described.partitions, described.topic_id != "") == (1, True)
    explicit = {name: it.value for name, it in cluster.topic_configs([TOPIC])[TOPIC].items() if it.is_explicit}
    assert explicit == {"retention.ms": "-1", "segment.bytes": "1048576"}
    assert cluster.ends([TP])[TP] == PartitionEnds(start=0, end=100)
    assert cluster.ends([TP], committed=True)[TP].end == 100
    assert cluster.disk_use([TP]).partition_bytes[TP] > 0
    assert TOPIC in cluster.topic_names()


def test_rules_quotas_and_users_are_read_wherever_they_are_kept(cluster: Cluster) -> None:
    assert [(it.principal, it.operation, it.resource) for it in cluster.acls()] == [("User:carol", "READ", TOPIC)]
    wait_until(lambda: bool(cluster.quotas()), "the quota is visible")
    (quota,) = cluster.quotas()
    assert (quota.entity, quota.limits) == ((("user", "carol"),), (("producer_byte_rate", 1000.0),))
    (user,) = cluster.scram_users()
    assert (user.user, user.credentials) == ("carol", (("SCRAM-SHA-512", 8192),))


def test_acls_quotas_and_users_are_made_and_removed(cluster: Cluster) -> None:
    before = (cluster.acls(), cluster.quotas(), cluster.scram_users())
    dave = ScramUser(user="dave", credentials=(("SCRAM-SHA-512", 4096),))
    rule = replace(before[0][0], principal="User:dave")
    entity = (("user", "dave"),)
    cluster.create_acls([rule])
    cluster.alter_quotas({entity: {"consumer_byte_rate": 5000.0}})
    cluster.alter_scram_users({dave: "a password"})
    wait_until(lambda: rule in cluster.acls(), "the ACL is visible")
    wait_until(lambda: dave in cluster.scram_users(), "the user is visible")
    wait_until(lambda: Quota(entity=entity, limits=(("consumer_byte_rate", 5000.0),)) in cluster.quotas(), "the quota")
    assert cluster.delete_acls([rule]) == (rule,)
    cluster.alter_quotas({entity: {"consumer_byte_rate": None}})
    cluster.alter_scram_users({}, removed=[dave])
    wait_until(lambda: (cluster.acls(), cluster.quotas(), cluster.scram_users()) == before, "all is as it was")


def test_groups_are_read_and_their_offsets_written(cluster: Cluster) -> None:
    assert cluster.groups()["shop.app"].protocol == "classic"
    assert cluster.group_state("shop.app").state == "Empty"
    assert cluster.committed("shop.app") == {TP: CommittedOffset(offset=40)}
    cluster.commit("shop.other", {TP: CommittedOffset(offset=50, metadata="m")})
    assert cluster.committed_of(["shop.other", "shop.app"])["shop.other"] == {
        TP: CommittedOffset(offset=50, metadata="m")
    }
    assert cluster.group_operations(["shop.app"])["shop.app"] >= {"READ", "DESCRIBE"}


def test_producers_are_read_and_times_unless_the_release_does_not_tell_them(cluster: Cluster, version: str) -> None:
    assert len(cluster.producers([TP])[TP]) <= 1
    newest = None if version == "2.8" else 1_700_000_000_099
    assert cluster.time_spans([TP])[TP] == TimeSpan(earliest=1_700_000_000_000, latest=newest)
    if version == "2.8":
        old = TopicPartition("shop.v0", 0)
        assert cluster.time_spans([TP, old])[old] == TimeSpan(earliest=None, latest=None)


def test_topics_are_made_grown_changed_and_deleted(cluster: Cluster) -> None:
    """An old cluster is a target as well, when a migration is rolled back."""
    spec = TopicSpec(name="shop.new", partitions=1, replication_factor=1, configs={"retention.ms": "1000"})
    assert cluster.refused_configs(spec) == {}
    cluster.create_topics([spec])
    cluster.create_partitions("shop.new", 2)
    wait_until(lambda: cluster.topics(["shop.new"])["shop.new"].partitions == 2, "it has grown")
    wrong = TopicSpec(
        name="shop.new", partitions=2, replication_factor=1, configs={"retention.ms": "x", "no.such": "1"}
    )
    assert set(cluster.refused_changes(wrong)) == {"retention.ms", "no.such"}
    cluster.alter_configs("shop.new", set={"retention.bytes": "5"}, delete=["retention.ms"])

    def explicit() -> dict[str, str | None]:
        return {
            name: it.value for name, it in cluster.topic_configs(["shop.new"])["shop.new"].items() if it.is_explicit
        }

    wait_until(lambda: explicit() == {"retention.bytes": "5"}, "the change is visible")
    cluster.delete_topics(["shop.new"])
    wait_until(lambda: "shop.new" not in cluster.topics(["shop.new"]), "it is gone")


def test_topic_is_adopted_with_the_settings_that_the_release_knows(servers: str, version: str) -> None:
    it = Migration(FakeLab("source"), RealLab(servers, "target"), SystemClock())
    name = it.source_lab.topic("adopted")
    it.target_lab.topic("adopted", configs={"retention.ms": "1000"})
    topics = {"include": [rf"{it.name}\..*"], "adopt": [name]}
    (step,) = create.check(it.ctx(topics=topics))
    assert (step.action, step.problem) == (Action.ADOPT, "")
    assert (OLD_BOUND in step.declared.spec.configs) is (version == "2.8")
    assert it.explicit(name) == {"retention.ms": "1000"}, "asked, and not changed"
    assert create.apply(it.ctx(topics=topics)).drift == ()
    it.target_lab.close()


def test_for_how_long_brokers_remember_a_producer_is_known_of_each_release(servers: str, version: str) -> None:
    """Before 3.4 by the expiration of transactional ids, which is a week."""
    with wired(servers) as wire:
        assert wire(producer_memory_ms) == {"2.8": 604_800_000, "3.9": 86_400_000}[version]
