"""SCRAM users that the target lacks: made with new passwords that stand nowhere, and removed by who made them."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from kafka_migration.access import grants
from kafka_migration.domain.errors import BadInput, MigrationError, NotAuthorized, Refused, TakenOver
from kafka_migration.groups.hooks import ALLOWED_COMMANDS, HookFailed
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.errors import NotSupported
from kafka_migration.kafka.types import ScramUser
from kafka_migration.state.journal import Journal
from kafka_migration.steps import access
from kafka_migration.steps.step import Decision
from tests.fence.worlds import acl
from tests.steps.gates import Migration, PermissiveCluster, by_tls
from tests.steps.killing import Killed
from tests.steps.test_hooks import script

APP = ScramUser(user="app", credentials=(("SCRAM-SHA-256", 4096), ("SCRAM-SHA-512", 8192)))
THEIRS = ScramUser(user="stranger", credentials=(("SCRAM-SHA-512", 4096),))
PASSWORD = "s3cret of app"
DISABLED = {"disabled": True}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Migration:
    """The application has an ACL and a password on the source, and another user both on neither side's behalf."""
    found = Migration()
    for side in ("source", "target"):
        locked = PermissiveCluster(side, has_authorizer=True)
        locked.connection = by_tls(side)
        setattr(found, side, locked)
    found.source.add_topic("shop.orders")
    found.source.create_acls([acl("User:app", "READ", "shop.orders")])
    found.source.users = [APP, THEIRS]
    found.target.changes.clear()
    monkeypatch.setenv(ALLOWED_COMMANDS, str(script(tmp_path / "new-password", 'echo "s3cret of $1"')))
    return found


def section(shop: Migration, **users: Any) -> dict[str, Any]:
    users = users or {"command": ["new-password", "{user}"]}
    return {"access": {"users": users}, "approvals": {"plan": False}}


def make(shop: Migration, *, dry_run: bool = False, **users: Any) -> Decision:
    ctx = shop.ctx(dry_run=dry_run, **section(shop, **users))
    return access.run(ctx, access.check(ctx))


def test_user_is_made_with_the_commands_password_which_stands_nowhere_and_is_removed_again(shop: Migration) -> None:
    assert access.look(shop.ctx(**section(shop))).missing.users == (APP,)
    assert make(shop).facts == {"acls": 1, "quotas": 0, "scram_users": 1}
    assert (shop.target.users, shop.target.passwords) == ([APP], {"app": PASSWORD})
    assert grants.made(shop.ctx().journal).users == (APP,)
    assert PASSWORD not in json.dumps(dict(shop.store.items()), default=str)
    assert PASSWORD not in " ".join(shop.told)
    assert make(shop).facts["scram_users"] == 0
    assert access.undo(shop.ctx()).facts == {"acls": 1, "quotas": 0, "scram_users": 1}
    assert shop.target.users == []
    assert not grants.made(shop.ctx().journal)


def test_user_is_made_disabled_with_a_password_of_its_own_each_time(shop: Migration) -> None:
    shop.source.create_acls([acl("User:stranger", "READ", "shop.orders")])
    make(shop, **DISABLED)
    assert shop.target.users == [APP, THEIRS]
    assert len({*shop.target.passwords.values()}) == 2
    assert min(map(len, shop.target.passwords.values())) > 40


def test_without_a_way_to_passwords_users_are_listed_only_and_excluded_ones_too(shop: Migration) -> None:
    seen = access.look(shop.ctx())
    assert (seen.users, seen.limits.users) == ((), (APP,))
    seen = access.look(shop.ctx(**section(shop, exclude=["app"], **DISABLED)))
    assert (seen.users, seen.limits.users) == ((), (APP,))


def test_dry_run_asks_for_no_password(shop: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_passwords", lambda *_: pytest.fail("asked"))
    assert make(shop, dry_run=True).facts["scram_users"] == 1
    assert shop.target.changes == []


def test_command_that_fails_for_one_user_leaves_everything_as_it_was(shop: Migration, tmp_path: Path) -> None:
    script(tmp_path / "new-password", f'echo "{PASSWORD}"; echo "{PASSWORD}" >&2; exit 3')
    with pytest.raises(HookFailed, match=r"new-password app: exit code 3") as caught:
        make(shop)
    assert PASSWORD not in str(caught.value)
    assert shop.target.changes == []


def test_command_is_refused_before_anything_is_made_where_it_may_not_run_or_would_be_overheard(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.delenv(ALLOWED_COMMANDS)
        with pytest.raises(Refused, match="command new-password is not allowed here"):
            make(shop)
    with monkeypatch.context() as patch:
        patch.delenv(ALLOWED_COMMANDS)
        assert make(shop, dry_run=True, **DISABLED).facts["scram_users"] == 1
    shop.target.connection = ClusterConnection("target", {"bootstrap.servers": "127.0.0.1:1"})
    for users in ({}, DISABLED):
        with pytest.raises(Refused, match="connection target is not encrypted"):
            make(shop, **users)
    assert shop.target.changes == []


@pytest.mark.parametrize("name", ["-x", "z\0", "-x\ny"])
def test_user_who_can_be_no_argument_is_refused_before_anybody_gets_a_password(
    shop: Migration, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    shop.source.users = [APP, replace(THEIRS, user=name)]
    shop.source.create_acls([acl(f"User:{name}", "READ", "shop.orders")])
    monkeypatch.setattr(access, "_passwords", lambda *_: pytest.fail("asked"))
    with pytest.raises(Refused, match=r"command new-password .*argument ") as caught:
        make(shop)
    assert "\n" not in caught.value.message
    assert "access.users.exclude" in caught.value.remedy


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (
            NotAuthorized("target", "Describe", "cluster (SCRAM users)"),
            "grant .*Describe .*; or remove access.users .*",
        ),
        (NotSupported("target: older than Kafka 2.7"), "remove access.users .*"),
    ],
)
def test_cluster_that_does_not_show_its_users_is_named_and_nothing_is_made(
    shop: Migration, monkeypatch: pytest.MonkeyPatch, error: MigrationError, remedy: str
) -> None:
    def hidden() -> Any:
        raise error

    def denied() -> Any:
        raise NotAuthorized("source", "DescribeConfigs", "cluster (quotas)")

    monkeypatch.setattr(shop.source, "quotas", denied)
    monkeypatch.setattr(shop.target, "scram_users", hidden)
    with pytest.raises(
        Refused, match=f"SCRAM users of the target cannot be read: {re.escape(error.message)}"
    ) as caught:
        make(shop)
    assert "quotas" not in caught.value.message
    assert re.fullmatch(remedy, caught.value.remedy)
    assert shop.target.changes == []


def test_user_that_somebody_makes_meanwhile_keeps_its_password(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = ScramUser(user="app", credentials=(("SCRAM-SHA-512", 8192),))

    def passwords(*_: object) -> dict[str, str]:
        shop.target.alter_scram_users({theirs: "of an administrator"})
        return {"app": PASSWORD}

    monkeypatch.setattr(access, "_passwords", passwords)
    with pytest.raises(Refused, match="somebody has made these SCRAM users on the target meanwhile: app"):
        make(shop)
    assert (shop.target.users, shop.target.passwords) == ([theirs], {"app": "of an administrator"})
    assert (shop.target.acls(), grants.made(shop.ctx().journal)) == ((), grants.Grants())


def test_user_that_was_half_made_gets_one_new_password_by_all_mechanisms(shop: Migration) -> None:
    with shop.target.failing("alter_scram_users", Killed(), on="SCRAM-SHA-512"), pytest.raises(Killed):
        make(shop, **DISABLED)
    half = shop.target.users
    assert half == [replace(APP, credentials=APP.credentials[:1])]
    shop.target.changes.clear()
    assert make(shop).facts["scram_users"] == 1
    assert (shop.target.users, shop.target.passwords) == ([APP], {"app": PASSWORD})
    assert shop.target.changes == ["alter SCRAM-SHA-256 of app", "alter SCRAM-SHA-512 of app"]
    # Of other iterations: somebody has set a password since.
    shop.target.users = [replace(APP, credentials=(("SCRAM-SHA-256", 5000),))]
    assert make(shop).facts["scram_users"] == 0


def test_user_that_another_migration_has_half_made_is_left_to_that_one(shop: Migration) -> None:
    shop.target.users = [replace(APP, credentials=APP.credentials[:1])]
    Journal(shop.store, "second").record(grants.KIND, "1.0", {"at": "noon", **grants.Grants(users=(APP,)).as_dict()})
    assert make(shop).facts["scram_users"] == 0


def test_user_stays_that_was_given_another_password_since_or_that_another_migration_may_go_by(shop: Migration) -> None:
    make(shop)
    reset = ScramUser(user="app", credentials=(("SCRAM-SHA-512", 10_000),))
    shop.target.alter_scram_users({reset: "of an administrator"})
    undone = access.undo(shop.ctx()).value
    assert (undone.removed.users, undone.changed.users) == ((), (APP,))
    assert dict(shop.target.users[0].credentials)["SCRAM-SHA-512"] == 10_000
    shop.target.users = []
    make(shop)
    theirs = {"at": "noon", "acls": [asdict(acl("User:x", "READ", "other"))], "quotas": []}
    Journal(shop.store, "second").record(grants.KIND, "1.0", theirs)
    assert access.undo(shop.ctx()).value.stay.users == (APP,)
    assert shop.target.users == [APP]
    assert grants.made(shop.ctx().journal).users == (APP,), "and may be removed later"


def test_password_that_is_set_while_users_are_removed_stays(shop: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    make(shop)
    reset, delete = ScramUser(user="app", credentials=(("SCRAM-SHA-512", 10_000),)), shop.target.delete_acls

    def meanwhile(acls: Any) -> Any:
        shop.target.alter_scram_users({reset: "of an administrator"})
        return delete(acls)

    monkeypatch.setattr(shop.target, "delete_acls", meanwhile)
    undone = access.undo(shop.ctx())
    assert (undone.value.removed.users, undone.value.changed.users) == ((), (APP,))
    assert undone.facts == {"acls": 1, "quotas": 0, "scram_users": 0}
    assert shop.target.passwords == {"app": "of an administrator"}
    assert dict(shop.target.users[0].credentials)["SCRAM-SHA-512"] == 10_000


def test_users_are_not_removed_any_more_once_somebody_else_makes_access(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.source.create_acls([acl("User:stranger", "READ", "shop.orders")])
    monkeypatch.setattr(grants, "_AT_ONCE", 1)
    make(shop)
    alter = shop.target.alter_scram_users

    def meanwhile(*args: Any, **kwargs: Any) -> None:
        alter(*args, **kwargs)
        ctx = shop.ctx()
        ctx.journal.claim(grants.KIND, "target", at=ctx.stamp())

    monkeypatch.setattr(shop.target, "alter_scram_users", meanwhile)
    with pytest.raises(TakenOver):
        access.undo(shop.ctx())
    assert shop.target.users == [THEIRS]


@pytest.mark.parametrize(
    "users",
    [{}, {"disabled": True, "command": ["x"]}, {"command": ["{user}"]}, {"command": ["x", "{group}"]}, {"command": []}],
)
def test_plan_names_one_way_to_passwords_and_a_program(shop: Migration, users: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"access\.users"):
        shop.ctx(access={"users": users})


def test_plan_without_them_has_the_digest_that_it_had(shop: Migration) -> None:
    def dumped(**section: Any) -> set[str]:
        return {*shop.plan(access=section).model_dump()["access"]}

    assert dumped(users=DISABLED) - dumped() == {"users"}
