"""ACLs of the source, as the target should have them: never for more than the plan's, under the target's names."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest

from kafka_migration.access import difference
from kafka_migration.access.carried import Copying, Names
from kafka_migration.domain.errors import BadInput, Refused
from kafka_migration.domain.names import SAME, TopicNames
from kafka_migration.fence import record
from kafka_migration.fence.bans import EARLY_WRITES, GROUP_READS, WRITES, Ban
from kafka_migration.kafka import acl_commands
from kafka_migration.kafka.types import Acl
from kafka_migration.migration.context import Context
from kafka_migration.plans.access import Access
from kafka_migration.plans.load import restore_plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.link import LinkState
from tests.fakes.cluster import FakeCluster
from tests.fence.worlds import acl
from tests.steps.gates import PlainStore
from tests.steps.worlds import FakeClock

TOPICS = ("shop.orders", "shop.payments", "shop.secret", "other")


def rule(principal: str, operation: str, resource: str, kind: str = "TOPIC", **fields: Any) -> Acl:
    return replace(acl(principal, operation, resource), resource_type=kind, **fields)


def prefixed(principal: str, operation: str, resource: str, kind: str = "TOPIC", **fields: Any) -> Acl:
    return rule(principal, operation, resource, kind, pattern="PREFIXED", **fields)


def denied(found: Acl) -> Acl:
    return replace(found, permission="DENY")


def selects(name: str) -> bool:
    return name.startswith(("shop.", "kitchen.")) and name != "shop.secret"


def become(
    *acls: Acl, topics: Any = TOPICS, own: Any = (), called: TopicNames = SAME, **section: Any
) -> dict[Acl, set[Acl] | str]:
    names = {"TOPIC": Names(selects, topics), "GROUP": Names(selects, ["shop.app", "others"])}
    copying = Copying(names=names, access=Access(**section), called=called, own=frozenset(own))
    return {one.acl: one.why or set(one.made) for one in copying.carried(acls)}


def test_what_is_about_the_plan_is_carried_as_it_is_and_of_others_principals_nothing():
    literal, group = rule("User:a", "READ", "shop.orders"), rule("User:a", "READ", "shop.to-come", "GROUP")
    deny = denied(rule("User:b", "READ", "shop.orders", host="10.0.0.1"))
    mine, foreign = rule("User:a", "READ", "other"), rule("User:c", "READ", "other")
    assert become(literal, group, deny, mine, foreign) == {
        literal: {literal},
        group: {group},
        deny: {deny},
        mine: "of nothing that the plan selects",
    }


def test_rule_for_everything_becomes_one_for_each_of_the_plans_and_reaches_nothing_else():
    every = rule("User:a", "READ", "*")
    assert become(every)[every] == {rule("User:a", "READ", name) for name in ("shop.orders", "shop.payments")}
    groups = denied(rule("User:a", "READ", "*", "GROUP"))
    assert become(groups)[groups] == {denied(rule("User:a", "READ", "shop.app", "GROUP"))}


def test_topics_are_called_as_the_target_calls_them_and_groups_as_ever():
    west = TopicNames(prefix="west.", renamed={"shop.payments": "eu-payments"})
    literal, every = rule("User:a", "READ", "shop.payments"), denied(rule("User:b", "READ", "*"))
    narrow, wide = prefixed("User:a", "READ", "shop.o"), prefixed("User:a", "READ", "kitchen.")
    group = rule("User:a", "READ", "shop.app", "GROUP")
    found = become(literal, every, narrow, wide, group, called=west, topics=("shop.orders", "shop.payments"))
    assert found == {
        literal: {rule("User:a", "READ", "eu-payments")},
        every: {denied(rule("User:b", "READ", name)) for name in ("west.shop.orders", "eu-payments")}
        | {denied(prefixed("User:b", "READ", "west.shop.o"))},
        narrow: {prefixed("User:a", "READ", "west.shop.o")},
        wide: "of nothing that the plan selects",
        group: {group},
    }
    # One of its topics is called otherwise: no prefix would reach both.
    part = prefixed("User:a", "READ", "shop.")
    assert become(part, called=west, topics=("shop.orders", "shop.payments"))[part] == {
        rule("User:a", "READ", name) for name in ("west.shop.orders", "eu-payments")
    }


def test_prefix_stays_one_only_where_all_under_it_is_the_plans():
    narrow, wide = prefixed("User:a", "READ", "shop.o"), prefixed("User:a", "READ", "shop.")
    found = become(narrow, wide)
    assert found[narrow] == {narrow}
    assert found[wide] == {rule("User:a", "READ", name) for name in ("shop.orders", "shop.payments")}
    assert become(wide, topics=["shop.orders", "other"])[wide] == {wide}
    internal = prefixed("User:a", "ALL", "k")
    assert become(internal, topics=["kitchen.x"])[internal] == {rule("User:a", "ALL", "kitchen.x")}, (
        "it would reach the migration's own topics"
    )


def test_denials_reach_as_far_as_what_is_granted_though_nothing_of_it_is_there_yet():
    topics = ["shop.orders", "other"]
    grant = prefixed("User:a", "READ", "shop.")
    inside, hr = denied(rule("User:a", "READ", "shop.late")), denied(prefixed("User:a", "READ", "shop.hr."))
    around, every = denied(prefixed("User:a", "READ", "sh")), denied(rule("User:a", "READ", "*"))
    apart = denied(prefixed("User:a", "READ", "o"))
    found = become(grant, inside, hr, around, every, apart, topics=topics)
    assert found[inside] == {inside}
    assert found[hr] == {hr}
    of_the_prefix = {denied(grant), denied(rule("User:a", "READ", "shop.orders"))}
    assert found[around] == found[every] == of_the_prefix
    assert found[apart] == "of nothing that the plan selects"
    secret = denied(rule("User:a", "READ", "shop.secret"))
    assert become(grant, secret)[secret] == "of nothing that the plan selects", "nothing is granted there"


def test_principals_get_their_names_of_the_target_and_excluded_ones_nothing():
    web, old = rule("User:CN=web,O=Shop", "READ", "shop.orders"), rule("User:old", "READ", "shop.orders")
    everybody = rule("User:*", "READ", "shop.orders")
    section: Any = {"principals": {"User:CN=web,O=Shop": "User:web"}, "exclude": ("User:old", "User:*")}
    found = become(web, old, everybody, **section)
    assert found[web] == {rule("User:web", "READ", "shop.orders")}
    assert "access.exclude" in str(found[old])
    assert "access.exclude" in str(found[everybody])


def test_two_principals_become_one_only_while_neither_is_denied_anything():
    one, other = rule("User:a", "READ", "shop.orders"), rule("User:b", "WRITE", "shop.orders")
    assert become(one, other, principals={"User:a": "User:b"})[one] == {rule("User:b", "READ", "shop.orders")}
    with pytest.raises(BadInput, match="User:a, User:b would all be User:b"):
        become(one, denied(other), principals={"User:a": "User:b"})
    assert become(one, denied(other), principals={"User:a": "User:b"}, exclude=("User:b",))


def test_nothing_is_carried_that_would_stop_the_migration_or_is_its_own():
    everybody, ours = denied(rule("User:*", "WRITE", "shop.orders")), rule("User:mover", "READ", "shop.orders")
    mapped = denied(rule("User:a", "READ", "shop.orders"))
    found = become(everybody, ours, mapped, own=["User:mover", "User:writer"], principals={"User:a": "User:writer"})
    assert "deny the migration" in str(found[everybody])
    assert "deny the migration" in str(found[mapped])
    assert "own principal" in str(found[ours])


def test_what_writers_need_besides_is_carried_and_what_is_of_the_cluster_is_named():
    write, read = rule("User:w", "WRITE", "shop.orders"), rule("User:r", "READ", "shop.orders")
    ids = [prefixed(user, "WRITE", "app-", "TRANSACTIONAL_ID") for user in ("User:w", "User:r", "User:x")]
    every = rule("User:w", "WRITE", "*", "TRANSACTIONAL_ID")
    short = prefixed("User:w", "WRITE", "kafka", "TRANSACTIONAL_ID")
    links = rule("User:w", "WRITE", "kafka-migration.shop", "TRANSACTIONAL_ID")
    idempotent = rule("User:w", "IDEMPOTENT_WRITE", "kafka-cluster", "CLUSTER")
    alter, new = rule("User:w", "ALTER", "kafka-cluster", "CLUSTER"), rule("User:w", "15", "app", "TRANSACTIONAL_ID")
    found = become(write, read, *ids, every, short, links, idempotent, alter, new)
    assert found[ids[0]] == {ids[0]}
    assert found[idempotent] == {idempotent}
    assert "writes to none" in str(found[ids[1]])
    assert ids[2] not in found, "of somebody who has nothing to do with the plan"
    assert "by hand" in str(found[alter])
    assert "own id" in str(found[every])
    assert "own id" in str(found[short])
    assert "own id" in str(found[links]), "whoever has it could fence the mirror"
    assert "not known" in str(found[new])
    open_topic = rule("User:*", "WRITE", "shop.orders")
    assert become(open_topic, ids[2])[ids[2]] == {ids[2]}, "everybody writes there"


class Shop:
    """Two clusters with authorizers, and a plan."""

    def __init__(self) -> None:
        self.source = FakeCluster("source", has_authorizer=True)
        self.target = FakeCluster("target", has_authorizer=True)
        self.store, self.clock = PlainStore(), FakeClock()
        for name in TOPICS:
            self.source.add_topic(name)

    def ctx(self, **section: Any) -> Context:
        plan = restore_plan(
            {
                "version": 1,
                "name": "shop",
                "source": "a",
                "target": "b",
                "topics": {"include": [r"shop\..*"], "exclude": [r"shop\.secret"]},
                "groups": {"include": [r"shop\..*"]},
                "access": section,
            }
        )
        return Context(
            plan=plan,
            source=self.source,  # type: ignore[arg-type]
            target=self.target,  # type: ignore[arg-type]
            journal=Journal(self.store, "shop"),
            link=LinkState("shop", PlainStore(), None, None, selects=plan.topics.matches),
            clock=self.clock,
        )

    def fence(self, ban: Ban, *principals: str, migration: str = "shop", state: str = "FENCED") -> tuple[Acl, ...]:
        """The denials of a fence on shop.orders."""
        snapshot = record.Snapshot(
            names=("shop.orders",), principals=principals, probe="", theirs=(), before="", count=0
        )
        value = record.FenceRecord(
            state=record.FenceState[state],
            kind="acl_deny",
            names=snapshot.names,
            at="2026-01-01T00:00:00+00:00",
            snapshot=snapshot,
        )
        Journal(self.store, migration).record(record.KIND, ban.key, value.as_dict())
        return snapshot.all(ban)


@pytest.fixture
def shop() -> Shop:
    it = Shop()
    it.source.create_acls([rule("User:a", "READ", "shop.orders"), denied(rule("User:b", "READ", "*"))])
    return it


WANTED = (
    denied(rule("User:b", "READ", "shop.orders")),
    denied(rule("User:b", "READ", "shop.payments")),
    rule("User:a", "READ", "shop.orders"),
)


def test_what_the_target_lacks_is_shown_denials_first(shop):
    seen = difference.read(shop.ctx())
    assert (seen.missing, seen.present) == (WANTED, 0)
    shop.target.create_acls(WANTED[1:])
    seen = difference.read(shop.ctx())
    assert (seen.missing, seen.present) == (WANTED[:1], 2)
    shop.target.create_acls(WANTED)
    assert difference.read(shop.ctx()).missing == ()


def test_topics_of_others_on_the_target_make_a_prefix_names(shop):
    shop.source.create_acls([prefixed("User:c", "READ", "shop.p")])
    assert prefixed("User:c", "READ", "shop.p") in difference.read(shop.ctx()).missing
    shop.target.add_topic("shop.payments")
    assert prefixed("User:c", "READ", "shop.p") in difference.read(shop.ctx()).missing
    shop.target.add_topic("shop.secret")
    shop.source.create_acls([prefixed("User:c", "READ", "shop.s")])
    assert not [one for one in difference.read(shop.ctx()).missing if one.resource.startswith("shop.s")]


def test_fences_are_nobodys_permissions_neither_here_nor_there(shop):
    for ban, migration in ((WRITES, "shop"), (WRITES, "other"), (GROUP_READS, "other")):
        shop.source.create_acls(shop.fence(ban, "User:w", migration=migration))
    shop.source.create_acls([rule("User:w", "READ", "shop.orders")])
    missing = difference.read(shop.ctx()).missing
    assert [one for one in missing if one.principal == "User:w"] == [rule("User:w", "READ", "shop.orders")]
    # A real denial that a fence of the target makes for its own time is not there for good.
    real = denied(rule("User:v", "WRITE", "shop.orders"))
    shop.source.create_acls([real])
    shop.target.create_acls(shop.fence(EARLY_WRITES, "User:v"))
    assert real in difference.read(shop.ctx()).missing
    shop.fence(EARLY_WRITES, "User:v", state="LIFTED")
    assert real not in difference.read(shop.ctx()).missing, "it stands, and no fence's any more"


def test_more_than_a_controller_bears_is_refused_by_the_rules_that_make_it(shop, monkeypatch):
    monkeypatch.setattr(difference, "_MOST", 2)
    with pytest.raises(Refused, match="most of them for DENY User:b READ on TOPIC"):
        difference.read(shop.ctx())


def test_names_that_no_acl_has_and_clusters_that_are_open_are_noted(shop):
    shop.target.configs_of_brokers["allow.everyone.if.no.acl.found"] = "true"
    notes = " ".join(difference.read(shop.ctx(exclude=["User:typo"])).notes)
    assert "no ACL of User:typo" in notes
    assert "the first ACL on a topic shuts out" in notes


def test_commands_are_those_of_kafkas_tool_and_quote_what_a_shell_would_read():
    name = "it's $HOME"
    lines = acl_commands.adding(
        [
            denied(rule("User:b", "READ", "t", host="10.0.0.1")),
            *(rule("User:CN=a,O=x y", operation, topic) for topic in ("t", name) for operation in ("READ", "DESCRIBE")),
            prefixed("User:w", "WRITE", "app-", "TRANSACTIONAL_ID"),
            rule("User:w", "IDEMPOTENT_WRITE", "kafka-cluster", "CLUSTER"),
        ],
        servers="a:1",
    )
    common = "kafka-acls --bootstrap-server a:1 --command-config admin.properties --add"
    both = "--operation Read --operation Describe --topic t --topic"
    assert lines == (
        f"{common} --deny-principal User:b --deny-host 10.0.0.1 --operation Read --topic t",
        f"{common} --allow-principal 'User:CN=a,O=x y' {both} {shlex.quote(name)}",
        f"{common} --allow-principal User:w --operation Write --resource-pattern-type prefixed --transactional-id app-",
        f"{common} --allow-principal User:w --operation IdempotentWrite --cluster",
    )
    assert shlex.split(lines[1])[-1] == name


@pytest.mark.parametrize(
    "section",
    [{"principals": {"app": "User:app"}}, {"principals": {"User:a": "User:*"}}, {"exclude": ["User:a", "User:a"]},
     {"principals": {"User:a": "User:b"}, "exclude": ["User:a"]}, {"exclude": ["a"]}],
)  # fmt: skip
def test_contradictions_are_refused(shop, section):
    with pytest.raises(BadInput, match="access"):
        shop.ctx(**section)
