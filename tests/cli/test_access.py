"""The command access: what the target lacks, and the commands that make it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_migration.kafka.errors import NotSupported
from kafka_migration.kafka.types import Quota, ScramUser
from tests.cli.conftest import Terminal
from tests.fence.worlds import acl
from tests.steps.gates import PermissiveCluster, by_tls

READ = acl("User:app", "READ", "shop.orders")


@pytest.fixture
def locked(terminal: Terminal) -> Terminal:
    """Both clusters have an authorizer."""
    for side in ("source", "target"):
        cluster = PermissiveCluster(side, has_authorizer=True)
        cluster.connection = by_tls(side)
        setattr(terminal.shop, side, cluster)
    terminal.shop.source.add_topic("shop.orders")
    terminal.shop.source.create_acls([READ, acl("User:app", "READ", "*"), acl("User:app", "READ", "other")])
    return terminal


def test_what_the_target_lacks_is_shown_and_is_exit_code_one(locked: Terminal) -> None:
    seen = locked.run("access")
    assert seen.exit_code == 1
    assert "TOPIC shop.orders" in seen.stdout
    assert "of nothing that the plan selects" in " ".join(seen.stdout.split())
    assert "1 missing" in seen.stdout
    found = locked.json("access")
    assert [(one["principal"], one["resource"]) for one in found["missing"]] == [("User:app", "shop.orders")]
    lines = locked.run("access", "--commands").stdout.splitlines()
    assert lines == found["commands"]
    assert lines[0].endswith("--allow-principal User:app --operation Read --topic shop.orders")
    assert not locked.shop.target.acls(), "nothing was granted"
    locked.shop.target.create_acls([READ])
    assert locked.run("access").exit_code == 0
    assert locked.run("access", "--commands").stdout == ""


def test_quotas_and_users_are_shown_and_a_missing_quota_is_exit_code_one(locked: Terminal) -> None:
    locked.shop.target.create_acls([READ])
    locked.shop.source.client_quotas = [
        Quota(entity=(("user", "app"),), limits=(("producer_byte_rate", 1048576.0),)),
        Quota(entity=(("client-id", "batch"),), limits=(("consumer_byte_rate", 2e6),)),
    ]
    locked.shop.source.users = [ScramUser(user="app", credentials=(("SCRAM-SHA-512", 8192),))]
    seen = locked.run("access")
    page = " ".join(seen.stdout.split())
    assert seen.exit_code == 1
    assert "user app producer_byte_rate 1048576" in page
    assert "client-id batch consumer_byte_rate 2000000" in page
    assert "no SCRAM credentials on the target: app (SCRAM-SHA-512)" in page
    assert "1 missing" in page
    made, comment = locked.run("access", "--commands").stdout.splitlines()
    assert made.endswith("--add-config producer_byte_rate=1048576 --entity-type users --entity-name app")
    assert comment.startswith("# kafka-configs ")
    assert locked.json("access")["quotas"]["missing"][0]["value"] == 1048576
    locked.shop.target.client_quotas = locked.shop.source.client_quotas[:1]
    assert locked.run("access").exit_code == 0, "who authenticates how on the target is the administrator's to know"


def test_cluster_without_an_authorizer_is_an_error_that_names_it(terminal: Terminal) -> None:
    found = terminal.run("access")
    assert found.exit_code == 3
    assert "authorizer" in found.output


def test_missing_acls_are_made_and_removed_and_a_person_is_asked(locked: Terminal) -> None:
    locked.write_plan(approvals={"plan": False})
    refused = locked.run("access", "--apply")
    assert (refused.exit_code, locked.shop.target.acls()) == (1, ())
    assert "nobody can be asked here: Make 1 ACLs on the target?" in " ".join(refused.output.split())
    shown = locked.run("access", "--apply", "--dry-run")
    assert (shown.exit_code, locked.shop.target.acls()) == (0, ())
    assert "1 ACLs would be made" in shown.stdout
    made = locked.json("access", "--apply", "--yes")
    assert ([one["principal"] for one in made["acls"]], made["quotas"], made["dry_run"]) == (["User:app"], [], False)
    assert locked.shop.target.acls() == (READ,)
    assert locked.run("access").exit_code == 0
    asked = locked.run("access", "--undo")
    assert "Remove 1 ACLs from the target, which migration shop has made?" in " ".join(asked.output.split())
    assert "ALLOW User:app READ on TOPIC shop.orders" in " ".join(asked.output.split())
    undone = locked.run("access", "--undo", "--yes")
    assert undone.exit_code == 0
    assert "1 ACLs removed" in undone.stdout
    assert locked.shop.target.acls() == ()


def test_making_printing_and_removing_exclude_each_other(locked: Terminal) -> None:
    found = locked.run("access", "--apply", "--undo")
    assert found.exit_code == 2
    assert "exclude each other" in found.output


def test_users_that_the_plan_has_made_are_shown_made_and_removed(locked: Terminal) -> None:
    locked.write_plan(approvals={"plan": False}, access={"users": {"disabled": True}})
    locked.shop.target.create_acls([READ])
    locked.shop.source.users = [ScramUser(user="app", credentials=(("SCRAM-SHA-512", 8192),))]
    seen = locked.run("access")
    assert seen.exit_code == 1
    assert "app SCRAM-SHA-512 8192" in " ".join(seen.stdout.split())
    assert "1 missing" in seen.stdout
    asked = locked.run("access", "--apply")
    assert "SCRAM user app by SCRAM-SHA-512, 8192 iterations" in " ".join(asked.output.split())
    made = locked.json("access", "--apply", "--yes")["scram_users"]
    assert made == [{"user": "app", "credentials": [["SCRAM-SHA-512", 8192]]}]
    assert locked.run("access").exit_code == 0
    assert "0 ACLs and 1 SCRAM users removed" in locked.run("access", "--undo", "--yes").stdout
    assert locked.shop.target.users == []


def test_what_somebody_has_set_since_is_listed_in_json_limits_apart_from_users(locked: Terminal) -> None:
    locked.write_plan(approvals={"plan": False}, access={"users": {"disabled": True}})
    rate = Quota(entity=(("user", "app"),), limits=(("producer_byte_rate", 1048576.0),))
    locked.shop.source.client_quotas = [rate]
    locked.shop.source.users = [ScramUser(user="app", credentials=(("SCRAM-SHA-512", 8192),))]
    locked.json("access", "--apply", "--yes")
    locked.shop.target.client_quotas = [replace(rate, limits=(("producer_byte_rate", 2e6),))]
    locked.shop.target.users = [ScramUser(user="app", credentials=(("SCRAM-SHA-512", 9000),))]
    undone = locked.json("access", "--undo", "--yes")
    assert [(one["key"], one["value"]) for one in undone["changed"]] == [("producer_byte_rate", 1048576.0)]
    assert undone["changed_users"] == [{"user": "app", "credentials": [["SCRAM-SHA-512", 8192]]}]


def test_cluster_that_does_not_show_users_whom_the_plan_has_made_is_named_and_is_exit_code_one(
    locked: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked.write_plan(approvals={"plan": False}, access={"users": {"disabled": True}})
    locked.shop.target.create_acls([READ])

    def unsupported() -> None:
        raise NotSupported("target: older than Kafka 2.7")

    monkeypatch.setattr(locked.shop.target, "scram_users", unsupported)
    seen = locked.run("access")
    assert seen.exit_code == 1
    assert "SCRAM users of the target cannot be read" in " ".join(seen.stdout.split())
