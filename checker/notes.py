"""The format of notes: JSON lines, one file for each client process, append-only.

The first line of a file is an `Open`. Every note carries `wall`, nanoseconds since 1970, and `mono`, nanoseconds on the
monotonic clock that the file's `Open` names. docs/checker.md has an example of each, and when it must be on disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

Kind = Literal["idempotent", "transactional", "acks=1"]
"""Of a producer. `acks=1` stands for every producer whose own retries may double and reorder records."""

Isolation = Literal["read_committed", "read_uncommitted"]
Time = Annotated[int, Field(ge=0, lt=2**62)]
"""Nanoseconds, of either clock."""
Offset = Annotated[int, Field(ge=0, lt=2**48)]
Number = Annotated[int, Field(ge=0, lt=2**48)]
"""Of a partition, a send, a transaction or a commit."""
Place = tuple[str, Number]
"""Topic and partition."""
Position = tuple[str, Number, Offset]
"""Topic, partition, and the offset of the next record to read."""
Start = tuple[str, Number, Offset | None]
"""Topic, partition, and where reading begins, null where the client does not know."""


class BadNotes(ValueError):
    """A file that is no notes, or contradicts itself; the message names file, line, field and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    wall: Time
    mono: Time


@dataclass(frozen=True, slots=True, kw_only=True)
class Open(_Note):
    """A client process begins to note.

    Attributes:
        client: who this is, over restarts and moves between clusters: pauses and the order of sends go by it.
        cluster: the cluster that it talks to. Notes of a client that changes clusters while it runs name their own.
        clock: names the monotonic clock. Processes with the same name share it, as those of one machine since its boot.
        kind: of its producer, if it has one.
        group: of its consumer, if that is in a group; a consumer without one assigns partitions to itself.
        isolation: of its consumer.
        final: its consumer read what it was assigned to the end, after all producers had ended, where clients ended up.
        started: when whoever starts this process started it, on the same monotonic clock.
    """

    event: Literal["open"] = "open"
    version: Literal[1]
    client: str
    cluster: str
    clock: str
    kind: Kind | None = None
    group: str | None = None
    isolation: Isolation = "read_committed"
    final: bool = False
    started: Time | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Send(_Note):
    """A record is about to be handed to the producer.

    Attributes:
        seq: the number of this send in this process: higher than those before it.
        value: what identifies the record; sent once in all of the history.
        partition: where it was sent to, if the client chose.
        txn: the transaction that it is a part of.
    """

    event: Literal["send"] = "send"
    seq: Number
    value: str
    topic: str
    partition: Number | None = None
    key: str | None = None
    txn: Number | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack(_Note):
    """The broker took a record. `offset` is null where the client got none."""

    event: Literal["ack"] = "ack"
    seq: Number
    partition: Number
    offset: Offset | None = None
    cluster: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed(_Note):
    """A send failed. `certain`: the record is in no log, and will be in none; otherwise it may be."""

    event: Literal["failed"] = "failed"
    seq: Number
    certain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin(_Note):
    """A transaction begins. `txn` is a number of its own in this process."""

    event: Literal["begin"] = "begin"
    txn: Number


@dataclass(frozen=True, slots=True, kw_only=True)
class End(_Note):
    """A transaction is about to be committed or aborted."""

    event: Literal["end"] = "end"
    txn: Number
    how: Literal["commit", "abort"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(_Note):
    """What became of a transaction. Without this note it is unknown."""

    event: Literal["ended"] = "ended"
    txn: Number
    outcome: Literal["committed", "aborted", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt(_Note):
    """The application got a record."""

    event: Literal["receipt"] = "receipt"
    topic: str
    partition: Number
    offset: Offset
    value: str
    key: str | None = None
    cluster: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign(_Note):
    """Partitions were added to those that this consumer reads, by the group or by itself."""

    event: Literal["assign"] = "assign"
    partitions: tuple[Start, ...]
    cluster: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoke(_Note):
    """Partitions were taken from this consumer, or lost."""

    event: Literal["revoke"] = "revoke"
    partitions: tuple[Place, ...]
    cluster: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(_Note):
    """Offsets are about to be committed; with `txn`, as a part of that transaction."""

    event: Literal["commit"] = "commit"
    commit: Number
    positions: tuple[Position, ...]
    txn: Number | None = None
    cluster: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed(_Note):
    """What became of a commit of offsets. Without this note it is unknown."""

    event: Literal["committed"] = "committed"
    commit: Number
    outcome: Literal["ok", "failed", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready(_Note):
    """The client has started: what it does from here on is work. A consumer's first `assign` shows the same."""

    event: Literal["ready"] = "ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(_Note):
    """The client was asked to stop."""

    event: Literal["stop"] = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Close(_Note):
    """The client has stopped in order; the last note of its file."""

    event: Literal["close"] = "close"


Note = (
    Open | Send | Ack | Failed | Begin | End | Ended | Receipt | Assign | Revoke | Commit | Committed
    | Ready | Stop | Close
)  # fmt: skip

_NOTE: TypeAdapter[Note] = TypeAdapter(
    Annotated[Note, Field(discriminator="event")], config=ConfigDict(extra="forbid", strict=True)
)


def parse(line: bytes) -> Note:
    """One note of its line.

    Raises:
        BadNotes: the line is no note; the message names field and value.
    """
    try:
        return _NOTE.validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "line"
        raise BadNotes(f"{field}: {first['msg']}, not {str(first['input'])[:80]!r}") from error
