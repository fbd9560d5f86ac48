"""A broker's quota holds the mirror's data back for longer than its lease lasts: the copy waits, and nothing ends."""

import random
import uuid

import pytest
from kafka.protocol.producer import ProduceResponse

from demo.brokers import EmbeddedKafka
from kafka_migration.copy.driver.mirror import Settings
from kafka_migration.copy.orders import Limits
from tests.chaos.administration import set_quota
from tests.copy.bench import DATA_CLIENT, assert_same, bench, scaled
from tests.copy.test_interleavings import Appends
from tests.kafka_tools import ToSend, produce
from tests.proxy import Frame, Proxy

#: One append alone is 900,000 bytes, which is held back for 32 seconds, less what the broker looks back (11 at most).
BYTES_PER_SECOND, HELD_BACK_SECONDS = 28_000, 15


@pytest.mark.long
def test_quota_that_holds_data_back_for_many_leases_costs_no_lease_and_no_fence(
    source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka
) -> None:
    """Everything that the mirror waits for is three seconds here at most, a tenth of what ships."""
    topic = f"quota-{uuid.uuid4().hex[:8]}"
    chance = random.Random(1)
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        large = [ToSend(chance.randbytes(9_000), partition=n % 2) for n in range(240)]
        produce(it.source, topic, large, **{"batch.size": 900_000})
        appends, throttles, told = Appends(it), list[float](), list[str]()

        def on_response(frame: Frame) -> None:
            if frame in appends:
                answer = ProduceResponse.decode(frame.data, version=frame.version, header=True)
                throttles.append(answer.throttle_time_ms / 1000)

        set_quota(it.target, DATA_CLIENT, "producer_byte_rate", BYTES_PER_SECOND)
        try:
            with Proxy(on_response=on_response) as proxy:
                settings = Settings(streams=1, epoch_seconds=5, limits=Limits(**scaled(0.1)))
                mirror = it.mirror(settings=settings, target_through=proxy, log=told.append)
                outcome = mirror.run(until_caught_up=True)
        finally:
            set_quota(it.target, DATA_CLIENT, "producer_byte_rate", None)
        assert max(throttles) > HELD_BACK_SECONDS
        assert (outcome.halted, outcome.fences, outcome.rounds) == ((), 1, 1), told
        assert assert_same(it) == 240
