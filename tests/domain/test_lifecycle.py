"""What can come next in the life of a topic."""

from __future__ import annotations

import itertools

import pytest

from kafka_migration.domain.lifecycle import TopicState as State


@pytest.mark.parametrize(
    "life",
    [
        [State.MIRRORING, State.DRAINED, State.SEALED, State.COMPLETED],
        [State.MIRRORING, State.FENCED, State.DRAINED, State.SEALED, State.SERVED, State.COMPLETED],
        [State.SERVED, State.REVERSED, State.MIRRORING],
        [State.SEALED, State.MIRRORING, State.FENCED, State.MIRRORING],
    ],
)
def test_each_state_of_a_life_may_follow_the_one_before_and_stay(life: list[State]) -> None:
    assert all(before.may_become(after) for before, after in itertools.pairwise(life))
    assert all(state.may_become(state) for state in life)


def test_mirroring_never_follows_what_producers_wrote_to_the_target() -> None:
    assert not State.SERVED.may_become(State.MIRRORING)
    before = [State.FENCED, State.SEALED, State.SERVED]
    assert [state for state in State if state.may_become(State.SERVED)] == before


def test_nothing_is_sealed_before_it_is_drained() -> None:
    assert [state for state in State if state.may_become(State.SEALED)] == [State.DRAINED, State.SEALED]
