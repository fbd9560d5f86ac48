"""Partitions in shares of about equal backlog, and the throttle with them."""

import random

import pytest

from kafka_migration.copy.driver.active import balance
from kafka_migration.copy.rate_limit import rate_share
from kafka_migration.domain.types import TopicPartition


def _backlog(*sizes: int) -> dict[TopicPartition, int]:
    return {TopicPartition("t", p): size for p, size in enumerate(sizes)}


@pytest.mark.parametrize("seed", range(50))
def test_every_partition_is_in_one_share_and_none_is_far_above_the_others(seed):
    chance = random.Random(seed)
    backlog = _backlog(*(chance.randrange(0, 1_000) for _ in range(chance.randrange(1, 40))))
    streams = chance.randrange(1, 8)
    shares = balance(backlog, streams)
    assert sorted(tp for share in shares for tp in share) == sorted(backlog)
    assert 0 < len(shares) <= streams
    assert all(shares)
    loads = [sum(backlog[tp] for tp in share) for share in shares]
    if len(shares) == streams:
        assert max(loads) - min(loads) <= max(backlog.values())


def test_partitions_without_a_backlog_are_spread_too():
    assert [len(share) for share in balance(_backlog(0, 0, 0, 0, 0, 0), 3)] == [2, 2, 2]


def test_heavy_partition_has_a_task_of_its_own():
    shares = balance(_backlog(1_000, 10, 10, 10), 2)
    assert [len(share) for share in shares] == [1, 3]


def test_source_that_ends_below_the_position_counts_as_no_backlog():
    assert sorted(map(len, balance(_backlog(-500, 5, 5), 2))) == [1, 2]


def test_no_partitions_make_no_shares_and_no_streams_make_one():
    assert balance({}, 3) == []
    assert len(balance(_backlog(1, 2), 0)) == 1


def test_throttle_is_shared_and_never_zero():
    assert rate_share(1_000, 1 / 3) == 333
    assert rate_share(2, 1 / 3) == 1
    assert rate_share(None, 1 / 3) is None
