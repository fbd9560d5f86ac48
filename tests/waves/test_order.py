"""Waves: given and laid over what the source has, or computed within limits; what spans two of them."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from kafka_migration.kafka.facts import Inventory
from kafka_migration.waves.links import parts_of
from kafka_migration.waves.order import Waves, waves_of
from tests.waves.made import given, inventory, plan, topic


def shown(waves: Waves) -> list[tuple[str, str, str]]:
    return [(wave.name, " ".join(sorted(wave.topics)), " ".join(sorted(wave.groups))) for wave in waves.waves]


def computed(taken: Inventory, spanning_groups: tuple[str, ...] = (), /, **auto: Any) -> Waves:
    return waves_of(plan(auto=auto, spanning_groups=list(spanning_groups)), taken)


def test_plan_without_waves_is_one_wave_of_everything() -> None:
    waves = waves_of(plan(), inventory(["a", "b"], {"g": ["a", "b"], "idle": []}))
    assert shown(waves) == [("", "a b", "g idle")]
    assert not waves.spanning


# -- given ------------------------------------------------------------------------------------------------------------


def test_given_waves_keep_their_order_and_groups_follow_the_topics_that_they_read() -> None:
    waves = waves_of(
        plan(given=given(later="b", first=["a", "c"])), inventory(["a", "b", "c"], {"g": ["a", "c"], "h": ["b"]})
    )
    assert shown(waves) == [("later", "b", "h"), ("first", "a c", "g")]
    assert not waves.spanning
    assert waves.wave_of("c") == waves.named("first")
    assert waves.wave_of("x") is waves.named("x") is None


def test_topic_in_no_wave_or_in_two_and_a_group_in_two_are_found() -> None:
    waves = waves_of(
        plan(given=given(one={"topics": "a.*", "groups": "g"}, two={"topics": ["ab", "b"], "groups": "g.*"})),
        inventory(["a", "ab", "b", "c"], {"g": []}),
    )
    assert waves.homeless == ("c",)
    assert waves.doubled_topics == {"ab": ("one", "two")}
    assert waves.doubled_groups == {"g": ("one", "two")}


def test_group_whose_topics_are_in_two_waves_spans_them_and_is_moved_with_the_last() -> None:
    taken = inventory(["a", "b", "c"], {"g": ["a", "c"]}, transactions={"t": ["a", "b"]})
    waves = waves_of(plan(given=given(one="a", two="b", three="c"), spanning_transactions=["t"]), taken)
    assert shown(waves) == [("one", "a", ""), ("two", "b", ""), ("three", "c", "g")]
    assert [(one.link.name, one.waves, one.waived) for one in waves.spanning] == [
        ("g", ("one", "three"), False),
        ("t", ("one", "two"), True),
    ]


def test_group_that_a_wave_names_spans_if_its_topics_are_elsewhere() -> None:
    waves = waves_of(
        plan(given=given(one={"topics": "a", "groups": "g"}, two="b")), inventory(["a", "b"], {"g": ["b"]})
    )
    assert shown(waves) == [("one", "a", "g"), ("two", "b", "")]
    assert [one.waves for one in waves.spanning] == [("one", "two")]


def test_group_that_reads_nothing_waits_for_the_last_wave_and_spans_nothing() -> None:
    waves = waves_of(
        plan(given=given(one={"topics": "a", "groups": "h"}, two="b")), inventory(["a", "b"], {"g": [], "h": []})
    )
    assert shown(waves) == [("one", "a", "h"), ("two", "b", "g")]
    assert not waves.spanning


def test_waiver_of_a_group_waives_no_transaction_of_the_same_name() -> None:
    taken = inventory(["a", "b"], {"x": ["a", "b"]}, transactions={"x": ["a", "b"]})
    waves = waves_of(plan(given=given(one="a", two="b"), spanning_groups=["x"]), taken)
    assert [(str(one.link.kind), one.waived) for one in waves.spanning] == [("group", True), ("transaction", False)]


# -- computed ---------------------------------------------------------------------------------------------------------


def test_canary_is_the_smallest_part_with_a_group_and_the_rest_follows_smallest_first() -> None:
    taken = inventory(
        [topic("big", partitions=9), topic("mid", partitions=3), topic("a", partitions=2), topic("b"), "lone"],
        {"one": ["big"], "two": ["a", "b"], "three": ["mid"]},
    )
    waves = computed(taken, most_topics=1)
    # a and b are three partitions as mid is, but two topics.
    assert shown(waves) == [
        ("canary", "mid", "three"),
        ("wave-1", "lone", ""),
        ("wave-2", "a b", "two"),
        ("wave-3", "big", "one"),
    ]
    assert [wave.canary for wave in waves.waves] == [True, False, False, False]
    assert waves.oversized == {"wave-2": ("most_topics",)}


def test_canary_may_be_named_or_left_out() -> None:
    taken = inventory(["a", "b", "c"], {"g": ["a"], "h": ["b", "c"]})
    assert shown(computed(taken, canary_topic="c")) == [("canary", "b c", "h"), ("wave-1", "a", "g")]
    assert shown(computed(taken, canary=False)) == [("wave-1", "a b c", "g h")]
    assert shown(computed(taken, canary_topic="none such")) == [("wave-1", "a b c", "g h")]
    assert shown(computed(inventory(["a"]))) == [("wave-1", "a", "")]
    assert shown(computed(inventory([]))) == []


@pytest.mark.parametrize(
    ("limits", "waves"),
    [
        ({"most_topics": 2}, ["a b", "c d"]),
        ({"most_groups": 3}, ["a b c", "d"]),
        ({"most_bytes": 25_000}, ["a b", "c d"]),
        ({"most_bytes": 9}, ["a", "b", "c", "d"]),
        ({}, ["a b c d"]),
    ],
)
def test_limits_end_a_wave(limits: dict[str, int], waves: list[str]) -> None:
    taken = inventory("abcd", {f"g{name}": [name] for name in "abcd"})
    assert [topics for _, topics, _ in shown(computed(taken, canary=False, **limits))] == waves


def test_waived_group_holds_nothing_together_and_moves_with_the_last_wave_that_it_reads() -> None:
    taken = inventory([topic("a"), topic("b", partitions=2), topic("c", partitions=3)], {"g": ["a", "b"], "h": ["c"]})
    waves = computed(taken, ("g",), canary=False, most_topics=1)
    assert shown(waves) == [("wave-1", "a", ""), ("wave-2", "b", "g"), ("wave-3", "c", "h")]
    assert [(one.link.name, one.waves, one.waived) for one in waves.spanning] == [("g", ("wave-1", "wave-2"), True)]


def test_waves_that_were_computed_before_stay_and_what_came_since_joins_the_last_that_it_is_linked_to() -> None:
    first = computed(inventory("abc", {"g": ["a"], "h": ["b"]}), most_topics=1)
    assert [topics for _, topics, _ in shown(first)] == ["a", "c", "b"]
    # d belongs to a; e to none; f to a; and c is gone.
    later = inventory("abdef", {"g": ["a", "d"], "h": ["b"], "i": ["f", "a"]})
    kept = waves_of(plan(auto={"most_topics": 1}), later, before=first.waves)
    assert shown(kept) == [("canary", "a d f", "g i"), ("wave-1", "", ""), ("wave-2", "b e", "h")]
    assert kept.waves[0].canary
    torn = waves_of(plan(auto={"most_topics": 1}), inventory("abc", {"g": ["a", "b"]}), before=first.waves)
    assert [(one.link.name, one.waves) for one in torn.spanning] == [("g", ("canary", "wave-2"))]


def some(chance: random.Random, names: list[str]) -> list[str]:
    return chance.sample(names, min(len(names), chance.randint(0, 3)))


def test_computed_waves_hold_everything_once_and_nothing_spans_them() -> None:
    for seed in range(40):
        chance = random.Random(seed)
        topics = [topic(f"t{n}", partitions=chance.randint(1, 12)) for n in range(chance.randint(1, 30))]
        names = [one.name for one in topics]
        groups = {f"g{n}": some(chance, names) for n in range(chance.randint(0, 12))}
        transactions = {f"x{n}": some(chance, names) for n in range(chance.randint(0, 3))}
        auto = {
            "most_topics": chance.randint(1, 8),
            "most_groups": chance.randint(1, 4),
            "canary": chance.random() < 0.5,
        }
        waves = computed(inventory(topics, groups, transactions=transactions), **auto)
        assert sorted(t for wave in waves.waves for t in wave.topics) == sorted(names)
        assert sorted(g for wave in waves.waves for g in wave.groups) == sorted(groups)
        assert not waves.spanning
        assert not waves.homeless
        partitions = {one.name: one.partitions for one in topics}
        for at, wave in enumerate(waves.waves):
            assert wave.canary == (wave.name == "canary")
            assert not (wave.canary and (at or not wave.groups))
            is_last = at == len(waves.waves) - 1
            # Groups that read nothing wait for the last one, which is no matter of its size.
            idle = sum(not groups[g] for g in wave.groups) if is_last else 0
            within = len(wave.topics) <= auto["most_topics"] and len(wave.groups) - idle <= auto["most_groups"]
            assert within or wave.name in waves.oversized
        parts = [sum(partitions[t] for t in part.topics) for part in parts_of(names, waves.links)]
        rest = [
            [sum(partitions[t] for t in part.topics) for part in parts_of(wave.topics, waves.links)]
            for wave in waves.waves
            if not wave.canary
        ]
        assert all(max(smaller) <= min(larger) for smaller, larger in pairwise(rest))
        assert sum(map(len, rest)) == len(parts) - any(wave.canary for wave in waves.waves)
        # What is listed in another order is the same.
        chance.shuffle(topics)
        mixed = dict(chance.sample(sorted(groups.items()), len(groups)))
        assert computed(inventory(topics, mixed, transactions=transactions), **auto) == waves
