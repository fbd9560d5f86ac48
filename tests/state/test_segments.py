"""Segments that validations found equal, across processes: on a real cluster, and without one."""

from __future__ import annotations

import uuid

import pytest

from kafka_migration.domain import ledger
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.topic_log import TopicLog
from kafka_migration.state.store import SegmentStore

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments.eu", 11)


@pytest.fixture
def properties(target_cluster) -> dict[str, str]:
    return {"bootstrap.servers": target_cluster.bootstrap_servers}


def opened(properties: dict[str, str], migration: str) -> SegmentStore:
    return SegmentStore(TopicLog(properties, ledger.SEGMENTS_TOPIC), migration)


def test_what_was_recorded_is_there_for_the_next_process_and_for_its_migration_alone(properties):
    mine, other = f"mine-{uuid.uuid4().hex[:6]}", f"other-{uuid.uuid4().hex[:6]}"
    store = opened(properties, mine)
    assert store.all() == {}
    store.record({(ORDERS, 3): {"end": 7}, (PAYMENTS, 0): {"end": 2**60}})
    store.record({(ORDERS, 3): {"end": 9}, (ORDERS, 12): {"end": 13}})
    store.close()
    again = opened(properties, mine)
    assert again.all() == {ORDERS: {3: {"end": 9}, 12: {"end": 13}}, PAYMENTS: {0: {"end": 2**60}}}
    assert again.of(ORDERS) == {3: {"end": 9}, 12: {"end": 13}}
    again.close()
    stranger = opened(properties, other)
    assert stranger.all() == {}
    stranger.close()


def test_store_without_a_log_lives_as_long_as_its_object():
    store = SegmentStore()
    store.record({(ORDERS, 1): {"end": 4}})
    assert store.all() == {ORDERS: {1: {"end": 4}}}
    store.close()
