"""Checks of waves, by name, on a migration in memory: what is torn apart is refused before anything is changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_migration.approvals import approvals
from kafka_migration.approvals.evidence import GateName
from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import NotAuthorized, Refused
from kafka_migration.domain.types import Identity, TopicPartition
from kafka_migration.groups.record import GroupRecord, Step, Translation
from kafka_migration.inventory import inventory, preflight
from kafka_migration.migration.joined import joined
from kafka_migration.state.link import LinkState
from kafka_migration.state.store import MemoryStore
from kafka_migration.steps import runner
from tests.steps import histories
from tests.steps.gates import Migration
from tests.waves.made import given

ORDERS, PAYMENTS = TopicPartition("shop.orders", 0), TopicPartition("shop.payments", 0)
APART = {"given": given(first=r"shop\.orders", second=r"shop\.payments")}


@pytest.fixture
def shop() -> Migration:
    return Migration()


def checked(shop: Migration, **waves: Any) -> dict[str, CheckResult]:
    seen = preflight.check(shop.ctx(waves=waves))
    names = {name for name, _ in preflight.WAVE_CHECKS}
    return {result.name: result for result in seen.gate.results if result.name in names}


def verdict_of(found: dict[str, CheckResult], name: str) -> tuple[Verdict, str, str]:
    return found[name].verdict, found[name].evidence, found[name].remedy


def test_plan_without_waves_is_checked_as_before(shop: Migration) -> None:
    assert [r.name for r in preflight.check(shop.ctx()).gate.results if "wave" in r.name] == []
    assert approvals.evidence(shop.ctx(), GateName.PLAN).facts.get("waves") is None


def test_groups_that_another_migration_moved_and_that_read_what_is_made_next_are_named(shop: Migration) -> None:
    histories.moved(shop)
    for key, value in shop.store.items().items():
        shop.store.delete(key)
        reads = {"subscription": ["shop.payments", "audit"]} if "subscription" in value else {}
        shop.store.put(key.replace("shop/", "earlier/", 1), {**value, **reads})
    found = {result.name: result for result in preflight.check(shop.ctx()).gate.results}["no other migration"]
    assert found.verdict is Verdict.WARN
    assert "shop.app (earlier) reads shop.payments" in found.evidence
    shop.ctx().journal.record("topic", "shop.payments", {"topic_id": "x"})
    found = {result.name: result for result in preflight.check(shop.ctx()).gate.results}["no other migration"]
    assert found.verdict is Verdict.PASS


def test_waves_that_hold_everything_once_pass(shop: Migration) -> None:
    found = checked(shop, **APART)
    assert {r.verdict for r in found.values()} == {Verdict.PASS}
    assert "first (topics: 1), second (topics: 1)" in found["each topic in one wave"].evidence


def test_topic_of_no_wave_of_two_and_a_wave_without_topics_are_named(shop: Migration) -> None:
    waves = given(first={"topics": [r"shop\.orders"]}, second={"topics": r"shop\.o.*"}, third={"topics": "elsewhere"})
    verdict, evidence, remedy = verdict_of(checked(shop, given=waves), "each topic in one wave")
    assert verdict is Verdict.FAIL
    assert "topics in no wave: shop.payments" in evidence
    assert "topics in several waves: shop.orders (first, second)" in evidence
    assert "waves without a topic: second, third" in evidence
    assert "waves.given" in remedy


def test_group_in_two_waves_is_refused_by_name_before_anything_is_changed(shop: Migration) -> None:
    shop.source.consumer_commits("shop.app", PAYMENTS, 1)
    found = checked(shop, **APART)
    verdict, evidence, remedy = verdict_of(found, "groups within one wave")
    assert verdict is Verdict.FAIL
    assert evidence == "group shop.app spans waves first (shop.orders), second (shop.payments)"
    assert "waves.spanning_groups" in remedy
    with pytest.raises(Refused, match=r"shop\.app spans waves"):
        runner.run(shop.ctx(waves=APART, approvals={"plan": False}), "create_targets")
    assert not shop.store.items()
    assert not shop.target.changes


def test_waiver_in_the_plan_lets_a_group_span_and_is_shown(shop: Migration) -> None:
    shop.source.consumer_commits("shop.app", PAYMENTS, 1)
    found = checked(shop, **APART, spanning_groups=["shop.app"])
    verdict, evidence, _ = verdict_of(found, "groups within one wave")
    assert verdict is Verdict.WARN
    assert evidence.startswith("waived by the plan: shop.app")
    runner.run(shop.ctx(waves={**APART, "spanning_groups": ["shop.app"]}, approvals={"plan": False}), "create_targets")
    assert "create shop.orders" in shop.target.changes


def test_group_that_has_left_counts_by_what_it_was_seen_to_subscribe_to(shop: Migration) -> None:
    member = shop.source.join("shop.app", ["shop.orders", "shop.payments"])
    runner.run(shop.ctx(approvals={"plan": False}), "create_targets")
    shop.source.leave("shop.app", member)
    assert checked(shop, **APART)["groups within one wave"].verdict is Verdict.FAIL


def test_transaction_over_two_waves_is_refused_by_its_transactional_id_and_may_be_waived(shop: Migration) -> None:
    shop.source.transaction("writer", [ORDERS, PAYMENTS])
    shop.source.transaction("of one topic", [ORDERS, TopicPartition("shop.orders", 1)])
    assert [one.name for one in inventory.take(shop.ctx()).transactions or ()] == ["writer"]
    name = "transactions within one wave"
    verdict, evidence, remedy = verdict_of(checked(shop, **APART), name)
    assert (verdict, evidence) == (
        Verdict.FAIL,
        "transaction writer spans waves first (shop.orders), second (shop.payments)",
    )
    assert "waves.spanning_transactions" in remedy
    assert checked(shop, **APART, spanning_transactions=["writer"])[name].verdict is Verdict.WARN


def test_reverse_mirror_that_wrote_to_the_source_is_no_transaction_over_waves(shop: Migration) -> None:
    shop.source.transaction("kafka-migration.shop:reverse", [ORDERS, PAYMENTS])
    (number, _), store = shop.source._transactions["kafka-migration.shop:reverse"], MemoryStore()
    back, forward = LinkState("shop:reverse", store, None, None), LinkState("shop", store, None, None)
    back.record_fence(1, Identity(number, 0), at="")
    again = replace(shop.ctx(), generation=2, earlier=((Direction.FORWARD, forward), (Direction.REVERSE, back)))
    assert inventory.take(again).transactions == ()
    # Another cluster's ids say nothing of this one's.
    forward.record_fence(1, Identity(number, 0), at="")
    alone = replace(shop.ctx(), earlier=((Direction.FORWARD, forward),))
    assert [one.name for one in inventory.take(alone).transactions or ()] == ["kafka-migration.shop:reverse"]


def test_transaction_whose_id_may_not_be_seen_is_found_by_its_producer_id(shop: Migration) -> None:
    shop.source.transaction("writer", [ORDERS, PAYMENTS])
    with shop.source.failing("transactional_ids", NotAuthorized("source", "Describe", "transactional id")):
        found = checked(shop, **APART)
    assert "transaction 1 spans waves" in found["transactions within one wave"].evidence


def test_transactions_that_cannot_be_seen_are_a_warning_that_names_why(shop: Migration) -> None:
    with shop.source.failing("producers", NotAuthorized("source", "Read", "topic")):
        verdict, evidence, _ = verdict_of(checked(shop, **APART), "transactions within one wave")
    assert verdict is Verdict.WARN
    assert evidence.startswith("UNCHECKED: ")


def test_streams_application_over_two_waves_is_refused(shop: Migration) -> None:
    shop.source.add_topic("shop.app-store-changelog")
    waves = {"given": given(first=r"shop\.orders", second=[r"shop\.payments", ".*-changelog"])}
    name = "Streams applications within one wave"
    verdict, evidence, _ = verdict_of(checked(shop, **waves), name)
    assert verdict is Verdict.FAIL
    assert "Streams application shop.app spans waves first (shop.orders), second (shop.app-store-changelog)" in evidence
    assert checked(shop, **waves, spanning_groups=["shop.app"])[name].verdict is Verdict.WARN


def test_part_that_is_larger_than_the_limits_is_named_and_unknown_sizes_are_unchecked(shop: Migration) -> None:
    auto = {"most_topics": 1, "most_bytes": 10**9}
    shop.source.consumer_commits("shop.app", PAYMENTS, 1)
    verdict, evidence, _ = verdict_of(checked(shop, auto=auto), "limits of waves")
    assert (verdict, evidence) == (
        Verdict.WARN,
        "what cannot move apart is larger than the limits: canary (most_topics)",
    )
    with shop.source.failing("disk_use", NotAuthorized("source", "Describe", "cluster")):
        assert checked(shop, auto=auto)["limits of waves"].verdict is Verdict.UNCHECKED


@pytest.mark.parametrize(
    ("waves", "verdict", "evidence"),
    [
        ({"given": given(first={"topics": r"shop\.orders", "canary": True}, rest=r"shop\.p.*")}, "PASS", "shop.app"),
        ({"given": given(first={"topics": r"shop\.p.*", "canary": True}, rest=r"shop\.orders")}, "FAIL", "no group"),
        ({"auto": {}}, "PASS", "canary: shop.app"),
        ({"auto": {"canary_topic": "shop.payments"}}, "FAIL", "no group"),
        ({"auto": {"canary_topic": "shop.gone"}}, "FAIL", "no topic shop.gone"),
        ({"auto": {"canary": False}}, "PASS", "asks for none"),
    ],
)
def test_canary_that_shows_nothing_is_refused(
    shop: Migration, waves: dict[str, Any], verdict: str, evidence: str
) -> None:
    found = checked(shop, **waves)["canary wave"]
    assert (found.verdict, evidence in found.evidence) == (verdict, True), found


def moved(shop: Migration, name: str, tp: TopicPartition) -> None:
    """The journal has it that the group was moved; the source has forgotten it since, as its offsets expired."""
    record = GroupRecord.own(shop.ctx().journal, name, at="now")
    move = Translation(tp=tp, source=40, target=30, policy="exact")
    record.mark(Step.TRANSLATED, shop.clock.now(), positions=[move.as_dict()])
    record.mark(Step.READ_BACK, shop.clock.now())
    shop.source.forget_group(name)


@pytest.mark.parametrize(
    "waves",
    [{"auto": {}}, {"given": given(first={"topics": r"shop\.orders", "canary": True}, rest=r"shop\.p.*")}],
    ids=["computed", "given"],
)
def test_corrected_plan_joins_though_the_group_of_the_canary_moved_and_has_expired(
    shop: Migration, waves: dict[str, Any]
) -> None:
    fields: dict[str, Any] = {"waves": waves, "approvals": {"plan": False}}
    runner.run(shop.ctx(**fields), "create_targets")
    moved(shop, "shop.app", ORDERS)
    found = checked(shop, **waves)
    assert {result.verdict for result in found.values()} == {Verdict.PASS}, found
    assert "shop.app, which moved and are gone" in found["canary wave"].evidence
    corrected = shop.ctx(**fields, cutover={"watch_seconds": 7})
    runner.run(corrected, "create_targets")
    assert joined(corrected).digest == corrected.plan.digest  # type: ignore[union-attr]


def test_settled_waves_that_lost_their_groups_or_topics_are_warnings(shop: Migration) -> None:
    fields: dict[str, Any] = {"waves": {"auto": {"most_topics": 1}}, "approvals": {"plan": False}}
    shop.source.add_topic("shop.audit")
    runner.run(shop.ctx(**fields), "create_targets")
    # The canary's group goes without having been moved, then its topic, and that of another wave from the plan.
    shop.source.forget_group("shop.app")
    found = checked(shop, **fields["waves"])
    assert {n: r.verdict for n, r in found.items() if r.verdict != "PASS"} == {"canary wave": Verdict.WARN}
    assert "no group any more" in found["canary wave"].evidence
    shop.source.delete_topic("shop.orders")
    fields["topics"] = {"include": [r"shop\..*"], "exclude": [r"shop\.payments"]}
    seen = {r.name: r for r in preflight.check(shop.ctx(**fields)).gate.results}
    verdict, evidence, remedy = verdict_of(seen, "each topic in one wave")
    assert verdict is Verdict.WARN
    assert evidence.endswith(": canary, wave-2")
    assert "waves.given" not in remedy
    approvals.evidence(shop.ctx(**fields), GateName.PLAN)
    # Waves that a plan gives are a person's, and corrected by one.
    given_ones = {"given": given(first=r"shop\.orders", second=r"shop\.a.*|shop\.p.*")}
    verdict, evidence, remedy = verdict_of(checked(shop, **given_ones), "each topic in one wave")
    assert (verdict, evidence) == (Verdict.FAIL, "waves without a topic: first")
    assert "or remove a wave whose topics are gone" in remedy


def test_plan_without_topics_is_corrected_in_its_topics(shop: Migration) -> None:
    seen = preflight.check(shop.ctx(waves={"auto": {}}, topics={"include": ["nothing"]}))
    found = {result.name: result for result in seen.gate.results}
    assert "topics.include" in verdict_of(found, "each topic in one wave")[2]


def test_plan_approval_shows_the_waves_and_is_bound_to_them(shop: Migration) -> None:
    shop.source.add_topic("shop.alone")
    fields = {"waves": {"auto": {"most_topics": 1, "canary": False}}}
    ctx = shop.ctx(**fields)
    seen = approvals.evidence(ctx, GateName.PLAN)
    assert list(seen.facts["waves"]) == ["wave-1", "wave-2", "wave-3"]
    shown = {table.title: table for table in seen.tables}
    assert [row[:4] for row in shown["Waves, in their order"].rows] == [
        ("wave-1", "1", "0", "0"),
        ("wave-2", "1", "0", "100"),
        ("wave-3", "1", "1", "200"),
    ]
    assert shown["What moves together"].rows[2] == ("wave-3", "shop.orders", "shop.app")
    assert "| wave-3 | shop.orders | shop.app |" in seen.as_markdown()
    # Records come and go, and change nothing of it; a group that begins to read another topic does.
    shop.produce(1000)
    shop.source.consumer_commits("shop.app", ORDERS, 50)
    assert approvals.evidence(ctx, GateName.PLAN).digest == seen.digest
    shop.source.consumer_commits("shop.app", TopicPartition("shop.alone", 0), 0)
    assert approvals.evidence(ctx, GateName.PLAN).facts["waves"] != seen.facts["waves"]
