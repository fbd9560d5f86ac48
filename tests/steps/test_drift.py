"""What changes about topics while they are mirrored: named, with what can be done, wherever a person looks."""

from __future__ import annotations

import pytest

from kafka_migration.overview import status
from kafka_migration.topics import create, drift
from tests.steps import histories
from tests.steps.gates import Migration

ORDERS = "shop.orders"


@pytest.fixture
def shop() -> Migration:
    """Created and mirrored; nothing has changed."""
    shop = Migration()
    histories.created(shop)
    histories.mirroring(shop)
    return shop


def _changes(shop: Migration) -> dict[str, tuple[str, str, bool, str]]:
    return {it.what: (it.declared, it.observed, it.endangers, it.remedy) for it in drift.read(shop.ctx())}


def test_nothing_has_changed(shop: Migration) -> None:
    assert drift.read(shop.ctx()) == ()


def test_setting_changed_on_the_source_is_named_and_comes_at_the_end(shop: Migration) -> None:
    shop.source.alter_configs(ORDERS, set={"retention.ms": "1000", "max.message.bytes": "9000000"})
    found = _changes(shop)
    assert found["source's retention.ms"][:3] == ("604800000", "1000", False)
    assert "`restore` sets" in found["source's retention.ms"][3]
    assert found["source's max.message.bytes"][:2] == ("unset", "9000000")
    assert "set it on the target topic as well" in found["source's max.message.bytes"][3]


def test_setting_changed_on_the_target_endangers_records_and_stands_first(shop: Migration) -> None:
    shop.source.alter_configs(ORDERS, set={"segment.bytes": "20000000"})
    shop.target.alter_configs(ORDERS, set={"retention.ms": "1000", "segment.bytes": "20000000"})
    first, *others = drift.read(shop.ctx())
    assert (first.what, first.endangers) == ("retention.ms", True)
    assert "set it back on the target now: retention.ms=-1" in first.remedy
    assert [(it.what, it.endangers) for it in others] == [("segment.bytes", False), ("source's segment.bytes", False)]


def test_topic_that_is_gone_or_another_one_endangers_records(shop: Migration) -> None:
    shop.target.delete_topic(ORDERS)
    shop.source.delete_topic("shop.payments")
    shop.source.add_topic("shop.payments")
    assert {it.what for it in drift.read(shop.ctx()) if it.endangers} == {"topic", "source topic id"}


def test_partitions_of_the_source_join_by_themselves(shop: Migration) -> None:
    shop.source.add_partitions(ORDERS, 5)
    assert _changes(shop)["source partitions"] == ("2", "5", False, drift.remedy(create.verify(shop.ctx())[0]))
    assert "they join" in _changes(shop)["source partitions"][3]


def test_status_tells_changes_and_what_keeps_it_from_knowing(shop: Migration) -> None:
    shop.source.alter_configs(ORDERS, set={"retention.ms": "1000"})
    page = status.read(shop.ctx())
    assert [it.what for it in page.drift] == ["source's retention.ms"]
    assert page.as_dict()["drift"][0]["remedy"] == page.drift[0].remedy
