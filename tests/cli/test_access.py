"""The command access: shown, asked about, made, removed."""

from __future__ import annotations

import pytest

from kafka_migration.cli import asking
from tests.cli.conftest import Terminal
from tests.fence.worlds import acl
from tests.steps.gates import PermissiveCluster

READ, ALTER = acl("User:app", "READ", "shop.orders"), acl("User:app", "ALTER", "shop.orders")


@pytest.fixture
def locked(terminal: Terminal) -> Terminal:
    """Both clusters have an authorizer."""
    for side in ("source", "target"):
        cluster = PermissiveCluster(side, has_authorizer=True)
        setattr(terminal.shop, side, cluster)
    terminal.shop.source.add_topic("shop.orders")
    terminal.shop.source.create_acls([READ, acl("User:app", "READ", "*"), acl("User:other", "READ", "other")])
    return terminal


def test_what_the_target_lacks_is_shown_and_is_exit_code_one(locked: Terminal) -> None:
    seen = locked.run("access")
    assert seen.exit_code == 1
    assert "TOPIC shop.orders" in seen.stdout
    assert "1 missing" in seen.stdout
    assert locked.json("access")["missing"] == [
        {
            "resource_type": "TOPIC",
            "resource": "shop.orders",
            "pattern": "LITERAL",
            "principal": "User:app",
            "host": "*",
            "operation": "READ",
            "permission": "ALLOW",
        }
    ]
    assert not locked.shop.target.acls()


def test_nobody_is_asked_in_vain_and_a_dry_run_makes_nothing(locked: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = locked.run("access", "--apply")
    assert refused.exit_code == 1
    assert "--yes" in refused.output
    assert locked.run("access", "--apply", "--dry-run").exit_code == 0
    assert not locked.shop.target.acls()
    monkeypatch.setattr(asking, "can_be_asked", lambda: True)
    declined = locked.run("access", "--apply", input="no\n")
    assert declined.exit_code == 1
    assert "ALLOW User:app READ on TOPIC shop.orders" in declined.output
    assert locked.run("access", "--apply", input="yes\n").exit_code == 0
    assert locked.shop.target.acls() == (READ,)
    assert locked.run("access", "--apply").exit_code == 0, "there is nothing to be asked about"
    assert locked.json("access", "--undo", "--dry-run")["removed"] == 1
    assert locked.json("access", "--undo", "--yes") == {"dry_run": False, "removed": 1}
    assert locked.run("access", "--apply", "--undo").exit_code == 2


def test_cluster_without_an_authorizer_is_an_error_that_names_it(terminal: Terminal) -> None:
    found = terminal.run("access")
    assert found.exit_code == 3
    assert "authorizer" in found.output
