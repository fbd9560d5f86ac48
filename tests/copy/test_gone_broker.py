"""The target's side of a task, where a broker takes nothing."""

import time
from types import SimpleNamespace
from typing import Any

import kafka.errors as kafka_errors
from kafka.future import Future

from kafka_migration.copy.lease import Hold
from kafka_migration.copy.orders import Assignment, Limits
from kafka_migration.copy.rate_limit import RateLimit
from kafka_migration.copy.task.loop import Loop
from kafka_migration.copy.task.outlet import Outlet
from kafka_migration.copy.task.partition import PartitionCopy, Prepared
from kafka_migration.domain.names import SAME
from kafka_migration.domain.types import Position, TopicPartition
from kafka_migration.wire.cluster import NO_TOPIC_ID, Leader

TP = TopicPartition("t", 0)


class Gone:
    """A cluster whose metadata are old: the broker that they name can not be reached."""

    def __init__(self) -> None:
        self.leaders, self.moves, self.names = {TP: Leader(1, 0)}, 0, SAME
        self.manager = SimpleNamespace(throttled_seconds=lambda _node: 0.0)

    def topic_id(self, _topic: str) -> Any:
        return NO_TOPIC_ID

    def begin(self, *_args: object, **_options: object) -> Future:
        return Future().failure(kafka_errors.NodeNotReadyError(1))


def _copy() -> PartitionCopy:
    copy = PartitionCopy(
        Assignment(
            partition=TP,
            position=Position(source=0, target=1, fence=0, records=0),
            continues=0,
            fence_end=1,
            closes=0,
            topic_key="t",
            producer_id=1,
            producer_epoch=0,
            source_topic_id=NO_TOPIC_ID,
            target_topic_id=NO_TOPIC_ID,
        ),
        Limits(),
    )
    batch = Prepared(0, 1, 1, 0, 0, 1, 0, bytearray(b"batch"), 1, (), True)
    copy.queue.append(batch)
    return copy


def test_broker_that_takes_nothing_for_a_second_is_looked_up_again_though_nothing_was_under_way() -> None:
    loop, copy = Loop(), _copy()
    lease: Any = SimpleNamespace(holds=True)
    target: Any = Gone()
    rate_limit = RateLimit(is_paused=False, bytes_per_second=None)
    outlet = Outlet(loop, target, {TP: copy}, Limits(), rate_limit, lease, Hold({}, None))

    async def until_stale() -> None:
        outlet.start()
        until = time.monotonic() + 30
        while not outlet.needs_leaders:
            assert time.monotonic() < until
            await loop.net.sleep(0.02)
        loop.ending = True

    loop.run(until_stale)
    loop.close()
    assert [it.data for it in copy.queue] == [b"batch"], "it still stands first"
    assert not copy.in_flight
