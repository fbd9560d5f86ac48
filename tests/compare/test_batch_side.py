"""One side of a segment, over what a broker may answer: nothing, too much, damaged bytes, errors."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import kafka.errors as kafka_errors
import pytest

from kafka_migration.compare.batches import side as batch_side
from kafka_migration.compare.batches.side import Side
from kafka_migration.compare.reading import CannotRead, Unanswered
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire import configs
from kafka_migration.wire.batch import parse_header
from kafka_migration.wire.cluster import Leader
from kafka_migration.wire.fetch_request import Fetched, FetchFrom
from kafka_migration.wire.selector import Selector
from tests.wire.logs import MadeLog, made_log, marker
from tests.wire.made import made_batch

TP = TopicPartition("made", 0)
NOT_LEADER, OUT_OF_RANGE = 6, 1
VALUES: list[bytes | None] = [b"a", b"b", None, b""]


class Cluster:
    """What a side asks of a cluster."""

    role, servers = "source", "127.0.0.1:9"

    def __init__(self) -> None:
        self.net = Selector()
        self.leaders = {TP: Leader(1, 0)}
        self.refreshed = 0

    async def refresh(self, _topics: Any) -> None:
        self.refreshed += 1


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the topic's configuration is, to be filled."""
    found = {"cleanup.policy": "delete"}

    async def asked(_cluster: Any, _topic: str, names: Collection[str]) -> dict[str, str]:
        return {name: value for name, value in found.items() if name in names}

    monkeypatch.setattr(configs, "topic_configs", asked)
    return found


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[int], list[FetchFrom], Cluster]]:
    """Base offsets of what a side yields, what it asked for, and the cluster. ``answers`` says what a broker would."""

    def reading(
        answers: Callable[[FetchFrom], Fetched],
        start: int,
        end: int,
        *,
        committed: bool = True,
        seconds: float = 60.0,
        left_out: Sequence[tuple[int, int]] = (),
    ) -> tuple[list[int], list[FetchFrom], Cluster]:
        asked: list[FetchFrom] = []

        async def fetched(_cluster: Any, _node: int, wanted: list[FetchFrom], **_options: Any) -> list[Fetched]:
            asked.extend(wanted)
            return [answers(wanted[0])]

        monkeypatch.setattr(batch_side, "fetch", fetched)
        cluster = Cluster()
        side = Side(cluster, TP, start, end, committed=committed, seconds=seconds, left_out=left_out)  # type: ignore[arg-type]

        async def all_of_it() -> list[int]:
            found = []
            while (blocks := await side.next()) is not None:
                found += [block.header.base_offset for block in blocks]
            return found

        try:
            return cluster.net.run(all_of_it), asked, cluster
        finally:
            side.drop()
            cluster.net.close()

    return reading


def answer(records: bytes, *, end: int = 1_000, error: int = 0, aborted: Any = ()) -> Fetched:
    return Fetched(TP, error, records, end, end, 0, None, aborted)


def log_of(log: list[bytes], *, at_once: int = 2, end: int = 1_000) -> Callable[[FetchFrom], Fetched]:
    def answers(wanted: FetchFrom) -> Fetched:
        left = [batch for batch in log if parse_header(batch).next_offset > wanted.offset]
        return answer(b"".join(left[:at_once]), end=end)

    return answers


def test_batches_around_the_bounds_are_yielded_whole_and_those_beyond_are_not(read):
    log = [made_batch(VALUES, base_offset=4 * n) for n in range(10)]
    found, asked, _ = read(log_of(log, at_once=3), 6, 26)
    assert found == [4, 8, 12, 16, 20, 24]
    assert [request.offset for request in asked] == [6, 16]


@pytest.mark.parametrize("seed", range(10))
def test_what_was_aborted_and_markers_are_left_out_of_committed_records_only(read, seed):
    log: MadeLog = made_log(seed)
    first = min(row.offset for row in log.rows)

    def answers(wanted: FetchFrom) -> Fetched:
        records, aborted = log.answer(wanted.offset, 2_000)
        return answer(records, end=log.end, aborted=aborted)

    def all_answers(wanted: FetchFrom) -> Fetched:
        return answer(bytes(answers(wanted).records), end=log.end)

    headers = [parse_header(batch) for batch in log.batches]
    data = [header for header in headers if not header.is_control and header.records and header.next_offset > first]
    taken_back = {
        one.base_offset
        for one in data
        for producer, begin, end in log.aborted
        if one.is_transactional and one.producer_id == producer and begin <= one.base_offset < end
    }
    assert read(all_answers, first, log.end, committed=False)[0] == [one.base_offset for one in data]
    kept = [one.base_offset for one in data if one.base_offset not in taken_back]
    assert read(answers, first, log.end)[0] == kept


def test_markers_hold_nothing_that_anybody_reads(read):
    log = [marker(0, (7, 0), commit=True), made_batch(VALUES, base_offset=1)]
    assert read(log_of(log), 0, 5, committed=False)[0] == [1]


def test_damaged_batch_is_named_with_its_offset(read):
    damaged = bytearray(made_batch(VALUES, base_offset=4))
    damaged[-1] ^= 1
    with pytest.raises(CannotRead, match=r"source: made-0 from offset 4 on: batch at offset 4: CRC-32C is"):
        read(log_of([made_batch(VALUES, base_offset=0), bytes(damaged)]), 0, 8)


def test_damaged_batch_that_was_given_up_is_passed_over_and_what_shares_one_with_others_is_not(read):
    log = [made_batch(VALUES, base_offset=4 * n) for n in range(6)]
    damaged = bytearray(log[2])
    damaged[-1] ^= 1
    log[2] = bytes(damaged)
    found, asked, _ = read(log_of(log, at_once=1), 0, 24, left_out=[(6, 12), (16, 20)])
    assert found == [0, 4, 12, 20]
    assert [request.offset for request in asked] == [0, 4, 12, 20]
    with pytest.raises(CannotRead, match="batch at offset 8"):
        read(log_of(log), 0, 24, left_out=[(9, 12)])
    assert read(log_of(log), 0, 12, left_out=[(0, 12)])[0] == []


def test_log_that_ends_before_the_pinned_end_cannot_be_read(read):
    log = [made_batch(VALUES, base_offset=0)]
    with pytest.raises(CannotRead, match="the log ends at 4 by now, before the pinned end 8"):
        read(log_of(log, end=4), 0, 8)


def test_end_of_which_compaction_left_nothing_is_passed_over_once_it_was_said_twice(read, configured):
    configured["cleanup.policy"] = "compact"
    log = [made_batch(VALUES, base_offset=0)]
    found, asked, _ = read(log_of(log, end=8), 0, 8)
    assert found == [0]
    assert [request.offset for request in asked] == [0, 4, 4]


def test_records_that_the_broker_sends_late_are_read(read, configured):
    log, silences = [made_batch(VALUES, base_offset=0), made_batch(VALUES, base_offset=4)], [True] * 4

    def answers(wanted: FetchFrom) -> Fetched:
        if wanted.offset == 4 and silences:
            silences.pop()
            return answer(b"")
        return log_of(log, at_once=1)(wanted)

    assert read(answers, 0, 8)[0] == [0, 4]
    assert not silences


@pytest.mark.parametrize("settings", [{"cleanup.policy": "delete"}, {"remote.storage.enable": "true"}])
def test_broker_that_goes_on_to_send_nothing_is_not_taken_for_an_empty_log(read, configured, settings):
    configured.update({"cleanup.policy": "compact", **settings})
    with pytest.raises(CannotRead, match="from offset 4 on: the broker sends nothing"):
        read(log_of([made_batch(VALUES, base_offset=0)]), 0, 8, seconds=0.5)


def test_new_leader_is_looked_for_and_read_from(read):
    log, failures = [made_batch(VALUES, base_offset=0)], [NOT_LEADER]

    def answers(wanted: FetchFrom) -> Fetched:
        return answer(b"", error=failures.pop()) if failures else log_of(log)(wanted)

    found, _, cluster = read(answers, 0, 4)
    assert (found, cluster.refreshed) == ([0], 1)


def test_offsets_that_are_gone_are_said_at_once(read):
    with pytest.raises(CannotRead, match=r"OFFSET_OUT_OF_RANGE|OffsetOutOfRange"):
        read(lambda _: answer(b"", error=OUT_OF_RANGE), 0, 4)


def test_broker_that_does_not_come_back_is_the_trouble_of_its_partition_alone(read):
    def answers(_wanted: FetchFrom) -> Fetched:
        raise kafka_errors.KafkaConnectionError("gone")

    with pytest.raises(Unanswered, match=r"source: made-0 from offset 0 on: no answer for 0.3 s: .*gone"):
        read(answers, 0, 4, seconds=0.3)


def test_no_more_is_asked_for_than_about_what_is_left(read):
    log = [made_batch([b"x" * 5_000] * 10, base_offset=10 * n) for n in range(100)]
    _, asked, _ = read(log_of(log, at_once=20), 0, 230)
    assert asked[0].max_bytes == 1 << 20
    assert asked[1].max_bytes < 200_000, "30 records of 5,000 bytes are left"
