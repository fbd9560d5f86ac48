"""cancel and retire at a terminal: a person must mean the one, and the other is a checklist."""

from __future__ import annotations

import pytest

from kafka_migration.cli import asking
from kafka_migration.link import seal
from tests.cli.conftest import Terminal
from tests.steps import histories

TOPICS = ["shop.orders", "shop.payments"]


@pytest.fixture
def created(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    histories.created(terminal.shop)
    monkeypatch.setattr(seal, "cut_off", lambda _ctx, _partitions: {})
    return terminal


def test_cancel_without_a_terminal_needs_yes_and_a_dry_run_does_not(created: Terminal) -> None:
    result = created.run("cancel")
    assert result.exit_code == 1
    assert "add --yes" in result.stderr
    assert "delete shop.orders on the target (2 partitions)" in result.stderr
    assert created.json("cancel")["error"]["exit_code"] == 1
    assert created.run("cancel", "--dry-run").exit_code == 0
    assert created.shop.target.topic_names() == TOPICS


@pytest.mark.parametrize(("answer", "left"), [("no\n", TOPICS), ("y\n", TOPICS), ("yes\n", [])])
def test_cancel_at_a_terminal_shows_what_is_deleted_and_asks(
    created: Terminal, monkeypatch: pytest.MonkeyPatch, answer: str, left: list[str]
) -> None:
    monkeypatch.setattr(asking, "can_be_asked", lambda: True)
    result = created.run("cancel", "--as", "ada", "--reason", "too early", input=answer)
    assert result.exit_code == bool(left)
    assert "delete shop.orders on the target (2 partitions)" in result.stderr
    assert created.shop.target.topic_names() == left


def test_cancelled_migration_is_shown_with_who_and_why_and_a_second_call_needs_no_answer(created: Terminal) -> None:
    value = created.json("cancel", "--yes", "--as", "ada", "--reason", "too early")
    assert value["is_new"]
    assert (value["cancellation"]["by"], value["cancellation"]["reason"]) == ("ada", "too early")
    page = " ".join(created.run("status").stdout.split())
    assert "cancelled by ada at 2030-01-01" in page
    assert "(too early)" in page
    again = created.run("cancel")
    assert again.exit_code == 0
    assert "nothing to do: the migration was cancelled by ada" in " ".join(again.stdout.split())
    refused = created.run("mirror")
    assert refused.exit_code == 1
    assert "was cancelled by ada" in refused.stderr


def test_retire_exits_by_what_uses_the_source_and_names_what_no_check_shows(created: Terminal) -> None:
    assert created.run("retire", "--seconds", "1").exit_code == 0
    created.shop.source.join("shop.app", ["shop.orders"])
    value = created.json("retire", "--seconds", "1")
    assert not value["unused"]
    assert "connection metrics" in value["note"]
    result = created.run("retire", "--seconds", "1")
    assert result.exit_code == 1
    assert "shop.app: 1 members" in " ".join(result.stdout.split())
