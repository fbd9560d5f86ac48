"""Topics with copy tasks of their own: who copies what, on slots that suffice or do not; and a run with them."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_migration.copy.driver import pace
from kafka_migration.copy.driver.active import Assigner, Dedicated
from kafka_migration.copy.driver.mirror import Settings
from kafka_migration.copy.driver.pace import Slots
from kafka_migration.copy.orders import Limits
from kafka_migration.domain.types import TopicPartition
from kafka_migration.plans.model import DedicatedStreams
from kafka_migration.steps import mirror
from tests.copy.bench import BRIEF, ThreadRunner, assert_same, bench, records
from tests.kafka_tools import produce

LARGE = 10_000_000
HEAVY = Dedicated(has=lambda name: name.startswith("heavy"), streams=2, sizes={"request_bytes": 4711})
URGENT = Dedicated(has="urgent".__eq__, streams=1)


def shares(
    slots: int | None, backlog: dict[str, int], *dedicated: Dedicated, streams: int = 2, room: int | None = None
):
    """Which partitions each task gets, as text, and whether it has the sizes of the heavy ones."""
    unused: Any = SimpleNamespace()
    assigner = Assigner(
        link=unused,
        source={},
        target={},
        topics={},
        attempts=unused,
        pinned=unused,
        slots=Slots(streams + sum(each.streams for each in dedicated), slots),
        streams=streams,
        dedicated=dedicated,
        limits=Limits(),
        debt=unused,
    )
    topics = {TopicPartition(*_place(name)): size for name, size in backlog.items()}
    found = assigner._shares(topics, assigner.slots.now if room is None else room)
    return [(sorted(map(str, share)), limits.request_bytes == 4711) for share, limits in found]


def _place(name: str) -> tuple[str, int]:
    topic, _, number = name.rpartition("-")
    return topic, int(number)


ALL = {"heavy-0": LARGE, "heavy-1": LARGE, "heavy-2": 0, "urgent-0": 5, "small-0": LARGE, "small-1": LARGE}


def test_each_kind_has_tasks_of_its_own_with_its_sizes():
    assert shares(None, ALL, HEAVY, URGENT) == [
        (["heavy-0", "heavy-2"], True),
        (["heavy-1"], True),
        (["urgent-0"], False),
        (["small-0"], False),
        (["small-1"], False),
    ]


def test_topic_belongs_to_the_first_that_has_it():
    everything = Dedicated(has=lambda _: True, streams=1)
    assert shares(None, ALL, URGENT, everything) == [
        (["urgent-0"], False),
        (["heavy-0", "heavy-1", "heavy-2", "small-0", "small-1"], False),
    ]


def test_others_have_no_more_tasks_than_they_are_to_have_although_slots_are_free():
    only_small = {f"small-{n}": LARGE for n in range(6)}
    assert len(shares(None, only_small, HEAVY, URGENT)) == 2


def test_others_that_get_little_are_copied_by_one_task_and_dedicated_ones_stay_apart(monkeypatch):
    monkeypatch.setattr(pace, "SMALL_BACKLOG", 50_000)
    quiet = dict.fromkeys(ALL, 1)
    assert [share for share, _ in shares(None, quiet, HEAVY)] == [
        ["heavy-0", "heavy-2"],
        ["heavy-1"],
        ["small-0", "small-1", "urgent-0"],
    ]


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        # The heavy ones are together, so that everybody else has a task.
        (3, [["heavy-0", "heavy-1", "heavy-2"], ["urgent-0"], ["small-0", "small-1"]]),
        (4, [["heavy-0", "heavy-2"], ["heavy-1"], ["urgent-0"], ["small-0", "small-1"]]),
        # Not a slot for each kind: all share them, by what each has to copy.
        (2, [["heavy-0", "small-0", "urgent-0"], ["heavy-1", "heavy-2", "small-1"]]),
        (1, [["heavy-0", "heavy-1", "heavy-2", "small-0", "small-1", "urgent-0"]]),
    ],
)
def test_with_few_slots_every_kind_keeps_one_or_all_share_them(slots, expected):
    assert [share for share, _ in shares(slots, ALL, HEAVY, URGENT)] == expected


def test_task_of_a_suspect_takes_a_slot_from_them():
    assert len(shares(5, ALL, HEAVY, URGENT, room=4)) == 4


def test_plan_says_whose_they_are_and_with_what_sizes():
    made = mirror._dedicated(DedicatedStreams(topics=("clicks", r"events\..*"), num_streams=3, request_bytes=2**20))
    assert [made.has(name) for name in ("clicks", "events.a", "clicks2", "orders")] == [True, True, False, False]
    assert made.streams == 3
    limits = Limits(**made.sizes)
    assert (limits.request_bytes, limits.fetch_bytes, limits.task_queue_bytes) == (
        2**20,
        Limits().fetch_bytes,
        Limits().task_queue_bytes,
    )


def test_run_copies_heavy_topics_and_others_by_tasks_of_their_own_exactly(source_cluster, target_cluster):
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    with bench(source, target, {"heavy-clicks": 2, "other": 2}) as it:
        for topic in it.topics:
            produce(source, topic, records(2_000, 2, seed=7))
        runner = ThreadRunner()
        settings = Settings(streams=1, dedicated=[HEAVY], epoch_seconds=5, limits=Limits(**BRIEF))
        end = it.mirror(runner, settings=settings).run(until_caught_up=True)
        assert (end.records, assert_same(it)) == (4_000, 4_000)
        first = [sorted({a.partition.topic for a in each.assignments}) for each in runner.orders[0]]
        assert first == [["heavy-clicks"], ["heavy-clicks"], ["other"]]
        assert [each.limits.request_bytes == 4711 for each in runner.orders[0]] == [True, True, False]
        assert {each.limits.lease_seconds for each in runner.orders[0]} == {BRIEF["lease_seconds"]}
