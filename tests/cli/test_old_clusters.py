"""Whole migrations by commands from clusters of old releases to one of the newest, by the same plan format."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from demo.brokers import EmbeddedKafka
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.connections import ClusterConnection
from tests.cli.processes import ME, connection
from tests.cli.test_migration import Story
from tests.kafka_tools import ToSend, commit, committed, create_topics, produce, read_all
from tests.wire.made import wired

PLAN = """
version: 1
name: {name}
source: old
target: new
topics: {{include: ['{name}\\..*']}}
groups: {{include: ['{name}\\..*']}}
lag_gate: {{threshold_records: 0, samples: 2, interval_seconds: 1, deadline_seconds: 120}}
approvals: {{approvers: [APPROVER]}}
cutover: {{rest_seconds: 1, stopped_groups: ['{name}.app']}}
mirror: {{epoch_seconds: 5}}
drain: {{window_seconds: 2, deadline_seconds: 120}}
""".replace("APPROVER", ME)
RECORDS = 300
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: Kinds of topics, by the end of their names. Message formats before v2 are Kafka 2.8's: later brokers write v2 only.
KINDS: dict[str, dict[str, str]] = {
    "orders": {},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "transactions": {},
}
OLD_KINDS = {
    "v1": {"message.format.version": "0.10.2"},
    "v0": {"message.format.version": "0.9.0"},
    "stamped-v1": {"message.format.version": "0.10.2", "message.timestamp.type": "LogAppendTime"},
}


@pytest.fixture(scope="module", params=["2.8", "3.9"])
def version(request: pytest.FixtureRequest) -> str:
    """Which Kafka to migrate from."""
    return str(request.param)


@pytest.fixture(scope="module")
def old(version: str) -> Iterator[EmbeddedKafka]:
    """A source of that release."""
    with EmbeddedKafka(name="old", version=version) as cluster:
        yield cluster


def _fill(servers: str, topics: dict[str, int], configs: dict[str, dict[str, str]]) -> None:
    """Records of every codec, with keys, headers, nulls, and times of this year."""
    for number, (name, count) in enumerate(topics.items()):
        create_topics(servers, {name: count}, {"retention.ms": "-1", **configs.get(name, {})})
        old_format = "message.format.version" in configs.get(name, {})
        for codec in CODECS[:4] if old_format else CODECS:
            rows = (
                ToSend(
                    value=None if n % 31 == 0 else f"{codec}:{n}".encode(),
                    key=None if n % 5 == 0 else f"key-{n % 17}".encode(),
                    partition=n % count,
                    timestamp=1_790_000_000_000 + 1000 * number + n,
                    # Headers came with the format after.
                    headers=[] if old_format else [("codec", codec.encode()), ("codec", None)],
                )
                for n in range(RECORDS)
            )
            produce(servers, name, rows, **{"compression.type": codec, "batch.num.messages": 40})


def produce_transactions(servers: str, topic: str) -> None:
    """Committed and aborted ones, one after the other."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": f"tests-{uuid.uuid4()}"})
    producer.init_transactions(30)
    for number in range(20):
        producer.begin_transaction()
        for n in range(5):
            producer.produce(topic, b"transaction %d record %d" % (number, n))
        if number % 3:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)


def _magics(servers: str, topic: str) -> set[int]:
    """The formats in which the broker stores a topic's batches."""
    with wired(servers, topic) as wire:
        return {header.magic for header, _ in wire.stored(TopicPartition(topic, 0))}


def _add_user(servers: str) -> None:
    secret = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    user = UserScramCredentialUpsertion("carol", secret, b"a password")
    # Held: a client that is gone answers nothing.
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.alter_user_scram_credentials([user]).values():
        future.result(30)


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_commands_migrate_topics_and_a_group_from_an_old_cluster(
    version: str,
    old: EmbeddedKafka,
    target_cluster: EmbeddedKafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"from-{version.replace('.', '-')}"
    source, target = old.bootstrap_servers, target_cluster.bootstrap_servers
    kinds = KINDS | (OLD_KINDS if version == "2.8" else {})
    configs = {f"{name}.{kind}": settings for kind, settings in kinds.items()}
    topics = dict.fromkeys(configs, 1) | {f"{name}.orders": 2}
    _fill(source, topics, configs)
    produce_transactions(source, f"{name}.transactions")
    _add_user(source)
    assert _release(source) == (("2.8", True) if version == "2.8" else ("3.9", False))
    assert _release(target)[1] is False
    commits = _places(source, topics)
    commit(source, f"{name}.app", commits)
    (tmp_path / "plan.yaml").write_text(PLAN.format(name=name))
    story = Story(tmp_path, monkeypatch)
    story.connect("old", connection(source))
    story.connect("new", connection(target))

    seen = story.run("check", "--json").json
    assert seen["open"] is True
    for kind in OLD_KINDS.keys() & kinds.keys():
        assert _magics(source, f"{name}.{kind}") == {0 if kind == "v0" else 1}
    assert {it["user"] for it in seen["inventory"]["scram_users"]} == {"carol"}
    story.approve("plan")
    story.run("create")
    copied = story.run("mirror", "--until-caught-up", "--master", "local[2]", "--json").json
    total = sum(len(rows) for rows in read_all(source, topics).values())
    assert (copied["reason"], copied["records"], copied["halted"]) == ("caught_up", total, [])
    _assert_equal(source, target, topics)
    assert story.run("lag", "--gate", "--json").json["passed"] is True
    verdict = story.run("validate", "--master", "local[2]", "--json").json
    assert (verdict["verdict"], verdict["totals"]["source_records"]) == ("EQUAL", total)

    shown = story.run("translate", "--json").json["groups"][0]["positions"]
    story.approve("cutover")
    assert story.run("cutover", "--json").json["groups"][0]["outcome"] == "moved"
    moved = committed(target, f"{name}.app")
    assert moved == {(it["topic"], it["partition"]): it["target"] for it in shown}
    _assert_same_places(source, target, topics, commits, moved)
    assert story.run("watch", "--json").json["groups"][0]["life"] == "alive"
    assert story.run("stop", "--json").json["stopped"] is True
    story.run("report")
    report = json.loads((tmp_path / "reports" / name / "report.json").read_text())
    assert (report["exceptions"], report["mirror"]["records"]) == ([], total)


def _assert_equal(source: str, target: str, topics: dict[str, int]) -> None:
    here, there = read_all(source, topics), read_all(target, topics)
    for tp, rows in here.items():
        # Format v0 has no timestamps. librdkafka says 0 for it there, and what a record of today says for none, -1.
        expected = [replace(it, timestamp=-1) if tp.topic.endswith(".v0") else it for it in rows]
        assert [it.without_offset() for it in there[tp]] == [it.without_offset() for it in expected], tp


def _places(servers: str, topics: dict[str, int]) -> dict[TopicPartition, int]:
    """Where a group stands that has read two fifths of each partition, whatever its format, and one to its end."""
    rows = read_all(servers, topics)
    ended = max(rows)
    return {
        tp: found[-1].offset + 1 if tp == ended else found[len(found) * 2 // 5].offset for tp, found in rows.items()
    }


def _assert_same_places(
    source: str,
    target: str,
    topics: dict[str, int],
    commits: dict[TopicPartition, int],
    moved: dict[TopicPartition, int],
) -> None:
    """From where it was put the group reads on the target what it has not read on the source: no more, and no less."""
    here, there = read_all(source, topics), read_all(target, topics)
    for tp, at in commits.items():
        left = [it.value for it in here[tp] if it.offset >= at]
        assert [it.value for it in there[tp] if it.offset >= moved[tp]] == left, tp


def _release(servers: str) -> tuple[str, bool]:
    """The release that brokers speak among themselves, and whether a ZooKeeper holds their metadata."""
    cluster = Cluster("source", ClusterConnection("asked", {"bootstrap.servers": servers}))
    try:
        settings = cluster.broker_configs()
    finally:
        cluster.close()
    spoken = settings.get("inter.broker.protocol.version")
    has_zookeeper = "zookeeper.connect" in settings and bool(settings["zookeeper.connect"].value)
    return str(spoken.value if spoken else "").partition("-")[0], has_zookeeper
