"""What a record of the demo looks like, and how a consumer finds its id.

Every record carries a unique id, `<producer>-<n>`, and its number among this producer's records of the partition, as
evidence of order for whoever reads the log without the notes. Both stand in headers where the topic has headers, in
the value where it has none.
"""

import random
from collections.abc import Callable

from confluent_kafka import Message

from demo.clients.topics import MIB, TopicSpec

Header = tuple[str, str | bytes | None]
Record = tuple[bytes | None, bytes | None, list[Header] | None]
"""Key, value, headers."""

BODY_BYTES = 200
BODIES = 1024
KEYS = 500
LARGE_BYTES = MIB + MIB // 8
TOMBSTONE_EVERY = 50
_VALUE_START = b'{"id":"'
_WORDS = ("amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "haven", "inlet", "jetty", "knoll", "larch")


class RecordError(ValueError):
    """A record that no producer of the demo made."""


class RecordMaker:
    """Makes records. Bodies come from a pool: making text for each would cost more than sending it."""

    def __init__(self, *, seed: str) -> None:
        """Two makers of one seed make the same bodies."""
        dice = random.Random(seed)
        self._bodies = [_body(dice) for _ in range(BODIES)]
        self._large = dice.randbytes(LARGE_BYTES // 2).hex().encode("ascii")

    def make(self, spec: TopicSpec, record_id: str, n: int, number: int, *, large: bool = False) -> Record:
        """Make one record.

        Args:
            record_id: unique in the run.
            n: the record's number among this producer's; chooses body and key.
            number: its number among this producer's records of the partition.
            large: make it larger than the default `max.message.bytes`.
        """
        body = self._large if large else self._bodies[n % BODIES]
        key: bytes | None = None
        if spec.keys == "always":
            key = b"key-%d" % (n % KEYS)
        elif spec.keys == "sometimes" and n % 3:
            # An empty key is not an absent one, and a copy must keep the difference.
            key = b"" if n % 15 == 1 else b"key-%d" % (n % KEYS)
        if not spec.headers:
            return key, b'%b%b","number":%d,"body":"%b"}' % (_VALUE_START, record_id.encode(), number, body), None
        headers: list[Header] = [
            ("id", record_id.encode()),
            ("number", b"%d" % number),
            ("trace", None if n % 2 else b""),
        ]
        if spec.tombstones and n % TOMBSTONE_EVERY == 0:
            return key, None, headers
        return key, b'{"body":"%b"}' % body, headers


def id_reader(spec: TopicSpec) -> Callable[[Message], str]:
    """How to read the id of a record of this topic; the reader raises RecordError where there is none."""
    return _id_in_headers if spec.headers else _id_in_value


def _id_in_headers(message: Message) -> str:
    for header in message.headers() or ():
        if header[0] == "id" and isinstance(header[1], bytes):
            return header[1].decode("ascii")
    raise RecordError(f"the record at {position(message)} has no header named id.")


def _id_in_value(message: Message) -> str:
    value = message.value() or b""
    end = value.find(b'"', len(_VALUE_START))
    if not value.startswith(_VALUE_START) or end < 0:
        raise RecordError(f"the value at {position(message)} does not begin with an id.")
    return value[len(_VALUE_START) : end].decode("ascii")


def position(message: Message) -> tuple[str, int, int]:
    """Topic, partition and offset of a message that came from, or reached, a broker.

    Raises:
        RecordError: librdkafka left one out, as it may for messages that are events.
    """
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None:
        raise RecordError(f"a message has no position: {topic}-{partition} offset {offset}.")
    return topic, partition, offset


def _body(dice: random.Random) -> bytes:
    words = ""
    while len(words) < BODY_BYTES:
        words += dice.choice(_WORDS) + (" " if dice.random() < 0.8 else f" {dice.randrange(100_000)} ")
    return words[:BODY_BYTES].encode("ascii")
