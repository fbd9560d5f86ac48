"""EmbeddedKafka on real brokers: what it starts serves, and what it stops is gone."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from demo.brokers import BrokerError, EmbeddedKafka
from demo.brokers.ports import HOST, PortError, is_free
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
SHORT_SESSION = {"broker.session.timeout.ms": "3000"}
"""The controller takes a killed broker for alive that long, and lets it serve again only then; 9 s by default."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def create_topic(servers: str, topic: str, *, replication: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(topic, 1, replication)]).values():
        future.result(timeout=30)


def produce(servers: str, topic: str, value: str, **properties: object) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all", **properties})
    producer.produce(topic, value.encode())
    assert producer.flush(30) == 0


def consume(servers: str, topic: str, count: int, **properties: object) -> list[str]:
    settings = {"group.id": "reader", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": servers, **settings, **properties})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, timeout=30)
        return [(message.value() or b"").decode() for message in messages if message.error() is None]
    finally:
        consumer.close()


@contextlib.contextmanager
def nothing_left(cluster: EmbeddedKafka) -> Iterator[None]:
    """After the block, the cluster's processes, files and ports are gone."""
    processes = [psutil.Process(pid) for pid in cluster.pids.values()]
    directory, servers = cluster.data_dir, cluster.bootstrap_servers
    yield
    assert [process for process in processes if process.is_running()] == []
    assert not directory.exists()
    assert all(is_free(int(server.rpartition(":")[2])) for server in servers.split(","))


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedKafka]:
    """One node, which is running again after each test."""
    with EmbeddedKafka(name="one", properties=SHORT_SESSION) as cluster:
        yield cluster


def test_record_of_every_codec_is_produced_and_consumed(cluster: EmbeddedKafka) -> None:
    create_topic(cluster.bootstrap_servers, "codecs")
    for codec in CODECS:
        produce(cluster.bootstrap_servers, "codecs", codec, **{"compression.type": codec})
    assert consume(cluster.bootstrap_servers, "codecs", len(CODECS)) == list(CODECS)


def test_two_clusters_side_by_side_one_ends_the_other_serves() -> None:
    with contextlib.ExitStack() as stack, ThreadPoolExecutor() as pool:
        # From threads, which end before the clusters do.
        clusters = pool.map(lambda name: EmbeddedKafka(name=name).start(), ("one", "other"))
        pool.shutdown()
        one, other = clusters
        stack.callback(one.stop)
        stack.callback(other.stop)
        create_topic(one.bootstrap_servers, "t")
        create_topic(other.bootstrap_servers, "t")
        produce(one.bootstrap_servers, "t", "of one")
        produce(other.bootstrap_servers, "t", "of the other")
        assert one.data_dir != other.data_dir
        with nothing_left(one):
            one.stop()
            one.stop()
        assert consume(other.bootstrap_servers, "t", 1) == ["of the other"]


def test_three_nodes_one_is_killed_the_others_serve_until_it_is_back(lossy: EmbeddedKafka) -> None:
    servers, topic = lossy.bootstrap_servers, f"t-{uuid.uuid4().hex[:8]}"
    create_topic(servers, topic, replication=3)
    produce(servers, topic, "by three")
    lossy.kill(2)
    assert sorted(lossy.pids) == [1, 3]
    produce(servers, topic, "by two")
    lossy.restart(2)
    assert sorted(lossy.pids) == [1, 2, 3]
    assert consume(servers, topic, 2) == ["by three", "by two"]


def test_node_is_killed_and_restarted_keeps_its_records_and_address(cluster: EmbeddedKafka) -> None:
    servers = cluster.bootstrap_servers
    create_topic(servers, "killed")
    produce(servers, "killed", "before")
    cluster.kill()
    assert cluster.pids == {}
    cluster.restart()
    assert cluster.bootstrap_servers == servers
    assert consume(servers, "killed", 1) == ["before"]


def test_node_is_paused_nothing_answers_until_it_is_resumed(cluster: EmbeddedKafka) -> None:
    create_topic(cluster.bootstrap_servers, "paused")
    cluster.pause()
    try:
        assert psutil.Process(cluster.pids[1]).status() == psutil.STATUS_STOPPED, "not only asked to stop"
        client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        with pytest.raises(KafkaException):
            client.list_topics(timeout=1)
        assert list(cluster.pids) == [1], "a paused node is still there"
    finally:
        cluster.resume()
    assert "paused" in client.list_topics(timeout=30).topics


def test_data_directory_is_given_kept_and_continued(tmp_path: Path) -> None:
    with EmbeddedKafka(name="kept", data_dir=tmp_path / "kept") as cluster:
        create_topic(cluster.bootstrap_servers, "t")
        produce(cluster.bootstrap_servers, "t", "kept")
    with EmbeddedKafka(name="kept", data_dir=tmp_path / "kept") as cluster:
        assert consume(cluster.bootstrap_servers, "t", 1) == ["kept"]
        # Stopping must not wait for a process that cannot hear.
        cluster.pause()


def test_client_listener_asks_for_passwords_only_they_open_it() -> None:
    # What tests of wrong credentials and missing permissions need: properties alone, and the internal listener open.
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    properties = {
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": f'{jaas} user_reader="open sesame";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with EmbeddedKafka(name="guarded", properties=properties) as cluster:
        create_topic(cluster.internal_servers, "t")
        sasl = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "reader"}
        servers: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, **sasl}
        with pytest.raises(KafkaException):
            AdminClient({**servers, "sasl.password": "wrong"}).list_topics(timeout=3)
        topics = AdminClient({**servers, "sasl.password": "open sesame"}).list_topics(timeout=30).topics
        assert "t" not in topics, "no ACL lets the reader see it"


def test_given_port_is_taken_refused_by_number() -> None:
    with (
        socket.create_server((HOST, 0)) as server,
        pytest.raises(PortError, match=str(server.getsockname()[1])),
    ):
        EmbeddedKafka(client_ports=[server.getsockname()[1]]).start()


def test_broker_refuses_its_properties_error_shows_its_log_and_nothing_is_left() -> None:
    cluster = EmbeddedKafka(name="refused", properties={"log.retention.hours": "forever"})
    with pytest.raises(BrokerError, match=r"log\.retention\.hours"):
        cluster.start()
    assert cluster.pids == {}
    with pytest.raises(BrokerError, match="not started"):
        _ = cluster.data_dir


def test_broker_ends_during_start_error_shows_the_end_of_its_log() -> None:
    # Formatting does not look at this one; only the broker itself does.
    cluster = EmbeddedKafka(name="ends", properties={"authorizer.class.name": "no.such.Authorizer"})
    with pytest.raises(BrokerError, match=r"(?s)ended\. Its log ends with.*no\.such\.Authorizer"):
        cluster.start()
    assert cluster.pids == {}


@pytest.mark.parametrize(
    "arguments",
    [{"nodes": 0}, {"nodes": 3, "client_ports": [1, 2]}, {"client_ports": [1, 1]}, {"standing": True}],
)
def test_arguments_contradict_each_other_refused(arguments: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"give|at least"):
        EmbeddedKafka(**arguments)  # type: ignore[arg-type]


def test_owner_is_killed_brokers_and_files_are_gone_and_ports_free() -> None:
    script = (
        "import signal\n"
        "from demo.brokers import EmbeddedKafka\n"
        "clusters = [EmbeddedKafka(name='orphan').start() for _ in range(2)]\n"
        "for c in clusters: print(c.pids[1], c.data_dir, c.bootstrap_servers, flush=True)\n"
        "signal.pause()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        told = [owner.stdout.readline().split() for _ in range(2)]
        brokers = [psutil.Process(int(pid)) for pid, _, _ in told]
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(broker.is_running() for broker in brokers), "the brokers end with their owner")
    wait_until(lambda: not any(Path(directory).exists() for _, directory, _ in told), "their files go")
    assert all(is_free(int(servers.rpartition(":")[2])) for _, _, servers in told)


def test_session_clusters_are_two(source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka) -> None:
    ids = set()
    for cluster in (source_cluster, target_cluster):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        ids.add(admin.describe_cluster().result(timeout=30).cluster_id)
    assert len(ids) == 2
