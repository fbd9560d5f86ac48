"""How topics are called on the target, and that each name leads back to one topic."""

from __future__ import annotations

import itertools

import pytest

from kafka_migration.domain import ledger
from kafka_migration.domain.names import ELSEWHERE, SAME, TopicNames

WEST = TopicNames(prefix="west.", renamed={"payments": "eu-payments", "__audit": "audit"})
#: Few letters and short names, so that they meet.
NAMES = ["".join(letters) for size in (1, 2, 3) for letters in itertools.product("ab.", repeat=size)]


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("orders", "west.orders"),
        ("west.orders", "west.west.orders"),
        ("payments", "eu-payments"),
        ("eu-payments", "west.eu-payments"),
        ("__audit", "audit"),
        ("__consumer_offsets", "__consumer_offsets"),
        (ledger.JOURNAL_TOPIC, ledger.JOURNAL_TOPIC),
        (ledger.STRAGGLERS_TOPIC, ledger.STRAGGLERS_TOPIC),
    ],
)
def test_topic_has_its_name_on_the_target_and_that_leads_back(topic: str, name: str) -> None:
    assert WEST.on_target(topic) == name
    assert WEST.on_source(name) == topic
    assert WEST.known_as(name) == topic


@pytest.mark.parametrize("name", ["orders", "payments", "west.payments", "west.__audit", "east.orders"])
def test_name_that_no_topic_of_the_source_would_have_is_the_targets_own(name: str) -> None:
    assert WEST.on_source(name) is None
    assert WEST.known_as(name) == ELSEWHERE + name
    assert WEST.on_target(ELSEWHERE + name) == name


POLICIES = [
    TopicNames(prefix=prefix, renamed=dict(zip(topics, names, strict=True)))
    for prefix in ("", "a", "a.", "ab")
    for topics in itertools.permutations(NAMES[:8], 2)
    for names in itertools.permutations(NAMES[:14], 2)
]


def test_every_name_of_the_target_leads_back_to_one_topic_and_there_again() -> None:
    for called in POLICIES:
        known = {called.known_as(name): name for name in NAMES}
        assert len(known) == len(NAMES), called
        assert {topic: called.on_target(topic) for topic in known} == known, called


def test_prefix_reaches_the_names_of_its_topics_and_no_others() -> None:
    for called in POLICIES[::7]:
        for prefix in NAMES[:12]:
            begins = called.prefix_on_target(prefix)
            for name in NAMES:
                if begins is None:
                    continue
                assert called.on_target(prefix + name).startswith(begins), (called, prefix, name)
                topic = called.on_source(begins + name)
                assert topic is None or topic.startswith(prefix), (called, prefix, name)


def test_prefix_of_topics_that_are_called_otherwise_or_keep_their_names_is_none() -> None:
    assert WEST.prefix_on_target("orders.") == "west.orders."
    assert [WEST.prefix_on_target(prefix) for prefix in ("pay", "", "_", "__c")] == [None] * 4


def test_all_keep_their_names_without_prefix_and_renamed_topics() -> None:
    assert SAME.are_same
    assert not WEST.are_same
    assert (SAME.on_target("orders"), SAME.known_as("orders"), SAME.prefix_on_target("")) == ("orders", "orders", "")
