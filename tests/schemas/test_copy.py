"""Schemas of the plan's topics get to the target's registry by the ids that records have."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import timedelta
from typing import Any

import pytest

from kafka_migration.domain.errors import BadInput, CouldNotFindOut, MigrationError, Refused
from kafka_migration.schemas import copy, difference, lease
from kafka_migration.schemas.copy import IdsNotKept
from kafka_migration.schemas.difference import Made
from kafka_migration.schemas.lease import Lease
from kafka_migration.schemas.registry import Registry
from tests.schemas.registry_server import Error, RegistryServer
from tests.schemas.worlds import Registries, record
from tests.steps.gates import PlainStore
from tests.steps.killing import Killed

ORDERS, MONEY = "shop.orders-value", "com.example.Money"


def shown(server: RegistryServer) -> dict[tuple[str, int], tuple[int, bool]]:
    """Id, and whether it is soft-deleted, by subject and version."""
    return {
        (name, at): (one.id, one.is_deleted)
        for name, versions in server.subjects.items()
        for at, one in versions.items()
    }


def fill(server: RegistryServer) -> None:
    """Two versions of a topic's values, which refer to a subject of another name; a key; and a stranger's."""
    server.register("stranger", record("Stranger", "x"))
    server.register(MONEY, record("Money", "cents"))
    server.register(ORDERS, record("Order", price="Money"), ("Money", MONEY, 1))
    optional = {"name": "note", "type": "string", "default": ""}
    both = {**record("Order", price="Money"), "fields": [*record("Order", price="Money")["fields"], optional]}
    server.register(ORDERS, both, ("Money", MONEY, 1))
    server.register("shop.orders-key", '"string"')


def test_versions_ids_and_references_are_copied_and_what_is_not_the_plans_is_not(both: Registries) -> None:
    fill(both.source)
    before = both.difference()
    assert (before.exit_code, len(before.missing), before.present) == (1, 4, 0)
    assert not both.target.subjects, "looking changes nothing"
    both.apply()
    wanted = shown(both.source)
    del wanted["stranger", 1]
    assert shown(both.target) == wanted
    assert both.target.subjects[ORDERS][2].body == both.source.subjects[ORDERS][2].body
    assert both.target.modes == {"": "READWRITE"}, "nobody is left in mode IMPORT"
    after = both.difference()
    assert (after.exit_code, after.present, after.left_out, after.notes) == (0, 4, (), ())


def test_what_is_there_is_not_written_again_and_what_came_since_is_added(both: Registries) -> None:
    fill(both.source)
    both.apply()
    both.target.requests.clear()
    both.apply()
    assert {method for method, _ in both.target.requests} == {"GET"}
    both.source.register("shop.orders-key", '"bytes"', schemaType="JSON")
    made = both.apply()
    assert [(one.subject, one.version, one.content.type) for one in made.missing] == [("shop.orders-key", 2, "JSON")]
    assert both.difference().exit_code == 0


def test_taken_id_and_taken_version_are_named_and_nothing_is_made(both: Registries) -> None:
    fill(both.source)
    both.target.register("theirs", '"int"')
    both.target.register("theirs-too", '"long"')
    both.target.register("shop.orders-key", '"double"')
    before = both.target.shown()
    with pytest.raises(Refused, match="taken") as refused:
        both.apply()
    assert "shop.orders-key version 1 (id 5) is id 3 there" in refused.value.message
    assert f"{MONEY} version 1 (id 2): the id is another schema's there" in refused.value.message
    assert both.target.shown() == before
    assert both.difference().exit_code == 1


def test_same_schema_in_another_spelling_is_no_collision(both: Registries) -> None:
    schema_id = both.source.register("shop.orders-key", {"type": "string"})
    both.source.subjects["shop.orders-key"][1].body["schema"] = '{ "type":\n"string" }'
    text = 'syntax = "proto3"; message M { int32 x = 1; }'
    both.source.register("shop.orders-value", f"// of orders\n{text}", schemaType="PROTOBUF")
    both.target.register("other", {"type": "string"})
    both.apply()
    assert shown(both.target)["shop.orders-key", 1] == (schema_id, False)
    both.target.subjects["shop.orders-value"][1].body["schema"] = text.replace(";", ";\n")
    assert both.difference().exit_code == 0
    both.target.subjects["shop.orders-value"][1].body["schema"] = text.replace("x", "y")
    assert "is another schema there" in both.difference().collisions[0]


def test_soft_deleted_versions_and_subjects_are_copied_and_deleted_again(both: Registries) -> None:
    both.fields["topics"] = {"include": ["shop.orders"]}
    fill(both.source)
    both.source.delete(ORDERS, 1)
    both.source.delete("shop.orders-key", 1)
    both.apply()
    assert shown(both.target)[ORDERS, 1] == (3, True)
    assert shown(both.target)["shop.orders-key", 1] == (5, True), "old records refer to it"
    assert both.difference().exit_code == 0
    both.source.register("shop.orders-key", '"string"')
    both.apply()
    assert both.target.subjects["shop.orders-key"][2].is_deleted is False
    both.source.delete(ORDERS, 2)
    assert both.difference().deletions, "what this migration made is deleted, too"
    both.apply()
    assert shown(both.target)[ORDERS, 2] == (4, True)


def test_deleted_schema_to_which_deleted_ones_refer_is_deleted_last(both: Registries) -> None:
    fill(both.source)
    for version in (1, 2):
        both.source.delete(ORDERS, version)
    both.source.delete(MONEY, 1)
    both.apply()
    assert all(is_deleted for (name, _), (_, is_deleted) in shown(both.target).items() if name != "shop.orders-key")


def test_version_that_refers_to_another_schema_is_another_schema(both: Registries) -> None:
    fill(both.source)
    both.apply()
    both.target.subjects[ORDERS][1].body["references"] = [{"name": "Money", "subject": "theirs", "version": 1}]
    assert both.difference().collisions == (f"{ORDERS} version 1 (id 3) is another schema there",)


def test_version_that_is_shown_as_another_schema_is_no_success(both: Registries) -> None:
    fill(both.source)

    def alter(method: str, path: str) -> None:
        if method == "GET" and 1 in both.target.subjects.get(ORDERS, {}):
            both.target.subjects[ORDERS][1].body["schema"] = '"int"'

    both.target.before = alter
    with pytest.raises(Refused, match="was made, and is shown as another schema"):
        both.apply()
    assert both.target.modes == {"": "READWRITE"}


def test_what_others_deleted_on_the_target_comes_back_and_what_they_made_there_stays(both: Registries) -> None:
    fill(both.source)
    both.apply()
    both.target.delete(ORDERS, 2)
    assert both.difference().exit_code == 1
    both.apply()
    assert shown(both.target)[ORDERS, 2] == (4, False)
    both.shop.store = type(both.shop.store)()
    both.source.delete(ORDERS, 2)
    found = both.difference()
    assert (found.deletions, found.exit_code) == ((), 0)
    assert "not deleted on the target" in found.notes[0]


def test_compatibility_that_held_on_the_source_holds_on_the_target_for_these_subjects_alone(both: Registries) -> None:
    fill(both.source)
    both.source.configs |= {
        "": {"compatibilityLevel": "FULL"},
        ORDERS: {"compatibilityLevel": "NONE", "normalize": True},
    }
    both.apply()
    assert both.target.configs[""] == {"compatibilityLevel": "BACKWARD"}
    assert both.target.configs[ORDERS] == {"compatibilityLevel": "NONE", "normalize": True}
    assert both.target.configs[MONEY] == {"compatibilityLevel": "FULL"}, "it went by the whole registry's"
    assert both.difference().exit_code == 0
    both.target.configs[ORDERS] = {"compatibilityLevel": "FORWARD"}
    found = both.difference()
    assert found.exit_code == 0, "somebody wants it so"
    assert f"{ORDERS}: another config on the target" in found.notes[0]


def test_modes_of_subjects_are_copied_and_that_of_the_registry_and_import_are_not(both: Registries) -> None:
    fill(both.source)
    both.source.modes |= {"": "READONLY", ORDERS: "READWRITE", MONEY: "IMPORT", "shop.orders-key": "READONLY"}
    both.target.modes["shop.orders-key"] = "READWRITE"
    both.apply()
    assert both.target.modes == {"": "READWRITE", "shop.orders-key": "READWRITE"}
    notes = both.difference().notes
    assert any("READONLY on the source, READWRITE there" in note for note in notes)
    assert any(note.startswith(f"{MONEY}: in mode IMPORT") for note in notes)


@pytest.mark.parametrize("mode", ["READONLY", "READONLY_OVERRIDE"])
def test_subject_that_was_read_only_is_made_so_and_one_that_became_so_is_not(both: Registries, mode: str) -> None:
    fill(both.source)
    both.source.modes[MONEY] = mode
    both.apply()
    assert both.target.modes == {"": "READWRITE", MONEY: mode}
    both.source.modes[ORDERS] = mode
    found = both.difference()
    assert found.exit_code == 0, "whoever freezes the source would freeze the target"
    assert any(note.startswith(f"{ORDERS}: in mode {mode} on the source since it was copied") for note in found.notes)
    both.apply()
    assert both.target.modes == {"": "READWRITE", MONEY: mode}


def test_mode_and_config_that_somebody_has_set_since_stay_in_later_copies(both: Registries) -> None:
    fill(both.source)
    both.source.modes[ORDERS] = "READONLY"
    both.source.configs[ORDERS] = {"compatibilityLevel": "NONE"}
    both.apply()
    both.target.modes[ORDERS] = "READWRITE"
    del both.target.configs[ORDERS]
    both.source.modes.pop(ORDERS)
    both.source.register(ORDERS, record("Order", "number", "note"))
    both.source.modes[ORDERS] = "READONLY"
    both.apply()
    assert both.target.subjects[ORDERS].keys() == {1, 2, 3}
    assert both.target.modes[ORDERS] == "READWRITE"
    assert ORDERS not in both.target.configs
    assert both.difference().exit_code == 0
    # Killed in the middle of the second copy.
    journal = both.ctx().journal
    journal.record("schemas", ORDERS, {**(journal.read("schemas", ORDERS) or {}), "is_importing": True})
    both.target.modes[ORDERS] = "IMPORT"
    both.apply()
    assert both.target.modes[ORDERS] == "READWRITE"


def test_config_that_changes_on_the_source_is_followed_also_for_a_subject_that_is_read_only(both: Registries) -> None:
    fill(both.source)
    both.source.modes[MONEY] = "READONLY"
    both.source.configs[MONEY] = {"compatibilityLevel": "NONE"}
    both.apply()
    both.source.configs[MONEY] = {"compatibilityLevel": "FULL"}
    both.apply()
    assert both.target.configs[MONEY] == {"compatibilityLevel": "FULL"}
    assert both.target.modes[MONEY] == "READONLY"
    copy.undo(both.ctx())
    assert not both.target.subjects
    assert [*both.target.configs, *both.target.modes] == ["", ""]


def test_subject_that_had_a_mode_of_its_own_has_it_again(both: Registries) -> None:
    fill(both.source)
    both.target.modes[ORDERS] = "READONLY"
    both.apply()
    assert both.target.modes == {"": "READWRITE", ORDERS: "READONLY"}


def test_subjects_of_renamed_topics_are_called_as_the_target_calls_them(both: Registries) -> None:
    fill(both.source)
    both.fields["naming"] = {"prefix": "west", "topics": {"shop.payments": "eu-payments"}}
    both.source.register("shop.payments-value", record("Payment", order="Order"), ("Order", ORDERS, 2))
    both.apply()
    assert sorted(both.target.subjects) == [
        MONEY,
        "eu-payments-value",
        "west.shop.orders-key",
        "west.shop.orders-value",
    ]
    assert both.target.subjects["eu-payments-value"][1].body["references"] == [
        {"name": "Order", "subject": "west.shop.orders-value", "version": 2}
    ]
    assert both.difference().exit_code == 0


def test_further_subjects_are_those_that_the_section_names(both: Registries) -> None:
    fill(both.source)
    both.section["subjects"] = ["strang.*"]
    both.apply()
    assert ("stranger", 1) in shown(both.target)


def test_subjects_of_other_contexts_are_named_and_refused_where_something_refers_to_them(both: Registries) -> None:
    both.source.subjects[":.eu:shop.orders-value"] = {}
    both.source.register(":.eu:shop.orders-value", '"int"')
    found = both.difference()
    assert (found.missing, found.exit_code) == ((), 0)
    assert found.left_out == (":.eu:shop.orders-value: of another context, whose ids are its own",)
    both.section["subjects"] = [".*"]
    assert both.difference().missing == ()
    both.source.register("shop.orders-key", '"int"', ("x", ":.eu:shop.orders-value", 1))
    with pytest.raises(Refused, match="other contexts"):
        both.difference()


def test_registry_that_gives_its_own_ids_is_refused_and_nothing_is_left_there(both: Registries) -> None:
    fill(both.source)
    both.target.gives_own_ids = True
    with pytest.raises(IdsNotKept, match="does not keep ids") as refused:
        both.apply()
    assert "Apicurio" in refused.value.remedy
    assert not both.target.subjects
    assert both.target.modes == {"": "READWRITE"}
    registered = [path for method, path in both.target.requests if method == "POST"]
    assert len(registered) == 1, "one schema, in a subject of its own"


def test_run_that_dies_leaves_no_subject_in_mode_import_for_long(both: Registries) -> None:
    fill(both.source)

    def die(method: str, path: str) -> None:
        if method == "POST" and ORDERS in path:
            raise Error(422, 42201, "no")

    both.target.before = die
    with pytest.raises(Refused, match="42201"):
        both.apply()
    assert both.target.modes == {"": "READWRITE"}
    # Killed, it could not have ended the mode.
    both.target.before = lambda _method, _path: None
    both.target.modes[MONEY] = "IMPORT"
    journal = both.ctx().journal
    journal.record("schemas", MONEY, {**(journal.read("schemas", MONEY) or {}), "is_importing": True})
    assert MONEY in both.difference().left_importing
    both.apply()
    assert both.target.modes == {"": "READWRITE"}
    assert both.difference().exit_code == 0


def test_refusal_of_one_subject_leaves_no_other_in_mode_import(both: Registries) -> None:
    fill(both.source)
    ended = threading.Event()

    def stumble(method: str, path: str) -> None:
        if method == "PUT" and MONEY in path:
            raise Error(422, 42205, "no")
        if method == "PUT" and ORDERS in path:
            # What was under way then is slow.
            ended.wait(0.5)
        if method == "DELETE" and ORDERS in path:
            ended.set()

    both.target.before = stumble
    with pytest.raises(Refused, match="42205"):
        both.apply()
    assert ended.is_set()
    assert both.target.modes == {"": "READWRITE"}


def at_first(server: RegistryServer, method: str, subject: str, happens: Callable[[], object]) -> None:
    """Have something happen before the first such request."""

    def before(of: str, path: str) -> None:
        if of == method and subject in path:
            server.before = lambda _method, _path: None
            happens()

    server.before = before


def test_of_two_who_copy_at_once_the_second_waits_for_the_first_and_changes_nothing(
    both: Registries, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One request at a time: the first makes nothing else while this one waits.
    monkeypatch.setattr("kafka_migration.schemas.registry.AT_ONCE", 1)
    fill(both.source)
    seen: list[bool] = []

    def come_second() -> None:
        before, ctx = both.target.shown(), both.ctx()
        with pytest.raises(CouldNotFindOut, match="another process copies"):
            copy.apply(ctx, until=ctx.clock.monotonic() + 60)
        seen.append(both.target.shown() == before)

    at_first(both.target, "POST", MONEY, come_second)
    both.apply()
    assert seen == [True]
    assert both.difference().exit_code == 0
    assert not both.ctx().journal.all(lease.KIND)


def test_nothing_is_deleted_while_another_process_copies(both: Registries) -> None:
    fill(both.source)
    both.apply()
    before = both.target.shown()
    ctx = both.ctx()
    ctx.journal.record(lease.KIND, "other", {"until": (ctx.clock.now() + timedelta(hours=1)).isoformat()})
    with pytest.raises(CouldNotFindOut, match="another process copies"):
        copy.undo(ctx)
    assert both.target.shown() == before


def test_of_two_who_want_the_lease_at_once_the_later_one_withdraws(
    both: Registries, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, write, taken = both.ctx(), both.ctx(), Lease._write, list[bool]()

    def write_after_the_first(self: Lease) -> None:
        # Neither has seen the other's, when both write.
        if self.ctx is second and not taken:
            taken.append(True)
            opened.enter_context(lease.held(first, until=first.clock.monotonic()))
        write(self)

    monkeypatch.setattr(Lease, "_write", write_after_the_first)
    with ExitStack() as opened:
        with pytest.raises(CouldNotFindOut), lease.held(second, until=second.clock.monotonic()):
            pytest.fail("the first has it")
        assert len(first.journal.all(lease.KIND)) == 1


def test_one_that_was_held_up_while_another_copied_leaves_all_to_that_one(both: Registries) -> None:
    fill(both.source)
    journals: list[Any] = []

    def hold_up() -> None:
        both.shop.clock.sleep(lease.SECONDS + 1)
        both.apply()
        both.target.modes[MONEY] = "IMPORT"
        journals.append(Made.all(both.ctx().journal))

    at_first(both.target, "PUT", ORDERS, hold_up)
    with pytest.raises(CouldNotFindOut, match="held up"):
        both.apply()
    assert both.target.modes[MONEY] == "IMPORT", "the other one's to end"
    assert journals == [Made.all(both.ctx().journal)]


def test_time_that_is_over_ends_a_copy_in_good_order(both: Registries) -> None:
    fill(both.source)
    ctx = both.ctx()
    at_first(both.target, "POST", MONEY, lambda: both.shop.clock.sleep(16))
    with pytest.raises(CouldNotFindOut, match="no time is left"):
        copy.apply(ctx, until=ctx.clock.monotonic() + 20)
    assert both.target.modes == {"": "READWRITE"}
    assert ORDERS not in both.target.subjects
    both.apply()
    assert both.difference().exit_code == 0


def test_copy_that_is_done_when_it_is_to_end_is_a_success(both: Registries) -> None:
    fill(both.source)
    ended = threading.Event()
    at_first(both.target, "DELETE", f"/mode/{ORDERS}", ended.set)
    assert len(copy.apply(both.ctx(), is_ended=ended.is_set).missing) == 4
    assert both.difference().exit_code == 0


def test_copy_that_is_to_end_does_so_between_two_parts_and_in_good_order(both: Registries) -> None:
    fill(both.source)
    ended = threading.Event()
    at_first(both.target, "PUT", ORDERS, ended.set)
    with pytest.raises(CouldNotFindOut, match="not copied any more"):
        copy.apply(both.ctx(), is_ended=ended.is_set)
    assert both.target.modes == {"": "READWRITE"}
    assert not both.target.subjects


@pytest.mark.parametrize("is_source_away", [False, True])
def test_mode_import_that_was_left_is_ended_whatever_else_stands_in_the_way(
    both: Registries, monkeypatch: pytest.MonkeyPatch, is_source_away: bool
) -> None:
    fill(both.source)
    both.target.modes[ORDERS] = "READWRITE"
    both.apply()
    journal = both.ctx().journal
    journal.record("schemas", ORDERS, {**(journal.read("schemas", ORDERS) or {}), "is_importing": True})
    both.target.modes[ORDERS] = "IMPORT"
    if is_source_away:
        both.connect("old_registry", "http://127.0.0.1:1")
        monkeypatch.setattr("kafka_migration.schemas.registry._TRY_SECONDS", 0.0)
    else:
        both.target.subjects[MONEY][1].id = 77
    with pytest.raises(MigrationError, match="does not answer" if is_source_away else "taken"):
        both.apply()
    assert both.target.modes == {"": "READWRITE", ORDERS: "READWRITE"}


def test_mode_that_cannot_be_given_back_leaves_no_other_subject_in_mode_import(
    both: Registries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_migration.schemas.registry.AT_ONCE", 1)
    fill(both.source)
    for name in (MONEY, ORDERS):
        both.target.modes[name] = "READWRITE"

    def stumble(method: str, path: str) -> None:
        if method == "PUT" and path == f"/mode/{MONEY}":
            raise Error(422, 42205, "no")

    both.target.before = stumble
    with pytest.raises(Refused, match="42205"):
        both.apply()
    assert both.target.modes == {"": "READWRITE", MONEY: "IMPORT", ORDERS: "READWRITE"}
    both.target.before = lambda _method, _path: None
    both.apply()
    assert both.target.modes == {"": "READWRITE", MONEY: "READWRITE", ORDERS: "READWRITE"}


def killed_at(at: int, patch: pytest.MonkeyPatch) -> list[str]:
    """From the ``at``-th change on (of the registry, or of the journal), none is made any more; the changes before."""
    changes: list[str] = []

    def point(what: str) -> None:
        if len(changes) == at:
            raise Killed(what)
        changes.append(what)

    call, put, delete = Registry._call, PlainStore.put, PlainStore.delete

    def dying_call(self: Registry, method: str, path: str, **more: Any) -> Any:
        if method != "GET":
            point(f"{method} {path}")
        return call(self, method, path, **more)

    def dying_put(self: PlainStore, key: str, value: dict[str, Any]) -> None:
        point(key)
        put(self, key, value)

    patch.setattr(Registry, "_call", dying_call)

    def dying_delete(self: PlainStore, key: str) -> None:
        point(key)
        delete(self, key)

    patch.setattr(PlainStore, "put", dying_put)
    patch.setattr(PlainStore, "delete", dying_delete)
    return changes


def small(both: Registries) -> None:
    """All that is written in a copy: versions, a soft deletion, a config, a mode."""
    both.source.register(MONEY, record("Money", "cents"))
    both.source.register(ORDERS, record("Order", price="Money"), ("Money", MONEY, 1))
    both.source.register(ORDERS, record("Order", "number", price="Money"), ("Money", MONEY, 1))
    both.source.delete(ORDERS, 1)
    both.source.configs[ORDERS] = {"compatibilityLevel": "FULL"}
    both.source.configs[MONEY] = {"compatibilityLevel": "FORWARD"}
    both.source.modes[MONEY] = "READONLY"


def test_killed_at_any_change_the_next_run_ends_as_if_undisturbed_and_all_can_be_undone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at, was_killed = 0, True
    while was_killed:
        both = Registries(monkeypatch)
        try:
            both.source.configs[""] = {"compatibilityLevel": "NONE"}
            small(both)
            before = both.target.shown()
            with monkeypatch.context() as patch:
                killed_at(at, patch)
                try:
                    both.apply()
                    was_killed = False
                except Killed:
                    at += 1
            both.apply()
            assert both.difference().exit_code == 0, at
            assert shown(both.target) == {(MONEY, 1): (1, False), (ORDERS, 1): (2, True), (ORDERS, 2): (3, False)}
            assert both.target.modes == {"": "READWRITE", MONEY: "READONLY"}, at
            with monkeypatch.context() as patch:
                killed_at(at // 2, patch)
                with suppress(Killed):
                    copy.undo(both.ctx())
            copy.undo(both.ctx())
            assert both.target.shown() == before, at
        finally:
            both.close()
    assert at > 15


def test_what_was_made_is_deleted_for_good_and_nothing_else(both: Registries) -> None:
    both.target.register("theirs", '"theirs"')
    before = both.target.shown()
    both.source.register("filler", '"filler"')
    fill(both.source)
    both.source.delete(ORDERS, 1)
    both.source.configs[ORDERS] = {"compatibilityLevel": "NONE"}
    both.apply()
    assert len(copy.to_undo(both.ctx()).removed) == 4
    undone = copy.undo(both.ctx())
    assert len(undone.removed) == 4
    assert both.target.shown() == before
    assert not Made.all(both.ctx().journal)


def test_version_that_was_there_and_soft_deleted_stays_behind_an_undo(both: Registries) -> None:
    both.source.register("shop.orders-key", '"string"')
    both.target.register("shop.orders-key", '"string"')
    both.target.delete("shop.orders-key", 1)
    both.apply()
    assert shown(both.target) == {("shop.orders-key", 1): (1, False)}
    copy.undo(both.ctx())
    assert shown(both.target) == {("shop.orders-key", 1): (1, False)}


def test_config_that_somebody_has_set_since_stays_behind_an_undo(both: Registries) -> None:
    both.source.configs[ORDERS] = {"compatibilityLevel": "NONE"}
    both.source.register(ORDERS, record("Order", "number"))
    both.target.register(ORDERS, record("Order", "number"))
    both.source.register(ORDERS, record("Order", "number", "price"))
    both.apply()
    both.target.configs[ORDERS] = {"compatibilityLevel": "FULL"}
    copy.undo(both.ctx())
    assert both.target.configs[ORDERS] == {"compatibilityLevel": "FULL"}
    assert both.target.subjects[ORDERS].keys() == {1}, "which was there before"


def test_what_somebody_replaced_and_what_another_migration_made_stays(both: Registries) -> None:
    fill(both.source)
    both.apply()
    both.target.subjects["shop.orders-key"][1].id = 99
    other = type(both.ctx().journal)(both.shop.store, "kitchen")
    other.record("schemas", MONEY, {"versions": {"1": 2}})
    found = copy.to_undo(both.ctx())
    assert (found.stay, found.changed) == ((MONEY,), ("shop.orders-key version 1 (id 99)",))
    assert {one.subject for one in found.removed} == {ORDERS}


@pytest.mark.parametrize("is_deleted", [False, True])
def test_version_to_which_a_strangers_schema_refers_stays_and_all_else_goes(both: Registries, is_deleted: bool) -> None:
    fill(both.source)
    both.apply()
    both.target.register("theirs", record("Theirs", price="Money"), ("Money", MONEY, 1))
    if is_deleted:
        both.target.delete("theirs", 1)
    undone = copy.undo(both.ctx())
    assert undone.stay == (MONEY,)
    assert {one.subject for one in undone.removed} == {ORDERS, "shop.orders-key"}
    assert both.target.subjects.keys() == {MONEY, "theirs"}
    assert Made.all(both.ctx().journal).keys() == {MONEY}
    del both.target.subjects["theirs"]
    assert copy.undo(both.ctx()).stay == ()
    assert not both.target.subjects


def test_version_of_a_subject_that_its_owner_has_frozen_stays(both: Registries) -> None:
    fill(both.source)
    both.source.configs[MONEY] = {"compatibilityLevel": "NONE"}
    both.apply()
    both.target.modes[MONEY] = "READONLY"
    assert copy.undo(both.ctx()).stay == (MONEY,)
    assert both.target.subjects.keys() == {MONEY}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"conn_type": "kafka"}, "conn_type"),
        ({"host": ""}, "host"),
        ({"host": "https://u:secret@registry"}, "host"),
        ({"host": "http://registry.example:8081", "login": "app", "password": "secret"}, "host"),
        ({"extra": {"token": "secret"}, "login": "app", "password": "secret"}, "token"),
        ({"extra": {"ssl.verify": "no"}}, "ssl.verify"),
        ({"extra": {"ssl.ca.location": "/nowhere/ca.pem"}}, "ssl.ca.location"),
        ({"extra": {"ssl.key.location": "/nowhere/key.pem"}}, "ssl.certificate.location"),
        ({"extra": {"path": "/contexts/.eu/"}}, "host"),
        ({"extra": "nonsense"}, "extra"),
    ],
)
def test_connection_of_no_use_is_refused_by_field_and_without_its_secret(
    both: Registries, fields: dict[str, Any], field: str
) -> None:
    both.connect("new_registry", **({"url": "http://127.0.0.1:1"} if "host" not in fields else {"url": ""}), **fields)
    with pytest.raises(BadInput) as refused:
        both.difference()
    assert refused.value.field == field
    assert "secret" not in str(refused.value)


def test_login_and_token_are_sent_and_a_wrong_one_is_refused_without_being_shown(both: Registries) -> None:
    both.target.credentials = "Basic YXBwOnNlY3JldA=="
    both.connect("new_registry", both.target.url, login="app", password="secret")
    assert both.difference().exit_code == 0
    both.target.credentials = "Bearer token-of-the-tests"
    both.connect("new_registry", both.target.url, extra={"token": "token-of-the-tests"})
    assert both.difference().exit_code == 0
    both.connect("new_registry", both.target.url, extra={"token": "wrong-one"})
    with pytest.raises(Refused, match="does not accept this connection's credentials") as refused:
        both.difference()
    assert "wrong-one" not in str(refused.value)


def test_plan_without_registries_and_with_one_for_both_is_refused(both: Registries) -> None:
    with pytest.raises(BadInput, match="names no schema registries"):
        difference.read(both.shop.ctx())
    both.connect("new_registry", both.source.url)
    with pytest.raises(BadInput, match="needs no copy"):
        both.difference()


def test_registry_that_is_away_is_tried_again_and_could_not_be_found_out(
    both: Registries, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(both.source)
    left = [Error(503, 50003, "no leader")]

    def stumble(_method: str, _path: str) -> None:
        if left:
            raise left.pop()

    both.target.before = stumble
    assert len(both.difference().missing) == 4
    monkeypatch.setattr("kafka_migration.schemas.registry._TRY_SECONDS", 0.0)
    left += [Error(503, 50003, "no leader")] * 10
    with pytest.raises(CouldNotFindOut, match="HTTP 503"):
        both.difference()
    both.connect("new_registry", "http://127.0.0.1:1")
    with pytest.raises(CouldNotFindOut, match="schema registry of the target"):
        both.difference()
