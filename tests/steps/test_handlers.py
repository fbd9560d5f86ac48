"""Plans with handlers: looked at before anything is made, taken only once they joined, and for the way there alone."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import pytest

from kafka_migration.approvals.passing import NotApproved
from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.handlers import Handle
from kafka_migration.domain.types import TopicPartition
from kafka_migration.inventory import preflight
from kafka_migration.link import reverse, stragglers
from kafka_migration.steps import mirror
from kafka_migration.steps.adopt import Fate
from kafka_migration.topics import handling
from tests.copy.bench import ThreadRunner, records
from tests.copy.test_reverse import sealed
from tests.handlers import by_offset, handled, handler, masked
from tests.kafka.migration import Migration, migrations
from tests.kafka_tools import Row, ToSend, produce, read_all
from tests.steps import test_adopt, test_plan_changes
from tests.steps.gates import Migration as Gated
from tests.steps.test_adopt import RECORDS, World
from tests.steps.test_plan_changes import create

world, shop = test_adopt.world, test_plan_changes.shop


@pytest.fixture(params=["fake"])
def migration(request: pytest.FixtureRequest) -> Iterator[Migration]:
    yield from migrations(request)


def entry(function: Handle = by_offset, **fields: Any) -> dict[str, Any]:
    return {"topics": [".*"], **asdict(handler(function)), **fields}


def checked(migration: Migration, *entries: dict[str, Any]) -> CheckResult:
    found = preflight.check(migration.ctx(handlers=list(entries)), environ={})
    return next(result for result in found.gate.results if result.name == "handlers")


def test_check_shows_what_handles_each_topic_and_what_handles_none(migration: Migration) -> None:
    name = migration.source_lab.topic("orders")
    found = checked(migration, entry())
    assert found.verdict is Verdict.PASS
    assert f"{name}: tests.handlers:by_offset (SHA-256 {handler(by_offset).sha256})" in found.evidence
    found = checked(migration, entry(), entry(masked, topics=["nothing"]))
    assert found.verdict is Verdict.WARN
    assert "no topic belongs to handlers[1]" in found.evidence
    assert "handlers" not in {result.name for result in preflight.check(migration.ctx(), environ={}).gate.results}


def test_check_refuses_a_module_that_the_plan_does_not_mean_and_shows_its_digest(migration: Migration) -> None:
    migration.source_lab.topic("orders")
    for wrong in ("0" * 64, None):
        found = checked(migration, entry(sha256=wrong))
        assert found.verdict is Verdict.FAIL
        assert handler(by_offset).sha256 in found.evidence
        assert "write its SHA-256 into the plan" in found.remedy
    found = checked(migration, entry() | {"function": "no.such:function"})
    assert (found.verdict, "no.such:function cannot be loaded" in found.evidence) == (Verdict.FAIL, True)


def test_compacted_topic_needs_a_handler_that_keeps_keys(migration: Migration) -> None:
    name = migration.source_lab.topic("latest", configs={"cleanup.policy": "compact,delete"})
    found = checked(migration, entry())
    assert found.verdict is Verdict.FAIL
    assert name in found.evidence
    assert "keeps_keys: true" in found.remedy
    assert checked(migration, entry(masked, keeps_keys=True)).verdict is Verdict.PASS


def test_other_handlers_are_taken_once_they_have_joined(shop: Gated) -> None:
    changed: dict[str, Any] = {"handlers": [entry()]}
    with pytest.raises(Refused, match="changes handlers, by which records are copied"):
        mirror.check(shop.ctx(**changed))
    with pytest.raises(Refused, match="has not joined"):
        handling.require(shop.ctx(**changed), ["shop.orders"])
    # On the way back there are none, whatever the plan has.
    handling.require(replace(shop.ctx(**changed), direction=Direction.REVERSE), ["shop.orders"])
    mirror.check(create(shop, **changed))
    with pytest.raises(Refused, match="changes handlers"):
        mirror.check(shop.ctx())
    with pytest.raises(NotApproved, match="handlers FAIL: handlers: the module of handler"):
        create(shop, handlers=[entry(sha256="0" * 64)])


def test_copy_of_mirrormaker_is_not_adopted_with_a_handler(world: World) -> None:
    topic = world.filled("orders", RECORDS, RECORDS)
    (found,) = world.adopt(handlers=[entry()]).value
    assert (found.topic, found.fate) == (topic, Fate.LEFT)
    assert "its handler (tests.handlers:by_offset) drops or changes records" in found.why
    assert world.ctx().link.offset_maps() == {}


def without_offsets(rows: list[Row]) -> list[tuple[object, ...]]:
    return [row.without_offset() for row in rows]


@pytest.mark.long
def test_way_back_is_without_and_what_is_forwarded_is_handled(source_cluster: Any, target_cluster: Any) -> None:
    here, there = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    topic = f"ways-{uuid.uuid4().hex[:8]}.orders"
    tp = TopicPartition(topic, 0)
    with sealed(here, there, topic, handlers=[entry()]) as (found, uncached):
        assert uncached.on_open_link is not None
        ctx = replace(uncached, on_open_link=cache(uncached.on_open_link))
        there_first, here_first = (read_all(servers, found.topics)[tp] for servers in (there, here))
        assert without_offsets(there_first) == without_offsets(handled(here_first, by_offset))
        back = reverse.arm(ctx)
        produce(there, topic, records(40, 2, seed=9))
        mirror.apply(back, ThreadRunner(), until_caught_up=True)
        there_next, here_next = (read_all(servers, found.topics)[tp] for servers in (there, here))
        written = there_next[len(there_first) :]
        assert without_offsets(here_next[len(here_first) :]) == without_offsets(written)
        assert len(written) == 20
        produce(here, topic, [ToSend(b"late %d" % n, timestamp=1_700_000_000_000) for n in range(30)])
        stragglers.forward(ctx, by="ada")
        forwarded = read_all(there, found.topics)[tp][len(there_next) :]
        late = read_all(here, found.topics)[tp][len(here_next) :]
        assert without_offsets(forwarded) == without_offsets(handled(late, by_offset))
        assert 0 < len(forwarded) < 30
