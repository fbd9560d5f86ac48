"""The table of options, against what MirrorMaker's own releases define."""

from __future__ import annotations

import re
import subprocess

import pytest

from bench.mirrormaker import class_path
from demo import jars
from demo.java import java_executable
from kafka_migration.mirrormaker import options
from kafka_migration.mirrormaker.connections import is_connection_property
from tests.waiting import HANGS_SECONDS

pytestmark = pytest.mark.long
#: In the table besides: of releases before 4.0, of classes that print no table, and of Connect's source connectors.
OLDER = {"topics.blacklist", "groups.blacklist", "config.properties.blacklist", "auto.include.jmx.reporter"}
UNPRINTED = {
    "use.defaults.from",
    "clusters",
    "dedicated.mode.enable.internal.rest",
    "task.index",
    "task.assigned.partitions",
    "task.assigned.groups",
    "exactly.once.support",
    "transaction.boundary",
    "transaction.boundary.interval.ms",
    "offsets.storage.topic",
    "topic.creation.groups",
    "topic.creation.default.replication.factor",
    "topic.creation.default.partitions",
}
#: Decided by the value: see options.of_flow.
BY_VALUE = {
    "replication.policy.class",
    "sync.topic.configs.enabled",
    "sync.topic.acls.enabled",
    "key.converter",
    "value.converter",
    "header.converter",
    "topic.filter.class",
    "group.filter.class",
    "config.property.filter.class",
}


def java(class_path: str, *words: str) -> str:
    command = [str(java_executable()), "-cp", class_path, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANGS_SECONDS)
    return done.stdout + done.stderr


def printed(name: str) -> set[str]:
    """The options that a class of Kafka prints as its table for the documentation."""
    found = re.findall(r'<h4><a id="(?:mirror_connector_)?([^"]+)">', java(class_path(), f"org.apache.kafka.{name}"))
    assert found, name
    return set(found)


def known(name: str) -> bool:
    """Whether an option of this name is mapped, or named as one without a counterpart."""
    return (
        options.of_flow(name, "") is not None
        or name in options.CLIENT
        or name in options.WORKER
        or is_connection_property(name)
    )


def test_every_option_of_mirrormaker_2_and_its_worker_and_clients_has_an_answer():
    jars.paths("mirrormaker")
    connect = [f"connect.mirror.Mirror{kind}Config" for kind in ("Connector", "Source", "Checkpoint", "Heartbeat")]
    clients = [f"clients.{kind}Config" for kind in ("consumer.Consumer", "producer.Producer", "admin.AdminClient")]
    released = {name for kind in (*connect, *clients) for name in printed(kind)}
    released |= printed("connect.runtime.distributed.DistributedConfig")
    assert len(released) > 200
    assert sorted(name for name in released if not known(name)) == []
    text = java(class_path(), "org.apache.kafka.connect.mirror.MirrorMaker", "--help")
    assert set(re.findall(r"^  (?:-\w, )?--([a-z.]+)", text, re.MULTILINE)) == {*options.SECOND, "help"}
    tabled = {*options.FLOW, *options.CLIENT, *options.WORKER}
    assert tabled - released == OLDER | UNPRINTED
    assert {name for name in BY_VALUE if options.of_flow(name, "") is not None} == BY_VALUE
    assert released >= BY_VALUE


def test_every_option_of_mirrormaker_1_has_an_answer():
    text = java(jars.class_path("kafka-3.9"), "kafka.tools.MirrorMaker", "--help")
    assert set(re.findall(r"^--([a-z.]+)", text, re.MULTILINE)) == {*options.FIRST, "help", "version"}
