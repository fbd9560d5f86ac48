"""resume --at and --accept-loss, restore: what gives something up is asked about first, and told after."""

from __future__ import annotations

import uuid

import pytest

from kafka_migration.domain.errors import NotAuthorized
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Identity
from kafka_migration.state.link import LinkTopic
from tests.cli.conftest import Terminal
from tests.steps import histories

ORDERS, OTHER = histories.ORDERS


@pytest.fixture
def halted(terminal: Terminal) -> Terminal:
    """A migration whose source has lost 40 records of one partition, of which nothing was copied."""
    shop = terminal.shop
    histories.created(shop)
    histories.mirroring(shop)
    ctx = shop.ctx()
    here, there = ctx.source.topics(), ctx.target.topics()
    ctx.link.pin_again(
        [
            LinkTopic(name=n, source_id=uuid.UUID(here[n].topic_id), target_id=uuid.UUID(there[n].topic_id))
            for n in there
        ],
        at="",
    )
    ctx.link.halt(ORDERS, "DATA_LOSS", "the log now starts at 40", 0, 1, ctx.stamp())
    ctx.link.halt(OTHER, "CORRUPT", "checksum", 0, 1, ctx.stamp())
    return terminal


def test_halted_partition_is_asked_about_before_anything_is_given_up(halted: Terminal) -> None:
    result = halted.run("resume", "--at", "shop.orders:1:30")
    assert result.exit_code == 1
    assert "nobody can be asked here" in result.stderr
    assert "offsets 0..30 are given up: 30, 30 of them still on the source" in result.stderr
    assert halted.shop.ctx().link.halted() == {ORDERS, OTHER}


def test_yes_gives_up_what_was_shown_and_says_who_goes_on(halted: Terminal) -> None:
    told = halted.json("resume", "--at", "shop.orders:1:30", "--yes", "--as", "ada")
    assert [(it["partition"], it["stands"], it["at"], it["given_up"]) for it in told["partitions"]] == [(1, 0, 30, 30)]
    assert (told["mirror"], told["dry_run"]) == ("running", False)
    (skip,) = halted.shop.ctx().link.skips()[OTHER]
    assert (skip.by, skip.start, skip.end) == ("ada", 0, 30)
    page = halted.run("status").stdout
    assert "Given up" in page
    assert "0..30" in page


def test_what_gives_nothing_up_needs_no_yes(halted: Terminal) -> None:
    result = halted.run("resume", "--at", "shop.orders:1:0")
    assert result.exit_code == 0
    assert "the mirror resumes them by itself" in result.stdout
    assert halted.shop.ctx().link.halted() == {ORDERS}


def test_dry_run_shows_it_and_changes_nothing(halted: Terminal) -> None:
    before = halted.shop.links.items()
    result = halted.run("resume", "--accept-loss", "shop.orders", "--dry-run")
    assert result.exit_code == 0
    assert "would resume: 1 partitions" in result.stdout
    assert halted.shop.links.items() == before


@pytest.mark.parametrize("words", [("--at", "shop.orders:1"), ("--at", "shop.orders:one:1")])
def test_offset_that_is_none_is_bad_input(halted: Terminal, words: tuple[str, ...]) -> None:
    result = halted.run("resume", *words)
    assert result.exit_code == 2
    assert "is not TOPIC:PARTITION:OFFSET" in result.stderr


def test_resume_alone_is_about_the_pause_and_leaves_halts(halted: Terminal) -> None:
    halted.run("pause")
    assert halted.run("resume").exit_code == 0
    assert halted.shop.ctx().link.controls().pause is None
    assert halted.shop.ctx().link.halted() == {ORDERS, OTHER}


def test_lag_says_what_can_be_done_about_halts_and_names_what_has_changed(halted: Terminal) -> None:
    halted.shop.source.alter_configs("shop.orders", set={"retention.ms": "1000"})
    text = " ".join(halted.run("lag").stdout.split())
    assert "resume --accept-loss" in text
    assert "604800000 -> 1000" in text
    told = halted.json("lag")
    assert told["halted"] == {"shop.orders-0": "DATA_LOSS", "shop.orders-1": "CORRUPT"}
    assert set(told["remedies"]) == {"DATA_LOSS", "CORRUPT"}
    assert [(it["what"], it["observed"]) for it in told["drift"]] == [("source's retention.ms", "1000")]


@pytest.fixture
def sealed(terminal: Terminal) -> Terminal:
    """A migration whose mirror has ended for good."""
    histories.created(terminal.shop)
    histories.mirroring(terminal.shop)
    ends = dict.fromkeys((*histories.ORDERS, histories.PAYMENTS), 101)
    terminal.shop.ctx().link.record_seal(Seal(at="noon", identity=Identity(7, 3), ends=ends))
    return terminal


def test_restore_asks_before_the_target_deletes_what_is_old(sealed: Terminal) -> None:
    changes = list(sealed.shop.target.changes)
    refused = sealed.run("restore")
    assert refused.exit_code == 1
    assert "retention.ms=604800000" in refused.stderr
    assert sealed.run("restore", "--dry-run").exit_code == 0
    assert sealed.shop.target.changes == changes
    told = sealed.json("restore", "--yes")
    assert [it["topic"] for it in told["topics"]] == ["shop.orders", "shop.payments"]
    assert sealed.shop.target.topic_configs(["shop.orders"])["shop.orders"]["retention.ms"].value == "604800000"
    assert sealed.run("restore").stdout.strip() == "0 of 2 topics were given their sources' configs"
    (phase,) = [it for it in sealed.json("status")["phases"] if it["name"] == "restore"]
    assert phase["outcome"] == "done"


def test_restore_before_the_seal_is_refused(terminal: Terminal) -> None:
    histories.created(terminal.shop)
    result = terminal.run("restore", "--yes")
    assert result.exit_code == 1
    assert "`stop` drains and seals it" in result.stderr


def test_lag_is_told_though_settings_are_hidden(halted: Terminal) -> None:
    hidden = NotAuthorized("source", "DescribeConfigs", "topic shop.orders")
    with halted.shop.source.failing("topic_configs", hidden):
        result = halted.run("lag")
        page = halted.json("status")
    assert result.exit_code == 0
    assert "whether topics have changed is unknown" in result.stderr
    assert page["unknown"]["drift"] == hidden.message
