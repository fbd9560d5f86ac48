"""The page about a migration, from nothing to done, and with sides that do not answer."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from kafka_migration.compare.explain.result import Altered, Drilled, Example, Fault, Part
from kafka_migration.compare.result import Equality
from kafka_migration.domain.errors import ClusterUnreachable
from kafka_migration.domain.types import Desired, Halt, TopicPartition
from kafka_migration.groups import looks
from kafka_migration.link import halts
from kafka_migration.migration.history import phase
from kafka_migration.migration.joined import join, mirror_began
from kafka_migration.overview import status
from kafka_migration.state.link import Wish
from tests.handlers import handler, nothing
from tests.steps import histories
from tests.steps.gates import Migration


@pytest.fixture
def shop() -> Migration:
    return Migration()


def test_migration_that_has_not_begun_has_a_page_too(shop: Migration) -> None:
    page = status.read(shop.ctx())
    assert not page.has_begun
    assert page.mirror.state == "not started"
    assert page.lag is None
    assert "mirrors nothing yet" in page.unknown["lag"]
    assert (page.phases, page.halts, page.groups, page.approvals, page.validation) == ((), (), (), (), None)
    assert shop.target.changes == shop.source.changes == []
    json.dumps(page.as_dict())


def test_page_of_a_migration_in_flight_tells_all_of_it(shop: Migration) -> None:
    histories.in_flight(shop)
    page = status.read(shop.ctx())
    assert page.has_begun
    assert [(it.name, it.outcome, it.runs) for it in page.phases] == [
        ("create_targets", "done", 1),
        ("validate", "done", 1),
    ]
    assert page.phases[0].seconds == 30.0
    assert (page.topics, page.locks) == (2, {"shop.orders": "shop", "shop.payments": "shop"})
    assert page.lag is not None
    assert (page.lag.total, page.lag.partitions) == (300, 3)
    assert page.lag.worst == (("shop.orders-0", 100), ("shop.orders-1", 100), ("shop.payments-0", 100))
    assert [(it.group, it.step, it.pause_seconds) for it in page.groups] == [
        ("shop.app", "alive", 6.5),
        ("shop.slow", "stopped", None),
    ]
    assert page.groups_by_step == {"stopped": 1, "alive": 1}
    assert [(it.gate, it.approver) for it in page.approvals] == [("plan", "ada")]
    assert page.validation is not None
    assert page.validation["verdict"] == "EQUAL"
    assert page.mirror.fences == 1
    json.dumps(page.as_dict())


def test_group_whose_subscription_alone_is_remembered_is_not_on_the_move(shop: Migration) -> None:
    shop.source.join("shop.app", ["shop.orders"])
    looks.take(shop.ctx(), ["shop.app"])
    assert status.read(shop.ctx()).groups == ()


def test_group_that_runs_on_both_sides_is_named(shop: Migration) -> None:
    histories.moved(shop)
    assert [it.astray for it in status.read(shop.ctx()).groups] == [""]
    shop.source.join("shop.app", ["shop.orders"])
    assert "has 1 members on the source" in status.read(shop.ctx()).groups[0].astray


def test_group_that_was_rolled_back_is_shown_so_and_named_where_it_is_active_on_the_target(shop: Migration) -> None:
    histories.moved(shop)
    histories.rolled_back(shop)
    (group,) = status.read(shop.ctx()).groups
    assert (group.step, group.astray) == ("back: read_back", "")
    shop.target.join("shop.app", [])
    assert status.read(shop.ctx()).groups[0].astray == "has 1 members on the target"


def test_source_that_does_not_answer_leaves_it_unknown_where_groups_run(shop: Migration) -> None:
    histories.moved(shop)
    with shop.source.failing("group_states", ClusterUnreachable("source", "127.0.0.1:1", "timed out")):
        page = status.read(shop.ctx())
    assert "no broker" in page.unknown["groups"]
    assert [it.group for it in page.groups] == ["shop.app"]


@pytest.mark.parametrize(("seconds", "state"), [(0, "running"), (44, "running"), (46, "silent")])
def test_mirror_that_says_nothing_for_longer_than_an_epoch_is_silent(
    seconds: float, state: str, shop: Migration
) -> None:
    histories.created(shop)
    histories.mirroring(shop)
    shop.clock.sleep(seconds)
    page = status.read(shop.ctx())
    assert page.mirror.state == state
    assert page.mirror.age_seconds == seconds


def test_mirror_that_began_with_other_handlers_than_the_plan_has_shows_that_a_new_start_is_due(
    shop: Migration,
) -> None:
    histories.created(shop)
    histories.mirroring(shop)
    after = shop.ctx(handlers=[{"topics": [".*"], **asdict(handler(nothing))}])
    for began, joined, is_due in ((shop.ctx(), after, True), (after, after, False), (after, shop.ctx(), True)):
        mirror_began(began)
        join(joined)
        waiting = status.read(joined).mirror.waiting
        assert waiting.startswith("handlers of the plan that joined since") is is_due


def test_mirror_that_ended_says_how_and_what_is_wished_of_it(shop: Migration) -> None:
    histories.created(shop)
    histories.mirroring(shop)
    ctx = shop.ctx()
    ctx.link.wish(Wish(desired=Desired.DRAIN, reason="lag is 0", at=ctx.stamp()))
    ctx.link.record_run({"state": "ended", "at": ctx.stamp(), "reason": "drained"})
    shop.clock.sleep(1000)
    mirror = status.read(shop.ctx()).mirror
    assert (mirror.state, mirror.ended_as, mirror.desired, mirror.reason) == ("ended", "drained", "drain", "lag is 0")


def test_killed_phase_is_shown_as_running(shop: Migration) -> None:
    killed = phase(shop.ctx(), "cut_over")
    killed.__enter__()
    (shown,) = status.read(shop.ctx()).phases
    assert (shown.outcome, shown.ended, shown.seconds) == ("running", None, None)


def test_source_that_does_not_answer_leaves_lag_unknown_and_the_rest_told(shop: Migration) -> None:
    histories.created(shop)
    with shop.source.failing("topics", ClusterUnreachable("source", "127.0.0.1:1", "timed out")):
        page = status.read(shop.ctx())
    assert page.lag is None
    assert "no broker at 127.0.0.1:1 answered" in page.unknown["lag"]
    assert page.topics == 2


def test_every_halt_says_what_it_means_and_what_can_be_done(shop: Migration) -> None:
    ctx = shop.ctx()
    for partition, reason in enumerate(Halt):
        ctx.link.halt(TopicPartition("shop.orders", partition), reason, "seen", 12, 34, ctx.stamp())
    page = status.read(shop.ctx())
    assert {it.reason for it in page.halts} == set(Halt)
    assert {(it.source_offset, it.target_offset) for it in page.halts} == {(12, 34)}
    assert all(it.meaning and it.remedy for it in page.halts)
    assert len({it.meaning for it in page.halts}) == len(Halt)


def test_halt_of_a_later_version_is_shown_all_the_same(shop: Migration) -> None:
    ctx = shop.ctx()
    ctx.link.halt(TopicPartition("shop.orders", 0), "MELTED", "hot", 1, 1, ctx.stamp())
    (halt,) = status.read(shop.ctx()).halts
    assert (halt.reason, halt.detail) == ("MELTED", "hot")
    assert "does not know" in halts.meaning_of("MELTED").meaning


def test_bytes_that_were_recorded_before_payloads_became_private_are_shown_no_more(shop: Migration) -> None:
    histories.created(shop)
    histories.mirroring(shop)
    histories.validated(shop, Equality.DIFFERENT)
    times = Altered(part=Part.TIMESTAMP, source="1", target="2")
    value = Altered(part=Part.VALUE, at=3, source="cafe", target="beef", source_bytes=9, target_bytes=9)
    example = Example(
        fault=Fault.MUTATION,
        topic="shop.orders",
        partition=0,
        source_offset=7,
        target_offset=8,
        key="c0ffee",
        content="facade",
        altered=(times, value),
    )
    drilled = Drilled(topic="shop.orders", partition=0, counts={Fault.MUTATION: 1}, examples=(example,), notes=("n",))
    journal = shop.ctx().journal
    recorded = journal.read("validation", "latest") or {}
    first, *others = recorded["partitions"]
    journal.record("validation", "latest", recorded | {"partitions": [first | {"drilled": drilled.as_dict()}, *others]})
    before = json.dumps(status.read(shop.ctx(validation={"private_payloads": False})).as_dict())
    assert all(word in before for word in ("cafe", "beef", "c0ffee", "facade"))
    page = status.read(shop.ctx()).as_dict()
    assert not any(word in json.dumps(page) for word in ("cafe", "beef", "c0ffee", "facade"))
    shown = page["validation"]["unequal"][0]["drilled"]
    hidden = replace(value, source=None, target=None)
    assert (
        shown
        == replace(drilled, examples=(replace(example, key=None, content=None, altered=(times, hidden)),)).as_dict()
    )
