"""Approvals: what an answer is bound to, and when it does not hold (any more)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kafka_migration.approvals import approvals, passing
from kafka_migration.approvals.evidence import Evidence, GateName, differences, item, limited
from kafka_migration.approvals.passing import NotApproved
from kafka_migration.approvals.record import APPROVED, COMMAND, Approval, answers, history, write
from kafka_migration.domain.checks import Verdict
from kafka_migration.domain.errors import BadInput, ClusterUnreachable, CouldNotFindOut, StateConflict
from kafka_migration.domain.types import Desired, TopicPartition, TopicSpec
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.kafka.types import Quota
from kafka_migration.migration.history import remember_beginning
from kafka_migration.steps import outlook
from kafka_migration.topics import create
from kafka_migration.topics.declared import topic_ids
from kafka_migration.validation import verdict
from tests.steps.gates import Migration

PLAN, CUTOVER = GateName.PLAN, GateName.CUTOVER


@pytest.fixture
def shop() -> Migration:
    made = Migration()
    made.has_active_mirror = True
    return made


def approve(shop: Migration, gate: GateName, approver: str = "ada", **fields: Any) -> Approval:
    ctx = shop.ctx(**fields)
    return approvals.record(ctx, gate, approvals.evidence(ctx, gate).digest, approver)


def mirrored_and_equal(shop: Migration) -> None:
    """Everything that comes before the cutover gate has succeeded."""
    ctx = shop.ctx()
    remember_beginning(ctx, approvals.evidence(ctx, PLAN).inventory)
    create.apply(ctx)
    say_verdict(shop, "EQUAL")


def say_verdict(shop: Migration, verdict: str, *topics: str) -> None:
    counts = {"shop.orders": 2, "shop.payments": 1}
    partitions = [{"topic": name} for name in topics or counts for _ in range(counts[name])]
    totals = {"partitions": len(partitions)}
    record = {"verdict": verdict, "at": shop.ctx().stamp(), "partitions": partitions, "totals": totals, "left_out": 0}
    record |= {"topic_ids": topic_ids(shop.ctx(), counts), "level": "record"}
    record |= {"coverage": {"compared": 300, "never": 0, "least": []}}
    shop.ctx().journal.record("validation", "latest", record)


# -- when an approval holds -------------------------------------------------------------------------------------------


def test_approved_evidence_lets_pass_and_names_who_and_when(shop: Migration) -> None:
    approval = approve(shop, PLAN)
    passed = approvals.check(shop.ctx(), PLAN)
    assert passed.approval is not None
    assert (passed.approval.approver, passed.approval.digest) == ("ada", approval.digest)
    assert "approved by ada at 2030-01-01" in passed.reason


def test_records_that_flow_and_groups_that_commit_leave_an_approval_valid(shop: Migration) -> None:
    mirrored_and_equal(shop)
    approve(shop, PLAN)
    approve(shop, CUTOVER)
    before = approvals.evidence(shop.ctx(), CUTOVER)
    # Few enough for the mirror to keep up.
    shop.produce(200)
    shop.source.consumer_commits("shop.app", TopicPartition("shop.orders", 0), 90)
    member = shop.source.join("shop.app", ["shop.orders"])
    shop.clock.sleep(100)
    for gate in (PLAN, CUTOVER):
        assert approvals.check(shop.ctx(), gate).approval is not None
    after = approvals.evidence(shop.ctx(), CUTOVER)
    assert before.digest == after.digest
    assert before.tables != after.tables, "what moves is shown all the same"
    shop.source.leave("shop.app", member)
    assert approvals.check(shop.ctx(), CUTOVER).approval is not None


def test_targets_created_under_an_approval_leave_it_valid_for_a_rerun(shop: Migration) -> None:
    approve(shop, PLAN)
    create.apply(shop.ctx())
    assert approvals.check(shop.ctx(), PLAN).approval is not None


def test_warning_that_comes_and_goes_by_itself_leaves_an_approval_valid(shop: Migration) -> None:
    approve(shop, PLAN)
    # Joined, and reads a topic that it has not committed yet: a warning of the preflight.
    shop.source.join("shop.app", ["shop.payments"])
    now = approvals.evidence(shop.ctx(), PLAN)
    assert "WARN" in {str(r.verdict) for r in now.checks.results if r.name == "groups have committed"}
    assert approvals.check(shop.ctx(), PLAN).approval is not None


def test_gate_that_the_plan_does_not_ask_passes_and_says_so(shop: Migration) -> None:
    passed = approvals.check(shop.ctx(approvals={"plan": False}), PLAN)
    assert passed.approval is None
    assert passed.reason == "the plan asks nobody here (approvals.plan is false)"
    assert not passing.is_asked(shop.ctx(approvals={"plan": False}), PLAN)


# -- when there is none -----------------------------------------------------------------------------------------------


def test_no_answer_is_not_an_approval(shop: Migration) -> None:
    with pytest.raises(NotApproved, match="nobody has approved it yet") as refused:
        approvals.check(shop.ctx(), PLAN)
    assert refused.value.exit_code == 1
    assert refused.value.digest == approvals.evidence(shop.ctx(), PLAN).digest


def test_approval_of_one_gate_does_not_open_the_other(shop: Migration) -> None:
    mirrored_and_equal(shop)
    approve(shop, PLAN)
    with pytest.raises(NotApproved, match="cutover gate: nobody"):
        approvals.check(shop.ctx(), CUTOVER)


def test_digest_of_other_evidence_is_not_approved(shop: Migration) -> None:
    ctx = shop.ctx()
    with pytest.raises(NotApproved, match="the answer is for sha256:0, but the evidence is sha256:"):
        approvals.record(ctx, PLAN, "sha256:0", "ada")
    assert answers(ctx) == {}


def test_evidence_that_changed_between_showing_and_answering_is_not_approved(shop: Migration) -> None:
    seen = approvals.evidence(shop.ctx(), PLAN)
    shop.source.add_topic("shop.refunds")
    with pytest.raises(NotApproved, match="look at the evidence again"):
        approvals.record(shop.ctx(), PLAN, seen.digest, "ada", seen_at=seen.taken_at)


def test_evidence_seen_too_long_ago_is_not_approved(shop: Migration) -> None:
    seen = approvals.evidence(shop.ctx(), PLAN)
    shop.clock.sleep(3601)
    with pytest.raises(NotApproved, match=r"the evidence was taken 1:00:0\d ago, .* is 3600"):
        approvals.record(shop.ctx(), PLAN, seen.digest, "ada", seen_at=seen.taken_at)


def test_evidence_that_is_dated_in_the_future_is_not_approved(shop: Migration) -> None:
    ctx = shop.ctx()
    seen = approvals.evidence(ctx, PLAN)
    with pytest.raises(BadInput, match="cannot have been taken in the future"):
        approvals.record(ctx, PLAN, seen.digest, "ada", seen_at=ctx.clock.now() + timedelta(seconds=61), now=seen)
    # The clocks of two machines may differ.
    approvals.record(ctx, PLAN, seen.digest, "ada", seen_at=ctx.clock.now() + timedelta(seconds=59), now=seen)


def test_approver_whom_the_plan_does_not_name_is_refused(shop: Migration) -> None:
    with pytest.raises(NotApproved, match=r"eve is not one of the plan's approvers \(ada, bob\)"):
        approve(shop, PLAN, "eve", approvals={"approvers": ["ada", "bob"]})
    assert approve(shop, PLAN, "bob", approvals={"approvers": ["ada", "bob"]}).approver == "bob"


def test_approver_without_a_name_is_bad_input(shop: Migration) -> None:
    with pytest.raises(BadInput, match="an approval needs the name of its approver"):
        approve(shop, PLAN, " ")


def test_approver_whom_the_plan_names_no_longer_is_refused_at_the_gate(shop: Migration) -> None:
    approve(shop, PLAN, "eve")
    with pytest.raises(NotApproved, match=r"eve is not one of the plan's approvers \(ada\)"):
        approvals.check(shop.ctx(approvals={"approvers": ["ada"]}), PLAN)


def test_answer_of_somebody_else_opens_no_gate_though_its_evidence_is_that_of_now(shop: Migration) -> None:
    ctx = shop.ctx(approvals={"approvers": ["ada"]})
    seen = approvals.evidence(ctx, PLAN)
    write(ctx, PLAN, APPROVED, seen.digest, "eve", via=COMMAND, facts=seen.facts)
    with pytest.raises(NotApproved, match="eve is not one of"):
        approvals.check(ctx, PLAN)


def test_rejection_voids_an_earlier_approval(shop: Migration) -> None:
    digest = approve(shop, PLAN).digest
    approvals.reject(shop.ctx(), PLAN, digest, "bob")
    with pytest.raises(NotApproved, match="bob rejected it at 2030-01-01"):
        approvals.check(shop.ctx(), PLAN)
    approve(shop, PLAN)
    approvals.check(shop.ctx(), PLAN)
    assert [it["answer"] for it in history(shop.ctx())] == ["approved", "rejected", "approved"]


def test_approval_too_old_when_the_work_begins_is_refused(shop: Migration) -> None:
    approve(shop, PLAN)
    shop.clock.sleep(3700)
    with pytest.raises(NotApproved, match=r"ada approved it 1:0\d:\d\d ago, .*max_age_seconds is 3600"):
        approvals.check(shop.ctx(), PLAN)


def test_work_that_began_in_time_may_be_finished_later_but_not_much(shop: Migration) -> None:
    approve(shop, PLAN)
    shop.clock.sleep(2000)
    create.apply(shop.ctx())
    shop.clock.sleep(3000)
    approvals.check(shop.ctx(), PLAN)
    shop.clock.sleep(1000)
    with pytest.raises(NotApproved, match="ada approved it 1:40:"):
        approvals.check(shop.ctx(), PLAN)


@pytest.mark.parametrize(("gap", "holds"), [(3600, True), (3601, False)])
def test_step_later_than_the_age_after_the_one_before_is_under_no_approval(
    gap: int, holds: bool, shop: Migration
) -> None:
    mirrored_and_equal(shop)
    approval = approve(shop, CUTOVER)
    record = GroupRecord.own(shop.ctx().journal, "shop.app", at=shop.ctx().stamp())
    record.mark(Step.STOPPING, approval.at + timedelta(seconds=gap))
    shop.clock.sleep(gap + 10)
    if holds:
        approvals.check(shop.ctx(), CUTOVER)
        return
    with pytest.raises(NotApproved, match="ada approved it 1:00:1"):
        approvals.check(shop.ctx(), CUTOVER)


def test_step_that_is_dated_in_the_future_does_not_void_what_is_under_way(shop: Migration) -> None:
    mirrored_and_equal(shop)
    approval = approve(shop, CUTOVER)
    for group, seconds in (("shop.app", 3000), ("shop.other", 10**9)):
        record = GroupRecord.own(shop.ctx().journal, group, at=shop.ctx().stamp())
        record.mark(Step.STOPPING, approval.at + timedelta(seconds=seconds))
    shop.clock.sleep(5000)
    approvals.check(shop.ctx(), CUTOVER)


def test_cutover_goes_on_under_its_approval_as_long_as_no_step_is_late(shop: Migration) -> None:
    mirrored_and_equal(shop)
    shop.source.consumer_commits("shop.late", TopicPartition("shop.payments", 0), 1)
    approve(shop, CUTOVER)
    for group in ("shop.app", "shop.late"):
        shop.clock.sleep(3000)
        GroupRecord.own(shop.ctx().journal, group, at="2030-01-01T00:00:00+00:00").mark(Step.STOPPING, shop.clock.now())
        approvals.check(shop.ctx(), CUTOVER)
    shop.clock.sleep(3700)
    with pytest.raises(NotApproved, match="ada approved it 2:4"):
        approvals.check(shop.ctx(), CUTOVER)


def test_rejected_cutover_stops_the_mirror_and_a_rejected_plan_does_not(shop: Migration) -> None:
    mirrored_and_equal(shop)
    ctx = shop.ctx()
    ctx.link.record_run({"state": "running", "at": ctx.stamp()})
    approvals.reject(ctx, PLAN, "sha256:0", "ada")
    assert ctx.link.wished().desired is Desired.RUN
    approvals.reject(shop.ctx(dry_run=True), CUTOVER, "sha256:0", "ada")
    assert ctx.link.wished().desired is Desired.RUN
    approvals.reject(ctx, CUTOVER, "sha256:0", "ada")
    assert (ctx.link.wished().desired, ctx.link.wished().reason) == (Desired.STOP, "ada rejected the cutover gate")


def test_nothing_is_recorded_in_a_dry_run(shop: Migration) -> None:
    ctx = shop.ctx(dry_run=True)
    approvals.record(ctx, PLAN, approvals.evidence(ctx, PLAN).digest, "ada")
    assert answers(ctx) == {}


# -- what changed -----------------------------------------------------------------------------------------------------


def new_topic(shop: Migration) -> None:
    shop.source.add_topic("shop.refunds")


def gone_topic(shop: Migration) -> None:
    shop.source.delete_topic("shop.payments")


def recreated_topic(shop: Migration) -> None:
    shop.source.delete_topic("shop.payments")
    shop.source.add_topic("shop.payments")


def other_setting(shop: Migration) -> None:
    shop.source.alter_configs("shop.orders", set={"retention.ms": "1209600000"})


def new_group(shop: Migration) -> None:
    shop.source.consumer_commits("shop.audit", TopicPartition("shop.payments", 0), 1)


def other_quota(shop: Migration) -> None:
    shop.source.quotas = lambda: (Quota(entity=(("user", "shop"),), limits=(("producer_byte_rate", 1.0),)),)  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (new_topic, "topics: shop.refunds is new"),
        (gone_topic, "topics: shop.payments is gone"),
        (recreated_topic, "topics: shop.payments changed"),
        (other_setting, "topics: shop.orders changed"),
        (new_group, "groups: shop.audit is new"),
        (other_quota, "quotas: all changed"),
    ],
)
def test_changed_source_voids_the_plan_approval_and_is_named(change: Any, said: str, shop: Migration) -> None:
    approve(shop, PLAN)
    change(shop)
    with pytest.raises(NotApproved, match="the evidence changed since ada approved it") as refused:
        approvals.check(shop.ctx(), PLAN)
    assert said in refused.value.message


def test_edited_plan_voids_the_approval(shop: Migration) -> None:
    approve(shop, PLAN)
    with pytest.raises(NotApproved, match=r"plan: digest was sha256:.*, is sha256:"):
        approvals.check(shop.ctx(mirror={"num_streams": 4}), PLAN)


def test_verdict_that_turned_voids_the_cutover_approval_and_blocks_a_new_one(shop: Migration) -> None:
    mirrored_and_equal(shop)
    approve(shop, CUTOVER)
    say_verdict(shop, "DIFFERENT")
    with pytest.raises(NotApproved, match="validation ended DIFFERENT"):
        approvals.check(shop.ctx(), CUTOVER)
    with pytest.raises(NotApproved, match="no approval changes that"):
        approve(shop, CUTOVER)


@pytest.mark.parametrize("verdict", ["INCONCLUSIVE", "EXPIRED"])
def test_verdict_that_found_nothing_out_opens_no_gate(verdict: str, shop: Migration) -> None:
    mirrored_and_equal(shop)
    say_verdict(shop, verdict)
    with pytest.raises(CouldNotFindOut, match=f"validation ended {verdict}"):
        approve(shop, CUTOVER)


def test_validation_of_some_topics_opens_no_gate_for_the_others(shop: Migration) -> None:
    mirrored_and_equal(shop)
    say_verdict(shop, "EQUAL", "shop.orders")
    with pytest.raises(CouldNotFindOut, match=r"of 2 of 3 partitions; what it lacks: shop\.payments \(0 of 1\)"):
        approve(shop, CUTOVER)


def test_verdict_from_before_the_target_lost_what_was_copied_again_opens_no_gate(shop: Migration) -> None:
    mirrored_and_equal(shop)
    ctx = shop.ctx()
    ctx.link.record_rewind(TopicPartition("other", 0), fence=3, lost=(90, 100), source=90, at=ctx.stamp())
    assert verdict.check(ctx).verdict is Verdict.PASS
    ctx.link.record_rewind(TopicPartition("shop.orders", 1), fence=3, lost=(90, 100), source=90, at=ctx.stamp())
    found = verdict.check(ctx)
    assert found.verdict is Verdict.FAIL
    assert "before the target lost records that were copied again: shop.orders-1" in found.evidence
    shop.clock.sleep(1)
    say_verdict(shop, "EQUAL")
    assert verdict.check(ctx).verdict is Verdict.PASS


def test_nothing_validated_blocks_the_cutover_gate(shop: Migration) -> None:
    create.apply(shop.ctx())
    with pytest.raises(NotApproved, match="nothing was validated yet"):
        approve(shop, CUTOVER)


def test_halted_partition_blocks_the_cutover_gate_with_its_remedy(shop: Migration) -> None:
    mirrored_and_equal(shop)
    shop.ctx().link.halt(TopicPartition("shop.orders", 1), "CORRUPT", "a checksum", 70, 60, "2030-01-01")
    with pytest.raises(NotApproved, match=r"shop\.orders-1 CORRUPT") as refused:
        approve(shop, CUTOVER)
    assert "look at the source brokers' disks" in refused.value.remedy


def recreated_on_the_target(shop: Migration) -> None:
    partitions = shop.target.topics()["shop.payments"].partitions
    configs = {
        name: it.value or "" for name, it in shop.target.topic_configs(["shop.payments"])["shop.payments"].items()
    }
    shop.target.delete_topic("shop.payments")
    shop.target.add_topic("shop.payments", partitions=partitions, configs=configs)


def gone_from_the_target(shop: Migration) -> None:
    shop.target.delete_topic("shop.payments")


def retention_closed(shop: Migration) -> None:
    shop.target.alter_configs("shop.orders", set={"retention.ms": "3600000"})


def compaction_begun(shop: Migration) -> None:
    shop.target.alter_configs("shop.orders", set={"cleanup.policy": "compact"})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (recreated_on_the_target, "shop.payments: topic id is"),
        (recreated_topic, "shop.payments: source topic id is"),
        (gone_from_the_target, "shop.payments: topic is gone"),
        (retention_closed, "shop.orders: retention.ms is 3600000, declared -1"),
        (compaction_begun, "shop.orders: cleanup.policy is compact, declared delete"),
    ],
)
def test_drift_that_endangers_what_was_copied_blocks_the_cutover_gate(change: Any, said: str, shop: Migration) -> None:
    mirrored_and_equal(shop)
    change(shop)
    with pytest.raises(NotApproved, match="topics are as declared FAIL") as refused:
        approve(shop, CUTOVER)
    assert said in refused.value.message


def test_drift_of_a_setting_that_endangers_nothing_is_a_warning(shop: Migration) -> None:
    mirrored_and_equal(shop)
    shop.target.alter_configs("shop.orders", set={"min.insync.replicas": "1"})
    found = approvals.evidence(shop.ctx(), CUTOVER).checks.results
    assert [str(it.verdict) for it in found if it.name == "topics are as declared"] == ["WARN"]
    approve(shop, CUTOVER)


def test_verdict_of_topics_that_were_recreated_since_opens_no_gate(shop: Migration) -> None:
    mirrored_and_equal(shop)
    recreated_on_the_target(shop)
    found = verdict.check(shop.ctx())
    assert str(found.verdict) == "FAIL"
    assert "of other topics than are there now, or by other handlers: shop.payments" in found.evidence


def test_topic_that_expired_before_it_was_compared_blocks_the_cutover(shop: Migration) -> None:
    mirrored_and_equal(shop)
    record = shop.ctx().journal.read("validation", "latest")
    assert record is not None
    least = [{"topic": "shop.orders", "compared": 1, "never": 99}]
    shop.ctx().journal.record(
        "validation", "latest", {**record, "coverage": {"compared": 201, "never": 99, "least": least}}
    )
    blockers = {it.name: it.evidence for it in approvals.evidence(shop.ctx(), CUTOVER).checks.blockers}
    assert "shop.orders 1% (99 never compared)" in blockers["coverage"]


def test_verdict_without_ids_of_its_topics_opens_no_gate(shop: Migration) -> None:
    mirrored_and_equal(shop)
    record = shop.ctx().journal.read("validation", "latest")
    assert record is not None
    shop.ctx().journal.record("validation", "latest", {k: v for k, v in record.items() if k != "topic_ids"})
    assert str(verdict.check(shop.ctx()).verdict) == "UNCHECKED"


@pytest.mark.parametrize(
    ("validated", "wanted", "opens"),
    [
        ("sampled", "record", False),  # of an earlier version
        ("batch", "record", False),
        (None, "batch", False),
        ("batch", "batch", True),
        ("sampled", "batch", True),
        ("record", "batch", True),
        ("record", "record", True),
    ],
)
def test_verdict_of_a_weaker_level_than_the_plans_opens_no_gate(
    validated: str | None, wanted: str, opens: bool, shop: Migration
) -> None:
    mirrored_and_equal(shop)
    record = shop.ctx().journal.read("validation", "latest")
    assert record is not None
    changed = {k: v for k, v in record.items() if k != "level"} | ({"level": validated} if validated else {})
    shop.ctx().journal.record("validation", "latest", changed)
    found = verdict.check(shop.ctx(validation={"level": wanted}))
    assert str(found.verdict) == ("PASS" if opens else "UNCHECKED")
    assert f"level {validated or ''}".strip() in found.evidence
    assert opens or not validated or f"the plan asks for {wanted}" in found.evidence


def test_verdict_older_than_the_plan_allows_opens_no_gate(shop: Migration) -> None:
    mirrored_and_equal(shop)
    shop.clock.sleep(86_390)
    assert str(verdict.check(shop.ctx()).verdict) == "PASS"
    shop.clock.sleep(20)
    with pytest.raises(NotApproved, match=r"1 day, 0:00:1\d ago; max_age_seconds is 86400"):
        approve(shop, CUTOVER)
    assert str(verdict.check(shop.ctx(validation={"max_age_seconds": 90_000})).verdict) == "PASS"


def test_hook_that_may_not_run_blocks_the_cutover_gate(shop: Migration) -> None:
    mirrored_and_equal(shop)
    with pytest.raises(NotApproved, match=r"hook consumers\.start\[0\] FAIL: command /opt/start is not allowed here"):
        approve(shop, CUTOVER, consumers={"start": [{"command": ["/opt/start", "{group}"]}]})


def test_topic_that_is_not_mirrored_blocks_the_cutover_gate(shop: Migration) -> None:
    mirrored_and_equal(shop)
    shop.source.add_topic("shop.refunds")
    with pytest.raises(NotApproved, match=r"1 topics match the plan and have no mirror topic: shop\.refunds"):
        approve(shop, CUTOVER)


def test_group_that_reads_another_topic_voids_the_cutover_approval(shop: Migration) -> None:
    mirrored_and_equal(shop)
    approve(shop, CUTOVER)
    shop.source.consumer_commits("shop.app", TopicPartition("shop.payments", 0), 7)
    with pytest.raises(NotApproved, match=r"shop\.app was classic: shop\.orders, is classic: shop\.orders, shop\.pay"):
        approvals.check(shop.ctx(), CUTOVER)


def test_group_whose_move_began_under_an_earlier_approval_voids_this_one_by_what_it_reads_since(
    shop: Migration,
) -> None:
    mirrored_and_equal(shop)
    record = GroupRecord.own(shop.ctx().journal, "shop.app", at=shop.ctx().stamp())
    record.mark(Step.STOPPING, shop.clock.now())
    shop.clock.sleep(1)
    approve(shop, CUTOVER)
    shop.source.consumer_commits("shop.app", TopicPartition("shop.payments", 0), 7)
    with pytest.raises(NotApproved, match=r"shop\.app was classic: shop\.orders, is classic"):
        approvals.check(shop.ctx(), CUTOVER)


def test_group_in_the_middle_of_its_move_leaves_its_approval_valid(shop: Migration) -> None:
    mirrored_and_equal(shop)
    member = shop.source.join("shop.app", ["shop.orders", "shop.payments"])
    approve(shop, CUTOVER)
    record = GroupRecord.own(shop.ctx().journal, "shop.app", at="2030-01-01T00:00:00+00:00")
    record.mark(Step.STOPPING, shop.clock.now())
    shop.source.leave("shop.app", member)
    shop.clock.sleep(3500)
    assert approvals.evidence(shop.ctx(), CUTOVER).facts["groups"] == {
        "shop.app": "classic: shop.orders, shop.payments"
    }
    assert approvals.check(shop.ctx(), CUTOVER).approval is not None


# -- checks that say no -----------------------------------------------------------------------------------------------


def test_failed_check_cannot_be_approved_away_even_where_nobody_is_asked(shop: Migration) -> None:
    shop.make_target_topic(TopicSpec(name="shop.orders", partitions=2, replication_factor=1))
    with pytest.raises(NotApproved, match=r"target topics FAIL: shop\.orders: it exists on the target"):
        approve(shop, PLAN)
    with pytest.raises(NotApproved, match="target topics FAIL"):
        approvals.check(shop.ctx(approvals={"plan": False}), PLAN)


def test_check_that_could_not_run_is_no_pass_and_no_no(shop: Migration) -> None:
    silent = ClusterUnreachable("source", "127.0.0.1:1", "timed out")
    with shop.source.failing("cluster_id", silent), pytest.raises(CouldNotFindOut, match="could not run") as unknown:
        approvals.check(shop.ctx(approvals={"plan": False}), PLAN)
    assert unknown.value.exit_code == 3


# -- how evidence looks -----------------------------------------------------------------------------------------------


def test_evidence_shows_what_next_and_how_undone_and_survives_json(shop: Migration) -> None:
    mirrored_and_equal(shop)
    seen = outlook.evidence(shop.ctx(), CUTOVER)
    value = seen.as_dict()
    assert value["digest"] == seen.digest
    assert [it["title"] for it in value["tables"]] == [
        "Replication lag",
        "Where each group would resume",
        "Consumer groups",
        "Producers that write to the source",
    ]
    assert value["next_steps"][0].startswith("cut_over: ")
    assert value["undo"][0].startswith("cut_over: move a group back")


def test_markdown_of_evidence_cannot_be_broken_by_names(shop: Migration) -> None:
    shop.source.consumer_commits("shop.|x|<script>`*", TopicPartition("shop.orders", 0), 3)
    text = approvals.evidence(shop.ctx(), PLAN).as_markdown()
    (row,) = [line for line in text.splitlines() if "script" in line and line.startswith("| shop")]
    assert row.startswith(r"| shop.\|x\|&lt;script&gt;\`\* | classic |")
    assert approvals.evidence(shop.ctx(), PLAN).digest in text


def test_markdown_of_a_closed_gate_says_that_it_cannot_be_approved(shop: Migration) -> None:
    shop.make_target_topic(TopicSpec(name="shop.orders", partitions=2, replication_factor=1))
    assert (
        "checks do not pass. While they do not, this cannot be approved"
        in approvals.evidence(shop.ctx(), PLAN).as_markdown()
    )


def test_large_tables_say_where_they_stop_and_what_lists_the_rest() -> None:
    table = limited("Topics", ("topic",), ((f"t{n}",) for n in range(60)), most=50, see="check PLAN --json")
    assert (len(table.rows), table.note) == (50, "The first 50 of 60 rows; `check PLAN --json` lists all of them")


def test_facts_of_any_size_are_compared_item_by_item() -> None:
    before = {"topics": {"a": item({"x": 1}), "b": "plain"}}
    now = {"topics": {"a": item({"x": 2}), "b": "other"}, "groups": {"g": "classic"}}
    assert differences(before, now) == (
        "groups: g is new",
        "topics: a changed",
        "topics: b was plain, is other",
    )
    assert item("#looks like a digest").startswith("#")
    assert item("#looks like a digest") != "#looks like a digest"


def test_facts_too_large_for_the_journal_are_left_out_and_a_change_is_noticed_all_the_same(shop: Migration) -> None:
    for n in range(4000):
        shop.source.consumer_commits(f"shop.{n:04}{'g' * 120}", TopicPartition("shop.orders", 0), 1)
    approve(shop, PLAN)
    approvals.check(shop.ctx(), PLAN)
    new_topic(shop)
    with pytest.raises(NotApproved, match=r"the evidence changed since ada approved it at [-0-9]+ [:0-9]+ UTC\n"):
        approvals.check(shop.ctx(), PLAN)


def test_answer_of_an_unknown_format_is_refused(shop: Migration) -> None:
    shop.ctx().journal.record("approval", "plan", {"format": 99})
    with pytest.raises(StateConflict, match="this version cannot read the approval plan"):
        approvals.check(shop.ctx(), PLAN)


def test_evidence_is_a_value(shop: Migration) -> None:
    one, other = (approvals.evidence(shop.ctx(), PLAN) for _ in range(2))
    assert isinstance(one, Evidence)
    assert one.digest == other.digest != approvals.evidence(shop.ctx(name="other"), PLAN).digest
