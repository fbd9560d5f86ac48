"""Where the plan has the copy begin: found once, before anything is copied, and told wherever a person looks."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_migration.approvals import approvals
from kafka_migration.approvals.evidence import GateName
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.skips import START
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups import translate
from kafka_migration.overview import status
from kafka_migration.steps import mirror, report
from tests.fakes.cluster import FakeCluster
from tests.steps import histories
from tests.steps.gates import Migration

ORDERS, OTHER = histories.ORDERS
PAYMENTS = histories.PAYMENTS
LATEST = {"mirror": {"start": "latest"}}


@pytest.fixture
def shop() -> Migration:
    """Created, of 100 records a partition, of which one has lost its first ten."""
    shop = Migration()
    histories.created(shop)
    shop.source.delete_records(OTHER, 10)
    return shop


def _left_out(shop: Migration) -> dict[TopicPartition, list[tuple[int, int]]]:
    return {tp: [(it.start, it.end) for it in found] for tp, found in shop.ctx().link.skips().items()}


def test_plan_that_says_nothing_leaves_nothing_out(shop: Migration) -> None:
    mirror.pin(shop.ctx())
    assert _left_out(shop) == {}


def test_latest_leaves_out_what_is_there_when_a_topic_is_pinned_and_never_again(shop: Migration) -> None:
    mirror.pin(shop.ctx(**LATEST))
    expected = {ORDERS: [(0, 100)], OTHER: [(10, 100)], PAYMENTS: [(0, 100)]}
    assert _left_out(shop) == expected
    assert "shop.orders-1: begins at source offset 100; 90 offsets before it are not copied" in shop.told
    shop.produce(50)
    mirror.pin(shop.ctx(**LATEST))
    mirror.pin(shop.ctx(mirror={"start": "earliest"}))
    assert _left_out(shop) == expected


def test_latest_begins_before_a_transaction_that_is_open(shop: Migration) -> None:
    shop.source.hold_back(ORDERS, 70)
    mirror.pin(shop.ctx(**LATEST))
    assert _left_out(shop)[ORDERS] == [(0, 70)]


def test_time_leaves_out_what_is_older(shop: Migration) -> None:
    then = 1_900_000_000_000
    shop.source.append(ORDERS, 5, timestamp=then)
    mirror.pin(shop.ctx(mirror={"start": "2030-03-17T17:46:40.102Z"}))
    assert _left_out(shop) == {ORDERS: [(0, 102)], OTHER: [(10, 100)], PAYMENTS: [(0, 100)]}


def test_killed_before_the_pin_it_finds_the_place_anew(shop: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = shop.ctx(**LATEST)

    def dies(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ctx.link, "pin", dies)
    with pytest.raises(KeyboardInterrupt):
        mirror.pin(ctx)
    shop.produce(7)
    mirror.pin(shop.ctx(**LATEST))
    assert _left_out(shop) == {ORDERS: [(0, 107)], OTHER: [(10, 107)], PAYMENTS: [(0, 107)]}


def test_topic_that_was_made_while_the_mirror_ran_is_copied_whole(shop: Migration) -> None:
    mirror.pin(shop.ctx(**LATEST), ["shop.orders"])
    mirror.pin(shop.ctx(**LATEST), ["shop.payments"], is_new=True)
    assert _left_out(shop).keys() == {ORDERS, OTHER}


def test_records_without_times_cannot_begin_at_one(shop: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    since = FakeCluster.first_since

    def untimed(self: Any, tps: Any, timestamp: int) -> dict[TopicPartition, int]:
        return {tp: at for tp, at in since(self, tps, timestamp).items() if tp.topic != "shop.payments"}

    monkeypatch.setattr(FakeCluster, "first_since", untimed)
    with pytest.raises(Refused, match=r"records of shop\.payments have no timestamps"):
        mirror.pin(shop.ctx(mirror={"start": "2020-01-01T00:00:00Z"}))
    assert shop.ctx().link.topics() == {}


def test_report_status_and_cutover_evidence_tell_what_the_plan_leaves_out(shop: Migration) -> None:
    ctx = shop.ctx(**LATEST)
    mirror.pin(ctx)
    assert {it["halt"] for it in report.build(ctx)["losses"]} == {START}
    said = "shop.orders-1: source offsets 10..100 (90 at most) are not copied: the plan begins at latest (mirror.start)"
    assert said in report.build(ctx)["exceptions"]
    assert [it["partition"] for it in status.read(ctx).losses] == [0, 1, 0]
    evidence = approvals.evidence(ctx, GateName.CUTOVER)
    (check,) = [it for it in evidence.checks.results if it.name == "no records were given up"]
    assert (str(check.verdict), "are not copied" in check.evidence) == ("WARN", True)


def test_group_that_has_not_read_what_is_left_out_is_told_so(shop: Migration) -> None:
    ctx = shop.ctx(**LATEST)
    mirror.pin(ctx)
    (group,) = translate.preview(ctx).groups
    # It stands at 40 of one and at 50 of the other.
    (flag,) = group.flags
    assert "after the skipped offsets" in flag
    assert "never reads 60 offsets of shop.orders-0, 50 offsets of shop.orders-1" in flag
    for tp in (ORDERS, OTHER):
        shop.source.consumer_commits("shop.app", tp, 100)
    (group,) = translate.preview(ctx).groups
    assert group.flags == ()
