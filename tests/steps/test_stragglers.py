"""Who wrote to the source behind the cut: named and kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from kafka_migration.cli.app import app
from kafka_migration.copy.driver import headers
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Identity, PartitionEnds, TopicPartition
from kafka_migration.fence import fence as standing
from kafka_migration.fence import record
from kafka_migration.fence.bans import WRITES
from kafka_migration.fence.record import FenceRecord, FenceState
from kafka_migration.link import lifecycle, reverse, stragglers
from kafka_migration.migration.context import Context
from kafka_migration.steps import report, status
from kafka_migration.wire.batch import BatchHeader
from tests.steps.test_reverse_link import EXCLUDED, ORDERS, Marked, forward_and_back

OWN, STRANGER = 7, 4711


class Log:
    """What stands on the source: batches by their first offset, of ``records`` and a producer; -2 for a marker."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, int]] = []
        self.asked: list[dict[TopicPartition, int]] = []

    @property
    def end(self) -> int:
        return max((at + count for at, count, _ in self.batches), default=40)

    def read(self, _properties: Any, _role: str, since: Any, ends: Any) -> dict[TopicPartition, list[BatchHeader]]:
        self.asked.append(dict(since))
        assert set(ends) >= set(since)
        return {tp: [_header(*one) for one in self.batches if one[0] + one[1] > at] for tp, at in since.items()}


def _header(at: int, count: int, producer: int) -> BatchHeader:
    control, producer_id = (0x20, 99) if producer == -2 else (0, producer)
    return BatchHeader(at, 100, 0, 2, 0, control, count - 1, 0, 0, producer_id, 0, 0, count)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    found = Log()
    monkeypatch.setattr(headers, "read", found.read)
    return found


@pytest.fixture
def ctx(log: Log, monkeypatch: pytest.MonkeyPatch) -> Context:
    """Sealed: the source ends at offset 40 of its one topic."""
    monkeypatch.setattr(reverse, "TopicLog", Marked)
    found = forward_and_back()
    found.journal.lock([ORDERS.topic], at="")
    source: Any = found.source
    source.connection = SimpleNamespace(librdkafka=dict, kafka_python=dict)
    source.ends = lambda tps, **_: {tp: PartitionEnds(start=0, end=log.end) for tp in tps}
    return found


def test_whatever_stands_behind_the_seal_is_a_strangers_and_markers_are_no_records(ctx: Context, log: Log) -> None:
    assert (stragglers.look(ctx), log.asked) == ((), [])
    log.batches = [(40, 1, -2), (41, 3, STRANGER), (44, 2, -1)]
    (stray,) = stragglers.look(ctx)
    assert (stray.tp, stray.start, stray.end, stray.records, stray.producers) == (ORDERS, 41, 46, 5, (-1, STRANGER))
    assert "5 records at source offsets 41 to 45, producer ids: 4711, none (not idempotent)" in str(stray)
    ctx.link.unseal()
    assert stragglers.look(ctx) == ()


def test_reverse_links_own_records_and_fences_are_not_named_and_a_strangers_among_them_are(
    ctx: Context, log: Log
) -> None:
    back = reverse.arm(ctx).link
    back.record_fence(1, Identity(OWN, 0), at="")
    back.record_run({"state": "running", "at": ctx.stamp()})
    log.batches = [(40, 1, -2), (41, 10, OWN), (51, 4, OWN)]
    assert stragglers.look(ctx) == ()
    log.batches += [(55, 2, STRANGER), (57, 3, OWN)]
    (stray,) = stragglers.look(ctx)
    assert (stray.start, stray.end, stray.records) == (55, 57, 2)
    # Sealed, producers are to write to the source again.
    back.record_seal(Seal(at="later", ends={}))
    assert stragglers.look(ctx) == ()


def test_what_was_given_up_is_kept_in_the_report_and_what_comes_after_is_named_again(ctx: Context, log: Log) -> None:
    log.batches = [(40, 3, STRANGER)]
    ctx.dry_run = True
    assert len(stragglers.give_up(ctx, by="ada")) == len(stragglers.look(ctx)) == 1
    ctx.dry_run = False
    stragglers.give_up(ctx, by="ada", reason="tests")
    assert (stragglers.look(ctx), stragglers.give_up(ctx, by="bob")) == ((), ())
    (one,) = stragglers.decisions(ctx)[ORDERS]
    assert (one["records"], one["start"], one["end"], one["by"], one["reason"]) == (3, 40, 43, "ada", "tests")
    log.batches += [(43, 2, STRANGER)]
    (stray,) = stragglers.look(ctx)
    assert (stray.start, stray.records, log.asked[-1]) == (43, 2, {ORDERS: 43})
    assert status._stragglers(ctx, {}) == (stray,)
    lines = report._stragglers(ctx)
    assert lines["undecided"] == [f"written to the source behind the cut: {stray}"]
    assert [two["records"] for two in lines["decided"]] == [3]


def test_topics_that_the_migration_has_given_up_are_nobodys_affair(ctx: Context, log: Log) -> None:
    log.batches = [(40, 3, STRANGER)]
    lifecycle.note(ctx, [ORDERS.topic], TopicState.COMPLETED)
    assert stragglers.look(ctx) == ()
    assert EXCLUDED not in stragglers.decisions(ctx)


def test_fence_status_does_not_count_what_the_reverse_link_writes(
    ctx: Context, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof = {"ends": {ORDERS.topic: {"0": 40}}}
    fenced = FenceRecord(state=FenceState.FENCED, kind="none", names=(ORDERS.topic,), at=ctx.stamp(), proof=proof)
    record.write(ctx, WRITES, fenced)
    ends = lambda *_: SimpleNamespace(true_ends={ORDERS: SimpleNamespace(end=log.end)})  # noqa: E731
    monkeypatch.setattr(standing, "look", ends)
    back = reverse.arm(ctx).link
    back.record_fence(1, Identity(OWN, 0), at="")
    log.batches = [(40, 1, -2), (41, 10, OWN)]
    assert standing.status(ctx).exit_code == 0
    log.batches += [(51, 2, STRANGER)]
    seen = standing.status(ctx)
    assert [(one.tp, one.start, one.end, one.producers) for one in seen.written] == [(ORDERS, 51, 53, (STRANGER,))]
    assert seen.exit_code == 1


def test_command_names_them_asks_before_it_gives_them_up_and_ends_with_1_until_then(
    ctx: Context, log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from contextlib import contextmanager

    from kafka_migration.cli.commands import report as commands

    @contextmanager
    def opened(*_: object, dry_run: bool = False, **__: object) -> Any:
        ctx.dry_run = dry_run
        yield ctx

    monkeypatch.setattr(commands, "opened", opened)
    plan = tmp_path / "plan.yaml"
    plan.write_text("")

    def km(*options: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["stragglers", str(plan), *options], terminal_width=200)
        return done.exit_code, done.output

    log.batches = [(40, 3, STRANGER)]
    assert km()[0] == 1
    assert "3 records at source offsets 40 to 42" in km()[1]
    assert km("--give-up", "--dry-run") == (0, km("--give-up", "--dry-run")[1])
    assert "add --yes" in km("--give-up")[1]
    assert km()[0] == 1
    assert "given up: shop.orders-0: 3 records" in km("--give-up", "--yes")[1]
    assert km()[0] == 0
