"""An internal topic as a log: read to its end whatever stands there, and compacted as it is declared."""

import socket
import threading
import uuid
from concurrent.futures import Future
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, ConfigResource

from demo.brokers import EmbeddedKafka
from kafka_migration.domain import ledger
from kafka_migration.domain.errors import ClusterUnreachable, StateConflict
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.topic_log import TopicLog
from tests.kafka_tools import create_topics
from tests.losing import leader
from tests.proxy import Proxy
from tests.waiting import wait_until

RESOURCE = ConfigResource.Type


@pytest.fixture
def topic(monkeypatch):
    name = f"log-{uuid.uuid4().hex[:8]}.internal"
    monkeypatch.setitem(ledger.PARTITIONS, name, 3)
    return name


def test_topic_is_made_once_compacted_and_found_by_others(target_cluster, topic):
    properties = {"bootstrap.servers": target_cluster.bootstrap_servers}
    with TopicLog(properties, topic) as one, TopicLog(properties, topic) as other:
        assert not one.exists()
        one.ensure()
        other.ensure()
        assert other.exists()
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({**properties})
    (described,) = admin.describe_configs([resource]).values()
    assert described.result(30)["cleanup.policy"].value == "compact"


def test_topic_of_progress_has_small_and_short_segments_so_that_reading_it_stays_quick(target_cluster) -> None:
    properties = {"bootstrap.servers": target_cluster.bootstrap_servers}
    with TopicLog(properties, ledger.PROGRESS_TOPIC) as log:
        log.ensure()
    resource, admin = ConfigResource(RESOURCE.TOPIC, ledger.PROGRESS_TOPIC), AdminClient({**properties})

    def configs() -> dict[str, str]:
        (described,) = admin.describe_configs([resource]).values()
        return {name: described.result(30)[name].value for name in wanted}

    wanted = {
        "segment.bytes": "16777216",
        "segment.ms": "300000",
        "cleanup.policy": "compact",
        "unclean.leader.election.enable": "false",
    }
    wait_until(lambda: configs() == wanted, "its segments are small")


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "delete,compact"])
def test_topic_that_would_lose_what_stands_in_it_is_refused_with_what_to_do(target_cluster, topic, policy: str) -> None:
    create_topics(target_cluster.bootstrap_servers, {topic: 3}, {"cleanup.policy": policy})
    with TopicLog({"bootstrap.servers": target_cluster.bootstrap_servers}, topic) as log:
        for ask in (log.exists, log.ensure):
            with pytest.raises(StateConflict, match=f"cleanup.policy is {policy}, not compact") as refused:
                ask()
            assert "allow.auto.create.topics=false" in refused.value.remedy
            assert "cleanup.policy=compact" in refused.value.remedy


def test_topic_on_three_brokers_whose_records_one_of_them_may_lose_is_refused(three, topic) -> None:
    create_topics(three.bootstrap_servers, {topic: 3}, {**ledger.CONFIGS, "min.insync.replicas": "1"}, replicas=3)
    with TopicLog({"bootstrap.servers": three.bootstrap_servers}, topic) as log:

        def refused() -> bool:
            # Until every broker knows of the topic, one that is asked may answer that there is none.
            try:
                return log.exists() and False
            except StateConflict as error:
                return "min.insync.replicas is 1, not 2" in error.message

        wait_until(refused, "the topic is known and refused")
        with pytest.raises(StateConflict, match=r"min\.insync\.replicas is 1, not 2"):
            log.ensure()


def test_topic_that_the_broker_that_is_asked_does_not_know_yet_is_looked_at_all_the_same(
    target_cluster, topic, monkeypatch
) -> None:
    create_topics(target_cluster.bootstrap_servers, {topic: 3}, {"cleanup.policy": "delete"})

    def behind(_admin: AdminClient, *, timeout: float) -> SimpleNamespace:
        return SimpleNamespace(topics={}, brokers={1: None})

    monkeypatch.setattr(AdminClient, "list_topics", behind)
    log = TopicLog({"bootstrap.servers": target_cluster.bootstrap_servers}, topic)
    with log, pytest.raises(StateConflict, match=r"cleanup\.policy is delete, not compact"):
        log.ensure()


@pytest.mark.parametrize("topic", ledger.PARTITIONS)
def test_every_internal_topic_is_compacted_and_nothing_else(topic: str) -> None:
    assert ledger.configs_of(topic)["cleanup.policy"] == "compact"


def test_every_entry_is_read_once_in_the_order_of_its_partition(target_cluster, topic):
    properties = {"bootstrap.servers": target_cluster.bootstrap_servers}
    entries = [(b"key-%d" % (n % 50), b"%d" % n if n % 9 else None) for n in range(20_000)]
    with TopicLog(properties, topic) as writer, TopicLog(properties, topic) as reader:
        writer.ensure()
        assert list(reader.new_entries()) == []
        writer.append(entries)
        read = list(reader.new_entries())
        for p in range(3):
            expected = [e for e in entries if ledger.partition_of(e[0], 3) == p]
            mine = [entry for entry in read if entry.partition == p]
            assert [(entry.key, entry.value) for entry in mine] == expected
            assert [entry.offset for entry in mine] == list(range(len(expected)))
            assert reader.end(p) == len(expected)
        assert list(reader.new_entries()) == []
        writer.append([(b"key-1", b"new")])
        assert [(e.key, e.value) for e in reader.new_entries()] == [(b"key-1", b"new")]


def test_entry_whose_reader_gave_up_comes_again(target_cluster, topic):
    with TopicLog({"bootstrap.servers": target_cluster.bootstrap_servers}, topic) as log:
        log.ensure()
        log.append([(b"a", b"%d" % n) for n in range(5)])
        for entry in log.new_entries():
            if entry.value == b"2":
                break
        assert [entry.value for entry in log.new_entries()] == [b"2", b"3", b"4"]


def test_all_ends_are_asked_for_at_once_and_no_more_entries_are_waited_for_than_there_are(
    target_cluster, topic, monkeypatch
) -> None:
    asked: list[int] = []

    class Recording(Consumer):
        def offsets_for_times(self, partitions, timeout=-1.0):
            asked.append(len(partitions))
            return super().offsets_for_times(partitions, timeout=timeout)

        def consume(self, num_messages=1, timeout=-1.0):
            asked.append(num_messages)
            return super().consume(num_messages, timeout=timeout)

    monkeypatch.setattr("confluent_kafka.Consumer", Recording)
    with TopicLog({"bootstrap.servers": target_cluster.bootstrap_servers}, topic) as log:
        log.ensure()
        assert list(log.new_entries()) == []
        log.append([(b"a", b"1"), (b"a", b"2")])
        asked.clear()
        assert len(list(log.new_entries())) == 2
        ends, first, *more = asked
        assert (ends, first) == (3, 2)
        assert all(count <= 2 for count in more)


def test_cluster_that_does_not_answer_is_named(monkeypatch, topic):
    monkeypatch.setattr("kafka_migration.kafka.topic_log._TIMEOUT", 0.5)
    with TopicLog({"bootstrap.servers": "127.0.0.1:1"}, topic) as log:
        for ask in (log.exists, log.ensure, log.end):
            with pytest.raises(ClusterUnreachable, match=r"127\.0\.0\.1:1"):
                ask()


def test_request_that_is_never_answered_is_an_error_of_the_cluster(monkeypatch, topic):
    monkeypatch.setattr("kafka_migration.kafka.topic_log._TIMEOUT", 0.02)
    monkeypatch.setattr(AdminClient, "describe_topics", lambda *_, **__: {topic: Future()})
    with TopicLog({"bootstrap.servers": "127.0.0.1:1"}, topic) as log, pytest.raises(ClusterUnreachable, match="Timed"):
        log.exists()


def test_end_is_asked_again_of_a_cluster_that_accepted_no_connection_at_first(target_cluster, topic, monkeypatch):
    monkeypatch.setattr("kafka_migration.kafka.topic_log._TRY_TIMEOUT", 0.3)
    host, port = target_cluster.bootstrap_servers.split(":")
    with TopicLog({"bootstrap.servers": f"{host}:{port}"}, topic) as log:
        log.ensure()
        log.append([(b"key", b"1")])
        (end,) = {entry.partition: entry.offset + 1 for entry in log.new_entries()}.items()
    with socket.create_server((host, 0)) as unused:
        free = unused.getsockname()[1]
    with ExitStack() as stack, TopicLog({"bootstrap.servers": f"{host}:{free}"}, topic) as log:
        threading.Timer(1, lambda: stack.enter_context(Proxy(to=(host, int(port)), port=free))).start()
        assert log.end(end[0]) == end[1]


def test_end_is_asked_of_the_next_leader_once_the_one_before_is_gone_for_long(lossy, topic):
    tp = TopicPartition(topic, 0)
    with TopicLog({"bootstrap.servers": lossy.bootstrap_servers}, topic) as log:
        log.ensure()
        log.append([(b"before", b"1")])
        assert [entry.key for entry in log.new_entries()] == [b"before"]
        gone = leader(lossy.bootstrap_servers, tp)
        lossy.kill(gone)
        # At once, while the others still believe that it leads.
        assert list(log.new_entries()) == []
        log.append([(b"after", b"2")])
        assert [entry.key for entry in log.new_entries()] == [b"after"]


def test_topic_made_while_a_broker_is_down_has_replicas_on_it_nevertheless(lossy, topic):
    servers = lossy.bootstrap_servers
    create_topics(servers, {f"{topic}-other": 1}, brokers=[1, 2, 3])
    lossy.kill(3)
    admin = AdminClient({"bootstrap.servers": servers})
    wait_until(lambda: set(admin.list_topics(timeout=10).brokers) == {1, 2}, "the broker is missed")
    with TopicLog({"bootstrap.servers": servers}, topic) as log:
        log.ensure()
        log.append([(b"key", b"1")])
        partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
        assert [set(p.replicas) for p in partitions.values()] == [{1, 2, 3}] * 3
        lossy.restart(3)
        lossy.kill(2)
        log.append([(b"key", b"2")])
        assert [entry.value for entry in log.new_entries()] == [b"1", b"2"]


def test_topic_that_an_earlier_version_made_gets_the_configs_of_this_one_but_for_what_somebody_set(
    target_cluster: EmbeddedKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ledger.OWN_CONFIGS, topic, {"segment.ms": "300000", "segment.bytes": "1048576"})
    properties = {"bootstrap.servers": target_cluster.bootstrap_servers}
    create_topics(target_cluster.bootstrap_servers, {topic: 3}, {"cleanup.policy": "compact", "segment.ms": "70000"})
    with TopicLog(properties, topic) as log:
        log.ensure()

    admin = AdminClient({**properties})

    def configs() -> list[str]:
        (described,) = admin.describe_configs([ConfigResource(RESOURCE.TOPIC, topic)]).values()
        found = described.result(30)
        return [found[name].value for name in ("segment.ms", "segment.bytes", "cleanup.policy")]

    wait_until(lambda: configs() == ["70000", "1048576", "compact"], "its segments are small")
