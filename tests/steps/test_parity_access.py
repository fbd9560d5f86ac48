"""Access rules of both clusters, on brokers whose authorizer denies whatever nobody granted."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from demo import jars
from demo.clients.moving_java import java_properties
from demo.java import java_executable
from kafka_migration.access import difference, limits
from kafka_migration.domain.errors import Refused
from kafka_migration.groups import parity
from kafka_migration.inventory import permissions
from kafka_migration.kafka.types import Acl
from kafka_migration.migration.context import open_context
from kafka_migration.plans.model import Plan
from kafka_migration.steps import access
from kafka_migration.topics import create
from tests.locked import Locked, all_rules, locked_pair, small_plan
from tests.waiting import HANGS_SECONDS, wait_until


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


def _servers(locked: Locked, side: str) -> str:
    """The administrator's listener, as a shell word."""
    return shlex.quote(locked.admin_properties(side)["bootstrap.servers"])


def _configure(locked: Locked, side: str, folder: Path, line: str) -> None:
    """Kafka's own tool, as the administrator."""
    file = folder / f"{side}.properties"
    properties = java_properties(locked.admin_properties(side))
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    tool, *words = (word.replace("admin.properties", str(file)) for word in shlex.split(line))
    assert tool == "kafka-configs"
    java = [str(java_executable()), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", jars.class_path("kafka")]
    done = subprocess.run(
        [*java, "kafka.admin.ConfigCommand", *words], capture_output=True, text=True, timeout=HANGS_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(600)
def test_printed_commands_make_the_quotas_that_the_target_lacks(locked: Locked, tmp_path: Path) -> None:
    plan = small_plan(access={"principals": {"User:app": "User:CN=app"}})
    (topic,) = plan.topics.include
    locked.create("source", topic)
    names = permissions.names_of(plan)
    locked.grant([*all_rules(plan), *permissions.rules(plan, "source", names, optional=True)])
    _granted(locked, plan, "source", ("TOPIC", topic, "LITERAL", "READ"))
    own = limits.Limit(entity=(("client-id", "a batch"), ("user", "app")), key="producer_byte_rate", value=1048576.0)
    others = limits.Limit(entity=(("user", "somebody"),), key="request_percentage", value=12.5)
    for line in limits.commands(limits.Limits(missing=(own, others)), servers=_servers(locked, "source")):
        _configure(locked, "source", tmp_path, line)

    def seen() -> limits.Limits:
        with open_context(plan) as ctx:
            return limits.read(ctx, difference.read(ctx).users, ())

    wanted = limits.Limit(entity=(("client-id", "a batch"), ("user", "CN=app")), key=own.key, value=own.value)
    wait_until(lambda: seen().missing == (wanted,), "the one of the plan's user is missed")
    (line,) = limits.commands(limits.Limits(missing=(wanted,)), servers=_servers(locked, "target"))
    _configure(locked, "target", tmp_path, line)
    wait_until(lambda: seen().missing == (), "nothing is missed")
    assert seen().unknown == ()


@pytest.mark.timeout(600)
def test_what_the_target_lacks_is_made_there_with_its_own_rights_and_removed_again(locked: Locked) -> None:
    plan = small_plan(access={"principals": {"User:app": "User:CN=app"}}, approvals={"plan": False})
    (topic,) = plan.topics.include
    locked.create("source", topic)
    locked.grant(all_rules(plan))
    on_topic = [("TOPIC", topic, "LITERAL", may) for may in ("READ", "WRITE")]
    _granted(locked, plan, "source", *on_topic, ("TRANSACTIONAL_ID", f"{plan.name}-", "PREFIXED", "WRITE"))

    def lacks() -> int:
        with open_context(plan) as ctx:
            return len(access.look(ctx).missing.acls)

    wait_until(lambda: lacks() == 3, "all three are seen on the source")
    with open_context(plan) as ctx, pytest.raises(Refused, match=r"Alter \(for ACLs and SCRAM users\)"):
        access.check(ctx)
    more = permissions.rules(plan, "target", permissions.names_of(plan), optional=True)
    locked.grant([rule for rule in more if "--apply" in rule.right.why])
    with open_context(plan, make_state=True) as ctx:
        wait_until(lambda: "ALTER" in ctx.target.cluster_operations(), "the migration may make ACLs")
        before = ctx.target.acls()
        assert access.run(ctx, access.check(ctx)).facts == {"acls": 3, "quotas": 0, "scram_users": 0}
        assert {acl.principal for acl in {*ctx.target.acls()} - {*before}} == {"User:CN=app"}
    assert lacks() == 0
    with open_context(plan) as ctx:
        assert access.undo(ctx).facts == {"acls": 3, "quotas": 0, "scram_users": 0}
        assert ctx.target.acls() == before
    assert lacks() == 3
