"""Brokers of old releases, started as the newest are: one with its own controller, one beside a ZooKeeper."""

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from demo.brokers import BrokerError, EmbeddedKafka
from demo.brokers.releases import OLD
from tests.demo.brokers.test_cluster import CODECS, consume, create_topic, nothing_left, produce

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("version", [it.name for it in OLD])
def test_old_broker_serves_survives_a_kill_and_leaves_nothing(version: str) -> None:
    with EmbeddedKafka(name="old", version=version, properties={"broker.session.timeout.ms": "3000"}) as cluster:
        servers = cluster.bootstrap_servers
        create_topic(servers, "t")
        for codec in CODECS:
            produce(servers, "t", codec, **{"compression.type": codec})
        cluster.kill()
        cluster.restart()
        assert cluster.bootstrap_servers == servers
        assert consume(servers, "t", len(CODECS)) == list(CODECS)
        # The ZooKeeper is nobody's node, but ends with them.
        before = _java_children()
        assert len(before) == (2 if version == "2.8" else 1)
        with nothing_left(cluster):
            cluster.stop()
        assert [it for it in before if it.is_running()] == []


def _java_children() -> list[psutil.Process]:
    found = psutil.Process().children(recursive=True)
    return [it for it in found if it.name() == "java" and "/kafka-migration-old-" in " ".join(it.cmdline())]


def test_three_old_brokers_beside_a_zookeeper_replicate_and_one_may_die() -> None:
    with EmbeddedKafka(name="old-three", version="2.8", nodes=3, heap_megabytes=256) as cluster:
        servers = cluster.bootstrap_servers
        create_topic(servers, "t", replication=3)
        produce(servers, "t", "by three")
        cluster.kill(2)
        produce(servers, "t", "by two")
        cluster.restart(2)
        assert consume(servers, "t", 2) == ["by three", "by two"]
        assert sorted(AdminClient({"bootstrap.servers": servers}).list_topics(timeout=30).brokers) == [1, 2, 3]


def test_unknown_release_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(BrokerError, match=r"no brokers of Kafka '0\.8'; there are 4\.3, 3\.9, 2\.8"):
        EmbeddedKafka(version="0.8")
