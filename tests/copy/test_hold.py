"""Rule 7 on real brokers: behind records that are older than their memory, the hold keeps a fence from being forgotten.

A request of the attempt before is delivered after the fence. Without the hold the next attempt's first old records make
the broker forget both of them, and it would be taken.
"""

import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kafka_migration.copy.driver.mirror import Settings
from kafka_migration.copy.orders import Limits
from kafka_migration.domain.types import TopicPartition
from tests.copy.bench import SHORT, assert_same, bench, records
from tests.copy.test_interleavings import FENCED, SMALL_BATCHES, Appends, errors_of
from tests.kafka_tools import ToSend, produce
from tests.proxy import END_TXN, Frame, Proxy
from tests.waiting import wait_until
from tests.wire.made import is_forgotten, wired

LANDS_AFTER = 2.0
#: How long a fence of old records is held; one of fresh records is not, and a loaded machine takes less than that.
HOLD_SECONDS = {"old": 4.0, "fresh": 60.0}
HELD = {
    kind: Settings(
        streams=1,
        epoch_seconds=20,
        limits=Limits(progress_seconds=0.1, command_seconds=0.1, **{**SHORT, "closed_seconds": seconds}),
    )
    for kind, seconds in HOLD_SECONDS.items()
}


@pytest.fixture
def topic() -> str:
    return f"held-{uuid.uuid4().hex[:8]}"


def _fresh(count: int) -> Iterator[ToSend]:
    now = int(time.time() * 1000)
    for it in records(count, 1, 1):
        yield replace(it, timestamp=now)


@pytest.mark.parametrize("kind", ["old", "fresh"])
def test_request_that_lands_after_the_fence_is_refused_whatever_the_broker_forgets(
    source_cluster, remembering, topic, kind
):
    tp = TopicPartition(topic, 0)
    with (
        bench(source_cluster.bootstrap_servers, remembering.bootstrap_servers, {topic: 1}) as it,
        wired(it.target, topic) as wire,
    ):
        produce(it.source, topic, records(200, 1, 1) if kind == "old" else _fresh(200), **SMALL_BATCHES)
        appends, held, landed = Appends(it), list[Frame](), list[Frame]()
        moments: dict[str, float] = {}
        delivered = threading.Event()

        def deliver() -> None:
            """As soon as the broker has forgotten the fence, or else in the middle of the hold."""
            until = time.monotonic() + LANDS_AFTER
            wait_until(
                lambda: time.monotonic() > until or (after_fence and is_forgotten(wire, tp)),
                "a moment to land",
            )
            held[0].connection.deliver(held[0])
            delivered.set()

        after_fence: list[Frame] = []
        late = threading.Thread(target=deliver, daemon=True)

        def on_request(frame: Frame) -> bool | None:
            if frame in appends:
                if "fence" in moments:
                    after_fence.append(frame)
                    moments.setdefault("first append", time.monotonic())
                else:
                    moments["append"] = time.monotonic()
                    if not held and len(seen) == 2:
                        held.append(frame)
                        frame.connection.cut_client()
                        return False
                    seen.append(frame)
            return None

        seen: list[Frame] = []

        def on_response(frame: Frame) -> None:
            if held and frame.request is not None and frame.request.api == END_TXN and "fence" not in moments:
                moments["fence"] = time.monotonic()
                late.start()
            if held and frame.request is held[0]:
                landed.append(frame)

        with Proxy(on_request=on_request, on_response=on_response) as proxy:
            outcome = it.mirror(settings=HELD[kind], target_through=proxy).run(until_caught_up=True)
            assert delivered.wait(180)
            wait_until(lambda: landed, "the late request is answered")
        assert set(errors_of(landed[0])) == {FENCED}
        assert outcome.halted == ()
        assert assert_same(it) == 200
        if kind == "old":
            # The hold counts from the loss of the connection, which a loaded machine may fence only seconds later.
            assert moments["first append"] - moments["append"] > HOLD_SECONDS[kind] - 0.5
        else:
            assert moments["first append"] - moments["fence"] < HOLD_SECONDS[kind]
