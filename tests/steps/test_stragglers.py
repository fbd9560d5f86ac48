"""Who wrote to the source behind the cut: named and kept."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from kafka_migration.cli.app import app
from kafka_migration.cli.commands import producers as commands
from kafka_migration.domain.errors import BadInput, CouldNotFindOut, Refused, TakenOver
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Identity, PartitionEnds, TopicPartition
from kafka_migration.fence import fence as standing
from kafka_migration.fence import record
from kafka_migration.fence.bans import WRITES
from kafka_migration.fence.record import FenceRecord, FenceState
from kafka_migration.link import lifecycle, reverse, seal, stragglers, switched
from kafka_migration.link.switched import SwitchState
from kafka_migration.migration.context import Context
from kafka_migration.migration.joined import join
from kafka_migration.overview import status
from kafka_migration.plans.load import restore_plan
from kafka_migration.steps import report
from kafka_migration.wire import fetch
from kafka_migration.wire.batch import BatchHeader
from tests.handlers import handler, nothing
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
    monkeypatch.setattr(fetch, "read_headers", found.read)
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


def test_only_what_was_shown_is_given_up(ctx: Context, log: Log) -> None:
    log.batches = [(40, 3, STRANGER)]
    shown = stragglers.look(ctx)
    log.batches.append((43, 5, STRANGER))
    (given_up,) = stragglers.give_up(ctx, shown, by="ada")
    assert (given_up.start, given_up.end, given_up.records) == (40, 43, 3)
    (left,) = stragglers.look(ctx)
    assert (left.start, left.records) == (43, 5)
    assert stragglers.give_up(ctx, shown, by="bob") == ()


def test_what_was_given_up_is_kept_in_the_report_and_what_comes_after_is_named_again(ctx: Context, log: Log) -> None:
    log.batches = [(40, 3, STRANGER)]
    ctx.dry_run = True
    assert len(stragglers.give_up(ctx, stragglers.look(ctx), by="ada")) == len(stragglers.look(ctx)) == 1
    ctx.dry_run = False
    stragglers.give_up(ctx, stragglers.look(ctx), by="ada", reason="tests")
    assert (stragglers.look(ctx), stragglers.give_up(ctx, stragglers.look(ctx), by="bob")) == ((), ())
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


@pytest.fixture
def km(ctx: Context, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """The command: its exit code, and what it shows."""

    @contextmanager
    def opened(*_: object, dry_run: bool = False, **__: object) -> Any:
        ctx.dry_run = dry_run
        yield ctx

    monkeypatch.setattr(commands, "opened", opened)
    plan = tmp_path / "plan.yaml"
    plan.write_text("")

    def run(*options: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["stragglers", str(plan), *options], terminal_width=200)
        return done.exit_code, done.output

    return run


def test_command_names_them_asks_before_it_gives_them_up_and_ends_with_1_until_then(km: Any, log: Log) -> None:
    log.batches = [(40, 3, STRANGER)]
    assert km()[0] == 1
    assert "3 records at source offsets 40 to 42" in km()[1]
    assert km("--give-up", "--dry-run") == (0, km("--give-up", "--dry-run")[1])
    assert "add --yes" in km("--give-up")[1]
    assert km()[0] == 1
    assert "given up: shop.orders-0: 3 records" in km("--give-up", "--yes")[1]
    assert km()[0] == 0


class Died(BaseException):
    """What nobody catches, as nobody catches SIGKILL."""


class Copies:
    """Stands for the transactions on the target: what is committed there, who holds the transactional id, and where the
    process dies: right ``before`` or ``behind`` the commit of that number."""

    def __init__(self, log: Log) -> None:
        self.log, self.holder = log, 0
        self.copied: list[int] = []
        self.places: dict[bytes, bytes] = {}
        self.commits, self.before, self.behind = 0, -1, -1
        self.aborted: set[int] = set()
        self.too_large = -1

    def made(self, _source: Any, _target: Any, transactional_id: str, *, largest: int) -> Process:
        assert (transactional_id, largest > 0) == ("kafka-migration.shop:stragglers", True)
        return Process(self)


class Process:
    def __init__(self, copies: Copies) -> None:
        self.copies, self.number = copies, -1

    def take_over(self) -> None:
        self.copies.holder += 1
        self.number = self.copies.holder

    def progress(self) -> dict[bytes, bytes]:
        assert self.number == self.copies.holder, "read before it holds the id, or not any more"
        return dict(self.copies.places)

    def read(self, _tp: TopicPartition, start: int, end: int, batches: Any) -> Any:
        """Two offsets at a time."""
        for at in range(start, end, 2):
            upto = min(at + 2, end)
            there = [n for n in range(at, upto) if any(first <= n < last for first, last in batches)]
            yield [n for n in there if n not in self.copies.aborted], upto

    def commit(self, _tp: TopicPartition, records: Any, key: bytes, value: Any) -> Any:
        copies = self.copies
        if self.number != copies.holder:
            raise TakenOver("the forwarding of stragglers")
        if copies.too_large in records:
            raise Refused("too large")
        copies.commits += 1
        if copies.commits == copies.before:
            raise Died
        offsets = range(1_000 + len(copies.copied), 1_000 + len(copies.copied) + len(records))
        copies.copied += records
        copies.places[key] = value(offsets)
        if copies.commits == copies.behind:
            raise Died
        return offsets


@pytest.fixture
def copies(ctx: Context, log: Log, monkeypatch: pytest.MonkeyPatch) -> Copies:
    """A straggler's five records at 41 to 45, a marker, and three more from 48 on, of which one was aborted."""
    found = Copies(log)
    monkeypatch.setattr(stragglers, "Forwarder", found.made)
    target: Any = ctx.target
    target.add_topic(ORDERS.topic)
    log.batches = [(40, 1, -2), (41, 5, STRANGER), (46, 2, -2), (48, 3, STRANGER)]
    found.aborted = {49}
    return found


WANTED = [41, 42, 43, 44, 45, 48, 50]


def test_records_are_forwarded_once_and_the_decision_says_to_where(ctx: Context, copies: Copies, log: Log) -> None:
    (decision,) = stragglers.forward(ctx, by="ada", reason="orders")
    assert copies.copied == WANTED
    assert (decision["what"], decision["records"], decision["start"], decision["end"]) == ("forwarded", 7, 41, 51)
    assert (decision["target"], decision["producers"]) == ({"first": 1000, "last": 1006}, [STRANGER])
    assert (decision["by"], decision["reason"]) == ("ada", "orders")
    assert (stragglers.look(ctx), stragglers.forward(ctx, by="bob"), copies.copied) == ((), (), WANTED)
    assert [*stragglers.decisions(ctx)[ORDERS]] == [decision]
    assert "were forwarded to target offsets 1000 to 1006 by ada" in stragglers.sentence(decision)
    # What comes later is counted by itself.
    log.batches += [(51, 2, STRANGER)]
    (second,) = stragglers.forward(ctx, by="bob")
    assert (copies.copied, second["records"], second["start"]) == ([*WANTED, 51, 52], 2, 51)
    assert [one["by"] for one in stragglers.decisions(ctx)[ORDERS]] == ["ada", "bob"]


def test_reverse_links_own_records_among_them_are_not_forwarded(ctx: Context, copies: Copies, log: Log) -> None:
    reverse.arm(ctx).link.record_fence(1, Identity(OWN, 0), at="")
    log.batches += [(51, 3, OWN), (54, 1, STRANGER)]
    stragglers.forward(ctx, by="ada")
    assert copies.copied == [*WANTED, 54]


@pytest.mark.parametrize("number", [1, 2, 3, 5])
@pytest.mark.parametrize("place", ["before", "behind"])
def test_killed_around_any_commit_the_next_call_copies_the_rest_and_nothing_twice(
    ctx: Context, copies: Copies, log: Log, place: str, number: int
) -> None:
    setattr(copies, place, number)
    with pytest.raises(Died):
        stragglers.forward(ctx, by="ada")
    # The straggler goes on meanwhile.
    log.batches += [(51, 1, STRANGER)]
    (decision,) = stragglers.forward(ctx, by="ada")
    assert copies.copied == [*WANTED, 51]
    assert (decision["records"], decision["end"], decision["target"]["first"]) == (8, 52, 1000)
    assert len(stragglers.decisions(ctx)[ORDERS]) == 1


def test_killed_between_the_last_commit_and_the_journal_nothing_is_copied_twice(
    ctx: Context, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(*_: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(stragglers, "_settle", dies)
        with pytest.raises(Died):
            stragglers.forward(ctx, by="ada")
    assert (copies.copied, len(stragglers.look(ctx)), stragglers.is_forwarding(ctx)) == (WANTED, 1, True)
    (decision,) = stragglers.forward(ctx, by="ada")
    assert (copies.copied, decision["records"], stragglers.is_forwarding(ctx)) == (WANTED, 7, False)


def test_decision_that_the_process_before_notes_meanwhile_is_not_noted_once_more(
    ctx: Context, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, progress = stragglers._settle, stragglers._progress
    # The process before has copied everything, and is slow to note it.
    monkeypatch.setattr(stragglers, "_settle", lambda *_: ())
    stragglers.forward(ctx, by="ada")
    monkeypatch.setattr(stragglers, "_settle", settle)

    def noted_meanwhile(*args: Any) -> Any:
        found = progress(*args)
        settle(ctx, found)
        return found

    monkeypatch.setattr(stragglers, "_progress", noted_meanwhile)
    assert stragglers.forward(ctx, by="bob") == ()
    assert (copies.copied, len(stragglers.decisions(ctx)[ORDERS])) == (WANTED, 1)


def test_of_two_processes_the_later_goes_on_and_nothing_is_copied_twice(
    ctx: Context, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, once = Process.commit, iter([True])

    def other_comes(self: Process, *args: Any) -> Any:
        done = commit(self, *args)
        if next(once, False):
            stragglers.forward(ctx, by="bob")
        return done

    monkeypatch.setattr(Process, "commit", other_comes)
    with pytest.raises(TakenOver):
        stragglers.forward(ctx, by="ada")
    assert (copies.copied, [one["by"] for one in stragglers.decisions(ctx)[ORDERS]]) == (WANTED, ["bob"])


def test_what_is_given_up_behind_a_forwarding_that_ended_early_is_what_was_not_copied(
    ctx: Context, copies: Copies
) -> None:
    copies.too_large = 48
    with pytest.raises(Refused, match="too large"):
        stragglers.forward(ctx, by="ada")
    assert stragglers.is_forwarding(ctx)
    (left,) = stragglers.give_up(ctx, stragglers.look(ctx), by="bob")
    assert (left.start, left.records, copies.copied) == (48, 3, WANTED[:5])
    found = [(one["what"], one["records"], one["end"], one["by"]) for one in stragglers.decisions(ctx)[ORDERS]]
    assert found == [("forwarded", 5, 47, "ada"), ("given up", 3, 51, "bob")]
    assert not stragglers.is_forwarding(ctx)


def test_topic_of_the_source_that_was_made_again_is_forwarded_from_its_own_beginning(
    ctx: Context, copies: Copies
) -> None:
    key = b"shop/shop.orders/0"
    earlier = stragglers.Progress(topic_id="another", start=41, end=50, records=9, first=1, last=9)
    copies.places[key] = stragglers._stored(earlier, 50, [])
    stragglers.forward(ctx, by="ada")
    assert copies.copied == WANTED


def test_what_makes_no_sense_is_refused_before_anything_is_written(ctx: Context, copies: Copies) -> None:
    source, target = cast("Any", ctx.source), cast("Any", ctx.target)
    ends = source.ends
    source.ends = lambda tps, committed=False, **_: {
        tp: PartitionEnds(start=0, end=43 if committed else log.end, undecided=8 if committed else 0)
        for tp, log in zip(tps, [copies.log] * len(tps), strict=True)
    }
    with pytest.raises(CouldNotFindOut, match=r"transaction is open on shop\.orders-0 from offset 43"):
        stragglers.forward(ctx, by="ada")
    source.ends = ends
    target.delete_topic(ORDERS.topic)
    with pytest.raises(Refused, match=r"there is no shop\.orders-0, to which 8 records"):
        stragglers.forward(ctx, by="ada")
    target.add_topic(ORDERS.topic)
    lifecycle.note(ctx, [ORDERS.topic], TopicState.COMPLETED)
    with pytest.raises(Refused, match="does not rest behind a cut"):
        stragglers.forward(ctx, by="ada")
    assert (copies.copied, copies.holder, stragglers.is_forwarding(ctx)) == ([], 0, False)


def test_plan_that_has_not_joined_has_nothing_forwarded(ctx: Context, copies: Copies, km: Any) -> None:
    join(ctx)
    given, handlers = ctx.plan.snapshot(), [{"topics": [".*"], **asdict(handler(nothing)), "sha256": "0" * 64}]
    ctx.plan = restore_plan(given | {"source": "elsewhere"})
    assert "runs by another plan" in km("--forward", "--yes")[1]
    ctx.plan = restore_plan(given | {"handlers": handlers})
    with pytest.raises(Refused, match="changes handlers, by which records are copied"):
        stragglers.forward(ctx, by="ada")
    join(ctx)
    with pytest.raises(BadInput, match="the module of handler"):
        stragglers.forward(ctx, by="ada")
    assert (copies.copied, copies.holder, stragglers.is_forwarding(ctx)) == ([], 0, False)


def test_decision_that_ends_within_a_batch_leaves_the_rest_of_it_alone_to_be_forwarded(
    ctx: Context, copies: Copies
) -> None:
    decided = {"what": "forwarded", "start": 41, "end": 44, "records": 3}
    ctx.journal.record(stragglers.KIND, f"{ORDERS.topic}/{ORDERS.partition}", {"decided": [decided]})
    (stray,) = stragglers.look(ctx)
    assert (stray.start, stray.records) == (44, 5)
    stragglers.forward(ctx, by="ada")
    assert copies.copied == [44, 45, 48, 50]


def test_nothing_is_forwarded_within_a_switch_and_no_seal_is_taken_away_before_what_was(
    ctx: Context, copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way = SimpleNamespace(state=SwitchState.SWITCHING, command="switch")
    with monkeypatch.context() as patch:
        patch.setattr(switched, "last", lambda _ctx: under_way)
        with pytest.raises(Refused, match="a switch of producers is not over"):
            stragglers.forward(ctx, by="ada")
    assert (copies.copied, stragglers.forwarded_behind(ctx)) == ([], ())
    stragglers.forward(ctx, by="ada")
    with pytest.raises(Refused, match="stays sealed: records of stragglers were forwarded"):
        seal.undo(ctx)
    assert ctx.link.seal() is not None


def test_sealed_reverse_link_leaves_nothing_to_forward(ctx: Context, copies: Copies) -> None:
    reverse.arm(ctx).link.record_seal(Seal(at="later", ends={}))
    with pytest.raises(Refused, match="does not rest behind a cut"):
        stragglers.forward(ctx, by="ada")
    assert copies.holder == 0


def test_command_forwards_once_it_was_asked_and_not_together_with_giving_up(
    ctx: Context, copies: Copies, km: Any
) -> None:
    assert km("--forward", "--give-up")[0] == 2
    copies.behind = 2
    with pytest.raises(Died):
        stragglers.forward(ctx, by="ada")
    assert "a forwarding of these records has begun and not ended" in km()[1]
    code, text = km("--forward", "--dry-run")
    assert (code, "would be forwarded: shop.orders-0: 8 records" in text, copies.holder) == (0, True, 1)
    assert "add --yes" in km("--forward")[1]
    code, text = km("--forward", "--yes", "--as", "ada")
    assert (code, "7 records" in text, "were forwarded to target offsets 1000 to 1006 by ada" in text) == (
        0,
        True,
        True,
    )
    assert "nothing stands on the source" in km("--forward", "--yes")[1]
    assert copies.copied == WANTED
