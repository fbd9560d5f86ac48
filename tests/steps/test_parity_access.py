"""Access rules of both clusters, on brokers whose authorizer denies whatever nobody granted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from kafka_migration.access import difference
from kafka_migration.groups import parity
from kafka_migration.kafka.types import Acl
from kafka_migration.migration.context import open_context
from kafka_migration.plans.model import Plan
from kafka_migration.topics import create
from tests.locked import Locked, all_rules, locked_pair, small_plan
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    with locked_pair(tmp_path_factory.mktemp("locked") / "certificates") as it, pytest.MonkeyPatch.context() as patch:
        for name, value in it.environment().items():
            patch.setenv(name, value)
        yield it


def _granted(locked: Locked, plan: Plan, side: str, *rules: tuple[str, str, str, str]) -> None:
    """To the application: kind, name, pattern, operation."""
    allow = AclPermissionType.ALLOW
    bindings = [
        AclBinding(ResourceType[kind], name, ResourcePatternType[pattern], "User:app", "*", AclOperation[may], allow)
        for kind, name, pattern, may in rules
    ]
    for future in locked.admin(side).create_acls(bindings).values():
        future.result(30)


@pytest.mark.timeout(300)
def test_rules_of_the_source_that_the_target_lacks_are_listed(locked: Locked) -> None:
    plan = small_plan()
    (topic,), (group,) = plan.topics.include, plan.groups.include
    locked.create("source", topic)
    locked.commit("source", group, {(topic, 0): 0})
    locked.grant(all_rules(plan))
    literal, prefixed = ("TOPIC", topic, "LITERAL", "READ"), ("GROUP", plan.name, "PREFIXED", "READ")
    both, others = ("TOPIC", topic, "LITERAL", "WRITE"), ("TOPIC", "of-others", "LITERAL", "READ")
    _granted(locked, plan, "source", literal, prefixed, both, others)
    _granted(locked, plan, "target", both)

    def lacks() -> set[tuple[str, str, str, str]]:
        with open_context(plan) as ctx:
            found = parity.section(ctx)
        assert (found["unknown"], found["access_unknown"]) == ("", "")
        return {
            (it["resource_type"], it["resource"], it["pattern"], it["operation"])
            for it in found["access_missing"]
            if it["principal"] == "User:app"
        }

    with open_context(plan, make_state=True) as ctx:
        create.apply(ctx)
    wait_until(lambda: lacks() == {literal, prefixed}, "both rules are missed, and no other")
    _granted(locked, plan, "target", literal)
    wait_until(lambda: lacks() == {prefixed}, "the prefixed rule alone is missed")
    _granted(locked, plan, "target", prefixed)
    wait_until(lambda: lacks() == set(), "nothing is missed")


@pytest.mark.timeout(300)
def test_what_the_target_lacks_is_seen_with_describe_alone_and_is_gone_once_it_is_made(locked: Locked) -> None:
    plan = small_plan(access={"principals": {"User:app": "User:CN=app"}})
    (topic,) = plan.topics.include
    locked.create("source", topic)
    locked.grant(all_rules(plan))
    on_topic = [("TOPIC", topic, "LITERAL", may) for may in ("READ", "WRITE")]
    _granted(locked, plan, "source", *on_topic, ("TRANSACTIONAL_ID", f"{plan.name}-", "PREFIXED", "WRITE"))

    def lacks() -> list[Acl]:
        with open_context(plan) as ctx:
            return [acl for acl in difference.read(ctx).missing if topic in acl.resource or plan.name in acl.resource]

    wait_until(lambda: len(lacks()) == 3, "all three are seen on the source")
    assert {acl.principal for acl in lacks()} == {"User:CN=app"}, "the migration's own are none of them"
    bindings = [
        AclBinding(
            ResourceType[acl.resource_type],
            acl.resource,
            ResourcePatternType[acl.pattern],
            acl.principal,
            acl.host,
            AclOperation[acl.operation],
            AclPermissionType[acl.permission],
        )
        for acl in lacks()
    ]
    for future in locked.admin("target").create_acls(bindings).values():
        future.result(30)
    wait_until(lambda: not lacks(), "nothing is missed")
