"""Where a reverse link begins, without brokers (on real ones: tests/copy/test_reverse.py)."""

from __future__ import annotations

import uuid
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_migration.domain import ledger
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Identity, TopicPartition
from kafka_migration.link import reverse
from kafka_migration.migration.context import Context
from kafka_migration.state.link import LinkState, LinkTopic
from tests.state.test_link import FakeLog
from tests.steps.gates import Migration

ORDERS, EXCLUDED = TopicPartition("shop.orders", 0), TopicPartition("shop.old", 0)


class Marked:
    """Stands for the topic on the source that fences keep their ids alive with."""

    def __init__(self, *_: object) -> None:
        self.ensure = self.close = lambda: None


@pytest.fixture
def ctx(monkeypatch: pytest.MonkeyPatch) -> Context:
    """Sealed, with a topic that the plan does not mean any more."""
    monkeypatch.setattr(reverse, "TopicLog", Marked)
    shop = Migration()
    found = shop.ctx(topics={"include": [r"shop\.orders"]})
    found.source.connection = SimpleNamespace(librdkafka=dict)  # type: ignore[assignment]

    def link(direction: Direction) -> LinkState:
        logs: list[Any] = [FakeLog(topic) for topic in (ledger.OFFSET_MAP_TOPIC, ledger.PROGRESS_TOPIC)]
        return LinkState(direction.own("shop"), shop.links, *logs, selects=found.plan.topics.matches)

    forward, back = (link(direction) for direction in Direction)
    pins = [
        LinkTopic(name=tp.topic, source_id=uuid.UUID(int=n), target_id=uuid.UUID(int=n + 10))
        for n, tp in enumerate((ORDERS, EXCLUDED), start=1)
    ]
    forward.pin(source_cluster="s", target_cluster="t", topics=pins, at="")
    opening = RunOpening(fence=1, records=0, source=40, target=30, closes=0)
    forward.record_openings([(ORDERS, opening)])
    forward.record_seal(Seal(at="noon", identity=Identity(7, 9), ends={ORDERS: 35, EXCLUDED: 3}))
    return replace(found, link=forward, on_open_reverse=lambda: back)


def test_reverse_link_begins_behind_the_marker_of_the_seal_and_behind_what_was_copied(ctx: Context) -> None:
    back = reverse.arm(ctx).link
    assert {tp: (at.source, at.target) for tp, at in back.positions().items()} == {ORDERS: (36, 40)}
    assert back.topics() == {
        "shop.orders": LinkTopic(name="shop.orders", source_id=uuid.UUID(int=11), target_id=uuid.UUID(int=1))
    }


def test_dry_run_begins_nothing(ctx: Context) -> None:
    assert not reverse.arm(replace(ctx, dry_run=True)).link.topics()
