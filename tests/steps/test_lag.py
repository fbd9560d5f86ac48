"""Replication lag and its gate: counted in source offsets, and passed only after a row of samples."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from kafka_migration.domain.types import Position, TopicPartition
from kafka_migration.link import lag
from kafka_migration.migration.context import Context
from kafka_migration.state.link import LinkState
from kafka_migration.steps import runner, watch_lag
from kafka_migration.steps.step import Decision
from tests.steps import histories
from tests.steps.gates import Migration

PARTITIONS = (*histories.ORDERS, histories.PAYMENTS)


class Mirrored(LinkState):
    """A link whose mirror stands where a test says, at target offsets that have nothing to do with it."""

    def __init__(self, shop: Migration, places: dict[TopicPartition, int]) -> None:
        super().__init__("shop", shop.links, None, None)
        self.places = places

    def positions(self, of: Collection[TopicPartition] | None = None) -> dict[TopicPartition, Position]:
        return {tp: Position(source=at, target=5_000_000, fence=0, records=0) for tp, at in self.places.items()}


def mirrored(shop: Migration, at: int | None = None, **fields: object) -> tuple[Context, Mirrored]:
    """The migration with created targets; each partition's mirror stands at source offset ``at``, if any."""
    histories.created(shop)
    ctx = shop.ctx(**fields)
    link = Mirrored(shop, {} if at is None else dict.fromkeys(PARTITIONS, at))
    ctx.link = link
    histories.pinned(ctx)
    return ctx, link


def every_second(shop: Migration, happen: Callable[[int], None], seconds: int) -> None:
    for second in range(seconds):
        shop.clock.at(second + 0.5, lambda second=second: happen(second))  # type: ignore[misc]


def test_lag_is_source_end_minus_position_whatever_target_offsets_are() -> None:
    ctx, link = mirrored(Migration(), at=90)
    link.places[histories.PAYMENTS] = 40
    report = lag.LagMeter(ctx).read()
    assert report.sample.lag == {histories.ORDERS[0]: 10, histories.ORDERS[1]: 10, histories.PAYMENTS: 60}
    assert report.total == 80


def test_partition_without_a_position_counts_in_full_from_its_log_start() -> None:
    shop = Migration()
    shop.source.delete_records(histories.PAYMENTS, 30)
    ctx, link = mirrored(shop, at=100)
    del link.places[histories.PAYMENTS]
    assert lag.LagMeter(ctx).read().sample.lag[histories.PAYMENTS] == 70


def test_records_that_retention_took_before_they_were_copied_stay_lag() -> None:
    shop = Migration()
    ctx, _ = mirrored(shop, at=10)
    shop.source.delete_records(histories.PAYMENTS, 100)
    assert lag.LagMeter(ctx).read().sample.lag[histories.PAYMENTS] == 90


def test_what_an_open_transaction_holds_back_is_no_lag_but_told() -> None:
    shop = Migration()
    ctx, _ = mirrored(shop, at=60, lag_gate={"threshold_records": 80, "samples": 1})
    shop.source.hold_back(histories.PAYMENTS, 60)
    report = lag.LagMeter(ctx).read()
    assert report.sample.lag == {histories.ORDERS[0]: 40, histories.ORDERS[1]: 40, histories.PAYMENTS: 0}
    assert report.as_dict()["undecided"] == {"shop.payments-0": 40}
    said = "40 offsets in 1 partitions lie behind open transactions, most in shop.payments-0, from 60 on"
    assert said in lag.describe(report)
    assert lag.verify(ctx).passed


def test_lag_that_closes_has_an_eta_at_the_rate_seen() -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=0)
    meter = lag.LagMeter(ctx)
    meter.read()
    shop.clock.sleep(10)
    link.places = dict.fromkeys(PARTITIONS, 50)
    trend = meter.read().trend
    assert (trend.copied_per_second, trend.produced_per_second, trend.eta_seconds) == (15.0, 0.0, 10.0)


def test_lag_that_grows_has_an_eta_of_never() -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=0)
    meter = lag.LagMeter(ctx)
    meter.read()
    shop.clock.sleep(10)
    shop.produce(100)
    link.places = dict.fromkeys(PARTITIONS, 50)
    report = meter.read()
    assert report.trend.copied_per_second == 15.0
    assert report.trend.produced_per_second == 30.0
    assert report.as_dict()["eta_seconds"] is None
    assert "ETA never" in lag.describe(report)


def test_gate_passes_only_after_enough_samples_in_a_row_at_or_under_the_threshold() -> None:
    shop = Migration()
    ctx, link = mirrored(
        shop, at=0, lag_gate={"threshold_records": 30, "samples": 3, "interval_seconds": 1, "deadline_seconds": 60}
    )
    # Under it twice, over it once: the row begins anew, and the third sample of the second row passes.
    lags = [100, 10, 10, 11, 10, 10, 0]
    link.places = dict.fromkeys(PARTITIONS, 100 - lags[0])
    every_second(shop, lambda n: link.places.update(dict.fromkeys(PARTITIONS, 100 - lags[n + 1])), len(lags) - 1)
    shop.told.clear()
    assert lag.verify(ctx).passed
    assert [line.split(" in ")[0] for line in shop.told] == [f"lag {3 * it}" for it in lags]


def test_gate_that_gives_up_at_its_deadline_has_changed_nothing() -> None:
    shop = Migration()
    ctx, _ = mirrored(shop, at=0, lag_gate={"threshold_records": 10, "deadline_seconds": 60})
    before = (shop.store.items(), shop.links.items(), shop.source.changes, shop.target.changes)
    began = shop.clock.monotonic()
    result = lag.verify(ctx)
    assert not result.passed
    assert "not at or under 10 within 60 s" in result.reason
    assert 60 <= shop.clock.monotonic() - began < 65
    assert (shop.store.items(), shop.links.items(), shop.source.changes, shop.target.changes) == before


DAY = {"threshold_records": 10, "interval_seconds": 5, "deadline_seconds": 86_400}


def test_gate_gives_up_soon_on_a_mirror_that_never_starts_and_names_its_log() -> None:
    shop = Migration()
    ctx, _ = mirrored(shop, at=0, lag_gate=DAY)
    began = shop.clock.monotonic()
    result = lag.verify(ctx)
    assert not result.passed
    assert "the mirror has not started; no record was copied for 600 s" in result.reason
    assert "the log of the mirror's task" in result.reason
    assert shop.clock.monotonic() - began < 620


def test_gate_gives_up_soon_on_a_mirror_whose_heartbeat_is_gone() -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=50, lag_gate=DAY)
    link.record_run({"state": "running", "at": ctx.stamp()})
    began = shop.clock.monotonic()
    result = lag.verify(ctx)
    assert "the mirror's last heartbeat was at" in result.reason
    assert "it has probably died" in result.reason
    assert shop.clock.monotonic() - began < 620


def test_gate_gives_up_on_a_mirror_that_dies_after_each_start_without_copying() -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=50, lag_gate=DAY)

    def starts_and_dies(minute: int) -> None:
        link.record_run({"state": "running" if minute % 2 else "ended", "reason": "failed", "at": ctx.stamp()})

    for minute in range(1, 30):
        shop.clock.at(minute * 60.0, lambda minute=minute: starts_and_dies(minute))  # type: ignore[misc]
    began = shop.clock.monotonic()
    assert "no record was copied for 600 s" in lag.verify(ctx).reason
    assert shop.clock.monotonic() - began < 720


def test_gate_gives_up_on_a_mirror_that_died_once_and_is_active_since_without_copying() -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=50, lag_gate=DAY)

    def happens(minute: int) -> None:
        link.record_run({"state": "ended" if minute == 1 else "running", "reason": "failed", "at": ctx.stamp()})

    for step in range(1, 180):
        shop.clock.at(step * 20.0, lambda step=step: happens(step // 3))  # type: ignore[misc]
    began = shop.clock.monotonic()
    assert "no record was copied for 600 s" in lag.verify(ctx).reason
    assert shop.clock.monotonic() - began < 720


def test_gate_waits_for_a_mirror_that_dies_but_copies_in_between_and_for_one_that_is_active() -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=0, lag_gate={**DAY, "deadline_seconds": 3600})

    def happens(step: int) -> None:
        # Half an hour of deaths, each after a few records; then a mirror that is active and waits for something.
        minute = step // 6
        link.record_run({"state": "ended" if minute % 2 and minute < 30 else "running", "at": ctx.stamp()})
        link.places = dict.fromkeys(PARTITIONS, min(minute, 30))

    for step in range(360):
        shop.clock.at(step * 10.0 + 1, lambda step=step: happens(step))  # type: ignore[misc]
    assert "not at or under 10 within 3600 s" in lag.verify(ctx).reason


def test_gate_with_a_halted_partition_gives_up_at_once() -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=100)
    link.halt(histories.PAYMENTS, "CORRUPT", "a checksum", 40, 40, ctx.stamp())
    began = shop.clock.monotonic()
    result = lag.verify(ctx)
    assert not result.passed
    assert result.reason == "halted partitions: shop.payments-0 CORRUPT"
    assert shop.clock.monotonic() == began


def test_gate_with_topics_that_changed_so_that_records_are_in_danger_gives_up_at_once_or_at_the_end() -> None:
    shop = Migration()
    gate = {"threshold_records": 10, "samples": 3, "interval_seconds": 1, "deadline_seconds": 60}
    ctx, _ = mirrored(shop, at=100, lag_gate=gate)
    shop.clock.at(1.5, lambda: shop.target.alter_configs("shop.payments", set={"retention.ms": "1000"}))
    began = shop.clock.monotonic()
    late, again = lag.verify(ctx), lag.verify(ctx)
    assert [it.passed for it in (late, again)] == [False, False]
    assert late.reason == "topics have changed: shop.payments: retention.ms is 1000, declared -1"
    assert (late.reason, shop.clock.monotonic() - began) == (again.reason, 2.0), "the second at its first look"
    shop.target.alter_configs("shop.payments", set={"retention.ms": "-1"})
    shop.source.alter_configs("shop.payments", set={"retention.ms": "2000"})
    assert lag.verify(ctx).passed, "no danger"


def test_lag_over_time_is_in_the_journal_for_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Migration()
    histories.created(shop)
    decided = Decision(facts={"lag": 0}, kept={"history": [[0, 9], [2, 0]]})
    monkeypatch.setattr(watch_lag.Wait, "look", lambda _wait: decided)
    runner.wait(shop.ctx(), "watch_lag")
    assert (shop.ctx().journal.read("phase", "watch_lag") or {})["evidence"] == {"lag": 0, "history": [[0, 9], [2, 0]]}
