"""A wave is measured, judged and approved for itself; what is of the whole link or plan refuses one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafka_migration.approvals import approvals, waves
from kafka_migration.approvals.evidence import GateName
from kafka_migration.approvals.passing import NotApproved
from kafka_migration.approvals.record import answers, signed_content
from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.errors import BadInput, NotAuthorized, Refused
from kafka_migration.domain.types import Desired, TopicPartition
from kafka_migration.groups import watch
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.groups.translate import selected_groups
from kafka_migration.inventory import inventory
from kafka_migration.inventory.facts import plan_waves
from kafka_migration.link.lag import LagMeter
from kafka_migration.migration.context import Context, Scope
from kafka_migration.migration.signing import Keyring
from kafka_migration.overview import status
from kafka_migration.steps import cutover, mirror, release, runner, stop
from kafka_migration.steps import report as reports
from kafka_migration.topics.declared import KIND
from kafka_migration.validation import validate, verdict
from kafka_migration.waves import sizing
from kafka_migration.waves.pinned import pinned
from tests.steps import histories
from tests.steps.gates import Migration
from tests.steps.test_approvals import approve, mirrored_and_equal
from tests.steps.worlds import World

CUTOVER = GateName.CUTOVER
FIRST = Scope.wave("first", topics={"shop.orders"}, groups={"shop.app"})
SECOND = Scope.wave("second", topics={"shop.payments"}, groups={"shop.billing"})
HALTED = TopicPartition("shop.payments", 0)


@pytest.fixture
def shop() -> Migration:
    made = Migration()
    made.has_active_mirror = True
    made.source.consumer_commits("shop.billing", HALTED, 10)
    mirrored_and_equal(made)
    return made


def approve_wave(ctx: Context) -> None:
    approvals.record(ctx, CUTOVER, approvals.evidence(ctx, CUTOVER).digest, "ada")


def test_partition_that_a_topic_of_the_wave_got_since_the_validation_shuts_the_waves_gate_alone(
    shop: Migration,
) -> None:
    ctx = shop.ctx()
    record = ctx.journal.all(KIND)["shop.orders"]
    ctx.journal.record(KIND, "shop.orders", {**record, "spec": {**record["spec"], "partitions": 3}})
    found = verdict.check(ctx.within(FIRST))
    assert found.verdict is Verdict.UNCHECKED
    assert "of 2 of 3 partitions; what it lacks: shop.orders (2 of 3)" in found.evidence
    assert verdict.check(ctx.within(SECOND)).verdict is Verdict.PASS


def test_wave_has_lag_halts_and_groups_of_its_own(shop: Migration) -> None:
    ctx = shop.ctx()
    ctx.link.halt(HALTED, "CORRUPT", "seen", 1, 1, ctx.stamp())
    first, second = ctx.within(FIRST), ctx.within(SECOND)
    assert {tp.topic for tp in LagMeter(first).read().sample.lag} == {"shop.orders"}
    assert not LagMeter(first).read().halted
    assert LagMeter(second).read().halted == {HALTED: "CORRUPT"} == LagMeter(ctx).read().halted
    assert selected_groups(first) == ("shop.app",)
    assert set(selected_groups(ctx)) == {"shop.app", "shop.billing"}
    with pytest.raises(BadInput, match="wave first does not hold this group"):
        selected_groups(first, ["shop.billing"])


def test_evidence_of_a_wave_is_of_its_topics_and_groups_and_does_not_mind_a_halt_beside_it(shop: Migration) -> None:
    ctx = shop.ctx()
    ctx.link.halt(HALTED, "CORRUPT", "seen", 1, 1, ctx.stamp())
    found = approvals.evidence(ctx.within(FIRST), CUTOVER)
    assert set(found.facts["topics"]) == {"shop.orders"}
    assert set(found.facts["groups"]) == {"shop.app"}
    assert not found.facts["halts"]
    assert found.checks.is_open
    assert "wave first" in found.as_markdown()
    for other in (ctx.within(SECOND), ctx):
        assert approvals.evidence(other, CUTOVER).facts["halts"] == {str(HALTED): "CORRUPT"}
    renamed = Scope.wave("other", topics=FIRST.topics or set(), groups=FIRST.groups or set())
    assert approvals.evidence(ctx.within(renamed), CUTOVER).digest != found.digest


def test_approval_of_a_wave_opens_its_gate_alone_under_a_key_of_its_own(shop: Migration) -> None:
    first = shop.ctx().within(FIRST)
    approve_wave(first)
    assert set(shop.ctx().journal.all("approval")) == {"cutover/first/1-approved"}
    assert approvals.check(first, CUTOVER).approval == answers(first)[CUTOVER]
    for other in (shop.ctx(), shop.ctx().within(SECOND)):
        assert not answers(other)
        with pytest.raises(NotApproved, match="nobody has approved it yet"):
            approvals.check(other, CUTOVER)
    approvals.revoke(first, CUTOVER, "ada")
    with pytest.raises(NotApproved, match="revoked"):
        approvals.check(first, CUTOVER)


def test_approval_of_the_whole_plan_stands_where_it_stood_and_opens_no_wave(shop: Migration) -> None:
    approval = approve(shop, CUTOVER)
    assert set(shop.ctx().journal.all("approval")) == {"cutover/1-approved"}
    assert "scope" not in signed_content(shop.ctx(), approval)
    with pytest.raises(NotApproved, match="nobody has approved it yet"):
        approvals.check(shop.ctx().within(FIRST), CUTOVER)


def test_answer_that_is_removed_shuts_the_gate_of_its_own_wave_alone(shop: Migration) -> None:
    first, second = shop.ctx().within(FIRST), shop.ctx().within(SECOND)
    for ctx in (first, second):
        approve_wave(ctx)
    assert set(shop.ctx().journal.all("approval")) == {"cutover/first/1-approved", "cutover/second/1-approved"}
    shop.ctx().journal.forget("approval", "cutover/first/1-approved")
    with pytest.raises(NotApproved, match="answer 1 was removed"):
        approvals.check(first, CUTOVER)
    assert approvals.check(second, CUTOVER).approval is not None


def test_signed_approval_of_one_wave_that_is_written_under_another_does_not_count(shop: Migration) -> None:
    keys = Keyring(("k" * 32,))
    signed = {"approvals": {"signed": True}}
    first = replace(shop.ctx(**signed), approval_keys=lambda: keys).within(FIRST)
    renamed = Scope.wave("other", topics=FIRST.topics or set(), groups=FIRST.groups or set())
    other = first.within(renamed)
    approve_wave(first)
    value = first.journal.read("approval", "cutover/first/1-approved") or {}
    digest = approvals.evidence(other, CUTOVER).digest
    first.journal.record("approval", "cutover/other/1-approved", {**value, "scope": "other", "digest": digest})
    with pytest.raises(NotApproved, match="differs from what was signed"):
        approvals.check(other, CUTOVER)
    assert approvals.check(first, CUTOVER).approval is not None


def test_wave_that_is_rejected_leaves_the_mirror_to_the_others(shop: Migration) -> None:
    approvals.reject(shop.ctx().within(FIRST), CUTOVER, "sha256:0", "ada")
    assert shop.ctx().link.wished().desired is Desired.RUN
    approvals.reject(shop.ctx(), CUTOVER, "sha256:0", "ada")
    assert shop.ctx().link.wished().desired is Desired.STOP


WAVES = {"given": [{"name": "first", "topics": [r".*\.orders"]}, {"name": "second", "topics": [r".*\.payments"]}]}


def seen_to_go_on(shop: Migration, group: str, *steps: Step) -> None:
    record = GroupRecord.own(shop.ctx().journal, group, at=shop.ctx().stamp())
    for step in steps:
        record.mark(step, shop.clock.now())


def test_wave_waits_for_the_groups_of_those_before_it_to_be_moved_and_seen_to_go_on(shop: Migration) -> None:
    ctx = shop.ctx(waves=WAVES)
    first, second = waves.within(ctx, "first"), waves.within(ctx, "second")
    assert first.scope == replace(FIRST, reading=frozenset({"shop.app"}))
    assert second.scope == replace(SECOND, after=frozenset({"shop.app"}), reading=frozenset({"shop.billing"}))

    def turn(ctx: Context) -> CheckResult | None:
        found = {check.name: check for check in approvals.evidence(ctx, CUTOVER).checks.results}
        return found.get("waves before this one have moved")

    assert turn(first) is None
    early = turn(second)
    assert early is not None
    assert (early.verdict, early.evidence) == (Verdict.FAIL, "shop.app has not moved")
    with pytest.raises(NotApproved, match=r"shop\.app has not moved"):
        approve_wave(second)
    seen_to_go_on(shop, "shop.app", Step.STOPPING, Step.READ_BACK)
    late = turn(second)
    assert late is not None
    assert late.evidence == "shop.app was not seen to go on yet"
    stopped = waves.within(shop.ctx(waves=WAVES, cutover={"stopped_groups": ["shop.app"]}), "second")
    assert (waves.turn(stopped).verdict, waves.turn(second).verdict) == (Verdict.PASS, Verdict.FAIL)
    seen_to_go_on(shop, "shop.app", Step.ALIVE)
    approve_wave(second)
    assert approvals.check(second, CUTOVER).approval is not None
    # Moved back: the next group of the second wave is not moved under its approval.
    seen_to_go_on(shop, "shop.app", Step.UNDONE)
    with pytest.raises(NotApproved, match=r"shop\.app has not moved"):
        approvals.check(second, CUTOVER)


def test_group_that_began_to_span_waves_moves_with_none_unless_the_plan_waives_it(shop: Migration) -> None:
    shop.source.consumer_commits("shop.billing", TopicPartition("shop.orders", 0), 1)
    spans = r"group shop\.billing spans waves first, second \(waves\.spanning_groups would waive this"
    for name in ("first", "second"):
        with pytest.raises(NotApproved, match=spans):
            approvals.check(waves.within(shop.ctx(waves=WAVES), name), CUTOVER)
    waived = waves.within(shop.ctx(waves={**WAVES, "spanning_groups": ["shop.billing"]}), "second")
    assert waived.scope.groups == frozenset({"shop.billing"})
    assert not waived.scope.torn


def test_transaction_that_began_to_span_waves_shuts_both_gates_unless_the_plan_waives_it(shop: Migration) -> None:
    first = waves.within(shop.ctx(waves=WAVES), "first")
    approve_wave(first)
    assert approvals.check(first, CUTOVER).approval is not None
    shop.source.transaction("writer", [TopicPartition("shop.orders", 0), HALTED])
    spans = r"transaction writer spans waves first, second \(waves\.spanning_transactions would waive this"
    for name in ("first", "second"):
        with pytest.raises(NotApproved, match=spans):
            approvals.check(waves.within(shop.ctx(waves=WAVES), name), CUTOVER)
    waived = {**WAVES, "spanning_transactions": ["writer"]}
    assert not waves.within(shop.ctx(waves=waived), "first").scope.torn


def test_topic_that_came_late_is_in_the_wave_that_its_transaction_leads_to_for_check_and_for_cutover() -> None:
    shop = Migration()
    fields = {"waves": {"auto": {"most_topics": 1, "canary_topic": "shop.orders"}}, "approvals": {"plan": False}}
    runner.run(shop.ctx(**fields), "create_targets")
    shop.source.add_topic("shop.late")
    shop.source.transaction("writer", [TopicPartition("shop.orders", 0), TopicPartition("shop.late", 0)])
    ctx = shop.ctx(**fields)
    shown = plan_waves(ctx, inventory.take(ctx)).wave_of("shop.late")
    assert shown is not None
    assert shown.name == "canary"
    assert waves.within(ctx, "canary").scope.topics == frozenset({"shop.orders", "shop.late"})
    # Who may not ask for transactions still has waves, the same ones for both.
    with shop.source.failing("producers", NotAuthorized("source", "READ", "topic shop.orders")):
        assert waves.within(ctx, "canary").scope.topics == frozenset({"shop.orders"})


def test_whole_plan_with_waves_is_neither_shown_approved_nor_moved_and_the_remedy_names_the_waves(
    shop: Migration,
) -> None:
    ctx = shop.ctx(waves=WAVES, approvals={"cutover": False})
    what = r"moves its groups by waves, each under an approval of its own, and no wave is named"
    for do in (
        lambda: approvals.evidence(ctx, CUTOVER),
        lambda: approvals.reject(ctx, CUTOVER, "sha256:0", "ada"),
        lambda: cutover.apply(ctx),
    ):
        with pytest.raises(Refused, match=what) as refused:
            do()
        assert "(first, second)" in refused.value.remedy
    assert not GroupRecord.all(ctx.journal)
    assert ctx.link.wished().desired is Desired.RUN


def test_groups_that_are_named_are_moved_within_their_wave_and_those_of_several_waves_are_refused(
    shop: Migration,
) -> None:
    ctx = shop.ctx(waves=WAVES)
    assert waves.around(ctx, ["shop.billing"]).scope == waves.within(ctx, "second").scope
    with pytest.raises(Refused, match=r"several waves: shop\.app in first; shop\.billing in second"):
        waves.around(ctx, ["shop.billing", "shop.app"])
    for same in (waves.around(ctx, []), waves.around(ctx, ["unknown"]), waves.around(shop.ctx(), ["shop.app"])):
        assert same.scope.is_whole


def test_wave_is_watched_alone_and_what_it_began_to_move_with_stays_its_own(shop: Migration) -> None:
    first, second = (waves.within(shop.ctx(waves=WAVES), name) for name in ("first", "second"))
    for ctx, group in ((first, "shop.app"), (second, "shop.billing")):
        waves.begin(ctx)
        seen_to_go_on(shop, group, Step.STOPPING, Step.READ_BACK)
        assert watch.GroupsWait(ctx).names == (group,)
    assert set(watch.GroupsWait(shop.ctx()).names) == {"shop.app", "shop.billing"}
    # Gone from the source before it was seen on the target: it is still waited for.
    shop.source.forget_group("shop.app")
    first, second = (waves.within(shop.ctx(waves=WAVES), name) for name in ("first", "second"))
    assert watch.GroupsWait(first).names == ("shop.app",)
    assert waves.turn(second).evidence == "shop.app was not seen to go on yet"


def test_where_each_wave_stands_goes_by_its_answer_and_by_its_groups(shop: Migration) -> None:
    def stands() -> list[str]:
        return [one.stands for one in waves.standings(shop.ctx(waves=WAVES))]

    assert stands() == ["waits for an approval", "waits for wave first"]
    first = waves.within(shop.ctx(waves=WAVES), "first")
    approve_wave(first)
    assert stands() == ["approved, and not begun", "waits for wave first"]
    waves.begin(first)
    seen_to_go_on(shop, "shop.app", Step.STOPPING, Step.READ_BACK)
    assert stands() == ["0 of 1 groups have moved and go on", "waits for wave first"]
    GroupRecord.load(shop.ctx().journal, "shop.app").note_alive(shop.clock.now(), sign="seen", pause_seconds=2.5)
    assert stands() == ["moved: 1 groups", "waits for an approval"]
    second = waves.within(shop.ctx(waves=WAVES), "second")
    approvals.reject(second, CUTOVER, "sha256:0", "bob")
    assert stands()[1] == "rejected by bob"
    histories.validated(shop)
    page, report = status.read(shop.ctx(waves=WAVES)).as_dict(), reports.build(shop.ctx(waves=WAVES))
    assert page["waves"] == report["waves"]
    moved, left = report["waves"]
    assert (moved["approval"]["approver"], moved["pause_seconds"]) == ("ada", 2.5)
    assert moved["groups"] == [{"group": "shop.app", "left": "", "pause_seconds": 2.5}]
    assert (left["approval"]["answer"], left["groups"]) == ("rejected", [])
    html = reports.as_html({**report, "data_docs": None})
    assert "moved: 1 groups" in html
    assert "rejected by bob" in html
    assert not waves.standings(shop.ctx())
    assert not waves.standings(shop.ctx(waves={"auto": {}})), "not settled"


def test_evidence_of_a_wave_shows_its_size(shop: Migration) -> None:
    shown = approvals.evidence(waves.within(shop.ctx(waves=WAVES), "first"), CUTOVER)
    size = shown.tables[0]
    assert (size.title, size.columns) == ("This wave", sizing.COLUMNS)
    assert size.rows[0][:4] == ("first", "1", "1", "200")
    assert "This wave" not in {table.title for table in approvals.evidence(shop.ctx(), CUTOVER).tables}


def test_group_that_reads_nothing_keeps_no_wave_waiting(shop: Migration) -> None:
    shop.source.add_topic("elsewhere")
    shop.source.consumer_commits("shop.idle", TopicPartition("elsewhere", 0), 0)
    given = [{**WAVES["given"][0], "groups": [r"shop\.idle"]}, WAVES["given"][1]]
    ctx = shop.ctx(waves={"given": given})
    assert waves.within(ctx, "first").scope.groups == frozenset({"shop.app", "shop.idle"})
    assert waves.within(ctx, "second").scope.after == {"shop.app"}


def test_computed_waves_are_settled_by_create_and_stay_what_they_were() -> None:
    shop = Migration()
    fields = {"waves": {"auto": {"most_topics": 1}}, "approvals": {"plan": False}}
    shop.source.add_topic("shop.audit")
    written = [TopicPartition(name, 0) for name in ("shop.payments", "shop.audit")]
    shop.source.transaction("writer", written)
    with pytest.raises(Refused, match="settled by `create`"):
        waves.within(shop.ctx(**fields), "canary")
    runner.run(shop.ctx(dry_run=True, **fields), "create_targets")
    assert not pinned(shop.ctx(**fields))
    runner.run(shop.ctx(**fields), "create_targets")
    before = [waves.within(shop.ctx(**fields), name).scope for name in ("canary", "wave-1")]
    assert [scope.topics for scope in before] == [
        frozenset({"shop.orders"}),
        frozenset({"shop.audit", "shop.payments"}),
    ]
    # Leaders have forgotten the producer: what was one part would be two.
    shop.source.forget_transaction("writer")
    assert [waves.within(shop.ctx(**fields), name).scope for name in ("canary", "wave-1")] == before
    # With other limits they are computed again, and create settles them again.
    fields["waves"] = {"auto": {"most_topics": 2}}
    assert not pinned(shop.ctx(**fields))


def test_waves_that_an_earlier_version_settled_stand_though_this_one_knows_more_fields() -> None:
    shop = Migration()
    fields = {"waves": {"auto": {"most_topics": 1}}, "approvals": {"plan": False}}
    runner.run(shop.ctx(**fields), "create_targets")
    before, journal = pinned(shop.ctx(**fields)), shop.ctx().journal
    stored = journal.read("waves", "computed") or {}
    # What an earlier version did not know: fields at their defaults, of either section.
    less = {"auto": {"most_topics": 1, "most_groups": None, "canary": True}, "spanning_groups": []}
    journal.record("waves", "computed", {**stored, "fields": less})
    assert pinned(shop.ctx(**fields)) == before
    assert [wave.name for wave in before] == ["canary", "wave-1"]
    for other in ({"auto": {"most_topics": 2}}, {"auto": {"most_topics": 1}, "spanning_groups": ["shop.app"]}):
        assert not pinned(shop.ctx(waves=other))
    # Of a later version: what its field means is not known here.
    journal.record("waves", "computed", {**stored, "fields": {**less, "later": 1}})
    assert not pinned(shop.ctx(**fields))


def test_wave_moves_its_own_groups_and_the_next_one_follows(world: World) -> None:
    tps = [TopicPartition(world.topic(name), 0) for name in ("orders", "payments")]
    groups = [world.group(name) for name in ("app", "billing")]
    for group, tp in zip(groups, tps, strict=True):
        world.commit("source", group, {tp: 20})
    fields: dict[str, Any] = {"waves": WAVES, "cutover": {"stopped_groups": groups}}
    moved = cutover.apply(waves.within(world.ctx(**fields), "first"))
    assert [(one.group, one.outcome) for one in moved.groups] == [(groups[0], "moved")]
    assert (world.committed("target", groups[0]), world.committed("target", groups[1])) == ({tps[0]: 10}, {})
    second = waves.within(world.ctx(**fields), "second")
    assert waves.turn(second).verdict is Verdict.PASS
    assert [(one.group, one.outcome) for one in cutover.apply(second).groups] == [(groups[1], "moved")]
    assert world.committed("target", groups[1]) == {tps[1]: 10}


@pytest.mark.parametrize(
    "do",
    [
        stop.apply,
        lambda ctx: stop.apply(ctx, now=True),
        lambda ctx: mirror.apply(ctx, None),  # type: ignore[arg-type]
        release.apply,
        validate.apply,
    ],
)
def test_what_is_of_the_whole_link_is_refused_for_a_wave_and_changes_nothing(
    shop: Migration, do: Callable[[Context], Any]
) -> None:
    before = shop.links.items(), shop.store.items()
    with pytest.raises(Refused, match="is for the whole plan shop, not for wave first"):
        do(shop.ctx().within(FIRST))
    assert (shop.links.items(), shop.store.items()) == before
