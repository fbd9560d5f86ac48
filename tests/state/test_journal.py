"""The journal of a migration, and its locks: of two that claim a topic one holds it, whatever the interleaving."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafka_migration.domain.errors import TakenOver
from kafka_migration.domain.names import TopicNames
from kafka_migration.state.journal import Journal
from kafka_migration.state.store import MemoryStore, Value

AT = "2026-01-01T00:00:00+00:00"


@pytest.fixture
def store():
    return MemoryStore()


def test_what_was_recorded_is_read_back_by_kind_and_name(store):
    journal = Journal(store, "orders")
    journal.record("topic", "a", {"n": 1})
    journal.record("topic", "b/with/slashes", {"n": 2})
    journal.record("topics", "a", {"n": 3})
    journal.record("topic", "a", {"n": 4})
    assert journal.all("topic") == {"b/with/slashes": {"n": 2}, "a": {"n": 4}}
    assert journal.read("topic", "a") == {"n": 4}
    journal.forget("topic", "a")
    assert journal.read("topic", "a") is None


def test_migrations_do_not_see_each_others_records(store):
    Journal(store, "orders").record("topic", "a", {"n": 1})
    for other in ("order", "orders2", "_lock"):
        assert Journal(store, other).all("topic") == {}


def test_topic_is_held_by_the_first_that_claims_it_until_it_gives_it_up(store):
    first, second = Journal(store, "first"), Journal(store, "second")
    assert first.lock(["a", "b"], at=AT) == {}
    assert second.lock(["b", "c"], at=AT) == {"b": "first"}
    assert second.holders(["a", "b", "c"]) == {"a": "first", "b": "first"}, "what was refused claims nothing"
    assert first.lock(["a", "b"], at=AT) == {}, "whoever holds it may ask again"
    first.unlock(["a", "b"])
    assert second.lock(["b", "c"], at=AT) == {}
    assert first.holders("abc") == {"b": "second", "c": "second"}


def test_locks_are_on_the_names_of_the_target_and_told_by_those_of_the_source(store):
    first = Journal(store, "first", locked_as=TopicNames(prefix="west.").on_target)
    second = Journal(store, "second", locked_as=TopicNames(renamed={"b": "west.a"}).on_target)
    assert first.lock(["a"], at=AT) == {}
    assert second.lock(["a"], at=AT) == {}, "another topic of the target"
    assert second.lock(["b"], at=AT) == {"b": "first"}
    assert (first.holders("ab"), second.holders("ab")) == ({"a": "first"}, {"a": "second", "b": "first"})
    first.unlock("a")
    assert second.lock(["b"], at=AT) == {}
    first.record("topic", "a", {})
    (other,) = second.others()
    assert other.holders("ab") == {"a": "second", "b": "second"}


def test_claim_that_is_refused_keeps_what_was_held_before(store):
    first, second = Journal(store, "first"), Journal(store, "second")
    second.lock(["mine"], at=AT)
    first.lock(["theirs"], at=AT)
    assert second.lock(["mine", "free", "theirs"], at=AT) == {"theirs": "first"}
    assert second.holders(["mine", "free", "theirs"]) == {"mine": "second", "theirs": "first"}


def test_holder_that_asks_again_beside_somebody_who_claims_just_then_keeps_its_place(store):
    first = Journal(store, "first")
    assert first.lock(["a"], at=AT) == {}
    # Written, and not yet withdrawn.
    store.put("_lock/a/second", {"at": AT})
    assert first.lock(["a"], at=AT) == {}
    assert first.holders(["a"]) == {"a": "first"}


def test_newest_claim_of_a_name_holds_and_the_one_before_is_taken_over(store: MemoryStore) -> None:
    first, second, other = Journal(store, "orders"), Journal(store, "orders"), Journal(store, "payments")
    before = first.claim("group", "app", at=AT)
    other.claim("group", "app", at=AT)
    first.require(before)
    after = second.claim("group", "app", at=AT)
    second.require(after)
    assert after.owner_epoch > before.owner_epoch
    with pytest.raises(TakenOver, match="group app of migration orders"):
        first.require(before)
    # A process that is run again goes on at once, whoever is dead.
    first.require(first.claim("group", "app", at=AT))


class InTurns(MemoryStore):
    """A store that several migrations share, whose calls happen in an order that the test chooses."""

    def __init__(self, shared: MemoryStore, name: str, turns: "Turns") -> None:
        super().__init__()
        self._values, self._name, self._turns = shared._values, name, turns

    def put(self, key: str, value: Value) -> None:
        with self._turns.take(self._name):
            super().put(key, value)

    def delete(self, key: str) -> None:
        with self._turns.take(self._name):
            super().delete(key)

    def keys(self, prefix: str = "") -> list[str]:
        with self._turns.take(self._name):
            return super().keys(prefix)


class Turns:
    """Who may call next: by chance, among those that have not come to their end."""

    def __init__(self, names: list[str], chance: random.Random) -> None:
        self._names, self._chance, self._change = list(names), chance, threading.Condition()
        self._next = chance.choice(names)

    @contextmanager
    def take(self, name: str) -> Iterator[None]:
        with self._change:
            assert self._change.wait_for(lambda: self._next == name, timeout=10)
            yield
            self._pass_on()

    def leave(self, name: str) -> None:
        with self._change:
            self._names.remove(name)
            if self._next == name:
                self._pass_on()

    def _pass_on(self) -> None:
        if self._names:
            self._next = self._chance.choice(self._names)
            self._change.notify_all()


@pytest.mark.parametrize("claims", [("ab", "ab"), ("ab", "ba"), ("ab", "b"), ("ab", "bc", "ca"), ("a", "a", "a")])
def test_no_topic_is_held_by_two_whatever_the_interleaving(claims):
    for seed in range(80):
        names = [f"m{n}" for n in range(len(claims))]
        results, holders = _race(dict(zip(names, claims, strict=True)), random.Random(seed))
        granted = {name: topics for name, topics in zip(names, claims, strict=True) if results[name] == {}}
        wanted = [topic for topics in granted.values() for topic in topics]
        assert len(wanted) == len(set(wanted)), (seed, results)
        assert holders == {topic: name for name, topics in granted.items() for topic in topics}, (seed, results)


def _race(claims: dict[str, str], chance: random.Random) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """What each claim was told, and who holds what afterwards."""
    shared, turns, results = MemoryStore(), Turns(list(claims), chance), dict[str, dict[str, str]]()

    def claim(name: str, topics: str) -> None:
        results[name] = Journal(InTurns(shared, name, turns), name).lock(topics, at=AT)
        turns.leave(name)

    threads = [threading.Thread(target=claim, args=pair) for pair in claims.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return results, Journal(shared, "x").holders("abc")
