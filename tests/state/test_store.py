"""One contract for every store, in memory and in an internal topic of a real cluster."""

import uuid
from collections.abc import Callable, Iterator

import pytest

from kafka_migration.domain import ledger
from kafka_migration.domain.errors import StateConflict
from kafka_migration.kafka.topic_log import Entry, TopicLog
from kafka_migration.state.journal import Journal
from kafka_migration.state.store import MemoryStore, Store, TopicStore
from tests.kafka_tools import ToSend, create_topics, produce

Open = Callable[[], Store]


@pytest.fixture(params=["memory", "topic"])
def opened(request, monkeypatch) -> Iterator[Open]:
    """Opens the same store again and again: as other readers would, where it outlives its reader."""
    if request.param == "memory":
        store = MemoryStore()
        yield lambda: store
        return
    servers = request.getfixturevalue("target_cluster").bootstrap_servers
    topic = f"store-{uuid.uuid4().hex[:8]}.internal"
    monkeypatch.setitem(ledger.PARTITIONS, topic, 1)
    open_stores: list[Store] = []

    def open_it() -> Store:
        log = TopicLog({"bootstrap.servers": servers}, topic)
        log.ensure()
        open_stores.append(TopicStore(log))
        return open_stores[-1]

    yield open_it
    for it in open_stores:
        it.close()


VALUE = {"text": "grüße", "number": 2**53, "null": None, "list": [1, {"a": []}], "empty": {}}


def test_what_was_put_is_there_for_every_reader_at_once(opened):
    writer, reader = opened(), opened()
    assert reader.get("k") is None
    writer.put("k", VALUE)
    assert reader.get("k") == VALUE == writer.get("k")
    assert opened().items() == {"k": VALUE}


def test_later_value_replaces_and_deletion_removes(opened):
    store = opened()
    store.put("k", {"n": 1})
    store.put("k", {"n": 2})
    assert store.get("k") == {"n": 2}
    store.delete("k")
    store.delete("never there")
    assert store.get("k") is None
    assert opened().items() == {}


def test_items_come_by_prefix_in_the_order_of_their_last_write(opened):
    store = opened()
    for key in ("a/2", "b/1", "a/1", "a/3"):
        store.put(key, {"key": key})
    store.put("a/2", {"key": "again"})
    store.delete("a/1")
    store.put("a/1", {"key": "back"})
    assert list(opened().items("a/")) == ["a/3", "a/2", "a/1"]
    assert list(store.items()) == ["b/1", "a/3", "a/2", "a/1"]


def test_place_of_a_value_rises_with_every_write_for_every_reader(opened: Open) -> None:
    first, second = opened(), opened()
    places: list[int] = []
    for key, store in (("a", first), ("b", second), ("a", second)):
        store.put(key, {"n": len(places)})
        located = first.located(key)
        assert located is not None
        assert located == second.located(key) == opened().located(key)
        assert located[0] == {"n": len(places)}
        places.append(located[1])
    assert places == sorted(set(places))
    first.delete("a")
    assert second.located("a") is None


def test_what_a_reader_does_to_a_value_does_not_reach_the_store(opened):
    store = opened()
    value = {"list": [1]}
    store.put("k", value)
    value["list"].append(2)
    found = store.get("k")
    assert found is not None
    found["list"].append(3)
    store.items()["k"]["list"].append(4)
    assert store.get("k") == {"list": [1]}


@pytest.mark.parametrize("value", [{"it": object()}, {"it": b"bytes"}, {"v": 1}])
def test_value_that_cannot_be_kept_is_refused_and_changes_nothing(opened, value):
    store = opened()
    store.put("k", {"n": 1})
    with pytest.raises((TypeError, ValueError)):
        store.put("k", value)
    assert store.get("k") == {"n": 1}


def test_value_of_an_unknown_version_is_refused_every_time_and_not_only_once(target_cluster, monkeypatch):
    servers, topic = target_cluster.bootstrap_servers, f"store-{uuid.uuid4().hex[:8]}.internal"
    monkeypatch.setitem(ledger.PARTITIONS, topic, 1)
    with TopicLog({"bootstrap.servers": servers}, topic) as log:
        log.ensure()
        store = TopicStore(log)
        store.put("before", {"n": 1})
        produce(servers, topic, [ToSend(b'{"v":2,"n":2}', b"new"), ToSend(b'{"v":1,"n":3}', b"after")])
        for _ in range(3):
            with pytest.raises(StateConflict, match="another version"):
                store.items()


def test_store_needs_a_single_partition(target_cluster):
    with pytest.raises(ValueError, match="no common order"):
        TopicStore(TopicLog({"bootstrap.servers": target_cluster.bootstrap_servers}, ledger.OFFSET_MAP_TOPIC))


def test_internal_topic_with_other_partitions_than_keys_are_hashed_into_is_refused(target_cluster, monkeypatch):
    servers, topic = target_cluster.bootstrap_servers, f"store-{uuid.uuid4().hex[:8]}.internal"
    create_topics(servers, {topic: 3})
    monkeypatch.setitem(ledger.PARTITIONS, topic, 2)
    log = TopicLog({"bootstrap.servers": servers}, topic)
    for ask in (log.exists, log.ensure):
        with pytest.raises(StateConflict, match="has 3 partitions"):
            ask()


class Written:
    """A log of one partition that holds what a test wrote into it, by whatever client."""

    topic, partitions = "journal", 1

    def __init__(self, *entries: tuple[bytes, bytes | None]) -> None:
        self._entries = [Entry(0, offset, key, value) for offset, (key, value) in enumerate(entries)]

    def new_entries(self) -> list[Entry]:
        entries, self._entries = self._entries, []
        return entries


@pytest.mark.parametrize("bad", [b"not JSON", b'{"v": 99}', b"[]", b""])
def test_record_that_cannot_be_read_is_refused_where_it_is_asked_for_and_holds_up_nobody_else(bad: bytes) -> None:
    log = Written(
        (b"mine/topic/a", b'{"n":1,"v":1}'), (b"theirs/topic/b", bad), (b"_lock/b/theirs", bad), (b"\xff", bad)
    )
    store = TopicStore(log)  # type: ignore[arg-type]
    assert store.items("mine/") == {"mine/topic/a": {"n": 1}}
    assert store.get("mine/topic/a") == {"n": 1}
    for asked in (lambda: store.get("theirs/topic/b"), lambda: store.items("theirs/")):
        with pytest.raises(StateConflict, match=r"journal theirs/topic/b: not a value of this tool|another version"):
            asked()
    assert Journal(store, "mine").holders(["a", "b"]) == {"b": "theirs"}


def test_removed_keys_are_remembered_until_they_are_written_again() -> None:
    log = Written((b"a/1", b'{"v":1}'), (b"a/1", None), (b"a/2", None), (b"a/2", b'{"v":1}'), (b"b/1", None))
    assert TopicStore(log).deleted("a/") == ("a/1",)  # type: ignore[arg-type]
    memory = MemoryStore()
    memory.put_all({"a/1": {}, "a/2": {}})
    memory.put_all({"a/1": None, "a/2": None})
    memory.put("a/2", {})
    assert memory.deleted("a/") == ("a/1",)
    assert memory.deleted("b/") == ()
