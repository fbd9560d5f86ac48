"""What many looks at a group say together: how long its commits must rest, and what its members read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups.looks import Look
from kafka_migration.kafka.types import CommittedOffset, GroupMember, GroupState
from kafka_migration.plans.load import restore_plan

TP = TopicPartition("orders", 0)
BEGAN = datetime(2030, 1, 1, tzinfo=UTC)
EMPTY = GroupState(group="app", state="Empty", protocol="classic")


def looks(*commits: tuple[float, int]) -> Look:
    """Looks at a group without members: seconds since the first one, and the offset that was seen."""
    look = Look(at=BEGAN, commits="", has_members=False)
    for seconds, offset in commits:
        look = look.then(BEGAN + timedelta(seconds=seconds), EMPTY, {TP: CommittedOffset(offset=offset, metadata="")})
    return look


@pytest.mark.parametrize(
    ("commits", "rests"),
    [
        ([(0, 1), (7, 1)], 2),
        ([(0, 1), (7, 2)], 7),
        # The shortest time in which they moved says how long one has to look.
        ([(0, 1), (7, 2), (12, 3), (40, 4)], 5),
        ([(0, 1), (1, 2)], 2),
        ([(0, 1), (3600, 2)], 30),
    ],
    ids=["still", "moved", "shortest", "at-least", "at-most"],
)
def test_commits_rest_for_as_long_as_they_were_seen_to_take(commits: list[tuple[float, int]], rests: float) -> None:
    plan = restore_plan(
        {
            "version": 1,
            "name": "moving",
            "source": "a",
            "target": "b",
            "topics": {"include": ["orders"]},
            "cutover": {"rest_seconds": 2},
            "consumers": {"wait_seconds": 30},
        }
    )
    assert looks(*commits).rest_seconds(plan) == rests


def test_members_that_do_not_show_what_they_read_take_nothing_from_what_was_seen() -> None:
    def member(*topics: str) -> GroupState:
        found = GroupMember(member_id="m", client_id="c", host="h", partitions=(), topics=frozenset(topics) or None)
        return GroupState(group="app", state="Stable", protocol="consumer", members=(found,))

    look = looks((0, 1)).then(BEGAN, member("orders", "payments"), None)
    assert look.then(BEGAN, member(), None).subscription == {"orders", "payments"}
    assert look.then(BEGAN, member("orders"), None).subscription == {"orders"}
