"""What is done to clusters has its effect."""

import time
import uuid

import confluent_kafka

from tests.chaos.administration import leaders, set_quota
from tests.kafka_tools import create_topics
from tests.waiting import wait_until


def throttled(servers: str, topic: str, client: str) -> list[float]:
    """For how many seconds a broker asked a client to wait that writes 240 KB, each time."""
    waits: list[float] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "client.id": client,
            "throttle_cb": lambda event: waits.append(event.throttle_time),
        }
    )
    # A broker lets ten seconds' worth pass at once.
    for _ in range(24):
        producer.produce(topic, b"x" * 10_000)
        producer.flush(30)
    until = time.monotonic() + 3
    while not waits and time.monotonic() < until:
        producer.poll(0.1)
    return [seconds for seconds in waits if seconds]


def test_quota_throttles_the_client_that_it_names_until_it_is_taken_away(target_cluster):
    servers, name = target_cluster.bootstrap_servers, f"quota-{uuid.uuid4().hex[:8]}"
    create_topics(servers, {name: 1})
    set_quota(servers, name, "producer_byte_rate", 20_000)
    # What is written slowly, on a full machine, stays under the quota the first time.
    wait_until(lambda: throttled(servers, name, name), "its client is throttled")
    assert not throttled(servers, name, f"{name}.other")
    set_quota(servers, name, "producer_byte_rate", None)
    # The brokers count over some ten seconds: what was written under the quota is still in there.
    wait_until(lambda: not throttled(servers, name, name), "nobody is throttled")


def test_leaders_are_told_with_their_replicas(target_cluster):
    servers, name = target_cluster.bootstrap_servers, f"led-{uuid.uuid4().hex[:8]}"
    create_topics(servers, {name: 2})
    wait_until(lambda: len(leaders(servers, [name])) == 2, "both are led")
    assert leaders(servers, [name]) == {(name, 0): (1, [1]), (name, 1): (1, [1])}
    assert leaders(servers, ["nobody's"]) == {}
