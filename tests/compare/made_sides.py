"""Sides of a segment over logs made by hand, and over whatever else a broker may answer: no broker is there."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import kafka.errors as kafka_errors
from kafka.future import Future

from kafka_migration.compare.decode.columns import columns_of
from kafka_migration.compare.digests import Digest
from kafka_migration.compare.reader.side import Side
from kafka_migration.compare.record_digest import ordered_hashes
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.batch import parse_header
from kafka_migration.wire.records import read_varint
from tests.wire.logs import Row

TP = TopicPartition("made", 0)

#: A broker's answer for the log from an offset on; None is a quota's doing.
Answers = Callable[[int], Any]


def answer(records: bytes, *, end: int = 1_000, error: int = 0, aborted: Collection[tuple[int, int]] = ()) -> Any:
    """A broker's answer for one partition."""
    return SimpleNamespace(
        error_code=error,
        records=records,
        high_watermark=end,
        last_stable_offset=end,
        aborted_transactions=[SimpleNamespace(producer_id=p, first_offset=first) for p, first in aborted] or None,
    )


def log_of(log: list[bytes], *, at_once: int = 2, end: int = 1_000) -> Answers:
    """Answers of a log of these batches, so many ``at_once``."""

    def answers(offset: int) -> Any:
        left = [batch for batch in log if parse_header(batch).next_offset > offset]
        return answer(b"".join(left[:at_once]), end=end)

    return answers


class MadeClient:
    """What a side asks of a cluster."""

    def __init__(self, answers: Answers, role: str = "source") -> None:
        self.role, self.answers, self.asked, self.looked = role, answers, list[int](), 0
        self.sizes = list[int]()
        self.is_known = True

    def knows(self, _tp: TopicPartition) -> bool:
        return self.is_known

    def look_for_leader(self, _tp: TopicPartition, _seconds: float) -> None:
        self.looked += 1
        self.is_known = True

    def forget_leader(self, _tp: TopicPartition) -> None:
        self.is_known = False

    def begin_fetch(self, _tp: TopicPartition, offset: int, size: int, *, committed: bool) -> Future:
        self.asked.append(offset)
        self.sizes.append(size)
        try:
            partition = self.answers(offset)
            if partition is None:
                return Future().success(SimpleNamespace(responses=[], throttle_time_ms=200))
        except kafka_errors.KafkaError as error:
            return Future().failure(error)
        return Future().success(SimpleNamespace(responses=[SimpleNamespace(partitions=[partition])]))

    def wait(self, future: Future, _seconds: float) -> Any:
        if future.exception is not None:
            raise future.exception
        return future.value

    def pause(self) -> None:
        """At once."""


def side_over(client: MadeClient, start: int, end: int, **options: Any) -> Side:
    """The side of a cluster that answers as ``client``."""
    options = {"committed": True, "seconds": 0.3, **options}
    return Side(client, TP, start, end, **options)  # type: ignore[arg-type]


def digest_of_rows(rows: list[Row]) -> Digest:
    """The digest of records as a consumer sees them, field by field."""
    found = []
    for row in rows:
        key, at = _sized(row.rest, 0)
        value, at = _sized(row.rest, at)
        count, at = read_varint(row.rest, at)
        headers = []
        for _ in range(count):
            name, at = _sized(row.rest, at)
            held, at = _sized(row.rest, at)
            headers.append((name or b"", held))
        found.append((row.offset, row.timestamp, key, value, headers))
    columns = columns_of(found)
    return Digest(
        rows=len(rows),
        bytes=sum(columns.sizes.tolist()),
        total=sum(columns.hashes.tolist()) % 2**64,
        ordered=sum(ordered_hashes(columns.hashes, columns.offsets).tolist()) % 2**64,
    )


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = read_varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)
