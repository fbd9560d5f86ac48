"""Cancelling: what is deleted, what is left, what is refused, and that a migration can begin again afterwards."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kafka_migration.approvals import approvals
from kafka_migration.approvals.evidence import GateName
from kafka_migration.approvals.passing import NotApproved
from kafka_migration.domain.errors import CouldNotFindOut, Refused
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Desired, TopicPartition, TopicSpec
from kafka_migration.fence import record
from kafka_migration.fence.bans import EARLY_WRITES, REHEARSAL, Ban
from kafka_migration.fence.record import FenceRecord, FenceState
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.link import lifecycle, reverse, seal
from kafka_migration.link.claim import LATE_SECONDS
from kafka_migration.migration import cancellation
from kafka_migration.migration.context import Context
from kafka_migration.overview import status
from kafka_migration.state.journal import Journal
from kafka_migration.state.link import LinkState, LinkTopic
from kafka_migration.steps import cancel, controls, mirror, report, runner
from kafka_migration.topics import create, delete, keeping
from kafka_migration.topics.declared import INTENT, KIND
from kafka_migration.topics.specs import Declared
from tests.steps import histories
from tests.steps.gates import Migration
from tests.steps.killing import Killed, Killer, MortalCluster, MortalStore

TOPICS = ["shop.orders", "shop.payments"]


class Fence:
    """Stands for the fence on brokers (tests/steps/test_cancel_on_brokers.py): which partitions it was asked for, and
    what it finds."""

    def __init__(self) -> None:
        self.asked: list[list[TopicPartition]] = []
        self.foreign: dict[TopicPartition, str] = {}

    def cut_off(self, ctx: Context, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        self.asked.append(sorted(partitions))
        if ctx.link.seal() is None:
            ctx.link.record_seal(Seal(at=ctx.stamp(), ends={}))
        return self.foreign


class StoredLink(LinkState):
    """As if it stood on brokers."""

    is_stored = True


@pytest.fixture(autouse=True)
def fence(monkeypatch: pytest.MonkeyPatch) -> Fence:
    found = Fence()
    monkeypatch.setattr(seal, "cut_off", found.cut_off)
    return found


@pytest.fixture
def shop() -> Migration:
    """Created and pinned; its mirror has ended."""
    shop = Migration()
    histories.created(shop)
    mirrored(shop)
    return shop


def mirrored(shop: Migration) -> None:
    ctx = shop.ctx()
    here, there = ctx.source.topics(), ctx.target.topics()
    topics = [
        LinkTopic(name=name, source_id=uuid.UUID(here[name].topic_id), target_id=uuid.UUID(there[name].topic_id))
        for name in sorted(ctx.journal.all(KIND))
    ]
    ctx.link.pin(source_cluster="s", target_cluster="t", topics=topics, at=ctx.stamp())
    ctx.link.record_run({"state": "ended", "reason": "stopped", "at": ctx.stamp()})
    lifecycle.note(ctx, [topic.name for topic in topics], TopicState.MIRRORING)


def cancelled(shop: Migration, **options: Any) -> cancel.Cancelled:
    done: cancel.Cancelled = cancel.run(shop.ctx(), **{"by": "ada", **options}).value
    return done


def everything(shop: Migration) -> tuple[Any, ...]:
    return (shop.store.items(), shop.links.items(), shop.target.topic_names(), shop.target.changes.copy())


def test_topics_that_the_migration_created_are_deleted_its_locks_given_up_and_its_history_kept(
    shop: Migration, fence: Fence
) -> None:
    shop.target.add_topic("shop.foreign")
    shop.target.add_topic("other")
    done = cancelled(shop, reason="too early")
    assert shop.target.topic_names() == ["other", "shop.foreign"]
    ctx = shop.ctx()
    assert ctx.journal.holders(TOPICS) == {}
    assert fence.asked == [[*histories.ORDERS, histories.PAYMENTS]]
    assert ctx.link.topics() == {}
    assert done.cancellation is not None
    assert dict(done.cancellation.topics) == dict.fromkeys(TOPICS, "deleted")
    page = status.read(ctx)
    assert page.cancelled == done.cancellation
    assert (page.topics, page.states, page.mirror.ended_as) == (0, {}, "cancelled")
    assert [phase.name for phase in page.phases] == ["create_targets", "cancel"]
    assert [(one.approver, one.answer) for one in page.approvals] == [("ada", "approved")]
    built = report.build(ctx)
    (line,) = built["exceptions"]
    assert line.startswith("the migration was cancelled by ada at 2030-01-01")
    assert line.endswith("(too early)")
    assert "too early" in report.as_html(built)
    # Who waits for an answer is not asked again and again about what is over.
    for gate in set(GateName) - {GateName.PLAN}:
        with pytest.raises(Refused, match="cancelled by ada"):
            approvals.evidence(ctx, gate)
    assert approvals.evidence(ctx, GateName.PLAN)


def test_adopted_topic_stays_as_it_is_and_is_named_with_what_it_had_before() -> None:
    shop = Migration()
    shop.target.add_topic("shop.payments", partitions=1, configs={"retention.ms": "1000"})
    ctx = shop.ctx(topics={"include": [r"shop\..*"], "adopt": ["shop.payments"]})
    create.apply(ctx)
    mirrored(shop)
    shop.target.append(histories.PAYMENTS, 10)
    done = cancelled(shop)
    assert shop.target.topic_names() == ["shop.payments"]
    assert done.cancellation is not None
    assert done.cancellation.topics["shop.payments"] == "left: this migration adopted it, and did not create it"
    assert any("shop.payments had retention.ms=1000 before it was adopted" in text for text in done.cancellation.left)
    assert any("shop.payments: left" in text for text in report.build(shop.ctx())["exceptions"])


def test_kept_topics_stay_and_are_named_as_open(shop: Migration) -> None:
    done = cancelled(shop, keep_topics=True)
    assert shop.target.topic_names() == TOPICS
    assert done.cancellation is not None
    assert "retention is still disabled" in done.cancellation.left[0]
    assert shop.ctx().journal.holders(TOPICS) == {}


def test_topic_that_was_created_just_before_a_process_died_goes_if_it_is_as_meant_and_stays_if_not(
    shop: Migration,
) -> None:
    ctx = shop.ctx()
    for name in TOPICS:
        record = ctx.journal.read(KIND, name) or {}
        ctx.journal.record(INTENT, name, Declared.from_dict(name, record).as_dict() | {"at": ctx.stamp()})
        ctx.journal.forget(KIND, name)
        ctx.link.unpin([name])
    shop.target.alter_configs("shop.payments", set={"segment.bytes": "5"})
    cancelled(shop)
    assert shop.target.topic_names() == ["shop.payments"]


def test_topic_that_was_recreated_or_that_another_migration_holds_is_left(shop: Migration) -> None:
    shop.target.delete_topic("shop.orders")
    shop.make_target_topic(TopicSpec(name="shop.orders", partitions=2, replication_factor=1))
    ctx = shop.ctx()
    ctx.journal.unlock(["shop.payments"])
    Journal(shop.store, "other").lock(["shop.payments"], at="now")
    cancelled(shop)
    assert shop.target.topic_names() == TOPICS
    assert shop.ctx().journal.holders(TOPICS) == {"shop.payments": "other"}


def _served(shop: Migration) -> None:
    ctx = shop.ctx()
    for state in (TopicState.FENCED, TopicState.DRAINED, TopicState.SEALED, TopicState.SERVED):
        lifecycle.note(ctx, ["shop.orders"], state)


def _released_after_the_seal(shop: Migration) -> None:
    ctx = shop.ctx()
    for state in (TopicState.DRAINED, TopicState.SEALED, TopicState.COMPLETED):
        lifecycle.note(ctx, TOPICS, state)


def _never_mirrored(shop: Migration) -> None:
    shop.ctx().link.unpin(["shop.payments"])
    shop.target.append(histories.PAYMENTS, 3)


IN_THE_WAY: dict[str, tuple[Callable[[Migration], object], str]] = {
    "moved": (histories.moved, r"groups were moved, or are being moved: shop\.app"),
    "half": (lambda shop: histories.moved(shop, upto=Step.STOPPING), r"are being moved: shop\.app"),
    "undoing": (lambda shop: histories.moved(shop, upto=Step.UNDOING), r"are being moved: shop\.app"),
    "fence": (
        lambda shop: shop.ctx().journal.record("fence", "acl", {"state": "fencing"}),
        "producers of the source are fenced: acl",
    ),
    "fence of no known form": (
        lambda shop: shop.ctx().journal.record("fence", "acl", {}),
        "producers of the source are fenced: acl",
    ),
    "served": (_served, r"shop\.orders is served by the target"),
    "released": (_released_after_the_seal, r"shop\.orders is completed"),
    "commits": (
        lambda shop: shop.target.consumer_commits("billing", histories.PAYMENTS, 0),
        "groups use these topics on the target: billing",
    ),
    "members": (
        lambda shop: shop.target.join("billing", ["shop.orders"]),
        "groups use these topics on the target: billing",
    ),
    "halt": (
        lambda shop: shop.ctx().link.halt(histories.PAYMENTS, "FOREIGN_WRITER", "", 3, 7, "now"),
        r"somebody else wrote to the target: shop\.payments-0 at offset 7",
    ),
    "never mirrored": (_never_mirrored, r"shop\.payments-0 holds 3 records, and was never mirrored"),
    "producer": (
        lambda shop: shop.target.transaction("theirs", [histories.PAYMENTS]),
        r"shop\.payments-0 \(producers 1\)",
    ),
}


@pytest.mark.parametrize("what", IN_THE_WAY)
def test_what_is_in_the_way_is_refused_and_named_before_anything_is_changed(shop: Migration, what: str) -> None:
    happens, message = IN_THE_WAY[what]
    happens(shop)
    before = everything(shop)
    with pytest.raises(Refused, match=message) as refused:
        cancelled(shop)
    assert refused.value.remedy
    assert everything(shop) == before


def test_migration_that_has_not_begun_is_refused() -> None:
    with pytest.raises(Refused, match="has not begun"):
        cancelled(Migration())


def test_group_that_was_moved_back_and_a_fence_that_was_lifted_are_in_nobodys_way(shop: Migration) -> None:
    histories.moved(shop, upto=Step.UNDONE)
    for tp in histories.ORDERS:
        shop.target.consumer_commits("shop.app", tp, 41 + 10 * tp.partition)
    shop.ctx().journal.record("fence", "acl", {"state": "lifted"})
    cancelled(shop)
    assert shop.target.topic_names() == []


def test_topics_that_others_use_may_be_kept(shop: Migration) -> None:
    shop.target.consumer_commits("billing", histories.PAYMENTS, 0)
    cancelled(shop, keep_topics=True)
    assert shop.target.topic_names() == TOPICS


def _cancelled_beside(shop: Migration, ban: Ban, state: FenceState) -> FenceState | None:
    """Cancel beside a fence of this state; the state that it is left in."""
    ctx = shop.ctx()
    ctx.connect = lambda *_: getattr(shop, ban.side)
    record.write(ctx, ban, FenceRecord(state=state, kind="acl_deny", names=(), at=ctx.stamp()))
    cancel.apply(ctx, by="ada")
    assert record.standing(ctx) == {}
    found = record.read(ctx, ban)
    return None if found is None else found.state


def test_rehearsal_of_a_switch_that_was_killed_is_in_nobodys_way_and_ends(shop: Migration) -> None:
    assert _cancelled_beside(shop, REHEARSAL, FenceState.FENCING) is FenceState.LIFTED


def test_what_keeps_clients_off_the_target_is_lifted_and_no_obstacle(shop: Migration) -> None:
    assert _cancelled_beside(shop, EARLY_WRITES, FenceState.FENCED) is FenceState.LIFTED


def test_records_of_somebody_else_that_the_fence_finds_keep_every_topic(shop: Migration, fence: Fence) -> None:
    fence.foreign = {histories.PAYMENTS: "a batch of producer 9"}
    with pytest.raises(Refused, match=r"no topic was deleted.*shop\.payments-0: a batch of producer 9"):
        cancelled(shop)
    assert shop.target.topic_names() == TOPICS
    with pytest.raises(Refused, match="is being cancelled") as refused:
        mirror.check(shop.ctx())
    assert "`cancel --keep-topics`" in refused.value.remedy
    shop.target.delete_topic("shop.payments")
    fence.foreign = {}
    cancelled(shop)
    assert shop.target.topic_names() == []


def test_cancellation_that_others_records_hold_up_is_finished_with_the_topics_kept(
    shop: Migration, fence: Fence
) -> None:
    fence.foreign = {histories.PAYMENTS: "a batch of producer -1"}
    for _ in range(2):
        with pytest.raises(Refused, match="no topic was deleted"):
            cancelled(shop)
    done = cancelled(shop, keep_topics=True)
    assert done.cancellation is not None
    assert done.cancellation.state is cancellation.State.CANCELLED
    assert shop.target.topic_names() == TOPICS


def test_right_to_delete_is_looked_for_before_anything_is_changed(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        type(shop.target), "topic_operations", lambda _, names, among: {n: frozenset({"WRITE"}) for n in names}
    )
    before = everything(shop)
    with pytest.raises(Refused, match=r"missing ACL: Delete on 2 topics of the target: shop\.orders") as refused:
        cancelled(shop)
    assert "acls PLAN" in refused.value.remedy
    assert everything(shop) == before
    cancelled(shop, keep_topics=True)


def test_reverse_link_that_has_begun_is_taken_back_and_one_that_has_copied_is_in_the_way(shop: Migration) -> None:
    back = LinkState("shop:reverse", shop.links, None, None)

    def with_links() -> Context:
        ctx = shop.ctx()
        ctx.on_open_link = lambda *_: back
        ctx.link.__class__ = StoredLink
        return ctx

    pins = [LinkTopic(name=name, source_id=uuid.UUID(int=1), target_id=uuid.UUID(int=2)) for name in TOPICS]
    back.pin(source_cluster="t", target_cluster="s", topics=pins, at="")
    back.record_run({"state": "running", "at": ""})
    with pytest.raises(Refused, match="a mirror has run by the reverse link shop:reverse"):
        cancel.run(with_links(), by="ada")
    back._links.delete(back._key("run"))
    cancel.run(with_links(), by="ada")
    assert back.topics() == {}
    with pytest.raises(Refused, match="was cancelled by ada"):
        reverse.check(with_links().reverse())
    with pytest.raises(Refused, match="was cancelled by ada"):
        reverse.arm(with_links())


def test_group_that_begins_to_move_meanwhile_is_seen_and_the_cancellation_taken_back(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = cancellation.begin

    def begun(ctx: Context, **more: Any) -> cancellation.Cancellation:
        done = begin(ctx, **more)
        # It had passed its gate before.
        histories.moved(shop, upto=Step.STOPPED)
        return done

    monkeypatch.setattr(cancellation, "begin", begun)
    with pytest.raises(Refused, match=r"being moved: shop\.app"):
        cancelled(shop)
    assert cancellation.read(shop.ctx()) is None
    assert mirror.check(shop.ctx()) == TOPICS


def test_group_that_moves_between_two_topics_keeps_the_second(shop: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    one = delete.delete

    def deleted(ctx: Context, outgoing: delete.Outgoing) -> None:
        one(ctx, outgoing)
        shop.target.consumer_commits("billing", histories.PAYMENTS, 0)

    monkeypatch.setattr(delete, "delete", deleted)
    with pytest.raises(Refused, match="groups use these topics on the target: billing"):
        cancelled(shop)
    assert shop.target.topic_names() == ["shop.payments"]


def test_whatever_is_run_afterwards_is_refused_until_create_begins_again(shop: Migration) -> None:
    cancelled(shop, reason="too early")
    for name in ("cut_over", "validate", "restore", "release"):
        with pytest.raises(Refused, match=r"shop was cancelled by ada at 2030.* \(too early\)") as refused:
            runner.run(shop.ctx(), name)
        assert "`create`" in refused.value.remedy
    with pytest.raises(Refused, match="was cancelled by ada"):
        runner.wait(shop.ctx(), "stop_mirror")
    held: tuple[Callable[[], object], ...] = (
        lambda: mirror.check(shop.ctx()),
        lambda: controls.pause(shop.ctx(), by="bob"),
        lambda: controls.resume(shop.ctx(), by="bob"),
        lambda: controls.throttle(shop.ctx(), 1000, by="bob"),
    )
    for call in held:
        with pytest.raises(Refused, match="was cancelled by ada"):
            call()
    with pytest.raises(Refused, match="was cancelled by ada"):
        approvals.check(shop.ctx(), GateName.CUTOVER)
    # Its approval was of a migration that is over.
    with pytest.raises(NotApproved, match="before the migration was cancelled"):
        runner.run(shop.ctx(), "create_targets")
    assert shop.target.topic_names() == []
    shop.clock.sleep(60)
    ctx = shop.ctx()
    seen = approvals.evidence(ctx, GateName.PLAN)
    approvals.record(ctx, GateName.PLAN, seen.digest, "ada", seen_at=seen.taken_at)
    runner.run(shop.ctx(), "create_targets")
    assert shop.target.topic_names() == TOPICS
    ctx = shop.ctx()
    assert mirror.check(ctx) == TOPICS
    seal.check(ctx)
    mirror._take_back_obeyed_wish(ctx)
    assert ctx.link.wished().desired is Desired.RUN
    mirrored(shop)
    assert ctx.link.topics()["shop.orders"].target_id == uuid.UUID(ctx.target.topics()["shop.orders"].topic_id)
    assert "has begun again since" in str(status.read(ctx).cancelled)
    assert not any("was cancelled" in text for text in report.build(ctx)["exceptions"])
    # And may end so once more, with both ends remembered.
    done = cancelled(shop, by="bob")
    assert done.cancellation is not None
    assert [one["by"] for one in done.cancellation.earlier] == ["ada"]
    assert shop.target.topic_names() == []


def test_run_of_a_dag_that_began_before_does_not_begin_again() -> None:
    shop = Migration()
    nobody_asked: dict[str, Any] = {"approvals": {"plan": False}}
    runner.run(shop.ctx(**nobody_asked), "create_targets", run_of_plan="dag/one")
    shop.clock.sleep(60)
    cancelled(shop)
    with pytest.raises(Refused, match="this run began before migration shop was cancelled") as refused:
        runner.run(shop.ctx(**nobody_asked), "create_targets", run_of_plan="dag/one")
    assert "new run" in refused.value.remedy
    assert shop.target.topic_names() == []
    runner.run(shop.ctx(**nobody_asked), "create_targets", run_of_plan="dag/two")
    assert shop.target.topic_names() == TOPICS


def test_create_that_runs_meanwhile_creates_nothing_more(shop: Migration) -> None:
    cancelled(shop)
    ctx = shop.ctx()
    with pytest.raises(Refused, match="was cancelled"):
        create.take(ctx, create.check(ctx))
    assert (shop.target.topic_names(), ctx.journal.holders(TOPICS)) == ([], {})


def test_another_migration_may_take_the_topics(shop: Migration) -> None:
    cancelled(shop)
    ctx = shop.ctx(name="other")
    ctx.journal, ctx.link = Journal(shop.store, "other"), LinkState("other", shop.links, None, None)
    create.apply(ctx)
    assert ctx.journal.holders(TOPICS) == dict.fromkeys(TOPICS, "other")


def test_second_call_changes_nothing(shop: Migration) -> None:
    first = cancelled(shop)
    before = everything(shop)
    again = cancelled(shop, by="bob", reason="again")
    assert (again.is_new, again.cancellation) == (False, first.cancellation)
    assert everything(shop) == before


def test_dry_run_shows_the_steps_of_the_real_one_and_changes_nothing(shop: Migration) -> None:
    before = everything(shop)
    shop.told.clear()
    cancel.run(shop.ctx(dry_run=True), by="ada")
    shown, shop.told = shop.told, []
    assert everything(shop) == before
    cancelled(shop)
    assert shown == shop.told[: len(shown)]
    assert "delete shop.orders on the target (2 partitions)" in shown


def test_mirror_is_asked_to_end_and_one_that_does_not_keeps_everything(shop: Migration) -> None:
    link = shop.ctx().link
    link.record_run({"state": "running", "at": shop.ctx().stamp()})
    for second in range(0, 100, 5):
        shop.clock.at(second, lambda: link.record_run({"state": "running", "at": shop.ctx().stamp()}))
    with pytest.raises(CouldNotFindOut, match="did not end within 60 s"):
        cancelled(shop)
    assert shop.target.topic_names() == TOPICS
    shop.clock.at(2, lambda: link.record_run({"state": "ended", "at": shop.ctx().stamp(), "reason": "stopped"}))
    shop.clock.sleep(100)
    cancelled(shop)
    assert shop.target.topic_names() == []


def test_what_a_mirror_sent_that_died_is_waited_for_once_before_a_topic_goes(shop: Migration) -> None:
    shop.ctx().link.claim("dead", at="now")
    began = shop.clock.monotonic()
    cancelled(shop)
    assert shop.clock.monotonic() - began >= LATE_SECONDS == 10 + 30 + 5 * 20 + 5
    assert not any(shop.ctx().link.attempts().values())


class MortalTarget(MortalCluster):
    """Dies around the deletion of topics."""

    def __init__(self, cluster: Any, killer: Killer) -> None:
        super().__init__(cluster, killer)
        self.delete_topics = killer.around(cluster.delete_topics)


def _mortal(shop: Migration, killer: Killer) -> Context:
    ctx = shop.ctx()
    ctx.target = MortalTarget(shop.target, killer)  # type: ignore[assignment]
    ctx.journal = Journal(MortalStore(shop.store, killer), "shop")
    ctx.link = LinkState("shop", MortalStore(shop.links, killer), None, None, selects=ctx.plan.topics.matches)
    return ctx


def test_killed_at_any_change_the_same_command_goes_on_to_the_same_end() -> None:
    at, deaths = 0, 0
    while True:
        at += 1
        shop = Migration()
        create.apply(shop.ctx(topics={"include": [r"shop\..*"]}))
        mirrored(shop)
        shop.ctx().link.halt(histories.PAYMENTS, "CORRUPT", "", 3, 7, "now")
        killer = Killer(at)
        try:
            cancel.run(_mortal(shop, killer), by="ada", reason="first")
        except Killed:
            deaths += 1
            if cancellation.read(shop.ctx()) is not None:
                # Whatever is left, nothing else goes on with it meanwhile.
                with pytest.raises(Refused):
                    mirror.check(shop.ctx())
            cancelled(shop, by="bob", reason="second")
        ctx = shop.ctx()
        found = cancellation.read(ctx)
        assert found is not None, at
        assert found.state is cancellation.State.CANCELLED, at
        assert dict(found.topics) == dict.fromkeys(TOPICS, "deleted"), at
        assert (shop.target.topic_names(), ctx.journal.holders(TOPICS)) == ([], {}), at
        assert (ctx.link.topics(), ctx.link.halts()) == ({}, {}), at
        assert not any(ctx.journal.all(kind) for kind in (KIND, INTENT, lifecycle.KIND)), at
        create.apply(_begun_again(shop))
        assert shop.target.topic_names() == TOPICS, at
        if killer.seen < at:
            break
    assert deaths > 30


def _begun_again(shop: Migration) -> Context:
    ctx = shop.ctx()
    cancel.begin_again(ctx)
    return ctx


def test_killed_at_any_change_a_migration_that_begins_again_does_so_with_the_next_call(shop: Migration) -> None:
    cancelled(shop)
    at = 0
    while True:
        at += 1
        killer = Killer(at)
        try:
            cancel.begin_again(_mortal(shop, killer))
        except Killed:
            continue
        break
    assert at > 2
    seal.check(shop.ctx())
    cancellation.require_none(shop.ctx())


def test_records_of_groups_survive(shop: Migration) -> None:
    histories.moved(shop, upto=Step.UNDONE)
    cancelled(shop)
    assert GroupRecord.load(shop.ctx().journal, "shop.app").has(Step.UNDONE)


def test_sources_topics_get_their_configs_back_where_a_reverse_mirror_ended_before_it_ran(shop: Migration) -> None:
    shop.source.alter_configs("shop.orders", set={"retention.ms": "-1"})
    noted = {"before": {"retention.ms": None}, "set": {"retention.ms": "-1"}}
    shop.ctx().journal.record(keeping.KIND, "shop.orders", noted)
    cancelled(shop)
    assert shop.source.topic_configs(["shop.orders"])["shop.orders"]["retention.ms"].value != "-1"
    assert shop.ctx().journal.all(keeping.KIND) == {}
