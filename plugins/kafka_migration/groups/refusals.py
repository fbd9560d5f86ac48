"""Why a group is not moved, where a caller wants to know more than the message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from kafka_migration.domain.errors import Refused
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.types import GroupState

Side = Literal["source", "target"]


class GroupLives(Refused):
    """A group that must be empty has members. ``members`` are their client ids and hosts."""

    def __init__(self, side: Side, state: GroupState) -> None:
        self.side, self.group, self.state = side, state.group, state.state
        self.members = tuple(f"{it.client_id} at {it.host} ({it.member_id})" for it in state.members)
        who = listed(self.members) or f"no members, but state {state.state}"
        super().__init__(
            f"group {state.group} is not empty on the {side}: {who}",
            remedy=f"stop its consumers on the {side} (or have consumers.stop of the plan do it), then run this again",
        )


class WentOn(Refused):
    """The group has gone on on one side, so its consumers must not be started on the other."""

    def __init__(self, group: str, side: Side, partitions: str) -> None:
        self.group, self.side, self.partitions = group, side, partitions
        super().__init__(
            f"group {group} has gone on on the {side}: {partitions}",
            remedy="the other side would give it records again that it has processed: see which consumers commit there",
        )


class CommitsAlone(Refused):
    """Somebody commits for the group without being a member of it, and nobody is named who stops it."""

    def __init__(self, group: str, seconds: float) -> None:
        self.group, self.seconds = group, seconds
        super().__init__(
            f"group {group} has no members on the source, but its commits moved between two looks {seconds:.0f} s"
            " apart: a client commits for it without being a member (Flink, assign())",
            remedy="stop it by a hook (consumers.stop of the plan; `wait` if others stop it), or stop it and"
            " declare the group in cutover.stopped_groups",
        )


class WouldRewind(Refused):
    """The group has committed further on the target than its translated offsets. ``partitions`` are those."""

    def __init__(self, group: str, ahead: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self.group, self.partitions = group, dict(ahead)
        what = listed(f"{tp} (there {there}, translated {here})" for tp, (there, here) in sorted(ahead.items()))
        super().__init__(
            f"group {group} is further ahead on the target: {what}",
            remedy="find out who committed there; to set the group back all the same, cutover.rewind: true in the plan",
        )
