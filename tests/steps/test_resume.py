"""Halted partitions that go on: what is given up is said before, kept after, and shown wherever a person looks."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest

from kafka_migration.approvals import approvals
from kafka_migration.approvals.evidence import GateName
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import BadInput, Refused
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.openings import Openings
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Halt, TopicPartition
from kafka_migration.link import halts, lag
from kafka_migration.link.losses import losses, sentence
from kafka_migration.migration.context import Context
from kafka_migration.overview import status
from kafka_migration.state.link import LinkState, LinkTopic
from kafka_migration.steps import controls, report
from tests.steps import histories
from tests.steps.gates import Migration
from tests.steps.killing import Killed, Killer, MortalStore

ORDERS, OTHER = histories.ORDERS


@pytest.fixture
def shop() -> Migration:
    """Created, pinned, and halted: retention was faster in one partition, the target refuses a batch in another."""
    shop = Migration()
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
    shop.source.delete_records(ORDERS, 40)
    ctx.link.halt(ORDERS, "DATA_LOSS", "the log now starts at 40", 0, 1, ctx.stamp())
    ctx.link.halt(OTHER, "REFUSED", "too large", 0, 1, ctx.stamp())
    return shop


def test_lost_records_are_given_up_where_the_source_begins_now(shop: Migration) -> None:
    (done,) = controls.resume_halted(shop.ctx(), accept_loss=["shop.orders"], by="ada")
    assert (done.tp, done.stands, done.at, done.given_up, done.still_there) == (ORDERS, 40, 40, 0, 0)
    assert shop.ctx().link.halted() == {OTHER}


def _stood_at(shop: Migration, offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from kafka_migration.domain.types import Position

    position = Position(source=offset, target=offset + 1, fence=0, records=offset)
    monkeypatch.setattr(LinkState, "positions", lambda _self: dict.fromkeys(histories.ORDERS, position))


def test_what_is_given_up_is_told_and_kept_with_offsets_name_and_reason(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stood_at(shop, 10, monkeypatch)
    controls.resume_halted(shop.ctx(), at=[(OTHER, 25)], accept_loss=["shop.orders:0"], by="ada")
    ctx = shop.ctx()
    assert ctx.link.halts() == {}
    assert shop.told[-2:] == [
        "shop.orders-0: resume at source offset 40 (halted: DATA_LOSS at 10); offsets 10..40 are given up: 30",
        (
            "shop.orders-1: resume at source offset 25 (halted: REFUSED at 10); offsets 10..25 are given up: 15,"
            " 15 of them still on the source"
        ),
    ]
    assert {tp: [(it.start, it.end, it.halt, it.by) for it in found] for tp, found in ctx.link.skips().items()} == {
        ORDERS: [(10, 40, "DATA_LOSS", "ada")],
        OTHER: [(10, 25, "REFUSED", "ada")],
    }


def test_report_status_and_cutover_evidence_tell_what_was_given_up(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stood_at(shop, 10, monkeypatch)
    controls.resume_halted(shop.ctx(), accept_loss=["shop.orders:0"], by="ada")
    monkeypatch.undo()
    ctx = shop.ctx()
    (loss,) = report.build(ctx)["losses"]
    assert (loss["start"], loss["end"], loss["offsets"], loss["by"]) == (10, 40, 30, "ada")
    assert any("10..40 (30 at most) were given up by ada" in text for text in report.build(ctx)["exceptions"])
    assert "given up" in report.as_html(report.build(ctx))
    assert [it["partition"] for it in status.read(ctx).losses] == [0]
    evidence = approvals.evidence(ctx, GateName.CUTOVER)
    (check,) = [it for it in evidence.checks.results if it.name == "no records were given up"]
    assert (str(check.verdict), "10..40" in check.evidence) == ("WARN", True)
    assert "shop.orders-0 10" in evidence.facts["given up"]


def test_dry_run_says_the_same_and_changes_nothing(shop: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    _stood_at(shop, 10, monkeypatch)
    before = (shop.store.items(), shop.links.items())
    (todo,) = controls.resume_halted(shop.ctx(dry_run=True), accept_loss=["shop.orders"], by="ada")
    assert shop.told[-1] == str(todo)
    assert (shop.store.items(), shop.links.items()) == before


def test_copy_that_is_tried_again_where_it_stands_gives_nothing_up(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stood_at(shop, 10, monkeypatch)
    (done,) = controls.resume_halted(shop.ctx(), at=[(OTHER, 10)], by="ada")
    assert (done.given_up, str(done).endswith("nothing is given up")) == (0, True)
    assert shop.ctx().link.skips() == {}
    assert shop.ctx().link.halted() == {ORDERS}


@pytest.mark.parametrize(
    ("offset", "said"),
    [(9, "is copied up to source offset 10 already"), (101, r"has source offsets 0\.\.100")],
)
def test_offset_that_is_copied_or_not_there_is_refused(
    shop: Migration, monkeypatch: pytest.MonkeyPatch, offset: int, said: str
) -> None:
    _stood_at(shop, 10, monkeypatch)
    with pytest.raises(BadInput, match=said):
        controls.resume_halted(shop.ctx(), at=[(OTHER, offset)], by="ada")
    assert shop.ctx().link.halted() == {ORDERS, OTHER}


def test_copy_may_go_on_behind_everything_that_the_source_has(shop: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    _stood_at(shop, 10, monkeypatch)
    (it,) = controls.check_halted(shop.ctx(), at=[(OTHER, 100)])
    assert (it.at, it.given_up, it.still_there) == (100, 90, 90)


def test_partition_that_is_not_halted_is_refused(shop: Migration) -> None:
    with pytest.raises(Refused, match="is not halted"):
        controls.resume_halted(shop.ctx(), at=[(histories.PAYMENTS, 3)], by="ada")
    with pytest.raises(Refused, match=r"no records of shop.payments were lost .*\(not halted\)"):
        controls.resume_halted(shop.ctx(), accept_loss=["shop.payments"], by="ada")


def test_halt_for_another_reason_wants_an_offset(shop: Migration) -> None:
    with pytest.raises(Refused, match=r"(?s)shop\.orders-1 REFUSED.*resume --at"):
        controls.resume_halted(shop.ctx(), accept_loss=["shop.orders:1"], by="ada")


def test_partition_named_twice_is_bad_input(shop: Migration) -> None:
    with pytest.raises(BadInput, match="named twice"):
        controls.resume_halted(shop.ctx(), at=[(ORDERS, 50)], accept_loss=["shop.orders"], by="ada")


@pytest.mark.parametrize(
    "reason",
    ["FOREIGN_WRITER", "DUPLICATED", "LOG_REGRESSED", "ALTERED", "TRUNCATED"],
)
def test_halt_after_which_both_logs_do_not_go_together_names_the_copy_afresh(shop: Migration, reason: str) -> None:
    shop.ctx().link.halt(OTHER, reason, "", 10, 11, "")
    with pytest.raises(Refused, match=r"mirror --again shop\.orders"):
        controls.resume_halted(shop.ctx(), at=[(OTHER, 50)], by="ada")


@pytest.mark.parametrize("reason", ["RECREATED", "TOPIC_MISSING"])
def test_halt_of_a_topic_that_was_gone_is_lifted_where_the_pinned_ids_are_there(
    shop: Migration, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    _stood_at(shop, 10, monkeypatch)
    ctx = shop.ctx()
    ctx.link.halt(OTHER, reason, "", 10, 11, "")
    ids = ctx.link.topics()[OTHER.topic]
    unknown = [str(ids.source_id), ""]
    with monkeypatch.context() as patch:
        patch.setattr(controls, "topic_ids", lambda *_: {OTHER.topic: unknown})
        with pytest.raises(Refused, match=r"nothing proves .*(?s:.*)mirror --again shop\.orders"):
            controls.resume_halted(ctx, at=[(OTHER, 10)], by="ada")
    assert [one.given_up for one in controls.resume_halted(ctx, at=[(OTHER, 10)], by="ada")] == [0]
    assert OTHER not in ctx.link.halted()


@pytest.mark.parametrize("restored", [False, True])
def test_records_that_are_gone_on_the_target_count_unless_they_were_to_expire_after_restoring(
    shop: Migration, monkeypatch: pytest.MonkeyPatch, restored: bool
) -> None:
    _stood_at(shop, 10, monkeypatch)
    ctx = shop.ctx()
    opening = RunOpening(fence=0, records=0, source=0, target=1, closes=0)
    monkeypatch.setattr(LinkState, "openings", lambda _self: {OTHER: Openings([opening])})
    ctx.link.halt(OTHER, "CONFIG_DRIFT", "retention.ms", 10, 11, ctx.stamp())
    shop.target.append(OTHER, 11)
    shop.target.delete_records(OTHER, 5)
    if restored:
        record = ctx.journal.read("topic", OTHER.topic)
        assert record is not None
        ctx.journal.record("topic", OTHER.topic, record | {"restored_at": ctx.stamp()})
        assert [one.given_up for one in controls.resume_halted(ctx, at=[(OTHER, 10)], by="ada")] == [0]
    else:
        with pytest.raises(Refused, match=r"(?s)records are gone.* begins at 5.*--again shop\.orders"):
            controls.resume_halted(ctx, at=[(OTHER, 10)], by="ada")
    assert (OTHER in ctx.link.halted()) is not restored


def test_topic_whose_brokers_knew_no_ids_when_it_was_mirrored_first_is_no_other_one_now(shop: Migration) -> None:
    """Its clusters were updated since."""
    ctx = shop.ctx()
    ctx.link.pin_again([LinkTopic.of("shop.orders", "", "")], at=ctx.stamp())
    ctx.link.halt(OTHER, "REFUSED", "too large", 0, 1, ctx.stamp())
    controls.resume_halted(shop.ctx(), at=[(OTHER, 50)], by="ada")
    assert OTHER not in shop.ctx().link.halted()


def test_topic_that_was_made_again_meanwhile_is_refused(shop: Migration) -> None:
    shop.source.delete_topic("shop.orders")
    shop.source.add_topic("shop.orders", partitions=2)
    with pytest.raises(Refused, match=r"(?s)another one now.*mirror --again"):
        controls.resume_halted(shop.ctx(), at=[(OTHER, 0)], by="ada")


def test_sealed_link_is_left_alone(shop: Migration) -> None:
    shop.ctx().link.record_seal(Seal(at="noon", ends={}))
    with pytest.raises(Refused, match="sealed"):
        controls.resume_halted(shop.ctx(), accept_loss=["shop.orders"], by="ada")


@pytest.mark.parametrize("at", range(1, 5))
def test_killed_anywhere_the_partition_is_halted_or_goes_on_behind_what_was_kept(
    shop: Migration, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    _stood_at(shop, 10, monkeypatch)
    ctx = shop.ctx()
    ctx.link = LinkState("shop", MortalStore(shop.links, Killer(at)), None, None)
    with pytest.raises(Killed):
        controls.resume_halted(ctx, accept_loss=["shop.orders"], by="ada")
    link = shop.ctx().link
    assert ORDERS in link.halted() or ORDERS in link.skips()
    if ORDERS in link.halted():
        controls.resume_halted(shop.ctx(), accept_loss=["shop.orders"], by="ada")
    assert [(it.start, it.end) for it in shop.ctx().link.skips()[ORDERS]] == [(10, 40)]


def test_topic_that_is_copied_afresh_has_nothing_given_up(shop: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    _stood_at(shop, 10, monkeypatch)
    controls.resume_halted(shop.ctx(), accept_loss=["shop.orders"], by="ada")
    link = shop.ctx().link
    pinned = link.topics()["shop.orders"]
    link.pin_again([LinkTopic(name=pinned.name, source_id=pinned.source_id, target_id=uuid.uuid4())], at="")
    assert link.skips() == {}


@pytest.mark.parametrize("reason", list(Halt))
def test_status_and_lag_say_what_can_be_done_about_every_halt(shop: Migration, reason: Halt) -> None:
    ctx = shop.ctx()
    ctx.link.halt(histories.PAYMENTS, str(reason), "", 10, 11, ctx.stamp())
    told: dict[str, Any] = lag.LagMeter(ctx).read().as_dict()
    (shown,) = [it for it in status.read(ctx).halts if it.partition == str(histories.PAYMENTS)]
    assert told["halted"][str(histories.PAYMENTS)] == reason
    assert told["remedies"][reason] == shown.remedy != ""


def test_partition_is_a_number_in_what_accepts_a_loss(shop: Migration) -> None:
    with pytest.raises(BadInput, match="TOPIC or TOPIC:PARTITION"):
        controls.resume_halted(shop.ctx(), accept_loss=["shop.orders:first"], by="ada")


def test_unknown_partition_is_refused(shop: Migration) -> None:
    with pytest.raises(Refused, match="not halted"):
        controls.resume_halted(shop.ctx(), at=[(TopicPartition("elsewhere", 0), 1)], by="ada")


def test_losses_that_are_accepted_give_nothing_up_of_what_was_copied(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stood_at(shop, 50, monkeypatch)
    (done,) = controls.resume_halted(shop.ctx(), accept_loss=["shop.orders:0"], by="ada")
    assert (done.stands, done.at, done.given_up) == (50, 50, 0), "and not at 40, where the source begins"


# -- on the way back --------------------------------------------------------------------------------------------------


@pytest.fixture
def back(shop: Migration) -> Context:
    """As the reverse link sees it, which has copied up to offset 10 of the target; its log begins at 40 by now."""
    ctx, link = shop.ctx(), LinkState(Direction.REVERSE.own("shop"), shop.links, None, None)
    pins = [
        LinkTopic(name=name, source_id=pin.target_id, target_id=pin.source_id)
        for name, pin in ctx.link.topics().items()
    ]
    link.pin(source_cluster="t", target_cluster="s", topics=pins, at="")
    shop.target.append(ORDERS, 100)
    shop.target.delete_records(ORDERS, 40)
    link.halt(ORDERS, "DATA_LOSS", "the log now starts at 40", 10, 1, ctx.stamp())
    return replace(ctx, link=link, direction=Direction.REVERSE)


def test_what_is_lost_on_the_target_is_given_up_for_the_way_back_and_the_forward_link_stays_halted(
    shop: Migration, back: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stood_at(shop, 10, monkeypatch)
    (done,) = controls.resume_halted(back, accept_loss=["shop.orders"], by="ada")
    assert (done.side, done.stands, done.at, done.given_up) == ("target", 10, 40, 30)
    assert shop.told[-1].startswith("shop.orders-0: resume at target offset 40 (halted: DATA_LOSS at 10)")
    assert (back.link.halts(), shop.ctx().link.halted()) == ({}, {ORDERS, OTHER})
    monkeypatch.undo()
    (loss,) = losses(back)
    assert (loss["side"], "target offsets 10..40" in sentence(loss)) == ("target", True)


@pytest.mark.parametrize("reason", [halt for halt in Halt if not halts.is_resumed(halt, Direction.REVERSE)])
def test_halt_of_the_way_back_that_nothing_lifts_is_not_said_to_be_copied_again(back: Context, reason: Halt) -> None:
    back.link.halt(OTHER, str(reason), "", 10, 11, "")
    with pytest.raises(Refused, match=r"(?s)is halted for.*remedy: .*stays on the target") as caught:
        controls.resume_halted(back, at=[(OTHER, 50)], by="ada")
    assert "--again" not in str(caught.value)


@pytest.mark.parametrize("side", ["source", "target"])
def test_topic_of_the_way_back_that_is_another_one_now_is_refused(shop: Migration, back: Context, side: str) -> None:
    cluster = shop.source if side == "source" else shop.target
    cluster.delete_topic("shop.orders")
    cluster.add_topic("shop.orders", partitions=2)
    with pytest.raises(Refused, match=f"topic shop.orders on the {side} is another one now"):
        controls.check_halted(back, at=[(ORDERS, 40)])


def test_way_back_that_has_not_begun_has_nothing_to_resume(shop: Migration) -> None:
    unarmed = replace(shop.ctx(), link=LinkState("other", shop.links, None, None), direction=Direction.REVERSE)
    with pytest.raises(Refused, match="has not begun"):
        controls.check_halted(unarmed, at=[(ORDERS, 40)])


@pytest.mark.parametrize("reason", list(Halt))
def test_remedies_behind_an_earlier_cut_name_no_copy_from_the_beginning_which_is_refused_there(reason: Halt) -> None:
    here, there = halts.meaning_of(reason), halts.meaning_of(reason, Direction.FORWARD, 2)
    assert "--again" not in there.remedy
    assert ("a plan of its own" in there.remedy) is ("--again" in here.remedy)
    assert ("resume --" in there.remedy) is ("resume --" in here.remedy)


@pytest.mark.parametrize("reason", list(Halt))
def test_remedies_of_the_way_back_are_those_that_work_there(reason: Halt) -> None:
    here, there = halts.meaning_of(reason), halts.meaning_of(reason, Direction.REVERSE)
    assert "--again" not in there.remedy
    assert ("resume --reverse --" in there.remedy) is halts.is_resumed(reason, Direction.REVERSE)
    assert there.meaning != here.meaning or not {"source", "target"} & set(here.meaning.replace("'", " ").split())
