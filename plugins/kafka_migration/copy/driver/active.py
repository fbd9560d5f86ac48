"""A partition between two copy rounds, as the driver knows it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from kafka_migration.copy.driver.link import PinnedTopic
from kafka_migration.copy.driver.takeover import Resumed
from kafka_migration.copy.orders import Assignment
from kafka_migration.domain.errors import StateConflict
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.types import Identity, Position, Receipt, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """A partition that is fenced and certain: where it stands and who may write to it."""

    position: Position
    opening: RunOpening
    identity: Identity
    continues: int
    source_epoch: int
    join_bytes: int
    most_bytes: int = 0
    target_start: int = 0

    @classmethod
    def behind(cls, fence: Resumed, identity: Identity, before: Active | None, *, join_bytes: int) -> Self:
        """As it stands right behind a fence of ``identity``. ``before`` is how it stood, if this run copied it already:
        what its batches may hold, and where the target's log began when the run first saw it, stay."""
        return cls(
            position=fence.position,
            opening=fence.opening,
            identity=identity,
            continues=fence.position.source,
            source_epoch=fence.opening.epoch,
            join_bytes=join_bytes if before is None else before.join_bytes,
            most_bytes=0 if before is None else before.most_bytes,
            target_start=fence.target_start if before is None else before.target_start,
        )

    def assignment(
        self, tp: TopicPartition, topic: PinnedTopic, until: int | None, hold_seconds: float, *, is_alone: bool = False
    ) -> Assignment:
        """The partition as it is handed to a task."""
        return Assignment(
            partition=tp,
            position=self.position,
            continues=self.continues,
            fence_end=self.opening.target,
            closes=self.opening.closes or 0,
            topic_key=topic.key,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            source_topic_id=topic.source_id,
            target_topic_id=topic.target_id,
            target_start=self.target_start,
            source_epoch=self.source_epoch,
            until=until,
            join_bytes=0 if is_alone else self.join_bytes,
            most_bytes=self.most_bytes,
            hold_seconds=hold_seconds,
            is_alone=is_alone,
        )

    def after(self, receipt: Receipt) -> Self:
        """Where it stands after ``receipt``. Raises StateConflict if the receipt does not begin at this position."""
        if (receipt.fence, receipt.target_start) != (self.position.fence, self.position.target):
            raise StateConflict(
                f"{receipt.topic}-{receipt.partition}: a task's receipt begins at fence {receipt.fence}, target offset"
                f" {receipt.target_start}, but the partition stands at {self.position}",
                remedy="report this; the state is unharmed, and the mirror can be started again",
            )
        position = Position(
            source=receipt.source_end,
            target=receipt.target_end,
            fence=receipt.fence,
            records=receipt.target_end - self.opening.target,
        )
        return replace(
            self,
            position=position,
            continues=receipt.continues,
            source_epoch=receipt.source_epoch,
            join_bytes=receipt.join_bytes,
            most_bytes=receipt.most_bytes,
        )
