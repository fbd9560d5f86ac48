"""Logs of every kind through one partition's copy, killed and taken over at any moment: what counts arrives, once, in
order, and every source offset translates to the first record at or after it."""

import random
import uuid
from bisect import bisect_left

import pytest

from kafka_migration.copy.driver.takeover import Known, Tail
from kafka_migration.copy.orders import Assignment, Limits
from kafka_migration.copy.task.partition import PartitionCopy, Prepared, Stand
from kafka_migration.domain.handlers import Handle
from kafka_migration.domain.offset_map import OffsetMap, RunOpening
from kafka_migration.domain.openings import Openings
from kafka_migration.domain.types import Identity, TopicPartition
from kafka_migration.wire.batch import BatchHeader, parse_header
from kafka_migration.wire.cluster import Leader
from kafka_migration.wire.fetch_request import Fetched
from kafka_migration.wire.produce_request import Appended
from kafka_migration.wire.records import raw_records
from tests.handlers import by_offset, handled_raw, nothing
from tests.wire.logs import MadeLog, made_log

TP = TopicPartition("t", 0)
US = 77


class Target:
    """A partition of the target: what was appended to it, record by record; None is a fence's marker."""

    def __init__(self) -> None:
        self.log: list[tuple[int, bytes] | None] = []
        self.headers = list[BatchHeader]()

    def append(self, prepared: Prepared) -> int:
        """Where the batch lands."""
        header, base = parse_header(prepared.data), len(self.log)
        self.headers.append(_placed(prepared.data, base))
        self.log += [
            (header.base_timestamp + it.timestamp_delta, it.rest)
            for it in raw_records(header, memoryview(prepared.data))
        ]
        return base


def _placed(data: bytearray, base: int):
    header = parse_header(data)
    return parse_header(base.to_bytes(8, "big") + bytes(data[8:])) if header.base_offset != base else header


class World:
    """A source's log, a target, the durable openings, and one mirror after the other."""

    def __init__(self, seed: int, handle: Handle | None = None) -> None:
        self.chance, self.handle = random.Random(seed), handle
        self.log: MadeLog = made_log(seed)
        self.start = self.chance.choice((0, self.log.rows[0].offset if self.log.rows else 0))
        self.target, self.openings = Target(), Openings()
        self.places: dict[Prepared, int] = {}
        self.fence = 0

    def take_over(self) -> PartitionCopy:
        """A new fence, and a copy from where the log says that the last one stood."""
        mine = self.openings.newest()
        known = Known(
            openings=mine,
            writer=Identity(US, self.fence) if len(mine) else None,
            verified=mine[0].target if len(mine) else 0,
        )
        tail = Tail(known, 0)
        for header in self.target.headers:
            if header.next_offset > tail.scan_from:
                assert tail.see(header, US), tail.stopped
        marker = len(self.target.log)
        self.target.log.append(None)
        self.fence += 1
        resumed = tail.resume(mine, fence=self.fence, marker=marker, source_start=self.start)
        self.openings.add(resumed.opening)
        copy = PartitionCopy(
            Assignment(
                partition=TP,
                position=resumed.position,
                continues=resumed.position.source,
                fence_end=resumed.opening.target,
                closes=resumed.opening.closes or 0,
                topic_key="key",
                producer_id=US,
                producer_epoch=self.fence,
                source_topic_id=uuid.UUID(int=1),
                target_topic_id=uuid.UUID(int=2),
                source_epoch=resumed.opening.epoch,
                join_bytes=self.chance.choice((0, 300, 10**6)),
                most_bytes=self.chance.choice((0, 0, 1_000)),
            ),
            Limits(in_flight_requests=self.chance.randrange(1, 5), partition_queue_bytes=20_000),
        )
        copy.leader, copy.handle = Leader(1, self.fence), self.handle
        return copy

    def live(self, copy: PartitionCopy, steps: int) -> None:
        """Fetch, write ahead, send, answer, in any order, for some steps; then it is killed where it stands."""
        waiting: list[list[RunOpening]] = []
        for _ in range(steps):
            what = self.chance.random()
            if what < 0.3 and copy.wants_fetch and copy.fetch_offset < self.log.end:
                records, aborted = self.log.answer(copy.fetch_offset, self.chance.choice((1, 800, 10**5)))
                answer = Fetched(TP, 0, records, self.log.end, self.log.end, 0, None, aborted)
                if not records and (end := copy.found_nothing(answer)) is not None:
                    copy.pass_over_nothing(end)
                openings = copy.take(answer)
                if openings:
                    waiting.append(openings)
            elif what < 0.5 and waiting:
                written = waiting.pop(0)
                for opening in written:
                    self.openings.add(opening)
                if self.chance.random() < 0.95:
                    copy.openings_are_durable(written)
                else:
                    return  # durable, and nobody got to know
            elif what < 0.75 and copy.sendable is not None:
                prepared = copy.sent()
                if self.chance.random() < 0.03:
                    return  # it never arrived
                self.places[prepared] = self.target.append(prepared)
            elif copy.in_flight:
                prepared = copy.in_flight[0]
                copy.answered(prepared, Appended(TP, 0, self.places[prepared], ""))
            assert copy.stand is Stand.RUN, copy.detail
        if self.chance.random() < 0.3 and waiting:
            self.openings.add(waiting[0][0])  # the first of several that were on their way


@pytest.mark.parametrize(
    ("seed", "handle"),
    [*((seed, None) for seed in range(150)), *((seed, by_offset if seed % 4 else nothing) for seed in range(150, 230))],
)
def test_log_of_every_kind_survives_kills_and_translates_everywhere(seed, handle):
    world = World(seed, handle)
    copy = world.take_over()
    for _ in range(world.chance.randrange(6)):
        world.live(copy, world.chance.randrange(60))
        copy = world.take_over()
    for _ in range(1_000):
        if copy.position.source >= world.log.end:
            break
        copy = world.take_over()
        world.live(copy, world.chance.randrange(50, 500))
    expected = [row for row in world.log.rows if row.offset >= world.start]
    expected = expected if handle is None else handled_raw(expected, handle)
    places = [at for at, it in enumerate(world.target.log) if it is not None]
    assert [world.target.log[at] for at in places] == [(row.timestamp, row.rest) for row in expected]
    position = copy.position
    assert position.source == world.log.end
    _translates(
        world.openings.offset_map(source_end=position.source, target_end=position.target), expected, places, world
    )


def _translates(found: OffsetMap, expected, places, world: World) -> None:
    offsets = [row.offset for row in expected]
    first = offsets[0] if offsets else world.log.end
    for source in {*range(first, min(first + 2_000, world.log.end + 1)), *offsets, world.log.end}:
        index = bisect_left(offsets, source)
        place = places[index] if index < len(places) else found.target_end
        assert found.to_target(source) == place, source
    for place, source in zip(places, offsets, strict=True):
        assert found.to_source(place) == source
