"""Who owns a group's record: the newest claim in the log's order, whatever a former owner still writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import Refused, StateConflict, TakenOver
from kafka_migration.domain.ledger import JOURNAL_TOPIC
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.kafka.topic_log import TopicLog
from kafka_migration.state.journal import Journal
from kafka_migration.state.store import MemoryStore, Store, TopicStore

AT = datetime(2030, 1, 1, tzinfo=UTC)
POSITION = {"topic": "orders", "partition": 0, "source": 20, "target": 10, "policy": "exact", "metadata": ""}


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


def test_record_with_one_move_of_the_version_before_is_its_first_leg() -> None:
    journal = Journal(MemoryStore(), "legs")
    steps = {
        "translated": {"at": AT.isoformat(), "positions": [POSITION]},
        "read_back": {"at": AT.isoformat(), "offsets": []},
    }
    earlier = [{"stopping": {"at": AT.isoformat()}}]
    value = {"format": 2, "owner": "x", "subscription": ["orders"], "steps": steps, "earlier": earlier}
    journal.record("group-record", "app/7", value)
    journal.record("group", "app", {"format": 2, "kept": "under group-record"})
    journal.record("group-alive", "app", {"of": AT.isoformat(), "at": AT.isoformat(), "sign": "x", "pause_seconds": 2})
    for record in (GroupRecord.load(journal, "app"), GroupRecord.all(journal)["app"]):
        (leg,) = record.legs
        assert (leg.direction, leg.generation, leg.earlier, record.is_moved) == (Direction.FORWARD, 1, earlier, True)
        assert (leg.translations[0].origin, leg.translations[0].destination) == (20, 10)
        assert leg.has(Step.ALIVE)


def test_legs_are_kept_in_order_and_the_newest_is_worked_on() -> None:
    store = MemoryStore()
    record = own(store, "legs")
    record.mark(Step.STOPPING, AT)
    for link in ((Direction.REVERSE, 1), (Direction.FORWARD, 2)):
        with pytest.raises(Refused, match="in the middle of its move to the target"):
            record.take_leg(*link)
    record.mark(Step.READ_BACK, AT)
    record.note_alive(AT, sign="commits", pause_seconds=1.5)
    with pytest.raises(Refused, match="stands on the target already"):
        record.take_leg(Direction.FORWARD, 2)
    back = own(store, "legs")
    back.take_leg(Direction.REVERSE, 1)
    assert (back.is_moved, back.has(Step.READ_BACK), own(store, "legs").legs) == (True, False, record.legs)
    back = own(store, "legs")
    back.take_leg(Direction.REVERSE, 1)
    position = {**POSITION, "policy": "cut", "target": None}
    back.mark(Step.TRANSLATED, AT, positions=[position])
    back.mark(Step.READ_BACK, AT.replace(hour=1))
    found = GroupRecord.load(Journal(store, "legs"), "app/1")
    assert [(leg.direction, list(leg.steps)) for leg in found.legs] == [
        (Direction.FORWARD, [Step.STOPPING, Step.READ_BACK, Step.ALIVE]),
        (Direction.REVERSE, [Step.TRANSLATED, Step.READ_BACK]),
    ]
    assert (found.translations[0].origin, found.translations[0].destination) == (None, 20)
    assert (found.is_moved, found.was_rolled_back) == (False, True)
    assert back.claim is not None
    assert found.leg.owner_epoch == back.claim.owner_epoch
    with pytest.raises(Refused, match="was moved back to the source since"):
        back.take_leg(Direction.FORWARD, 1)
    back.take_leg(Direction.FORWARD, 2)
    assert len(back.legs) == 3


@pytest.mark.parametrize("value", [{"format": 4, "legs": []}, {"format": 3, "subscription": [], "legs": []}])
def test_record_of_a_later_version_is_refused_with_what_to_do(value: dict[str, object]) -> None:
    journal = Journal(MemoryStore(), "later")
    journal.record("group-record", "app/7", value)
    with pytest.raises(StateConflict, match="record of group app") as refused:
        GroupRecord.load(journal, "app")
    assert refused.value.remedy == "use the version of this tool that wrote the record"


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
