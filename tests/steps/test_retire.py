"""What still uses the source: each use by name, in memory and with live clients of real brokers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from demo.brokers import EmbeddedKafka
from kafka_migration.domain.checks import CheckResult, Gate, Verdict
from kafka_migration.domain.errors import ClusterUnreachable, NotAuthorized
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups import sides
from kafka_migration.kafka.types import Acl
from kafka_migration.state.journal import Journal
from kafka_migration.steps import retire
from tests.steps import histories
from tests.steps.gates import Migration
from tests.steps.worlds import START, RealWorld
from tests.waiting import wait_until

ORDERS, _ = histories.ORDERS


def by_name(gate: Gate) -> dict[str, CheckResult]:
    found = {result.name: result for result in gate.results}
    assert len(found) == len(gate.results)
    return found


def look(shop: Migration) -> dict[str, CheckResult]:
    return by_name(retire.check(shop.ctx()))


@pytest.fixture
def shop() -> Migration:
    """Its group was moved, and its mirror has ended."""
    shop = Migration()
    histories.created(shop)
    histories.moved(shop)
    shop.ctx().link.record_run({"state": "ended", "reason": "drained", "at": shop.ctx().stamp()})
    return shop


def test_source_that_nobody_uses_opens_the_gate_and_nothing_is_changed(shop: Migration) -> None:
    before = (shop.store.items(), shop.links.items(), list(shop.source.changes))
    gate = retire.check(shop.ctx())
    assert (gate.exit_code, gate.blockers) == (0, ())
    assert (shop.store.items(), shop.links.items(), list(shop.source.changes)) == before
    # Whoever reaches a broker without an authorizer may write: worth knowing, and no use.
    assert [result.name for result in gate.results if result.verdict is Verdict.WARN] == [retire.WRITERS]


def _other_migration(shop: Migration) -> None:
    shop.ctx().journal.unlock(["shop.orders"])
    Journal(shop.store, "other").lock(["shop.orders"], at="now")


def _meanwhile(happens: Callable[[Migration], object]) -> Callable[[Migration], object]:
    return lambda shop: shop.clock.at(5, lambda: happens(shop))


def _outside(shop: Migration) -> None:
    shop.source.add_topic("audit")
    shop.clock.at(5, lambda: shop.source.append(TopicPartition("audit", 0), 20))


def _open_transaction(shop: Migration) -> None:
    from dataclasses import replace

    shop.source.transaction("checkout", [ORDERS])
    ask = shop.source.producers
    shop.source.producers = lambda tps: {  # type: ignore[method-assign]
        tp: tuple(replace(one, in_transaction=True) for one in found) for tp, found in ask(tps).items()
    }


USES: dict[str, tuple[Callable[[Migration], object], str, str]] = {
    "member": (lambda shop: shop.source.join("late", ["shop.orders"], client_id="web"), retire.GROUPS, "late: 1 mem"),
    "commit without members": (
        _meanwhile(lambda shop: shop.source.consumer_commits("flink", ORDERS, 7)),
        retire.GROUPS,
        "flink: committed shop.orders-0",
    ),
    "share group": (
        lambda shop: shop.source.join("queue", ["shop.orders"], protocol="share"),
        retire.OTHER_GROUPS,
        "queue (share, Stable)",
    ),
    "moved group": (
        lambda shop: shop.source.join("shop.app", ["shop.orders"]),
        sides.CHECK_BACK,
        "shop.app has 1 members on the source",
    ),
    "group that was never moved": (
        lambda shop: shop.source.join("shop.late", ["shop.orders"]),
        sides.CHECK_MOVED,
        "shop.late: 1 members on the source",
    ),
    "producer": (
        _meanwhile(lambda shop: shop.source.transaction("checkout", [ORDERS])),
        retire.PRODUCERS,
        "shop.orders-0 producer 1, last record 2023-11-14",
    ),
    "transaction": (_open_transaction, retire.TRANSACTIONS, "checkout (shop.orders-0)"),
    "records": (
        _meanwhile(lambda shop: shop.source.append(ORDERS, 50)),
        retire.ENDS,
        "shop.orders +50 (5.0/s)",
    ),
    "records outside": (_outside, retire.OUTSIDE, "audit +20 (2.0/s)"),
    "mirror": (
        lambda shop: shop.ctx().link.record_run({"state": "running", "at": shop.ctx().stamp()}),
        retire.MIRROR,
        "the mirror is running",
    ),
    "other migration": (_other_migration, retire.LOCKS, "shop.orders (other)"),
}


@pytest.mark.parametrize("use", USES)
def test_use_of_the_source_fails_by_name(shop: Migration, use: str) -> None:
    begin, name, evidence = USES[use]
    begin(shop)
    found = look(shop)[name]
    assert found.verdict is Verdict.FAIL
    assert evidence in found.evidence
    assert found.remedy


def test_what_rests_is_shown_and_does_not_keep_the_gate_closed(shop: Migration) -> None:
    shop.source.transaction("checkout", [ORDERS])
    shop.source.add_topic("audit")
    shop.source.append(TopicPartition("audit", 0), 20)
    gate = retire.check(shop.ctx())
    found = by_name(gate)
    assert gate.exit_code == 0
    assert (found[retire.PRODUCERS].verdict, found[retire.OUTSIDE].verdict) == (Verdict.WARN, Verdict.WARN)
    assert "audit" in found[retire.OUTSIDE].evidence


def test_principals_that_may_write_are_named_unless_everybody_is_denied(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    def acl(principal: str, resource: str, permission: str = "ALLOW") -> Acl:
        return Acl(
            resource_type="TOPIC",
            resource=resource,
            pattern="LITERAL",
            principal=principal,
            host="*",
            operation="WRITE",
            permission=permission,
        )

    acls = (acl("User:shop", "shop.orders"), acl("User:old", "shop.payments"), acl("User:*", "shop.payments", "DENY"))
    monkeypatch.setattr(shop.source, "acls", lambda: acls)
    found = look(shop)[retire.WRITERS]
    assert (found.verdict, found.evidence) == (Verdict.WARN, "User:shop to shop.orders")
    monkeypatch.setattr(shop.source, "acls", lambda: acls[1:])
    assert look(shop)[retire.WRITERS].verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("method", "name"),
    [("producers", retire.PRODUCERS), ("ends", retire.ENDS), ("groups", retire.GROUPS), ("committed", retire.GROUPS)],
)
def test_what_may_not_be_asked_is_unchecked_and_not_taken_for_unused(shop: Migration, method: str, name: str) -> None:
    with shop.source.failing(method, NotAuthorized("source", "Describe", "cluster")):
        gate = retire.check(shop.ctx())
    assert by_name(gate)[name].verdict is Verdict.UNCHECKED
    assert gate.exit_code == 3


def test_source_that_does_not_answer_is_unchecked(shop: Migration) -> None:
    with shop.source.failing("topics", ClusterUnreachable("source", "a:1", "timed out")):
        found = look(shop)
    assert found[retire.ENDS].verdict is found[retire.PRODUCERS].verdict is Verdict.UNCHECKED


@contextmanager
def writing(servers: str, topic: str) -> Iterator[None]:
    """A live producer that is idempotent, so that leaders remember it."""
    stopping = threading.Event()
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})

    def write() -> None:
        while not stopping.wait(0.05):
            producer.produce(topic, b"x")
            producer.flush(10)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def test_live_producer_and_member_are_named_and_then_gone(
    source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka
) -> None:
    world = RealWorld(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers)
    try:
        topic, group = world.topic("orders", records=START + 5), world.group("readers")
        leave = world.join("source", group, [topic])
        found: dict[str, CheckResult] = {}

        def groups() -> str:
            found.update(by_name(retire.check(world.ctx(), seconds=1.0)))
            return found[retire.GROUPS].evidence

        # Groups of other tests are on this cluster, too, and only the first few are named.
        with writing(world.servers["source"], topic):
            wait_until(lambda: f"{group}: 1 members (shop at 127.0.0.1)" in groups(), "the member is named")
        assert f"{topic} +" in found[retire.ENDS].evidence
        assert f"{topic}-0 producer " in found[retire.PRODUCERS].evidence
        assert {found[name].verdict for name in (retire.GROUPS, retire.ENDS, retire.PRODUCERS)} == {Verdict.FAIL}
        leave()
        # Topics of other tests go meanwhile, of which nothing could be found out then.
        wait_until(
            lambda: group not in groups() and found[retire.ENDS].verdict is Verdict.PASS,
            lambda: f"the member is gone, and nothing moves: {found[retire.ENDS]}",
        )
        assert found[retire.PRODUCERS].verdict is Verdict.WARN
    finally:
        world.close()
