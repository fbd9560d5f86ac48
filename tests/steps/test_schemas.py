"""Schemas in the workflow: when they are copied, which gate asks for them, and when they may go again."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_migration.approvals import approvals
from kafka_migration.approvals.cutover import CutoverGate
from kafka_migration.approvals.evidence import GateName
from kafka_migration.approvals.passing import NotApproved
from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.direction import SOURCE, Direction
from kafka_migration.domain.errors import CouldNotFindOut, Refused
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.groups.move import Mover
from kafka_migration.inventory import preflight
from kafka_migration.link import lifecycle, reverse, seal, switched
from kafka_migration.link.switched import Switch, SwitchState
from kafka_migration.migration import cancellation, joined
from kafka_migration.migration.context import Context
from kafka_migration.schemas import copy, difference, lease
from kafka_migration.schemas.difference import Made
from kafka_migration.state.journal import Journal
from kafka_migration.steps import cancel, cutover, mirror, runner, schemas, switch, table
from kafka_migration.topics import create
from tests.schemas.worlds import Registries, record
from tests.steps import histories

VALUES = "shop.orders-value"


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registries]:
    """A schema that the target lacks, and a plan that nobody has to approve."""
    found = Registries(monkeypatch)
    found.fields["approvals"] = {"plan": False}
    found.source.register(VALUES, record("Order", "number"))
    yield found
    found.close()


def evolve(shop: Registries) -> None:
    """A producer registers a new version."""
    fields = [*record("Order", "number")["fields"], {"name": "note", "type": "string", "default": ""}]
    shop.source.register(VALUES, {**record("Order"), "fields": fields})


def begun(shop: Registries) -> None:
    """Everything before the cutover has succeeded."""
    for happened in (histories.created, histories.mirroring, histories.validated):
        happened(shop.shop)
    joined.join(shop.ctx())


def result(checks: Iterable[CheckResult], name: str = "schemas on the target") -> CheckResult:
    (found,) = [one for one in checks if one.name == name]
    return found


def test_row_stands_before_topics_are_created_where_the_plan_names_registries(shop: Registries) -> None:
    plain, rows = table.rows_of(shop.shop.plan()), table.rows_of(shop.ctx().plan)
    assert "copy_schemas" not in {row.name for row in plain}
    names = [row.name for row in rows]
    assert names[names.index("copy_schemas") + 1] == "create_targets"
    assert next(row for row in rows if row.name == "create_targets").after == ("copy_schemas",)
    assert next(row for row in table.workflow(shop.ctx().plan) if row.name == "copy_schemas").after == (
        "inventory_and_preflight",
    )


def test_step_copies_behind_the_gate_and_is_in_the_journal(shop: Registries) -> None:
    assert runner.run(shop.ctx(dry_run=True), "copy_schemas").facts == {}
    assert not shop.target.subjects
    assert runner.run(shop.ctx(), "copy_schemas").facts == {"schemas": 1}
    account = shop.ctx().journal.read("phase", "copy_schemas")
    assert account is not None
    assert (account["outcome"], account["detail"]) == ("done", "1 versions made")
    shop.fields["approvals"] = {}
    evolve(shop)
    with pytest.raises(NotApproved):
        runner.run(shop.ctx(), "copy_schemas")


def test_command_is_refused_behind_a_shut_gate_and_after_a_cancellation(
    shop: Registries, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.fields["approvals"] = {}
    with pytest.raises(NotApproved):
        schemas.apply(shop.ctx())
    shop.fields["approvals"] = {"plan": False}

    def cancelled(_ctx: Context) -> None:
        raise Refused("cancelled")

    monkeypatch.setattr(cancellation, "require_none", cancelled)
    with pytest.raises(Refused, match="cancelled"):
        schemas.apply(shop.ctx())
    assert not shop.target.subjects


def test_preflight_warns_of_what_is_missing_and_fails_for_what_is_taken(shop: Registries) -> None:
    missing = result(preflight.check(shop.ctx()).gate.results)
    assert (missing.verdict, missing.remedy) == (Verdict.WARN, "run `schemas PLAN --apply`")
    assert "lacks 1 versions: shop.orders-value version 1 (id 1)" in missing.evidence
    shop.target.register("theirs", '"int"')
    assert result(preflight.check(shop.ctx()).gate.results).verdict is Verdict.FAIL
    shop.connect("new_registry", "http://127.0.0.1:1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafka_migration.schemas.registry._TRY_SECONDS", 0.0)
        assert result(preflight.check(shop.ctx()).gate.results).verdict is Verdict.UNCHECKED
    assert not difference.check(shop.shop.ctx(), is_due=True), "a plan without registries"


def test_cutover_gate_is_shut_while_a_schema_is_missing(shop: Registries) -> None:
    begun(shop)
    seen = approvals.evidence(shop.ctx(), GateName.CUTOVER)
    assert result(seen.checks.results).verdict is Verdict.FAIL
    with pytest.raises(NotApproved, match="schemas on the target"):
        CutoverGate(shop.ctx()).ask()
    shop.apply()
    seen = approvals.evidence(shop.ctx(), GateName.CUTOVER)
    assert result(seen.checks.results).verdict is Verdict.PASS
    approvals.record(shop.ctx(), GateName.CUTOVER, seen.digest, "ada")
    CutoverGate(shop.ctx()).ask()


def test_cutover_copies_what_came_since_before_a_group_is_moved(
    shop: Registries, open_gate: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(shop)
    at_first_move: list[bool] = []
    monkeypatch.setattr(Mover, "move", lambda *_: at_first_move.append(VALUES in shop.target.subjects))
    monkeypatch.setattr(cutover, "SEE_OFF_SECONDS", 0.0)
    cutover.apply(shop.ctx(dry_run=True))
    assert not shop.target.subjects
    cutover.apply(shop.ctx())
    assert at_first_move == [True]


def test_nothing_is_copied_before_the_migration_has_begun(shop: Registries) -> None:
    assert schemas.catch_up(shop.ctx()) == frozenset()
    assert not shop.target.subjects


def test_cancelled_migration_names_what_it_leaves(shop: Registries, monkeypatch: pytest.MonkeyPatch) -> None:
    create.apply(shop.ctx())
    schemas.apply(shop.ctx())
    monkeypatch.setattr(seal, "cut_off", lambda _ctx, _tps: {})
    cancel.run(shop.ctx(), by="ada")
    assert "schemas that were copied stay: `schemas PLAN --undo` deletes them" in shop.shop.told
    schemas.undo(shop.ctx())
    assert not shop.target.subjects


def test_nothing_is_copied_on_the_way_back(shop: Registries) -> None:
    begun(shop)
    assert schemas.catch_up(replace(shop.ctx(), direction=Direction.REVERSE)) == frozenset()
    assert not shop.target.subjects


def test_what_was_seen_already_is_asked_for_by_number_alone(shop: Registries) -> None:
    begun(shop)
    seen = schemas.catch_up(shop.ctx())
    assert seen == {(VALUES, (1, 1))}
    shop.source.requests.clear()
    assert schemas.catch_up(shop.ctx(), seen) == seen
    versions = f"/subjects/{VALUES}/versions"
    paths = [path.removesuffix("?deleted=true") for _, path in shop.source.requests]
    assert paths == ["/subjects", versions, f"{versions}/1"]
    evolve(shop)
    assert schemas.catch_up(shop.ctx(), seen) == {(VALUES, (1, 2, 2))}
    assert shop.target.subjects[VALUES].keys() == {1, 2}


def test_version_that_was_deleted_between_two_looks_is_copied(shop: Registries) -> None:
    begun(shop)
    seen = schemas.catch_up(shop.ctx())
    evolve(shop)
    shop.source.delete(VALUES, 2)
    seen = schemas.catch_up(shop.ctx(), seen)
    assert shop.target.subjects[VALUES][2].is_deleted, "records have its id"
    shop.target.requests.clear()
    assert schemas.catch_up(shop.ctx(), seen) == seen
    assert not shop.target.requests, "nothing has changed since"


def test_number_that_came_again_with_another_id_is_seen(shop: Registries) -> None:
    begun(shop)
    seen = schemas.catch_up(shop.ctx())
    shop.source.subjects[VALUES][1].id = 9
    with pytest.raises(Refused, match="is id 1 there"):
        schemas.catch_up(shop.ctx(), seen)


def test_mode_import_that_was_left_is_ended_though_nothing_is_new(shop: Registries) -> None:
    begun(shop)
    seen = schemas.catch_up(shop.ctx())
    journal = shop.ctx().journal
    journal.record("schemas", VALUES, {**(journal.read("schemas", VALUES) or {}), "is_importing": True})
    shop.target.modes[VALUES] = "IMPORT"
    schemas.catch_up(shop.ctx(), seen)
    assert shop.target.modes == {"": "READWRITE"}


def test_registry_that_answers_slowly_is_not_waited_for_longer_than_there_is_time(shop: Registries) -> None:
    begun(shop)
    seen = schemas.catch_up(shop.ctx())
    shop.source.byte_seconds = 0.1
    began, ctx = time.monotonic(), shop.ctx()
    with pytest.raises(CouldNotFindOut, match="does not answer GET /subjects"):
        schemas.catch_up(ctx, seen, until=ctx.clock.monotonic() + 0.5)
    assert time.monotonic() - began < 1.5


def test_copy_of_another_process_is_waited_for_until_the_deadline(shop: Registries) -> None:
    begun(shop)
    ctx = shop.ctx()
    ctx.journal.record(lease.KIND, "other", {"until": (ctx.clock.now() + timedelta(seconds=60)).isoformat()})
    with pytest.raises(CouldNotFindOut, match="another process copies"):
        schemas.catch_up(ctx, until=ctx.clock.monotonic() + 30)
    assert not shop.target.subjects
    schemas.catch_up(ctx, until=ctx.clock.monotonic() + 50)
    assert shop.target.subjects[VALUES].keys() == {1}


def test_nothing_is_copied_and_no_gate_asks_once_producers_are_on_the_target(
    shop: Registries, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(shop)
    away = Switch(state=SwitchState.SERVED, begun_at="now", served_at="now")
    monkeypatch.setattr(switched, "away_from", lambda _ctx, side: away if side == SOURCE else None)
    assert schemas.catch_up(shop.ctx()) == frozenset()
    assert schemas.run(shop.ctx()).value is None
    for refused in (schemas.check, schemas.apply):
        with pytest.raises(Refused, match="is that of producers"):
            refused(shop.ctx())
    assert not shop.target.subjects
    names = {one.name for one in approvals.evidence(shop.ctx(), GateName.CUTOVER).checks.results}
    assert "schemas on the target" not in names
    with pytest.raises(NotApproved) as shut:
        CutoverGate(shop.ctx()).ask()
    assert "schemas" not in str(shut.value)


def test_registry_is_followed_while_a_mirror_runs_and_an_error_ends_nothing(
    shop: Registries, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(shop)
    monkeypatch.setattr(schemas, "FOLLOW_SECONDS", 0.02)
    opened, failed, copied = [], threading.Event(), threading.Event()

    @contextmanager
    def open_context(plan: Any, **_: Any) -> Iterator[Context]:
        opened.append(plan)
        if len(opened) == 1:
            raise CouldNotFindOut("no broker")
        failed.set()
        yield shop.ctx()

    monkeypatch.setattr(schemas, "open_context", open_context)
    write = copy._write

    def written(journal: Journal, records: Mapping[str, Made]) -> None:
        write(journal, records)
        if failed.is_set() and not any(one.is_importing for one in records.values()):
            copied.set()

    monkeypatch.setattr(copy, "_write", written)
    with schemas.following(shop.ctx()):
        assert shop.target.subjects[VALUES].keys() == {1}, "before anything is mirrored"
        evolve(shop)
        assert failed.wait(30)
        assert copied.wait(30)
    assert shop.target.subjects[VALUES].keys() == {1, 2}
    assert shop.shop.told.count("schemas that came since are not copied: no broker") == 1
    assert not any(thread.name == "schemas" for thread in threading.enumerate())


@pytest.mark.parametrize("back", [False, True])
def test_mirror_by_spark_is_followed_to_the_target_and_not_back(
    shop: Registries, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    begun(shop)

    @contextmanager
    def open_context(*_: Any, **__: Any) -> Iterator[Context]:
        yield shop.ctx()

    monkeypatch.setattr(mirror, "open_context", open_context)
    for name in ("close_session", "SparkRunner", "ship_handlers"):
        monkeypatch.setattr(mirror, name, lambda *_, **__: None)
    monkeypatch.setattr(mirror, "open_session", lambda *_, **__: SimpleNamespace(sparkContext=None))
    monkeypatch.setattr(reverse, "arm", lambda ctx: replace(ctx, direction=Direction.REVERSE))
    monkeypatch.setattr(seal, "check", lambda _ctx: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    copied: list[bool] = []
    monkeypatch.setattr(mirror, "apply", lambda *_, **__: copied.append(VALUES in shop.target.subjects))
    mirror.run(shop.ctx().plan, back=back)
    assert copied == [not back]


def test_taken_id_keeps_a_mirror_from_beginning(shop: Registries) -> None:
    begun(shop)
    shop.target.register("theirs", '"int"')
    with pytest.raises(Refused, match="taken"), schemas.following(shop.ctx()):
        pytest.fail("nothing begins")


def test_mirror_that_began_before_begins_again_whatever_the_registries_answer(
    shop: Registries, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(shop)
    joined.mirror_began(shop.ctx())
    shop.target.register("theirs", '"int"')
    refused = threading.Event()
    monkeypatch.setattr(schemas, "open_context", lambda *_, **__: nullcontext(shop.ctx()))

    def apply(*_: Any, **__: Any) -> None:
        refused.set()
        raise Refused("taken")

    monkeypatch.setattr(copy, "apply", apply)
    with schemas.following(shop.ctx()):
        assert refused.wait(30), "at once"
    assert "schemas that came since are not copied: taken" in shop.shop.told


def test_follower_survives_what_nobody_expects_and_goes_by_the_plan_that_joined_last(
    shop: Registries, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(shop)
    monkeypatch.setattr(schemas, "FOLLOW_SECONDS", 0.02)
    old, began, copied = shop.ctx(), threading.Event(), threading.Event()
    monkeypatch.setattr(schemas, "open_context", lambda *_, **__: nullcontext(old))
    shop.source.register("further", '"string"')
    catch_up = schemas.catch_up

    def catch(ctx: Context, *arguments: Any, **more: Any) -> Any:
        if not began.is_set() and threading.current_thread().name == "schemas":
            began.set()
            raise ZeroDivisionError("odd")
        found = catch_up(ctx, *arguments, **more)
        if "further" in shop.target.subjects:
            copied.set()
        return found

    monkeypatch.setattr(schemas, "catch_up", catch)
    with schemas.following(old):
        assert began.wait(30)
        assert "further" not in shop.target.subjects
        shop.section = {**shop.section, "subjects": ["further"]}
        joined.join(shop.ctx())
        assert copied.wait(30)
    assert "schemas that came since are not copied: ZeroDivisionError: odd" in shop.shop.told


def test_switch_checks_the_registries(shop: Registries) -> None:
    begun(shop)
    shop.fields["producers"] = {"fence": {"probe": "probe"}}
    assert result(switch.check(shop.ctx())).verdict is Verdict.WARN


def test_undo_is_refused_while_clients_may_need_the_schemas(shop: Registries, monkeypatch: pytest.MonkeyPatch) -> None:
    schemas.apply(shop.ctx())
    assert schemas.undo(shop.ctx(dry_run=True)).value.removed
    assert shop.target.subjects
    with monkeypatch.context() as patch:
        patch.setattr(lifecycle, "read", lambda _ctx: {"shop.orders": TopicState.SEALED})
        with pytest.raises(Refused, match="clients may use these topics"):
            schemas.undo(shop.ctx())
    assert schemas.undo(shop.ctx()).facts == {"schemas": 1}
    assert not shop.target.subjects
    assert schemas.undo(shop.ctx()).value.removed == ()
