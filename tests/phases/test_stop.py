"""The stop gate: refused while producers write or lag remains; then the mirror drains up to the ends proved still."""

from __future__ import annotations

import pytest

from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.types import Desired
from kafka_migration.phases import stop
from tests.phases import histories
from tests.phases.gates import Migration
from tests.phases.test_lag import PARTITIONS, mirrored

DRAIN = {"drain": {"window_seconds": 10, "deadline_seconds": 100}}


def failed(result: stop.StopResult) -> dict[str, str]:
    return {it.name: it.evidence for it in result.gate.blockers}


def test_still_source_without_lag_drains_up_to_its_ends_and_waits_for_the_mirror_to_end() -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=100, **DRAIN)
    link.record_run({"state": "running"})
    shop.clock.at(30, lambda: link.record_run({"state": "ended", "reason": "drained"}))
    result = stop.apply(ctx)
    assert result.stopped
    assert link.wished().desired is Desired.DRAIN
    assert link.wished().ends == dict.fromkeys(PARTITIONS, 100)
    assert shop.clock.monotonic() >= 30


def test_source_end_that_moves_within_the_window_is_refused_with_its_rate() -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=150, **DRAIN)
    shop.clock.at(9, lambda: shop.source.append(histories.PAYMENTS, 50))
    result = stop.apply(ctx)
    assert not result.stopped
    assert failed(result) == {"source log ends are still": "1 partitions still grow: shop.payments-0 +50 (5/s)"}
    assert link.wished().desired is Desired.RUN


def test_remaining_lag_is_refused_though_nobody_writes() -> None:
    ctx, link = mirrored(Migration(), at=99, **DRAIN)
    assert failed(stop.apply(ctx)).keys() == {"no lag remains"}
    assert link.wished().desired is Desired.RUN


def test_halted_partition_is_refused() -> None:
    ctx, link = mirrored(Migration(), at=100, **DRAIN)
    link.halt(histories.PAYMENTS, "THINNED", "", 100, 100, ctx.stamp())
    assert failed(stop.apply(ctx)) == {"no partition is halted": "shop.payments-0 THINNED"}
    assert link.wished().desired is Desired.RUN


def test_mirror_that_does_not_end_in_time_could_not_be_found_out_about_and_the_wish_stays() -> None:
    ctx, link = mirrored(Migration(), at=100, **DRAIN)
    link.record_run({"state": "running"})
    with pytest.raises(CouldNotFindOut, match="did not end within 100 s of being asked to drain"):
        stop.apply(ctx)
    assert link.wished().desired is Desired.DRAIN


def test_stop_now_asks_no_gate_and_says_so() -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=0, **DRAIN)
    link.record_run({"state": "running"})
    shop.clock.at(2, lambda: link.record_run({"state": "ended", "reason": "stopped"}))
    result = stop.apply(ctx, now=True)
    assert result.stopped
    assert [it.evidence for it in result.gate.results] == ["no gate"]
    assert link.wished().desired is Desired.STOP


@pytest.mark.parametrize("now", [False, True])
def test_dry_run_wishes_nothing(now: bool) -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=100, **DRAIN)
    ctx.dry_run = True
    before = shop.links.items()
    stop.apply(ctx, now=now)
    assert shop.links.items() == before
    assert link.wished().desired is Desired.RUN
