"""The exact meaning of a translated offset, asked of every offset there is, with an independent reader's eyes."""

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kafka_migration.copy.driver.mirror import MirrorEnd, Settings
from kafka_migration.domain.offset_map import OffsetMap
from kafka_migration.domain.types import Desired
from kafka_migration.state.link import LinkState, Wish
from tests.copy.bench import Bench
from tests.kafka_tools import Row, read_all, stable_ends
from tests.waiting import wait_until


@contextmanager
def running(it: Bench, settings: Settings) -> Iterator[list[MirrorEnd]]:
    """A mirror that runs beside, with connections of its own; its end is in the list once it was stopped."""
    ends: list[MirrorEnd] = []

    def work() -> None:
        link = LinkState.on_target(it.link.name, {"bootstrap.servers": it.target})
        try:
            ends.append(it.mirror(link=link, settings=settings).run())
        finally:
            link.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield ends
    finally:
        it.link.wish(Wish(desired=Desired.STOP, reason="the test is over", at="now"))
        thread.join(30)
        it.link.wish(Wish(desired=Desired.RUN, reason="the test goes on", at="now"))
    assert ends, "the mirror died, or did not end"


def until_caught_up(it: Bench) -> None:
    """Until the mirror stands where a consumer of committed records stops."""

    def is_there() -> bool:
        positions = it.link.positions()
        ends = stable_ends(it.source, it.topics)
        return all(tp in positions and positions[tp].source >= end for tp, end in ends.items())

    wait_until(is_there, "the mirror has caught up")


def assert_same_everywhere(it: Bench) -> int:
    """What a consumer of committed records sees is the same on both sides, and every offset of the source translates
    to the first record at or after it: of records, markers, aborted records, and what compaction took. How many
    records those are."""
    source, target, maps = read_all(it.source, it.topics), read_all(it.target, it.topics), it.link.offset_maps()
    for tp, rows in source.items():
        assert [r.without_offset() for r in target[tp]] == [r.without_offset() for r in rows], tp
        assert_translates(maps[tp], rows, target[tp])
    return sum(map(len, source.values()))


def assert_translates(found: OffsetMap, source: Sequence[Row], target: Sequence[Row]) -> None:
    """Every offset from the first record to the position, both ways; row n of one side is row n of the other."""
    offsets, places = [row.offset for row in source], [row.offset for row in target]
    first = offsets[0] if offsets else found.source_end
    for at in range(first, found.source_end + 1):
        index = bisect_left(offsets, at)
        assert found.to_target(at) == (places[index] if index < len(places) else found.target_end), at
    for at in range(places[0] if places else found.target_end, found.target_end + 1):
        index = bisect_left(places, at)
        assert found.to_source(at) == (offsets[index] if index < len(offsets) else found.source_end), at
