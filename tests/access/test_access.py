"""ACLs of the source on the target: which, under which names, made once, and removed again without anybody else's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_migration.access import access
from kafka_migration.access.carried import carried
from kafka_migration.domain.errors import BadInput, CouldNotFindOut, Refused
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

NAMES = {"TOPIC": {"shop.orders", "shop.payments"}, "GROUP": {"shop.app"}}
SELECTS = {kind: lambda name: name.startswith("shop.") for kind in NAMES}


def rule(principal: str, operation: str, resource: str, kind: str = "TOPIC", **fields: Any) -> Acl:
    return replace(acl(principal, operation, resource), resource_type=kind, **fields)


def become(*acls: Acl, **section: Any) -> dict[Acl, set[Acl] | str]:
    found = carried(acls, selects=SELECTS, names=NAMES, access=Access(**section))
    return {one.acl: one.why or set(one.made) for one in found}


def test_what_is_about_the_plan_is_carried_as_it_is_and_nothing_else():
    literal, prefix = rule("User:a", "READ", "shop.orders"), rule("User:a", "WRITE", "sh", pattern="PREFIXED")
    group = rule("User:a", "READ", "shop.to-come", "GROUP")
    deny = rule("User:b", "READ", "shop.orders", permission="DENY", host="10.0.0.1")
    other, wide = rule("User:a", "READ", "other"), rule("User:a", "READ", "of", pattern="PREFIXED")
    found = become(literal, prefix, group, deny, other, wide)
    assert found == {one: {one} for one in (literal, prefix, group, deny)}


def test_rule_for_everything_becomes_one_for_each_of_the_plans_and_reaches_nothing_else():
    every = rule("User:a", "READ", "*")
    assert become(every)[every] == {rule("User:a", "READ", name) for name in NAMES["TOPIC"]}
    groups = rule("User:*", "READ", "*", "GROUP", permission="DENY")
    assert become(groups)[groups] == {rule("User:*", "READ", "shop.app", "GROUP", permission="DENY")}


def test_principals_get_their_names_of_the_target_and_excluded_ones_nothing():
    web, old = rule("User:CN=web,O=Shop", "READ", "shop.orders"), rule("User:old", "READ", "shop.orders")
    found = become(web, old, principals={"User:CN=web,O=Shop": "User:web"}, exclude=("User:old",))
    assert found[web] == {rule("User:web", "READ", "shop.orders")}
    assert "access.exclude" in str(found[old])


def test_what_writers_need_besides_is_carried_and_what_is_of_the_cluster_is_named():
    write, read = rule("User:w", "WRITE", "shop.orders"), rule("User:r", "READ", "shop.orders")
    ids = [
        rule(user, "WRITE", "app-", "TRANSACTIONAL_ID", pattern="PREFIXED") for user in ("User:w", "User:r", "User:x")
    ]
    idempotent = rule("User:w", "IDEMPOTENT_WRITE", "kafka-cluster", "CLUSTER")
    alter = rule("User:w", "ALTER", "kafka-cluster", "CLUSTER")
    found = become(write, read, *ids, idempotent, alter)
    assert found[ids[0]] == {ids[0]}
    assert found[idempotent] == {idempotent}
    assert "writes to none" in str(found[ids[1]])
    assert ids[2] not in found, "of somebody who has nothing to do with the plan"
    assert "by hand" in str(found[alter])


class Shop:
    """Two clusters with authorizers, and a plan."""

    def __init__(self) -> None:
        self.source = FakeCluster("source", has_authorizer=True)
        self.target = FakeCluster("target", has_authorizer=True)
        self.store, self.clock = PlainStore(), FakeClock()
        for name in NAMES["TOPIC"]:
            self.source.add_topic(name)

    def ctx(self, *, dry_run: bool = False, **section: Any) -> Context:
        plan = restore_plan(
            {
                "version": 1,
                "name": "shop",
                "source": "a",
                "target": "b",
                "topics": {"include": [r"shop\..*"]},
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
            dry_run=dry_run,
        )


@pytest.fixture
def shop() -> Shop:
    it = Shop()
    it.source.create_acls([rule("User:a", "READ", "shop.orders"), rule("User:b", "READ", "*", permission="DENY")])
    return it


WANTED = {
    rule("User:a", "READ", "shop.orders"),
    *(rule("User:b", "READ", name, permission="DENY") for name in NAMES["TOPIC"]),
}


def test_what_is_missing_is_made_denials_first_and_read_back(shop):
    assert access.read(shop.ctx()).exit_code == 1
    assert set(access.apply(shop.ctx(dry_run=True)).missing) == WANTED
    assert not shop.target.acls()
    done = access.apply(shop.ctx())
    assert (done.missing, done.present, set(done.made)) == ((), 3, WANTED)
    assert set(shop.target.acls()) == WANTED
    assert shop.target.changes[-1] == "create acl User:a shop.orders"
    shop.target.changes.clear()
    assert access.apply(shop.ctx()).exit_code == 0
    assert shop.target.changes == []


def test_undo_removes_what_was_made_and_nobody_elses(shop):
    theirs = rule("User:a", "READ", "shop.orders")
    shop.target.create_acls([theirs, rule("User:z", "READ", "shop.orders")])
    access.apply(shop.ctx())
    assert len(access.undo(shop.ctx(dry_run=True))) == 2
    assert len(access.undo(shop.ctx())) == 2
    assert set(shop.target.acls()) == {theirs, rule("User:z", "READ", "shop.orders")}
    assert access.undo(shop.ctx()) == ()


@pytest.mark.parametrize("after", range(3))
def test_process_that_dies_while_it_makes_them_goes_on_and_can_still_be_undone(shop, after):
    real = shop.target.create_acls

    def dies(acls: Any) -> None:
        real(list(acls)[:after])
        raise KeyboardInterrupt

    shop.target.create_acls = dies
    with pytest.raises(KeyboardInterrupt):
        access.apply(shop.ctx())
    shop.target.create_acls = real
    assert access.apply(shop.ctx()).exit_code == 0
    assert len(access.undo(shop.ctx())) == 3
    assert shop.target.acls() == ()


def test_broker_that_shows_nothing_is_no_success(shop):
    shop.target.create_acls = lambda _acls: None
    with pytest.raises(CouldNotFindOut, match="read back"):
        access.apply(shop.ctx())


def test_more_rules_than_one_record_holds_are_written_down_and_removed(shop):
    shop.source.create_acls([rule(f"User:{n}", "READ", "shop.orders") for n in range(1_200)])
    assert access.apply(shop.ctx()).present == 1_203
    assert len(access.undo(shop.ctx())) == 1_203


def test_closed_target_is_not_opened_by_the_way(shop):
    from kafka_migration.fence import record
    from kafka_migration.fence.bans import EARLY_WRITES

    shop.source.create_acls([rule("User:w", "WRITE", "shop.orders"), rule("User:v", "WRITE", "shop.orders")])
    snapshot = record.Snapshot(names=("shop.orders",), principals=("User:v",), probe="", theirs=(), before="", count=0)
    value = record.FenceRecord(
        state=record.FenceState.FENCED, kind="acl_deny", names=("shop.orders",), at="", snapshot=snapshot
    )
    ctx = shop.ctx()
    ctx.journal.record(record.KIND, EARLY_WRITES.key, value.as_dict())
    with pytest.raises(Refused, match="User:w would not be denied"):
        access.apply(shop.ctx())
    assert access.apply(shop.ctx(exclude=["User:w"])).exit_code == 0


@pytest.mark.parametrize(
    "section",
    [{"principals": {"app": "User:app"}}, {"principals": {"User:a": "User:*"}}, {"exclude": ["User:a", "User:a"]},
     {"principals": {"User:a": "User:b"}, "exclude": ["User:a"]}],
)  # fmt: skip
def test_contradictions_are_refused(shop, section):
    with pytest.raises(BadInput, match="access"):
        shop.ctx(**section)
