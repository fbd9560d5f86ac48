"""The examples of Kafka's own documentation and distribution, as people begin with them: all of them import.

MirrorMaker 2: connect-mirror-maker.properties (test_import.py has the newest) and connect-mirror-source.properties of
the distribution, the README of connect/mirror, the pages on geo-replication and on KIP-382. MirrorMaker 1:
consumer.properties and producer.properties of the distribution.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kafka_migration.plans.load import load_plan
from tests.mirrormaker.test_import import first, imported, outcomes, run

#: Of MirrorMaker 2: name to what is written, and which plans that becomes.
EXAMPLES: dict[str, tuple[str, set[str]]] = {
    "distribution of 2.4": (
        """
        clusters = A, B, C
        A.bootstrap.servers = A_host1:9092, A_host2:9092, A_host3:9092
        B.bootstrap.servers = B_host1:9092, B_host2:9092, B_host3:9092
        C.bootstrap.servers = C_host1:9092, C_host2:9092, C_host3:9092
        A->B.enabled = true
        A->B.topics = foo-.*
        B->C.enabled = true
        B->C.topics = bar-.*
        replication.policy.separator = _
        sync.topic.acls.enabled = false
        emit.heartbeats.interval.seconds = 5
        """,
        {"A->B", "B->C"},
    ),
    "active and passive": (
        """
        clusters = primary, secondary
        primary.bootstrap.servers = broker1-primary:9092
        secondary.bootstrap.servers = broker2-secondary:9092
        primary->secondary.enabled = true
        secondary->primary.enabled = false
        primary->secondary.topics = foo.*
        """,
        {"primary->secondary"},
    ),
    "both active": (
        """
        clusters = us-west, us-east
        us-west.bootstrap.servers = broker1-west:9092,broker2-west:9092
        us-east.bootstrap.servers = broker3-east:9092,broker4-east:9092
        us-west->us-east.enabled = true
        us-east->us-west.enabled = true
        topics = .*
        groups = consumer-group1, consumer-group2
        us-west->us-east.topics = foo.*
        us-west->us-east.groups = bar.*
        us-west->us-east.emit.heartbeats = false
        us-west.offset.storage.topic = mm2-offsets
        us-east.security.protocol=SSL
        us-east.ssl.truststore.location=/path/to/truststore.jks
        us-east.ssl.truststore.password=my-secret-password
        us-east.ssl.keystore.location=/path/to/keystore.jks
        us-east.ssl.keystore.password=my-secret-password
        us-east.ssl.key.password=my-secret-password
        us-west->us-east.replication.policy.separator = _
        """,
        {"us-west->us-east", "us-east->us-west"},
    ),
    "three data centers": (
        """
        clusters: west-1, west-2, east-1, east-2, north-1, north-2
        west-1.bootstrap.servers = west-1:9092
        west-2.bootstrap.servers = west-2:9092
        east-1.bootstrap.servers = east-1:9092
        east-2.bootstrap.servers = east-2:9092
        north-1.bootstrap.servers = north-1:9092
        north-2.bootstrap.servers = north-2:9092
        west-1->west-2.enabled = true
        west-2->west-1.enabled = true
        east-1->east-2.enabled = true
        east-2->east-1.enabled = true
        north-1->north-2.enabled = true
        north-2->north-1.enabled = true
        west-1->east-1.enabled = true
        west-1->north-1.enabled = true
        east-1->west-1.enabled = true
        east-1->north-1.enabled = true
        north-1->west-1.enabled = true
        north-1->east-1.enabled = true
        """,
        {
            f"{one}-1->{other}-1"
            for one in ("west", "east", "north")
            for other in ("west", "east", "north")
            if one != other
        }
        | {f"{at}-{one}->{at}-{3 - one}" for at in ("west", "east", "north") for one in (1, 2)},
    ),
    "readme's overrides": (
        """
        clusters = primary, backup
        primary.bootstrap.servers = host1:9092
        backup.bootstrap.servers = host2:9092
        backup.ssl.truststore.location = /usr/lib/jvm/zulu-8-amd64/jre/lib/security/cacerts
        backup.security.protocol = SSL
        backup->primary.enabled = false
        primary->backup.enabled = true
        primary->backup.topics.blacklist = topics_to_blacklist
        primary->backup.emit.heartbeats.enabled = false
        primary->backup.sync.group.offsets = true
        backup.producer.compression.type = gzip
        backup.producer.buffer.memory = 32768
        primary.consumer.isolation.level = read_committed
        primary.admin.bootstrap.servers = localhost:9092
        backup.exactly.once.source.support = enabled
        dedicated.mode.enable.internal.rest = true
        listeners = http://localhost:8080
        emit.checkpoints.interval.seconds = 10
        tasks.max = 2
        """,
        {"primary->backup"},
    ),
    "aggregation of KIP-382": (
        """
        clusters = A, B, K
        A.bootstrap.servers = a:9092
        B.bootstrap.servers = b:9092
        K.bootstrap.servers = k:9092
        A->K.enabled = true
        B->K.enabled = true
        replication.policy.class = org.apache.kafka.connect.mirror.DefaultReplicationPolicy
        refresh.topics.interval.seconds = 60
        refresh.groups.interval.seconds = 60
        sync.topic.configs.enabled = true
        sync.topic.acls.enabled = true
        emit.checkpoints.enabled = true
        config.properties.blacklist = follower\\.replication\\.throttled\\.replicas
        """,
        {"A->K", "B->K"},
    ),
}


def written(folder: Path, text: str) -> tuple[Path, list[str]]:
    """The file, and the names of its options."""
    lines = [line.strip() for line in text.strip().splitlines()]
    file = folder / "mm2.properties"
    file.write_text("\n".join(lines) + "\n")
    return file, [line.replace(": ", " = ", 1).partition("=")[0].strip() for line in lines]


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_of_mirrormaker_2_becomes_plans_and_each_option_is_named_once(tmp_path: Path, name: str) -> None:
    text, flows = EXAMPLES[name]
    file, options = written(tmp_path, text)
    found = imported(file, "--write", tmp_path / "out")
    assert {*found["plans"]} == flows
    assert Counter(row["option"] for row in found["options"]) == Counter(options)
    for fields in found["plans"].values():
        assert load_plan(tmp_path / "out" / f"{fields['name']}.yaml").name == fields["name"]


def test_options_that_examples_write_and_mirrormaker_does_not_know_are_named_as_such(tmp_path: Path) -> None:
    both = outcomes(imported(written(tmp_path, EXAMPLES["both active"][0])[0]))
    assert both["us-west->us-east.emit.heartbeats"] == "ignored"
    assert both["us-east.ssl.truststore.location"] == "to do"
    readme = outcomes(imported(written(tmp_path, EXAMPLES["readme's overrides"][0])[0]))
    assert readme["primary->backup.sync.group.offsets"] == "ignored"
    assert readme["primary->backup.topics.blacklist"] == "taken"
    assert readme["primary.consumer.isolation.level"] == "not needed"


@pytest.mark.parametrize(
    "line",
    [
        "us-west->us-east.enabled = true     # disabled by default",
        "us-west->us-east.topics = foo.*  # only replicate some topics",
        "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy # keep names",
    ],
)
def test_comment_behind_a_value_which_java_takes_for_a_part_of_it_is_refused(tmp_path: Path, line: str) -> None:
    text = EXAMPLES["both active"][0]
    option = line.partition(" = ")[0]
    kept = [kept for kept in text.splitlines() if not kept.strip().startswith(f"{option} ")]
    assert_comment_is_refused(written(tmp_path, "\n".join([*kept, line]))[0], option)


def test_comment_behind_a_value_of_a_connectors_properties_is_refused(tmp_path: Path) -> None:
    lines = (
        "connector.class = org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.bootstrap.servers = localhost:9092",
        "target.cluster.bootstrap.servers = localhost:9093",
        "topics = orders.*",
    )
    file = written(tmp_path, "\n".join(lines))[0]
    assert run(file).exit_code == 0
    file.write_text(file.read_text().replace("orders.*", "orders.* # all of them"))
    assert_comment_is_refused(file, "topics")


def assert_comment_is_refused(file: Path, option: str) -> None:
    done = run(file)
    assert done.exit_code == 2, done.output
    assert option in " ".join(done.output.split())
    assert "write the comment on a line of its own" in " ".join(done.output.split())


def test_connector_of_the_distribution_becomes_a_plan(tmp_path: Path) -> None:
    converter = "org.apache.kafka.connect.converters.ByteArrayConverter"
    config = {
        "name": "local-mirror-source",
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "tasks.max": "1",
        "source.cluster.alias": "upstream",
        "source.cluster.bootstrap.servers": "localhost:9092",
        "target.cluster.bootstrap.servers": "localhost:9092",
        "key.converter": converter,
        "value.converter": converter,
        "topics": ".*",
    }
    file = tmp_path / "connect-mirror-source.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
    found = imported(file)
    ((flow, plan),) = found["plans"].items()
    assert (flow, plan["topics"]["include"]) == ("upstream->target", [".*"])
    assert outcomes(found).keys() == config.keys()


def test_files_of_mirrormaker_1_as_they_are_distributed_become_a_plan(tmp_path: Path) -> None:
    string = "org.apache.kafka.common.serialization.String"
    consumer: dict[str, Any] = {
        "client.id": "test-consumer",
        "isolation.level": "read_uncommitted",
        "group.id": "test-consumer-group",
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        "key.deserializer": f"{string}Deserializer",
        "value.deserializer": f"{string}Deserializer",
        "enable.auto.commit": "true",
        "auto.commit.interval.ms": "5000",
        "session.timeout.ms": "30000",
        "heartbeat.interval.ms": "10000",
        "max.poll.interval.ms": "300000",
        "retry.backoff.ms": "100",
        "retry.backoff.max.ms": "1000",
        "request.timeout.ms": "40000",
        "connections.max.idle.ms": "540000",
        "fetch.min.bytes": "1",
        "fetch.max.wait.ms": "500",
        "fetch.max.bytes": "52428800",
        "max.partition.fetch.bytes": "1048576",
        "max.poll.records": "500",
    }
    found = imported(*first(tmp_path, consumer, {"compression.type": "none"}), "--whitelist", "my-topic")
    (plan,) = found["plans"].values()
    assert (plan["topics"]["include"], plan["mirror"]["start"]) == (["my-topic"], "earliest")
    named = outcomes(found)
    assert named.keys() >= consumer.keys() | {"compression.type"}
    assert named["isolation.level"] == "no counterpart"
    assert "ignored" not in named.values()
