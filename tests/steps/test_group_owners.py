"""Who owns a group's record: the newest claim in the log's order, whatever a former owner still writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from kafka_migration.domain.errors import StateConflict, TakenOver
from kafka_migration.domain.ledger import JOURNAL_TOPIC
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.kafka.topic_log import TopicLog
from kafka_migration.state.journal import Journal
from kafka_migration.state.store import MemoryStore, Store, TopicStore

AT = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["memory", "real"])
def stores(request: pytest.FixtureRequest) -> Iterator[Callable[[], Store]]:
    """Opens the store anew, as each process does."""
    if request.param == "memory":
        store = MemoryStore()
        yield lambda: store
        return
    servers = request.getfixturevalue("target_cluster").bootstrap_servers
    TopicLog({"bootstrap.servers": servers}, JOURNAL_TOPIC).ensure()
    opened: list[Store] = []

    def store_of_a_process() -> Store:
        opened.append(TopicStore(TopicLog({"bootstrap.servers": servers}, JOURNAL_TOPIC)))
        return opened[-1]

    yield store_of_a_process
    for it in opened:
        it.close()


def own(store: Store, migration: str, group: str = "app/1") -> GroupRecord:
    return GroupRecord.own(Journal(store, migration), group, at=AT.isoformat())


def test_newest_claim_owns_the_record_and_has_what_was_written_before_it(stores: Callable[[], Store]) -> None:
    first = own(stores(), "newest")
    first.mark(Step.STOPPING, AT, members=2)
    second = own(stores(), "newest")
    assert second.evidence(Step.STOPPING, "members") == 2
    with pytest.raises(TakenOver, match="group app/1 of migration newest"):
        first.mark(Step.STOPPED, AT)
    second.mark(Step.STOPPED, AT)
    assert list(GroupRecord.load(Journal(stores(), "newest"), "app/1").steps) == [Step.STOPPING, Step.STOPPED]


def test_former_owners_late_write_is_read_by_nobody(
    stores: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = own(stores(), "late"), own(stores(), "late")
    second.mark(Step.STOPPING, AT)
    # It looked at its claim before the other one claimed, and writes now.
    monkeypatch.setattr(first.journal, "require", lambda _claim: None)
    first.mark(Step.READ_BACK, AT)
    journal = Journal(stores(), "late")
    assert list(GroupRecord.load(journal, "app/1").steps) == [Step.STOPPING]
    assert list(GroupRecord.all(journal)["app/1"].steps) == [Step.STOPPING]
    assert list(own(stores(), "late").steps) == [Step.STOPPING]


def test_owner_whose_claim_is_taken_while_it_reads_writes_nothing(
    stores: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    load = GroupRecord.load

    def and_be_overtaken(journal: Journal, group: str) -> GroupRecord:
        Journal(stores(), "overtaken").claim("group", group, at=AT.isoformat())
        return load(journal, group)

    monkeypatch.setattr(GroupRecord, "load", and_be_overtaken)
    with pytest.raises(TakenOver):
        own(stores(), "overtaken")
    assert Journal(stores(), "overtaken").all("group-record") == {}


def test_attempts_that_were_given_up_are_kept_the_newest_of_them() -> None:
    record = own(MemoryStore(), "attempts")
    for members in range(7):
        record.mark(Step.STOPPING, AT, members=members)
        record.restart()
    assert [it["stopping"]["members"] for it in record.earlier] == [2, 3, 4, 5, 6]


def test_owner_epoch_rises_with_every_claim_and_older_records_go(stores: Callable[[], Store]) -> None:
    epochs = []
    for _ in range(3):
        record = own(stores(), "rising")
        record.mark(Step.STOPPING, AT)
        assert record.claim is not None
        epochs.append(record.claim.owner_epoch)
    assert epochs == sorted(set(epochs))
    assert list(Journal(stores(), "rising").all("group-record")) == [f"app/1/{epochs[-1]}"]


def test_groups_whose_names_begin_alike_do_not_share_a_record(stores: Callable[[], Store]) -> None:
    own(stores(), "alike", "app/1").mark(Step.STOPPING, AT)
    own(stores(), "alike", "app").mark(Step.UNDONE, AT)
    found = {group: list(it.steps) for group, it in GroupRecord.all(Journal(stores(), "alike")).items()}
    assert found == {"app/1": [Step.STOPPING], "app": [Step.UNDONE]}


def test_record_of_an_earlier_version_is_taken_over_and_refused_by_it_from_then_on(stores: Callable[[], Store]) -> None:
    journal = Journal(stores(), "earlier")
    steps = {"stopping": {"at": AT.isoformat(), "members": 1}, "read_back": {"at": AT.isoformat(), "offsets": []}}
    journal.record("group", "app", {"format": 1, "subscription": ["orders"], "steps": steps, "earlier": []})
    assert GroupRecord.load(journal, "app").is_moved
    record = own(stores(), "earlier", "app")
    assert (record.is_moved, record.subscription) == (True, frozenset({"orders"}))
    left = journal.read("group", "app")
    assert left is not None
    # What an earlier version refuses: it knows format 1.
    assert left["format"] == 2
    assert GroupRecord.load(journal, "app").is_moved


def test_sign_of_life_belongs_to_one_move_and_needs_no_owner(stores: Callable[[], Store]) -> None:
    record = own(stores(), "sign")
    record.mark(Step.READ_BACK, AT)
    seen = GroupRecord.load(Journal(stores(), "sign"), "app/1")
    seen.note_alive(AT, sign="commits", pause_seconds=1.5)
    assert GroupRecord.load(Journal(stores(), "sign"), "app/1").evidence(Step.ALIVE, "pause_seconds") == 1.5
    record.restart()
    record.mark(Step.READ_BACK, AT.replace(hour=1))
    assert not GroupRecord.load(Journal(stores(), "sign"), "app/1").has(Step.ALIVE)


def test_record_that_was_loaded_to_be_read_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="loaded to be read"):
        GroupRecord.load(Journal(MemoryStore(), "m"), "app").mark(Step.STOPPING, AT)


def test_looks_of_a_later_version_are_not_guessed_at() -> None:
    journal = Journal(MemoryStore(), "m")
    journal.record("group-look", "app", {"format": 2})
    with pytest.raises(StateConflict, match="looks at group app"):
        GroupRecord.load(journal, "app")
