"""The whole plan, or a wave of it."""

from __future__ import annotations

import pytest

from kafka_migration.migration.context import WHOLE, Scope


def test_whole_plan_means_everything_and_keeps_the_keys_of_today() -> None:
    assert WHOLE.is_whole
    assert WHOLE.has_topic("any")
    assert WHOLE.has_group("any")
    assert (WHOLE.key, WHOLE.own("cutover")) == ("", "cutover")


def test_wave_means_what_it_names_under_keys_of_its_own() -> None:
    wave = Scope.wave("first", topics={"orders"}, groups=set())
    assert not wave.is_whole
    assert (wave.has_topic("orders"), wave.has_topic("payments"), wave.has_group("app")) == (True, False, False)
    assert wave.own("cutover") == "cutover/first"


@pytest.mark.parametrize("key", ["a/b", "", "A", "1-approved/2", "-a"])
def test_wave_is_refused_whose_name_would_not_be_one_part_of_a_key(key: str) -> None:
    with pytest.raises(ValueError, match=r"called|whole plan"):
        Scope.wave(key, topics={"orders"}, groups={"app"})


def test_name_without_topics_and_groups_is_no_scope() -> None:
    with pytest.raises(ValueError, match="the whole plan has none of the three"):
        Scope(key="first", topics=frozenset({"orders"}))
