"""Unclean elections: what was confirmed on broker 1 is not there on broker 2, which leads next.

Node 3 holds no replica of the topics, so the controllers keep their majority whichever of the others is down.
"""

from demo.brokers import EmbeddedKafka
from kafka_migration.domain.types import TopicPartition
from tests.waiting import wait_until
from tests.wire.made import wired

#: Of a topic whose records may be lost.
UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


def leader(servers: str, tp: TopicPartition) -> int:
    """The node that leads ``tp``; -1 if none does."""
    with wired(servers, tp.topic) as wire:
        found = wire.cluster.leaders.get(tp)
        return -1 if found is None else found.node


def until_alone(servers: str, tp: TopicPartition) -> None:
    """After broker 2 was killed: what is written from now on broker 2 does not have."""
    wait_until(lambda: leader(servers, tp) == 1, "broker 1 leads alone")


def lose(cluster: EmbeddedKafka, servers: str, tp: TopicPartition) -> None:
    """Broker 2 comes back without what broker 1 got meanwhile, and leads, since broker 1 is gone."""
    cluster.kill(1)
    cluster.restart(2)
    wait_until(lambda: leader(servers, tp) == 2, "an unclean election")


def put_back(cluster: EmbeddedKafka) -> None:
    """Start again whom a test left dead."""
    for node in (1, 2, 3):
        if node not in cluster.pids:
            cluster.restart(node)
