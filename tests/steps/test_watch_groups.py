"""When a moved group counts as alive, and what is said of one that does not."""

from __future__ import annotations

import json
from typing import Any

from kafka_migration.domain.errors import ClusterUnreachable
from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups import watch
from kafka_migration.groups.watch import GroupLife, Life
from kafka_migration.steps import cutover
from tests.steps.worlds import START, FakeWorld, World


def moved(world: World, committed: int = 20, **cutover_fields: Any) -> tuple[str, TopicPartition]:
    """A group that was moved and that nobody has started yet."""
    tp, group = TopicPartition(world.topic("orders"), 0), world.group("app")
    world.commit("source", group, {tp: committed})
    cutover.apply(world.ctx(cutover={"watch_seconds": 0.1, **cutover_fields}))
    return group, tp


def watched(world: World, seconds: float | None = None, **fields: Any) -> GroupLife:
    (life,) = watch.apply(world.ctx(**fields), seconds=seconds).groups
    return life


def test_group_lives_once_it_commits_past_its_translated_offset(world: World) -> None:
    group, tp = moved(world)
    world.later(0.5, lambda: world.go_on("target", group, tp, 11))
    life = watched(world)
    assert life.life is Life.ALIVE
    assert f"{tp} (10 -> 11)" in life.evidence
    assert life.pause_seconds is not None
    assert life.pause_seconds >= world.rest


def test_members_alone_are_no_life_where_there_is_something_to_read(world: World) -> None:
    group, tp = moved(world)
    world.join("target", group, [tp.topic])
    life = watched(world, seconds=0.5)
    assert life.life is Life.LATE
    assert "1 members on the target, no commit past" in life.evidence
    assert f"`undo --group {group}`" in life.remedy


def test_group_at_the_end_lives_with_members_and_its_commits(world: World) -> None:
    group, tp = moved(world, committed=100)
    assert watched(world, seconds=0.1).life is Life.LATE
    world.join("target", group, [tp.topic])
    life = watched(world)
    assert life.life is Life.ALIVE
    assert "nothing to read yet" in life.evidence


def test_marker_behind_the_last_record_is_nothing_to_read(world: World) -> None:
    """A fence's marker moves the target's log end, and no consumer commits past it."""
    group, tp = moved(world, committed=100)
    world.more("target", tp, 1)
    world.link.maps[tp] = OffsetMap([Run(START, 0, 90)], source_end=100, target_end=91)
    world.join("target", group, [tp.topic])
    assert watched(world).life is Life.ALIVE


def test_group_without_life_is_late_after_the_time_that_the_plan_gives(world: World) -> None:
    group, _ = moved(world)
    life = watched(world, cutover={"watch_seconds": 1.0})
    assert (life.group, life.life) == (group, Life.LATE)
    assert "its time was over" in life.evidence
    assert watch.apply(world.ctx(cutover={"watch_seconds": 1.0})).exit_code == 1


def test_stopped_group_needs_only_the_read_back(world: World) -> None:
    group = world.group("app")
    moved(world, stopped_groups=[group])
    life = watched(world, cutover={"stopped_groups": [group]})
    assert life.life is Life.ALIVE
    assert "declared stopped" in life.evidence


def test_group_that_also_lives_on_the_source_does_not_count(world: World) -> None:
    group, tp = moved(world)
    world.go_on("target", group, tp, 11)
    leave = world.join("source", group, [tp.topic])
    life = watched(world, seconds=0.5)
    assert life.life is Life.ON_BOTH
    assert "1 members on the source" in life.evidence
    leave()
    assert watched(world).life is Life.ALIVE


def test_group_that_comes_back_on_the_source_after_it_was_seen_alive_is_on_both(world: World) -> None:
    group, tp = moved(world)
    world.go_on("target", group, tp, 11)
    assert watched(world).life is Life.ALIVE
    world.go_on("source", group, tp, 23)
    life = watched(world, seconds=0.5)
    assert life.life is Life.ON_BOTH
    assert f"committed again on the source: {tp} (20 -> 23)" in life.evidence
    assert "processed twice" in life.remedy


def test_group_that_was_refused_is_listed_as_not_moved(world: World) -> None:
    topic, group = world.topic("orders", records=100, mirrored=15), world.group("app")
    world.commit("source", group, {TopicPartition(topic, 0): 20})
    cutover.apply(world.ctx(consumers={"wait_seconds": 0.2}))
    life = watched(world)
    assert (life.life, life.is_final) == (Life.NOT_MOVED, True)
    assert "last step: stopped" in life.evidence


def test_lost_commits_are_named(world: World) -> None:
    group, tp = moved(world)
    world.commit("target", group, {tp: 3})
    assert f"commits of {tp} are below what was written" in watched(world, seconds=0.1).evidence


def test_alive_once_is_alive_for_good(world: World) -> None:
    group, tp = moved(world)
    world.go_on("target", group, tp, 11)
    first = watched(world)
    world.go_on("target", group, tp, 90)
    assert watched(world) == first


def test_sample_looks_once_and_leaves_the_rest_to_whoever_waits(world: World) -> None:
    group, tp = moved(world)
    ctx = world.ctx()
    result = watch.sample(ctx, [group])
    assert (result.groups[0].is_final, result.groups[0].life) == (False, Life.WAITING)
    world.go_on("target", group, tp, 11)
    result = watch.sample(ctx, [group])
    assert (result.groups[0].is_final, result.exit_code) == (True, 0)


def test_dry_watch_looks_once_and_writes_nothing(world: World) -> None:
    group, tp = moved(world)
    world.go_on("target", group, tp, 11)
    before = world.store.items()
    (life,) = watch.apply(world.ctx(dry_run=True)).groups
    assert life.life is Life.ALIVE
    assert world.store.items() == before


def test_cluster_that_does_not_answer_leaves_a_group_unknown(fake_world: FakeWorld) -> None:
    group, _ = moved(fake_world)
    with fake_world.target.failing("committed", ClusterUnreachable("target", "127.0.0.1:1", "timed out"), on=group):
        result = watch.apply(fake_world.ctx(), seconds=5.0)
    assert result.groups[0].life is Life.UNKNOWN
    assert result.exit_code == 3
    assert json.loads(json.dumps(result.as_dict()))["groups"][0]["life"] == "unknown"


def test_cluster_that_answers_again_in_time_is_forgiven(fake_world: FakeWorld) -> None:
    group, tp = moved(fake_world)
    failing = fake_world.target.failing("committed", ClusterUnreachable("target", "127.0.0.1:1", "timed out"))
    failing.__enter__()

    def recover() -> None:
        failing.__exit__(None, None, None)
        fake_world.go_on("target", group, tp, 11)

    fake_world.later(3.0, recover)
    assert watched(fake_world).life is Life.ALIVE
