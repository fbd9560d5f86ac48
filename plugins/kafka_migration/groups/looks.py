"""What was seen of a group where it runs, look by look: does it have members, and do its commits move without any?

An empty group is not yet a stopped one: who commits without being a member (Flink, ``assign()``) is never seen. But
such commits move from look to look, while the group is empty at each. A group with members is another matter: while it
has some, Kafka takes commits from them alone, and none from a member that has left.

Looks are taken when targets are created, when the cutover is approved, when groups are listed, and when one is moved.
The journal keeps one small value for each group: the last look, and what all of them together show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from kafka_migration.domain.digest import digest_of
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import NotAuthorized, StateConflict
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.types import CommittedOffset, GroupState

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.plans.model import Plan
    from kafka_migration.state.journal import Journal

KIND = "group-look"
FORMAT = 1

#: Protocols whose groups are what they committed. Others keep more (share groups: single records; streams: state).
MOVABLE_PROTOCOLS = ("classic", "consumer")

Commits = Mapping[TopicPartition, CommittedOffset]


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The last look at a group, and what all looks together show.

    ``commits`` is a digest, empty if they may not be read. ``members_at`` is when it was last seen with members.
    ``moved_seconds``: the shortest time between two looks in a row, both without members, between which its commits
    moved; None if they never did. ``subscription``: the topics that its members read when there were some.
    """

    at: datetime
    commits: str
    has_members: bool
    members_at: datetime | None = None
    moved_seconds: float | None = None
    subscription: frozenset[str] = frozenset()

    def rest_seconds(self, plan: Plan) -> float:
        """How long its commits must stand still, once it is empty, to count as stopped."""
        if self.moved_seconds is not None:
            return max(plan.cutover.rest_seconds, min(self.moved_seconds, plan.consumers.wait_seconds))
        return plan.cutover.rest_seconds if self.members_at is None else 0.0

    def then(self, at: datetime, state: GroupState, commits: Commits | None) -> Look:
        """This look, and the next one."""
        found = "" if commits is None else digest_of({str(tp): commit.offset for tp, commit in sorted(commits.items())})
        if state.members:
            # Commits that moved before were a member's that came and went: nobody else can commit beside this one.
            topics = subscribed_topics(state) or self.subscription
            return Look(at=at, commits=found, has_members=True, members_at=at, subscription=topics)
        moved = self.moved_seconds
        if not self.has_members and found and self.commits and found != self.commits:
            gap = (at - self.at).total_seconds()
            moved = gap if moved is None else min(gap, moved)
        return replace(self, at=at, commits=found, has_members=False, moved_seconds=moved)

    def as_dict(self) -> dict[str, Any]:
        """JSON types: what the journal holds."""
        return {
            "format": FORMAT,
            "at": self.at.isoformat(),
            "commits": self.commits,
            "has_members": self.has_members,
            "members_at": self.members_at.isoformat() if self.members_at else None,
            "moved_seconds": self.moved_seconds,
            "subscription": sorted(self.subscription),
        }

    @classmethod
    def load(cls, journal: Journal, group: str, direction: Direction = Direction.FORWARD) -> Self | None:
        """The looks at ``group`` so far, where ``direction`` begins; None if there was none. Raises StateConflict for
        an unknown format."""
        value = journal.read(direction.own(KIND), group)
        return None if value is None else cls._of(group, value)

    @classmethod
    def all(cls, journal: Journal, direction: Direction = Direction.FORWARD) -> dict[str, Self]:
        """The looks at every group, where ``direction`` begins."""
        return {group: cls._of(group, value) for group, value in journal.all(direction.own(KIND)).items()}

    @classmethod
    def _of(cls, group: str, value: Mapping[str, Any]) -> Self:
        try:
            if value["format"] != FORMAT:
                raise ValueError(f"format {value['format']}")
            return cls(
                at=datetime.fromisoformat(value["at"]),
                commits=value["commits"],
                has_members=value["has_members"],
                members_at=datetime.fromisoformat(value["members_at"]) if value["members_at"] else None,
                moved_seconds=value["moved_seconds"],
                subscription=frozenset(value["subscription"]),
            )
        except (KeyError, ValueError, TypeError) as error:
            raise StateConflict(
                f"this version cannot read the journal's looks at group {group} ({error})",
                remedy="use the version of this tool that wrote them",
            ) from error


def subscribed_topics(state: GroupState) -> frozenset[str]:
    """The topics that active members read: what they subscribe to, or else what is assigned to them."""
    topics: set[str] = set()
    for member in state.members:
        topics |= member.topics or set()
        topics |= {tp.topic for tp in member.partitions}
    return frozenset(topics)


def take(ctx: Context, groups: Iterable[str]) -> dict[str, Look]:
    """Look at ``groups`` now, where they are to be moved from, in a few requests for all of them, and keep what was
    seen (not in a dry run)."""
    names = list(groups)
    states = ctx.origin.group_states(names)
    movable = [name for name in names if states[name].protocol in MOVABLE_PROTOCOLS]
    commits: Mapping[str, Commits] = {}
    # The preflight names commits that may not be read, and the move asks again: here they are unknown then.
    with suppress(NotAuthorized):
        commits = ctx.origin.committed_of(movable, is_stable=False)
    before, now = Look.all(ctx.journal, ctx.direction), ctx.clock.now()
    nothing = Look(at=now, commits="", has_members=False)
    looks = {name: before.get(name, nothing).then(now, states[name], commits.get(name)) for name in names}
    if not ctx.dry_run:
        ctx.journal.record_all(ctx.direction.own(KIND), {group: look.as_dict() for group, look in looks.items()})
    return looks
