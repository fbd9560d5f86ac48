"""Moving groups, as scenarios: what is moved, to where exactly, and what is refused with nothing written."""

from __future__ import annotations

import pytest

from kafka_migration.domain.errors import BadInput, ClusterUnreachable, CouldNotFindOut, TakenOver
from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups import looks as group_looks
from kafka_migration.groups import translate
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.kafka.types import CommittedOffset
from kafka_migration.state.journal import Journal
from kafka_migration.steps import cutover
from kafka_migration.steps.cutover import CutoverResult, Fate, GroupOutcome
from kafka_migration.topics.declared import KIND
from tests.steps.hook_server import HookServer
from tests.steps.worlds import START, FakeWorld, World


def only(result: CutoverResult) -> GroupOutcome:
    (outcome,) = result.groups
    return outcome


def record(world: World, group: str) -> GroupRecord:
    return GroupRecord.load(Journal(world.store, "moving"), group)


def stopped(*groups: str) -> dict[str, object]:
    """No start is waited for: these groups shall stay as they are."""
    return {"stopped_groups": list(groups)}


# -- what is moved ----------------------------------------------------------------------------------------------------


def test_empty_group_moves_to_the_exact_translation_of_its_last_commits(world: World) -> None:
    topic = world.topic("orders", partitions=2)
    group = world.group("app")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    world.commit("source", group, {first: 42, second: 100}, metadata="checkpoint 7")

    result = cutover.apply(world.ctx(cutover=stopped(group)))

    assert only(result).outcome is Fate.MOVED
    assert result.exit_code == 0
    assert world.target.committed(group) == {
        first: CommittedOffset(offset=42 - START, metadata="checkpoint 7"),
        second: CommittedOffset(offset=100 - START, metadata="checkpoint 7"),
    }
    assert world.committed("source", group) == {first: 42, second: 100}
    steps = record(world, group).steps
    done = [Step.STOPPING, Step.STOPPED, Step.TRANSLATED, Step.WRITING, Step.WRITTEN, Step.READ_BACK, Step.ALIVE]
    assert list(steps) == done
    assert [step["at"] for step in steps.values()] == sorted(step["at"] for step in steps.values())
    assert [(it.source, it.target) for it in record(world, group).translations] == [(42, 32), (100, 90)]
    assert [it["offset"] for it in record(world, group).evidence(Step.READ_BACK, "offsets")] == [32, 90]


@pytest.mark.parametrize(
    ("committed", "lands"),
    [(3, 0), (START, 0), (29, 19), (30, 25), (35, 25), (40, 25), (41, 26), (60, 45)],
    ids=["before the log", "log start", "last before gaps", "gap", "in the gap", "after", "next", "end"],
)
def test_offset_lands_on_its_record_or_on_the_next_after_a_gap(committed: int, lands: int, world: World) -> None:
    tp = TopicPartition(world.topic("gaps", records=60), 0)
    # Source offsets 30..39 hold no records (a transaction, say); target offsets 20..24 are markers of fences.
    runs = [Run(START, 0, 20), Run(40, 25, 20)]
    world.link.maps[tp] = OffsetMap(runs, source_end=60, target_end=45)
    group = world.group("app")
    world.commit("source", group, {tp: committed})
    assert only(cutover.apply(world.ctx(cutover=stopped(group)))).outcome is Fate.MOVED
    assert world.committed("target", group) == {tp: lands}


def test_live_group_is_stopped_moved_and_started_by_hooks(world: World, hooks: HookServer) -> None:
    topic = world.topic("orders", partitions=2)
    group = world.group("app")
    tps = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    world.commit("source", group, dict.fromkeys(tps, 20))
    leave = world.join("source", group, [topic])
    hooks.on("stop", "source", lambda _: leave())
    hooks.on("start", "target", lambda _: world.go_on("target", group, tps[0], 15))

    outcome = only(cutover.apply(world.ctx(consumers=hooks.consumers)))

    assert (outcome.outcome, outcome.alive) == (Fate.MOVED, True)
    assert hooks.calls == [("stop", "source", "cutover", group), ("start", "target", "cutover", group)]
    assert world.committed("target", group) == {tps[0]: 15, tps[1]: 10}
    assert outcome.pause_seconds is not None
    # It had members: once they are gone nobody commits for it, and there is nothing to rest for.
    assert outcome.pause_seconds < (world.wait if world.is_real else world.rest)
    assert record(world, group).subscription == {topic}


def test_group_that_takes_its_time_to_stop_is_waited_for(world: World, hooks: HookServer) -> None:
    topic = world.topic("orders")
    group = world.group("app")
    tp = TopicPartition(topic, 0)
    world.commit("source", group, {tp: 20})
    leave = world.join("source", group, [topic])
    hooks.on("stop", "source", lambda _: world.later(1.0, leave))
    hooks.on("start", "target", lambda _: world.go_on("target", group, tp, 15))
    outcome = only(cutover.apply(world.ctx(consumers=hooks.consumers)))
    assert outcome.outcome is Fate.MOVED
    assert outcome.pause_seconds is not None
    assert outcome.pause_seconds < world.rest + 3


def test_commit_made_while_stopping_is_the_one_translated(world: World, hooks: HookServer) -> None:
    topic = world.topic("orders")
    group = world.group("app")
    tp = TopicPartition(topic, 0)
    world.commit("source", group, {tp: 20})
    leave = world.join("source", group, [topic])

    def stop(_: str) -> None:
        leave()
        world.go_on("source", group, tp, 77)

    hooks.on("stop", "source", stop)
    hooks.on("start", "target", lambda _: world.go_on("target", group, tp, 70))
    cutover.apply(world.ctx(consumers=hooks.consumers))
    assert [(it.source, it.target) for it in record(world, group).translations] == [(77, 67)]


def test_wait_hook_waits_for_whoever_stops_the_group(world: World) -> None:
    topic = world.topic("orders")
    group = world.group("app")
    world.commit("source", group, {TopicPartition(topic, 0): 20})
    world.later(1.0, world.join("source", group, [topic]))
    ctx = world.ctx(consumers={"stop": [{"wait": True}]}, cutover={"watch_seconds": 0.1})
    assert only(cutover.apply(ctx)).outcome is Fate.MOVED
    assert world.committed("target", group) == {TopicPartition(topic, 0): 10}


def test_group_is_moved_once_the_mirror_has_come_up_to_its_commit(world: World) -> None:
    topic = world.topic("orders", records=100, mirrored=50)
    group = world.group("app")
    tp = TopicPartition(topic, 0)
    world.commit("source", group, {tp: 80})
    world.later(world.rest + 1, lambda: world.mirror(tp, 80))
    assert only(cutover.apply(world.ctx(cutover=stopped(group)))).outcome is Fate.MOVED
    assert world.committed("target", group) == {tp: 70}


def test_one_group_is_refused_and_the_others_are_moved(world: World) -> None:
    topic = world.topic("orders")
    tp = TopicPartition(topic, 0)
    first, live, last = world.group("a"), world.group("b"), world.group("c")
    for group in (first, live, last):
        world.commit("source", group, {tp: 20})
    world.join("source", live, [topic])
    result = cutover.apply(world.ctx(cutover=stopped(first, last)))
    assert [(it.group, it.outcome) for it in result.groups] == [
        (first, Fate.MOVED),
        (live, Fate.REFUSED),
        (last, Fate.MOVED),
    ]
    assert result.exit_code == 1
    assert world.committed("target", live) == {}
    assert world.committed("target", last) == {tp: 10}


def test_named_group_is_moved_alone(world: World) -> None:
    tp = TopicPartition(world.topic("orders"), 0)
    first, second = world.group("a"), world.group("b")
    for group in (first, second):
        world.commit("source", group, {tp: 20})
    result = cutover.apply(world.ctx(cutover=stopped(first, second)), [second])
    assert [it.group for it in result.groups] == [second]
    assert world.committed("target", first) == {}


def test_group_that_reads_other_topics_only_is_left_alone(world: World, hooks: HookServer) -> None:
    group = world.group("app")
    world.topic("orders")
    world.commit("source", group, {TopicPartition(world.foreign_topic("x"), 0): 5})
    result = cutover.apply(world.ctx(consumers=hooks.consumers))
    assert only(result).outcome is Fate.NOT_CONCERNED
    assert result.exit_code == 0
    assert hooks.calls == []
    assert record(world, group).steps == {}


def test_group_that_also_reads_other_topics_is_moved_and_flagged(world: World) -> None:
    tp = TopicPartition(world.topic("orders"), 0)
    foreign = TopicPartition(world.foreign_topic("x"), 0)
    group = world.group("app")
    world.commit("source", group, {tp: 20, foreign: 5})
    outcome = only(cutover.apply(world.ctx(cutover=stopped(group))))
    assert outcome.outcome is Fate.MOVED
    assert any("partial" in flag and foreign.topic in flag for flag in outcome.flags)
    assert world.committed("target", group) == {tp: 10}


def test_group_that_also_reads_what_another_migration_mirrors_is_refused_and_not_stopped(
    world: World, hooks: HookServer
) -> None:
    """That topic is on the target, too, without the group's positions: it would read it twice, or from its end."""
    tp = TopicPartition(world.topic("orders"), 0)
    foreign = TopicPartition(world.foreign_topic("x"), 0)
    group = world.group("app")
    world.commit("source", group, {tp: 20, foreign: 5})
    other = Journal(world.store, "others")
    assert other.lock([foreign.topic], at="now") == {}
    result = only(cutover.apply(world.ctx(consumers=hooks.consumers)))
    assert result.outcome is Fate.REFUSED
    assert f"{foreign.topic} (others)" in result.reason
    assert (hooks.calls, world.committed("target", group)) == ([], {})
    (seen,) = translate.preview(world.ctx(), [group]).groups
    assert seen.problems == (f"group {group} also reads {foreign.topic} (others)",)
    # Once that one is done, it holds nothing any more, and its topic stays.
    other.record(KIND, foreign.topic, {"created": True})
    other.unlock([foreign.topic])
    assert only(cutover.apply(world.ctx(consumers=hooks.consumers))).outcome is Fate.REFUSED
    other.forget(KIND, foreign.topic)
    assert only(cutover.apply(world.ctx(cutover=stopped(group)))).outcome is Fate.MOVED


def test_group_whose_members_read_topics_of_this_migration_alone_is_moved_whatever_it_once_committed(
    world: World, hooks: HookServer
) -> None:
    topic, foreign = world.topic("orders"), world.foreign_topic("x")
    group = world.group("app")
    world.commit("source", group, {TopicPartition(topic, 0): 20, TopicPartition(foreign, 0): 5})
    assert Journal(world.store, "others").lock([foreign], at="now") == {}
    leave = world.join("source", group, [topic])
    hooks.on("stop", "source", lambda _group: leave())
    assert only(cutover.apply(world.ctx(consumers=hooks.consumers))).outcome is Fate.MOVED


def test_other_offsets_of_the_group_on_the_target_are_kept(world: World) -> None:
    tp = TopicPartition(world.topic("orders"), 0)
    other = TopicPartition(world.topic("other"), 0)
    group = world.group("app")
    world.commit("source", group, {tp: 20})
    world.commit("target", group, {other: 7, tp: 3})
    assert only(cutover.apply(world.ctx(cutover=stopped(group)))).outcome is Fate.MOVED
    assert world.committed("target", group) == {tp: 10, other: 7}


# -- what is refused, with nothing written ----------------------------------------------------------------------------


def refused(world: World, result: CutoverResult) -> GroupOutcome:
    outcome = only(result)
    assert outcome.outcome is Fate.REFUSED
    assert result.exit_code == 1
    assert outcome.remedy
    return outcome


def test_live_group_without_hooks_is_refused_with_its_members_and_nothing_is_written(world: World) -> None:
    topic = world.topic("orders")
    group = world.group("app")
    world.commit("source", group, {TopicPartition(topic, 0): 20})
    world.join("source", group, [topic])
    outcome = refused(world, cutover.apply(world.ctx()))
    assert "not empty on the source" in outcome.reason
    assert len(outcome.members) == 1
    assert "shop at /127.0.0.1" in outcome.members[0]
    assert world.committed("target", group) == {}
    assert record(world, group).steps == {}


def test_group_that_lives_on_the_target_is_refused_before_it_is_stopped(world: World, hooks: HookServer) -> None:
    topic = world.topic("orders")
    group = world.group("app")
    world.commit("source", group, {TopicPartition(topic, 0): 20})
    world.join("target", group, [topic])
    outcome = refused(world, cutover.apply(world.ctx(consumers=hooks.consumers)))
    assert "not empty on the target" in outcome.reason
    assert hooks.calls == []


def test_group_that_does_not_stop_is_refused_after_the_wait(world: World, hooks: HookServer) -> None:
    topic = world.topic("orders")
    group = world.group("app")
    world.commit("source", group, {TopicPartition(topic, 0): 20})
    world.join("source", group, [topic])
    ctx = world.ctx(consumers=hooks.consumers | {"wait_seconds": 1.0})
    outcome = refused(world, cutover.apply(ctx))
    assert outcome.members
    assert "started on the source again" in outcome.remedy
    assert world.committed("target", group) == {}
    assert [call[:3] for call in hooks.calls] == [("stop", "source", "cutover"), ("start", "source", "undo")]


def test_group_that_comes_back_while_it_rests_is_waited_for_again(fake_world: FakeWorld, hooks: HookServer) -> None:
    world = fake_world
    tp, group = TopicPartition(world.topic("orders"), 0), world.group("app")
    world.commit("source", group, {tp: 20})

    def come_back() -> None:
        leave = world.join("source", group, [tp.topic])
        world.later(world.rest, leave)

    hooks.on("stop", "source", lambda _: world.later(world.rest / 2, come_back))
    assert only(cutover.apply(world.ctx(consumers=hooks.consumers))).outcome is Fate.MOVED
    assert [call[:2] for call in hooks.calls] == [("stop", "source"), ("start", "target")]


def test_group_without_members_that_still_commits_is_refused(world: World) -> None:
    tp = TopicPartition(world.topic("orders"), 0)
    group = world.group("app")
    with world.restless("source", group, tp):
        outcome = refused(world, cutover.apply(world.ctx()))
    assert "still commits" in outcome.reason
    assert str(tp) in outcome.reason
    assert world.committed("target", group) == {}


def test_partition_never_committed_is_refused_and_listed_before_the_group_is_stopped(
    world: World, hooks: HookServer
) -> None:
    topic = world.topic("orders", partitions=3)
    group = world.group("app")
    world.commit("source", group, {TopicPartition(topic, 1): 20})
    outcome = refused(world, cutover.apply(world.ctx(consumers=hooks.consumers)))
    assert f"{topic}-0, {topic}-2" in outcome.reason
    assert hooks.calls == []
    assert world.committed("target", group) == {}


def test_topic_that_live_members_read_but_never_committed_is_refused(world: World, hooks: HookServer) -> None:
    topic, silent = world.topic("orders"), world.topic("silent")
    group = world.group("app")
    world.commit("source", group, {TopicPartition(topic, 0): 20})
    world.join("source", group, [topic, silent])
    assert f"{silent}-0" in refused(world, cutover.apply(world.ctx(consumers=hooks.consumers))).reason
    assert hooks.calls == []


def test_topic_that_past_members_read_is_remembered(world: World) -> None:
    topic, silent = world.topic("orders"), world.topic("silent")
    group = world.group("app")
    world.commit("source", group, {TopicPartition(topic, 0): 20})
    leave = world.join("source", group, [topic, silent])
    group_looks.take(world.ctx(), [group])
    leave()
    assert f"{silent}-0" in refused(world, cutover.apply(world.ctx())).reason


@pytest.mark.parametrize(("policy", "lands"), [("earliest", 0), ("cut", 90)])
def test_partition_never_committed_starts_where_the_plan_says(policy: str, lands: int, world: World) -> None:
    topic = world.topic("orders", partitions=2)
    group = world.group("app")
    world.commit("source", group, {TopicPartition(topic, 1): 20})
    ctx = world.ctx(cutover={"uncommitted": policy} | stopped(group))
    assert only(cutover.apply(ctx)).outcome is Fate.MOVED
    assert world.committed("target", group) == {TopicPartition(topic, 0): lands, TopicPartition(topic, 1): 10}
    assert [(it.source, it.policy) for it in record(world, group).translations] == [(None, policy), (20, "exact")]


def test_commit_that_is_not_mirrored_in_time_is_refused(world: World) -> None:
    tp = TopicPartition(world.topic("orders", records=100, mirrored=50), 0)
    group = world.group("app")
    world.commit("source", group, {tp: 80})
    outcome = refused(world, cutover.apply(world.ctx(consumers={"wait_seconds": 1.0})))
    assert "not copied up to its commits" in outcome.reason
    assert "80" in outcome.reason
    assert world.committed("target", group) == {}


def test_commit_behind_a_halt_is_refused_at_once(world: World) -> None:
    tp = TopicPartition(world.topic("orders", records=100, mirrored=50), 0)
    world.link.halt(tp, "CORRUPT")
    group = world.group("app")
    world.commit("source", group, {tp: 80})
    outcome = refused(world, cutover.apply(world.ctx(consumers={"wait_seconds": 3600})))
    assert f"{tp} (CORRUPT)" in outcome.reason


def test_halt_behind_the_commit_does_not_matter(world: World) -> None:
    tp = TopicPartition(world.topic("orders", records=100, mirrored=50), 0)
    world.link.halt(tp, "CORRUPT")
    group = world.group("app")
    world.commit("source", group, {tp: 40})
    assert only(cutover.apply(world.ctx(cutover=stopped(group)))).outcome is Fate.MOVED


def test_commit_beyond_the_log_end_is_refused_at_once(world: World) -> None:
    tp = TopicPartition(world.topic("orders", records=100), 0)
    group = world.group("app")
    world.commit("source", group, {tp: 101})
    outcome = refused(world, cutover.apply(world.ctx(consumers={"wait_seconds": 3600})))
    assert "committed 101, end 100" in outcome.reason


def test_group_further_ahead_on_the_target_is_not_rewound(world: World) -> None:
    tp = TopicPartition(world.topic("orders"), 0)
    group = world.group("app")
    world.commit("source", group, {tp: 20})
    world.commit("target", group, {tp: 11})
    outcome = refused(world, cutover.apply(world.ctx()))
    assert f"{tp} (committed 11, translated 10)" in outcome.reason
    assert world.committed("target", group) == {tp: 11}


def test_group_that_goes_ahead_on_the_target_after_the_translation_is_not_rewound(
    fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = fake_world
    tp, group = TopicPartition(world.topic("orders"), 0), world.group("app")
    world.commit("source", group, {tp: 20})
    state_of, looks = world.target.group_state, [lambda: None, lambda: world.commit("target", group, {tp: 55})]

    def look(name: str) -> object:
        # The second look is the one right before the write.
        if looks:
            looks.pop(0)()
        return state_of(name)

    monkeypatch.setattr(world.target, "group_state", look)
    outcome = refused(world, cutover.apply(world.ctx()))
    assert f"{tp} (committed 55, translated 10)" in outcome.reason
    assert world.committed("target", group) == {tp: 55}


def test_group_further_ahead_is_rewound_on_explicit_order(world: World) -> None:
    tp = TopicPartition(world.topic("orders"), 0)
    group = world.group("app")
    world.commit("source", group, {tp: 20})
    world.commit("target", group, {tp: 11})
    assert only(cutover.apply(world.ctx(cutover={"rewind": True} | stopped(group)))).outcome is Fate.MOVED
    assert world.committed("target", group) == {tp: 10}


def test_failing_stop_hook_refuses_the_group(world: World, hooks: HookServer) -> None:
    tp = TopicPartition(world.topic("orders"), 0)
    group = world.group("app")
    world.commit("source", group, {tp: 20})
    world.join("source", group, [tp.topic])
    hooks.answer = (404, b"who?")
    outcome = refused(world, cutover.apply(world.ctx(consumers=hooks.consumers)))
    assert outcome.reason.endswith("answered 404")
    assert world.committed("target", group) == {}


def test_group_that_does_not_exist_is_refused(world: World) -> None:
    outcome = refused(world, cutover.apply(world.ctx(), [world.group("nobody")]))
    assert "does not exist on the source" in outcome.reason


def test_group_that_the_plan_leaves_out_is_bad_input(world: World) -> None:
    with pytest.raises(BadInput, match="does not select") as caught:
        cutover.apply(world.ctx(), ["somebody-else"])
    assert caught.value.value == "somebody-else"


def test_group_that_comes_back_while_it_is_moved_is_refused(fake_world: FakeWorld) -> None:
    world = fake_world
    topic = world.topic("orders", mirrored=50)
    group, tp = world.group("app"), TopicPartition(topic, 0)
    world.commit("source", group, {tp: 80})

    def come_back() -> None:
        world.join("source", group, [topic])
        world.mirror(tp, 100)

    world.later(world.rest + 1, come_back)
    assert "not empty on the source" in refused(world, cutover.apply(world.ctx())).reason
    assert world.committed("target", group) == {}


def test_group_that_commits_right_after_the_write_is_not_started(
    fake_world: FakeWorld, hooks: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = fake_world
    tp, group = TopicPartition(world.topic("orders"), 0), world.group("app")
    world.commit("source", group, {tp: 20})
    write = world.target.commit

    def write_and_come_back(*args: object) -> None:
        write(*args)
        world.source.consumer_commits(group, tp, 21)

    monkeypatch.setattr(world.target, "commit", write_and_come_back)
    assert "committed on the source again" in refused(world, cutover.apply(world.ctx(consumers=hooks.consumers))).reason
    # Its consumers go on where they are: nothing was read on the target.
    assert [call[:2] for call in hooks.calls] == [("stop", "source"), ("start", "source")]
    monkeypatch.undo()
    # Stopped for good, it moves on from where it is by now.
    hooks.on("start", "target", lambda _: world.go_on("target", group, tp, 30))
    assert only(cutover.apply(world.ctx(consumers=hooks.consumers))).outcome is Fate.MOVED
    assert [(it.source, it.target) for it in record(world, group).translations] == [(21, 11)]


def test_commit_that_expires_while_the_group_is_stopped_is_refused(fake_world: FakeWorld, hooks: HookServer) -> None:
    world = fake_world
    topic, group = world.topic("orders", partitions=2), world.group("app")
    lost = TopicPartition(topic, 1)
    world.commit("source", group, {TopicPartition(topic, 0): 20, lost: 30})
    hooks.on("stop", "source", lambda _: world.source.expire_commit(group, lost))
    outcome = refused(world, cutover.apply(world.ctx(consumers=hooks.consumers)))
    assert f"never committed an offset of {lost}" in outcome.reason
    assert world.committed("target", group) == {}


def test_foreign_commit_between_write_and_read_back_is_found(
    fake_world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = fake_world
    tp, group = TopicPartition(world.topic("orders"), 0), world.group("app")
    world.commit("source", group, {tp: 20})
    write = world.target.commit

    def write_twice(*args: object) -> None:
        write(*args)
        world.target.consumer_commits(group, tp, 4)

    monkeypatch.setattr(world.target, "commit", write_twice)
    outcome = refused(world, cutover.apply(world.ctx()))
    assert "differ from what was written" in outcome.reason
    assert "read 4 ''" in outcome.reason


@pytest.mark.parametrize("protocol", ["share", "streams", "connect"])
def test_group_that_is_more_than_its_offsets_is_refused(protocol: str, fake_world: FakeWorld) -> None:
    world = fake_world
    group = world.group("app")
    world.source.join(group, [world.topic("orders")], protocol=protocol)
    assert f"uses protocol {protocol}" in refused(world, cutover.apply(world.ctx())).reason


def test_group_of_the_consumer_protocol_is_moved(fake_world: FakeWorld) -> None:
    world = fake_world
    topic, group = world.topic("orders"), world.group("app")
    member = world.source.join(group, [topic], protocol="consumer")
    world.source.consumer_commits(group, TopicPartition(topic, 0), 20)
    world.source.leave(group, member)
    assert only(cutover.apply(world.ctx(cutover=stopped(group)))).outcome is Fate.MOVED


def test_commit_of_a_deleted_topic_stays_behind_and_is_flagged(fake_world: FakeWorld) -> None:
    world = fake_world
    tp, gone = TopicPartition(world.topic("orders"), 0), TopicPartition(world.topic("gone"), 0)
    group = world.group("app")
    world.commit("source", group, {tp: 20, gone: 30})
    del world.source._topics[gone.topic]
    outcome = only(cutover.apply(world.ctx(cutover=stopped(group))))
    assert outcome.outcome is Fate.MOVED
    assert any(str(gone) in flag for flag in outcome.flags)
    assert world.committed("target", group) == {tp: 10}


def test_cluster_that_does_not_answer_for_one_group_fails_it_and_not_the_others(fake_world: FakeWorld) -> None:
    world = fake_world
    tp = TopicPartition(world.topic("orders"), 0)
    first, second = world.group("a"), world.group("b")
    for group in (first, second):
        world.commit("source", group, {tp: 20})
    down = ClusterUnreachable("target", "127.0.0.1:1", "timed out")
    with world.target.failing("group_states", down, on=first):
        result = cutover.apply(world.ctx(cutover=stopped(first, second)))
    assert [it.outcome for it in result.groups] == [Fate.FAILED, Fate.MOVED]
    assert result.exit_code == 3


def test_refused_group_decides_the_exit_code_beside_one_that_nobody_could_look_at(
    fake_world: FakeWorld,
) -> None:
    world = fake_world
    tp = TopicPartition(world.topic("orders"), 0)
    silent, running = world.group("a"), world.group("b")
    for group in (silent, running):
        world.commit("source", group, {tp: 20})
    world.join("source", running, [tp.topic])
    down = ClusterUnreachable("target", "127.0.0.1:1", "timed out")
    with world.target.failing("group_states", down, on=silent):
        result = cutover.apply(world.ctx(cutover=stopped(silent, running)))
    assert [it.outcome for it in result.groups] == [Fate.FAILED, Fate.REFUSED]
    assert result.exit_code == 1, "to try again changes nothing for the one that was refused"


@pytest.mark.parametrize("method", ["commit", "committed"])
def test_coordinator_that_moves_does_not_leave_a_group_stopped(
    method: str, fake_world: FakeWorld, hooks: HookServer
) -> None:
    world = fake_world
    tp, group = TopicPartition(world.topic("orders"), 0), world.group("app")
    world.commit("source", group, {tp: 20})
    failing = world.target.failing(method, CouldNotFindOut("NOT_COORDINATOR"))

    def stop(_: str) -> None:
        failing.__enter__()
        world.later(10.0, lambda: failing.__exit__(None, None, None))

    hooks.on("stop", "source", stop)
    assert only(cutover.apply(world.ctx(consumers=hooks.consumers))).outcome is Fate.MOVED
    assert world.committed("target", group) == {tp: 10}


def test_cluster_that_stays_away_is_not_waited_for_without_end(fake_world: FakeWorld, hooks: HookServer) -> None:
    world = fake_world
    tp, group = TopicPartition(world.topic("orders"), 0), world.group("app")
    world.commit("source", group, {tp: 20})
    with world.target.failing("commit", CouldNotFindOut("NOT_COORDINATOR")):
        result = cutover.apply(world.ctx(consumers=hooks.consumers))
    assert (only(result).outcome, result.exit_code) == (Fate.FAILED, 3)
    assert "its consumers were started on the source again" in only(result).remedy
    assert world.clock.monotonic() < 60


def test_taken_over_orchestrator_stops_at_once(fake_world: FakeWorld) -> None:
    world = fake_world
    tp = TopicPartition(world.topic("orders"), 0)
    for name in ("a", "b"):
        world.commit("source", world.group(name), {tp: 20})
    with (
        world.target.failing("group_states", TakenOver("migration moving"), on=world.group("a")),
        pytest.raises(TakenOver),
    ):
        cutover.apply(world.ctx())
    assert world.committed("target", world.group("b")) == {}


# -- dry run, check, batches ------------------------------------------------------------------------------------------


def test_dry_run_tells_the_steps_of_the_real_run_and_changes_nothing(world: World, hooks: HookServer) -> None:
    topic = world.topic("orders")
    group = world.group("app")
    world.commit("source", group, {TopicPartition(topic, 0): 20})
    world.link.maps[TopicPartition(topic, 0)] = OffsetMap([Run(START, 0, 90)], source_end=100, target_end=90)
    hooks.on("start", "target", lambda _: world.go_on("target", group, TopicPartition(topic, 0), 30))
    result = cutover.apply(world.ctx(dry_run=True, consumers=hooks.consumers))
    assert only(result).outcome is Fate.WOULD_MOVE
    dry, world.told[:] = list(world.told), []
    assert hooks.calls == []
    assert world.committed("target", group) == {}
    assert world.store.items() == {}
    cutover.apply(world.ctx(consumers=hooks.consumers))
    assert world.told == ["cutover gate: open", *dry]
    assert len(dry) == 4
    assert f"POST {hooks.url}/stop/source/cutover/{group}" in dry[0]


def test_dry_run_says_what_would_refuse(world: World) -> None:
    topic = world.topic("orders")
    group = world.group("app")
    world.commit("source", group, {TopicPartition(topic, 0): 20})
    world.join("source", group, [topic])
    result = cutover.apply(world.ctx(dry_run=True))
    assert only(result).outcome is Fate.REFUSED
    assert result.exit_code == 1


def test_batches_hold_every_group_of_the_plan_once(fake_world: FakeWorld) -> None:
    world = fake_world
    tp = TopicPartition(world.topic("orders"), 0)
    names = [world.group(f"g{n}") for n in range(7)]
    for name in names:
        world.commit("source", name, {tp: 20})
    batches = cutover.batches(world.ctx(cutover={"batch_size": 3}))
    assert batches == [names[0:3], names[3:6], names[6:7]]


def test_batches_are_no_more_than_airflow_maps(fake_world: FakeWorld) -> None:
    world = fake_world
    tp = TopicPartition(world.topic("orders"), 0)
    for n in range(1025):
        world.commit("source", world.group(f"g{n}"), {tp: 20})
    batches = cutover.batches(world.ctx(cutover={"batch_size": 1}))
    assert (len(batches), sum(map(len, batches))) == (513, 1025)


def test_result_is_json(world: World) -> None:
    import json

    group = world.group("app")
    world.commit("source", group, {TopicPartition(world.topic("orders"), 0): 20})
    found = json.loads(json.dumps(cutover.apply(world.ctx(cutover=stopped(group))).as_dict()))
    assert found["groups"][0]["positions"][0]["target"] == 10
