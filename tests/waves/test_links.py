"""Why topics move together: groups, Streams applications, transactions; and what that makes of all topics."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise

from kafka_migration.waves.links import Kind, Link, chain, links_of, parts_of
from tests.waves.made import group, inventory


def link(name: str, *topics: str, group: str = "") -> Link:
    return Link(kind=Kind.GROUP, name=name, topics=frozenset(topics), group=group)


def found(links: Iterable[Link]) -> dict[tuple[str, str], set[str]]:
    return {one.key: set(one.topics) for one in links}


def test_groups_hold_what_they_read_now_and_what_they_were_seen_to_read() -> None:
    taken = inventory(["a", "b", "c"], {"app": ["a"], "idle": []})
    assert found(links_of(taken, remembered={"app": {"b", "of another plan"}})) == {
        ("group", "app"): {"a", "b"},
        ("group", "idle"): set(),
    }


def test_streams_application_holds_its_internal_topics_and_what_its_group_reads() -> None:
    taken = inventory(
        ["in", "app-store-changelog", "app-by-key-repartition", "other-changelog", "app-changelog"], {"app": ["in"]}
    )
    (one,) = links_of(taken)
    assert (one.kind, one.group) == (Kind.STREAMS, "app")
    # An internal topic has a name of its own between the two; -changelog alone is anybody's.
    assert one.topics == {"in", "app-store-changelog", "app-by-key-repartition"}
    assert "keeps its state" in str(one)


def test_internal_topic_belongs_to_the_longest_application_id_that_fits() -> None:
    topics = ["shop-store-changelog", "shop-eu-store-changelog", "shop-eu-x-repartition"]
    taken = inventory(topics, {"shop": [], "shop-eu": []})
    assert found(links_of(taken)) == {
        ("Streams application", "shop"): {"shop-store-changelog"},
        ("Streams application", "shop-eu"): {"shop-eu-store-changelog", "shop-eu-x-repartition"},
    }


def test_application_that_the_plan_leaves_behind_keeps_its_state_in_one_piece() -> None:
    taken = inventory(["app-a-changelog", "app-b-changelog"], left_behind=("app",))
    (one,) = links_of(taken)
    assert (one.name, one.group, len(one.topics)) == ("app", "", 2)
    assert not links_of(inventory(["app-a-changelog"], left_behind=("app",)))


def test_streams_group_of_the_new_protocol_counts_though_its_reads_are_unknown() -> None:
    taken = inventory(
        ["app-a-changelog", "x"], [group("app", [], protocol="streams"), group("bare", [], protocol="streams")]
    )
    assert found(links_of(taken)) == {
        ("Streams application", "app"): {"app-a-changelog"},
        ("Streams application", "bare"): set(),
    }


def test_transaction_holds_what_its_producer_wrote() -> None:
    taken = inventory(["a", "b", "c"], transactions={"payments": ["a", "c"]})
    assert found(links_of(taken)) == {("transaction", "payments"): {"a", "c"}}
    assert "writes them: a, c" in str(links_of(taken)[0])


def test_parts_are_what_links_connect_directly_or_by_another_topic() -> None:
    links = [link("g", "a", "b", group="g"), link("h", "b", "c", group="h"), link("t", "d", "e"), link("i", group="i")]
    parts = parts_of("abcdef", links)
    assert [(sorted(p.topics), sorted(p.groups)) for p in parts] == [
        (["a", "b", "c"], ["g", "h"]),
        (["d", "e"], []),
        (["f"], []),
    ]


def test_chain_names_the_links_between_two_topics_and_none_where_there_are_none() -> None:
    links = [link("g", "a", "b"), link("h", "b", "c"), link("long", "a", "x"), link("long2", "x", "y")]
    assert [one.name for one in chain(links, "a", "c")] == ["g", "h"]
    assert chain(links, "a", "alone") == ()
    assert chain(links, "a", "a") == ()


def test_parts_hold_every_topic_once_tear_no_link_and_are_no_larger_than_they_must_be() -> None:
    for seed in range(40):
        chance = random.Random(seed)
        topics = [f"t{n}" for n in range(chance.randint(1, 40))]
        links = [
            link(f"l{n}", *chance.sample(topics, min(len(topics), chance.randint(0, 4))), group=f"l{n}")
            for n in range(chance.randint(0, 25))
        ]
        parts = parts_of(topics, links)
        assert sorted(topic for part in parts for topic in part.topics) == sorted(topics)
        for one in links:
            holders = [part for part in parts if part.topics & one.topics]
            assert len(holders) == bool(one.topics)
            assert all(one.topics <= part.topics and one.group in part.groups for part in holders)
        for part in parts:
            first, *others = sorted(part.topics)
            # Whatever is together has a reason that can be shown.
            for other in others:
                row = chain(links, first, other)
                assert row
                assert first in row[0].topics
                assert other in row[-1].topics
                assert all(a.topics & b.topics for a, b in pairwise(row))
        # The order in which things are listed changes nothing.
        chance.shuffle(topics)
        chance.shuffle(links)
        assert parts_of(topics, links) == parts
