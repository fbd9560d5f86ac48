"""What the driver hands to a task: all that it needs, picklable. Holds credentials, so it is never printed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_migration.domain.direction import Direction
from kafka_migration.domain.handlers import Handler
from kafka_migration.domain.types import Position, TopicPartition

JOIN_BYTES = 256 * 1024
"""Well below every usual ``max.message.bytes``. Where a topic's is smaller, the first refusal lowers it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One partition to copy in a round, from a position that is certain.

    ``fence_end`` is the target offset after the newest fence's marker, so that records land at
    ``fence_end + records since the fence``. ``closes`` is where the data of earlier fences ended.
    ``continues`` is the source offset that would go on with the last written run without a gap, at or before the
    position; ``source_epoch`` the leader epoch of what was copied last, by which a truncated source is recognised.
    ``target_start`` is where the target's log began when the run took the partition in: should it begin later, copied
    records are gone. ``until`` ends the partition's copy at that source offset, if given. ``join_bytes`` is up to what
    size small neighbouring batches are joined into one; ``most_bytes``, unless 0, up to what size the target takes any
    batch: larger ones are split. ``hold_seconds``: for so long, from when the task begins, nothing is
    appended that could make the broker forget the fence (rule 7). ``is_alone``: each of its batches is a request of its
    own, as the source stored it, since one of them never got a clear answer. ``handler`` is what makes the target's
    records of the source's; None leaves them as they are.
    """

    partition: TopicPartition
    position: Position
    continues: int
    fence_end: int
    closes: int
    topic_key: str
    producer_id: int
    producer_epoch: int
    source_topic_id: uuid.UUID
    target_topic_id: uuid.UUID
    target_start: int = 0
    source_epoch: int = -1
    until: int | None = None
    join_bytes: int = JOIN_BYTES
    most_bytes: int = 0
    hold_seconds: float = 0.0
    is_alone: bool = False
    handler: Handler | None = None

    def __post_init__(self) -> None:
        if self.position.target != self.fence_end + self.position.records:
            raise ValueError(f"{self.partition}: position {self.position} contradicts fence end {self.fence_end}")
        if self.continues > self.position.source:
            raise ValueError(f"{self.partition}: a run up to {self.continues} lies beyond position {self.position}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much a task holds and sends at once, in bytes, and how long it waits, in seconds.

    ``join_bytes``: up to what size small neighbours become one batch, until a topic takes less. ``lease_seconds``: how
    long it may send after its last look at the link's state. ``answer_seconds``: how long
    an append is waited for; then its connection is closed. ``closed_seconds``: how long a broker may need for what came
    over a connection that is closed, besides what it waits for replicas.
    ``niceness``: how far it gives way to others on the cores of its machine, 0 to 19.
    ``flush_seconds``: how long it still sends what is queued at its end (half a second, if others wait for it),
    ``settle_seconds`` awaits answers; but of a broker that answers nothing for ``silent_seconds`` none is awaited,
    since all others stand still meanwhile.
    """

    fetch_bytes: int = 16 * 1024 * 1024
    partition_fetch_bytes: int = 1024 * 1024
    partition_queue_bytes: int = 4 * 1024 * 1024
    task_queue_bytes: int = 128 * 1024 * 1024
    request_bytes: int = 8 * 1024 * 1024
    in_flight_requests: int = 5
    throttle_bytes_per_second: int | None = None
    progress_seconds: float = 1.0
    command_seconds: float = 0.5
    flush_seconds: float = 5.0
    settle_seconds: float = 60.0
    silent_seconds: float = 2.0
    join_bytes: int = JOIN_BYTES
    lease_seconds: float = 10.0
    answer_seconds: float = 30.0
    closed_seconds: float = 5.0
    niceness: int = 0

    @property
    def handling_seconds(self) -> float:
        """For how long handlers may keep a task from all else: within a lease it looks at the link's state, which takes
        some turns."""
        return self.lease_seconds / 5

    @property
    def overdue_seconds(self) -> float:
        """After so long without a look at the link's state a task gives up, and its driver gives it up."""
        return self.lease_seconds + self.answer_seconds + self.closed_seconds

    @property
    def replicas_seconds(self) -> float:
        """How long a broker waits for the replicas of an append, before it answers that they are late."""
        return self.answer_seconds * 2 / 3

    def landing_seconds(self, requests: int) -> float:
        """How long the last of so many appends that came over a closed connection may take to its log: a broker reads
        one request after the other, each when the one before has its replicas, or has waited for them in vain."""
        return requests * self.replicas_seconds + self.closed_seconds

    @property
    def late_seconds(self) -> float:
        """How long an append may take from its sender to the log, if nobody sees what becomes of it."""
        return self.answer_seconds + self.landing_seconds(self.in_flight_requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOrders:
    """One task's share of one copy round, number ``share``, which may send at its ``part`` (at most 1) of the whole
    mirror's rate. ``commands_from`` is the offset of the links topic from which commands count; ``is_paused`` and the
    limits' throttle are what was commanded before.

    ``owed_bytes`` were sent beyond the throttle before. ``young_ms``: records at most so old may be appended in spite
    of a hold; None: none may. ``state_ids`` are the ids of the internal topics that the run began with.

    ``source`` and ``target`` are the link's origin and destination, whichever way it copies (``direction``); ``home``
    has its state, unless that is where it copies to.
    """

    link: str
    round_id: int
    seconds: float
    commands_from: int
    assignments: tuple[Assignment, ...]
    limits: Limits
    is_paused: bool = False
    part: float = 1.0
    share: int = 0
    owed_bytes: int = 0
    source: Mapping[str, Any] = field(repr=False)
    target: Mapping[str, Any] = field(repr=False)
    home: Mapping[str, Any] | None = field(default=None, repr=False)
    direction: Direction = Direction.FORWARD
    young_ms: int | None = None
    state_ids: Mapping[str, uuid.UUID] = field(default_factory=dict)
