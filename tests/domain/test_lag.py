"""Lag in source offsets: what is missing counts, and what is lost does not stop counting."""

import pytest

from kafka_migration.domain.lag import LagGate, LagSample, sample, trend
from kafka_migration.domain.types import PartitionEnds, TopicPartition

A, B, C = (TopicPartition("t", p) for p in range(3))


def _at(seconds: float, lag: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> LagSample:
    return LagSample(at=seconds, lag=lag, source_ends=ends)


def test_partition_without_a_position_counts_in_full_from_its_log_start():
    ends = {A: PartitionEnds(start=100, end=150), B: PartitionEnds(start=0, end=0), C: PartitionEnds(start=3, end=9)}
    it = sample(1.0, ends, {A: 120})
    assert it.lag == {A: 30, B: 0, C: 6}
    assert (it.total, it.worst) == (36, (A, 30))


def test_position_ahead_of_ends_read_earlier_is_no_lag():
    assert sample(0.0, {A: PartitionEnds(start=0, end=10)}, {A: 12}).lag == {A: 0}


def test_records_deleted_before_they_were_copied_stay_lag():
    assert sample(0.0, {A: PartitionEnds(start=100, end=100)}, {A: 40}).lag == {A: 60}


def test_no_partitions_have_no_lag_and_no_worst():
    it = sample(0.0, {}, {A: 5})
    assert (it.total, it.worst) == (0, None)


def test_trend_tells_rates_and_when_the_rest_is_copied():
    first, last = _at(10.0, {A: 1_000}, {A: 5_000}), _at(20.0, {A: 400}, {A: 5_500})
    it = trend([first, last])
    assert (it.produced_per_second, it.copied_per_second) == (50.0, 110.0)
    assert it.eta_seconds == pytest.approx(400 / 60)


def test_diverging_or_standing_lag_is_never_caught_up():
    for lag in (1_000, 1_200):
        it = trend([_at(0.0, {A: 1_000}, {A: 5_000}), _at(10.0, {A: lag}, {A: 6_000})])
        assert it.eta_seconds is None


def test_single_sample_claims_no_rate():
    alone = trend([_at(5.0, {A: 7}, {A: 7})])
    assert (alone.eta_seconds, str(alone)) == (None, "ETA not known yet")
    assert trend([_at(5.0, {A: 0}, {A: 7})]).eta_seconds == 0.0
    with pytest.raises(ValueError, match="at least one"):
        trend([])


def test_gate_passes_only_after_enough_samples_in_a_row():
    gate = LagGate(threshold=10, samples=3)
    lags = [10, 0, 11, 10, 9, 8]
    assert [gate.observe(_at(float(n), {A: lag}, {A: 100})) for n, lag in enumerate(lags)] == [False] * 5 + [True]


def test_gate_counts_the_sum_of_all_partitions():
    gate = LagGate(threshold=10, samples=1)
    assert not gate.observe(_at(0.0, {A: 6, B: 6}, {}))
    assert gate.observe(_at(1.0, {A: 5, B: 5}, {}))


@pytest.mark.parametrize(("threshold", "samples"), [(-1, 1), (0, 0)])
def test_gate_that_cannot_decide_is_refused(threshold, samples):
    with pytest.raises(ValueError, match="lag gate"):
        LagGate(threshold=threshold, samples=samples)


def test_mirror_that_follows_a_live_producer_by_seconds_keeps_up_though_its_lag_goes_up_and_down():
    following = trend([_at(0.0, {A: 40}, {A: 1_000}), _at(10.0, {A: 50}, {A: 2_000})])
    assert following.eta_seconds == pytest.approx(50 / 99)
    assert str(following) == "keeps up, 0.5 s behind"
    closing = trend([_at(0.0, {A: 60}, {A: 1_000}), _at(10.0, {A: 50}, {A: 2_000})])
    assert str(closing) == "keeps up, 0.5 s behind"
    behind = trend([_at(0.0, {A: 540}, {A: 1_000}), _at(10.0, {A: 550}, {A: 2_000})])
    assert behind.eta_seconds is None
    assert str(behind) == "ETA never, at these rates"


def test_nothing_keeps_up_that_copies_nothing_or_has_a_backlog_without_producers():
    dead = trend([_at(0.0, {A: 0}, {A: 1_000}), _at(1.0, {A: 100}, {A: 1_100})])
    assert (dead.keeps_up, str(dead)) == (False, "ETA never, at these rates")
    backlog = trend([_at(0.0, {A: 9_000}, {A: 9_000}), _at(10.0, {A: 6_000}, {A: 9_000})])
    assert (backlog.keeps_up, str(backlog)) == (False, "ETA 20 s")
    done = trend([_at(0.0, {A: 9_000}, {A: 9_000}), _at(10.0, {A: 0}, {A: 9_000})])
    assert (done.keeps_up, str(done)) == (False, "caught up")
