"""The preview of what cutover would write."""

from __future__ import annotations

import json
import random

import pytest

from kafka_migration.domain.errors import BadInput
from kafka_migration.domain.listing import listed
from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.groups import translate
from kafka_migration.groups.record import Policy, Translation
from kafka_migration.kafka.types import GroupState
from kafka_migration.steps import cutover
from tests.steps.worlds import START, FakeWorld, World


def test_preview_is_what_cutover_writes(world: World) -> None:
    topic = world.topic("orders", partitions=2)
    groups = [world.group("a"), world.group("b")]
    for n, group in enumerate(groups):
        world.commit("source", group, {TopicPartition(topic, p): 20 + n + p for p in range(2)})
    shown = translate.preview(world.ctx())
    assert shown.exit_code == 0
    assert world.store.items() == {}
    assert all(world.committed("target", group) == {} for group in groups)
    moved = cutover.apply(world.ctx(cutover={"stopped_groups": groups}))
    assert [it.translations for it in shown.groups] == [it.translations for it in moved.groups]


def test_preview_of_a_live_group_shows_where_it_stands_now(world: World) -> None:
    topic, group = world.topic("orders"), world.group("app")
    world.commit("source", group, {TopicPartition(topic, 0): 20})
    world.join("source", group, [topic])
    (it,) = translate.preview(world.ctx(), [group]).groups
    assert (it.state, it.members, it.problems) == ("Stable", 1, ())
    assert [(t.source, t.target) for t in it.translations] == [(20, 10)]


def test_preview_names_what_would_keep_a_group(world: World) -> None:
    topic = world.topic("orders", partitions=2, records=100, mirrored=50)
    behind, half, none = world.group("behind"), world.group("half"), world.group("none")
    world.commit("source", behind, {TopicPartition(topic, 0): 80, TopicPartition(topic, 1): 20})
    world.commit("source", half, {TopicPartition(topic, 0): 20})
    world.commit("source", none, {TopicPartition(world.foreign_topic("x"), 0): 1})
    shown = translate.preview(world.ctx())
    problems = {it.group: it.problems for it in shown.groups}
    assert shown.exit_code == 1
    assert len(problems[behind]) == 1
    assert "80 lies beyond the mirror's position 50" in problems[behind][0]
    assert f"never committed an offset of {topic}-1" in problems[half][0]
    assert problems[none] == ("it has no committed offset of a topic of the plan",)


def test_explicit_offsets_are_translated_in_the_order_given(world: World) -> None:
    tp = TopicPartition(world.topic("orders"), 0)
    unknown = TopicPartition("nowhere", 3)
    shown = translate.translate_offsets(world.ctx(), [(tp, 100), (tp, 0), (tp, 101), (unknown, 5), (tp, 55)])
    assert [it.target for it in shown.offsets] == [90, 0, None, None, 45]
    assert "beyond the mirror's position" in shown.offsets[2].problem
    assert "nothing of this partition is mirrored" in shown.offsets[3].problem
    assert shown.exit_code == 1
    assert json.loads(json.dumps(shown.as_dict()))["offsets"][0]["target"] == 90


def test_explicit_offset_behind_the_cut_leads_to_its_record_on_the_target(fake_world: FakeWorld) -> None:
    tp = TopicPartition(fake_world.topic("orders"), 0)
    first = fake_world.cut(tp, 10)
    source = fake_world.link.maps[tp].source_end + 1
    shown = translate.translate_offsets(fake_world.ctx(), [(tp, 55), (tp, source), (tp, source + 4), (tp, source + 11)])
    assert [row.target for row in shown.offsets] == [45, first, first + 4, None]
    assert "beyond the mirror's position" in shown.offsets[3].problem


def test_every_offset_of_a_gappy_partition_lands_on_its_own_record(fake_world: FakeWorld) -> None:
    dice = random.Random(7)
    tp = TopicPartition("orders", 0)
    # Records by their source offsets; what stands between them is gaps, on either side.
    runs, place, source, target = [], dict[int, int](), 1000, 0
    for _ in range(200):
        source, target = source + dice.randrange(1, 5), target + dice.randrange(3)
        length = dice.randrange(1, 9)
        runs.append(Run(source, target, length))
        place |= {source + n: target + n for n in range(length)}
        source, target = source + length, target + length
    fake_world.link.maps[tp] = OffsetMap(runs, source_end=source, target_end=target)
    shown = translate.translate_offsets(fake_world.ctx(), [(tp, offset) for offset in range(source + 1)])
    for it in shown.offsets:
        following = next((place[o] for o in range(it.source, source) if o in place), target)
        assert it.target == (following if it.source >= runs[0].source else 0)


def test_negative_offset_is_bad_input(fake_world: FakeWorld) -> None:
    with pytest.raises(BadInput):
        translate.translate_offsets(fake_world.ctx(), [(TopicPartition("orders", 0), -1)])


def test_policy_for_uncommitted_partitions_is_shown(world: World) -> None:
    topic, group = world.topic("orders", partitions=2), world.group("app")
    world.commit("source", group, {TopicPartition(topic, 1): START})
    (it,) = translate.preview(world.ctx(cutover={"uncommitted": "cut"})).groups
    assert it.translations == (
        Translation(tp=TopicPartition(topic, 0), source=None, target=90, policy="cut"),
        Translation(tp=TopicPartition(topic, 1), source=START, target=0, policy="exact"),
    )


def test_translation_without_a_commit_is_never_called_exact() -> None:
    with pytest.raises(ValueError, match="committed offset"):
        Translation(tp=TopicPartition("orders", 0), source=None, target=0, policy="exact")


def test_long_lists_are_shortened() -> None:
    assert listed(range(3)) == "0, 1, 2"
    assert listed(range(20)).endswith("7 and 12 more")


@pytest.mark.parametrize(
    ("policy", "target"),
    [("cut", 40), ("earliest", 5)],
    ids=["the same policy: where it was made", "another policy by now: made anew"],
)
def test_cut_of_an_earlier_try_stays_unless_the_plan_says_otherwise_by_now(policy: Policy, target: int) -> None:
    tp = TopicPartition("orders", 0)
    view = translate.GroupView(
        state=GroupState(group="app", state="Empty", protocol="consumer"),
        committed={},
        uncommitted=(tp,),
        outside=(),
        gone=(),
        passed_over={},
    )
    found = translate.positions_of(
        view,
        maps={},
        ends={tp: PartitionEnds(start=5, end=90)},
        uncommitted=policy,  # type: ignore[arg-type]
        kept={tp: Translation(tp=tp, source=None, target=40, policy="cut")},
    )
    assert [(it.target, it.policy) for it in found.translations] == [(target, policy)]
