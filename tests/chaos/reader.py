"""Reads whole topics through librdkafka, committed records only, and keeps a digest of each. No code of the mirror."""

import time
import uuid
from collections.abc import Collection, Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import IsolationLevel, KafkaError
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.chaos.compare import Log
from tests.chaos.records import digest, is_whole

Place = tuple[str, int]  # topic, partition

_DEADLINE_SECONDS = 180.0
_ASK_SECONDS = 30.0


def bounds(servers: str, places: Collection[Place]) -> dict[Place, tuple[int, int]]:
    """Where each log starts and ends (high watermark). Raises ValueError if a transaction is still open there."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def ask(spec: OffsetSpec, level: IsolationLevel) -> dict[Place, int]:
        wanted = {confluent_kafka.TopicPartition(*place): spec for place in places}
        answers = admin.list_offsets(wanted, isolation_level=level, request_timeout=_ASK_SECONDS)
        return {(tp.topic, tp.partition): future.result(_ASK_SECONDS).offset for tp, future in answers.items()}

    starts = ask(OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
    ends = ask(OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
    stable = ask(OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
    hanging = [place for place in places if stable[place] != ends[place]]
    if hanging:
        raise ValueError(f"transactions are open in {hanging}")
    return {place: (starts[place], ends[place]) for place in places}


def read(servers: str, topics: Mapping[str, int], keyed: Collection[str] = ()) -> dict[Place, Log]:
    """Every record of `topics` (name to partition count). Those `keyed` also get their keys; a record of them that is
    not as it was made has none. Raises TimeoutError if a log cannot be read to its end."""
    places = [(name, partition) for name, count in topics.items() for partition in range(count)]
    logs = {
        place: Log(start, end, keys=[] if place[0] in keyed else None)
        for place, (start, end) in bounds(servers, places).items()
    }
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"chaos-reader-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "check.crcs": True,
            "fetch.message.max.bytes": 8 * 1024 * 1024,
            "receive.message.max.bytes": 256 * 1024 * 1024,
            "log_level": 0,
        }
    )
    unread = {place for place, log in logs.items() if log.end > log.start}
    until = time.monotonic() + _DEADLINE_SECONDS
    consumer.assign([confluent_kafka.TopicPartition(*place, logs[place].start) for place in unread])
    message: Any  # which of its parts are None is known here
    try:
        while unread:
            if time.monotonic() > until:
                raise TimeoutError(f"{servers}: {sorted(unread)} could not be read to their ends")
            for message in consumer.consume(10_000, timeout=0.2):
                place = (message.topic(), message.partition())
                error = message.error()
                if error is None:
                    _note(logs[place], message)
                elif error.code() == KafkaError._PARTITION_EOF and message.offset() >= logs[place].end:
                    unread.discard(place)
    finally:
        consumer.close()
    return logs


def _note(log: Log, message: Any) -> None:
    key, value, headers = message.key(), message.value(), tuple(message.headers() or ())
    log.offsets.append(message.offset())
    log.digests.append(digest(key, value, message.timestamp()[1], headers))
    if log.keys is not None:
        log.keys.append(key if is_whole(key, value, headers) else None)
