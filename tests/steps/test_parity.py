"""Groups' offsets, topics and access rules of both clusters, side by side."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kafka_migration.domain.errors import ClusterUnreachable
from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups import parity
from kafka_migration.groups.parity import GroupParity, OffsetParity, Parity, Standing, compared
from kafka_migration.kafka.types import Acl, CommittedOffset
from kafka_migration.steps import cutover
from tests.steps.worlds import START, World

TP = TopicPartition("orders", 0)
MAP = OffsetMap((Run(10, 0, 90),), source_end=100, target_end=90)


def _one(source: int, target: int | None) -> OffsetParity:
    there = {} if target is None else {TP: CommittedOffset(offset=target)}
    (found,) = compared({TP: CommittedOffset(offset=source)}, there, maps={TP: MAP}, of=lambda _: True)
    return found


def test_commits_are_compared_through_the_map():
    assert _one(60, 50).standing is Standing.EQUAL
    assert _one(60, 51).standing is Standing.AHEAD
    assert _one(60, 49).standing is Standing.BEHIND
    assert _one(60, None).standing is Standing.ABSENT
    assert _one(101, 90).standing is Standing.UNKNOWN
    assert (_one(60, 49).expected, _one(101, 90).expected) == (50, None)


def test_topics_of_others_are_left_out_and_unmirrored_ones_are_unknown():
    other = TopicPartition("other", 0)
    commits = {TP: CommittedOffset(offset=60), other: CommittedOffset(offset=1)}
    found = compared(commits, {}, maps={}, of=lambda name: name == "orders")
    assert [(it.tp, it.standing) for it in found] == [(TP, Standing.UNKNOWN)]


def test_only_what_a_consumer_would_notice_is_a_problem():
    def group(*offsets: OffsetParity, moved: bool) -> GroupParity:
        return GroupParity(group="app", is_moved=moved, offsets=offsets)

    assert group(_one(60, None), moved=False).problem == ""
    assert "nothing on the target, where 50 is due" in group(_one(60, None), moved=True).problem
    assert group(_one(60, 70), _one(60, 50), moved=True).problem == ""
    for moved in (True, False):
        said = group(_one(60, 50), _one(60, 20), _one(60, 30), moved=moved).problem
        assert "offset 20 on the target, where 50 is due (source 60), and 1 partitions more" in said
    assert group(_one(60, 50), _one(60, 20), moved=True).counts == {"equal": 1, "behind": 1}


def test_missing_rules_are_told_and_not_judged():
    rule = Acl(
        resource_type="TOPIC",
        resource="orders",
        pattern="LITERAL",
        principal="User:app",
        host="*",
        operation="READ",
        permission="ALLOW",
    )
    found = Parity(groups=(), topics=(), access=(rule,))
    assert found.problems == ()
    assert found.as_dict()["access_missing"][0]["principal"] == "User:app"


def test_groups_before_and_after_their_move(world: World) -> None:
    topic, group = world.topic("orders", partitions=2), world.group("app")
    partitions = [TopicPartition(topic, p) for p in range(2)]
    world.commit("source", group, dict.fromkeys(partitions, 20))
    (before,) = parity.read(world.ctx(), [group]).groups
    assert (before.is_moved, before.problem, before.counts) == (False, "", {"absent": 2})
    ctx = world.ctx(cutover={"stopped_groups": [group]})
    cutover.apply(ctx)
    (after,) = parity.read(ctx, [group]).groups
    assert (after.is_moved, after.problem, after.counts) == (True, "", {"equal": 2})
    assert [(it.source, it.expected, it.target) for it in after.offsets] == [(20, 20 - START, 20 - START)] * 2
    world.commit("target", group, {partitions[0]: 15, partitions[1]: 9})
    found = parity.read(ctx, [group])
    assert found.groups[0].counts == {"ahead": 1, "behind": 1}
    (problem,) = found.problems
    assert f"{topic}-1: offset 9 on the target, where 10 is due" in problem


def test_clusters_without_an_authorizer_say_so(world: World) -> None:
    world.topic("orders")
    found = parity.read(world.ctx(), [])
    assert found.access in (None, ())
    assert (found.access is None) == bool(found.access_unknown)


def test_section_beside_a_verdict_has_the_worst_first_and_counts_what_it_leaves_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parity, "_KEPT", 2)
    topic, groups = world.topic("orders"), [world.group(name) for name in ("a", "b", "c")]
    tp = TopicPartition(topic, 0)
    for group in groups:
        world.commit("source", group, {tp: 20})
    world.commit("target", groups[2], {tp: 3})
    told: list[str] = []
    found = parity.section(replace(world.ctx(), log=told.append))
    assert [it["group"] for it in found["groups"]] == [groups[2], groups[0]]
    assert found["groups"][1]["counts"] == {"absent": 1}
    assert found["left_out"]["groups"] == 1
    (problem,) = found["problems"]
    assert f"group {groups[2]}: {tp}: offset 3 on the target, where {20 - START} is due" in problem
    assert told == [f"beside the records: {problem}"]
    json.dumps(found)


def test_section_of_clusters_that_do_not_answer_says_why_and_is_no_error(world: World) -> None:
    def silent(*_arguments: object) -> None:
        raise ClusterUnreachable("source", "127.0.0.1:9", "no answer")

    world.topic("orders")
    ctx = world.ctx()
    found = parity.section(replace(ctx, source=SimpleNamespace(groups=silent)))  # type: ignore[arg-type]
    assert "source" in found["unknown"]
    assert "problems" not in found
