"""Topics with copy tasks of their own: who copies what, on slots that suffice or do not; and a run with them."""

import uuid
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_migration.copy.driver import pace
from kafka_migration.copy.driver.active import Assigner, Dedicated, parts_of
from kafka_migration.copy.driver.mirror import Settings
from kafka_migration.copy.driver.pace import Slots
from kafka_migration.copy.driver.quarantine import Quarantine
from kafka_migration.copy.orders import Limits, TaskOrders
from kafka_migration.domain.controls import Controls, Throttle
from kafka_migration.domain.types import TopicPartition
from kafka_migration.plans.model import DedicatedStreams
from kafka_migration.steps import mirror
from tests.copy.bench import BRIEF, ThreadRound, ThreadRunner, assert_same, bench, records
from tests.kafka_tools import produce

LARGE, BYTES_PER_SECOND = 10_000_000, 800_000
UNLIMITED = Limits()
HEAVY = Dedicated(has=lambda name: name.startswith("heavy"), streams=2, sizes={"request_bytes": 4711})
URGENT = Dedicated(has="urgent".__eq__, streams=1)


def assigner_of(slots: int | None, *dedicated: Dedicated, streams: int = 2) -> Assigner:
    unused: Any = SimpleNamespace()
    return Assigner(
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


def shares(
    slots: int | None, backlog: dict[str, int], *dedicated: Dedicated, streams: int = 2, room: int | None = None
):
    """Which partitions each task gets, as text, and whether it has the sizes of the heavy ones."""
    assigner = assigner_of(slots, *dedicated, streams=streams)
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
        (["small-0"], False),
        (["small-1"], False),
        (["urgent-0"], False),
    ]


def test_topic_belongs_to_the_first_that_has_it():
    everything = Dedicated(has=lambda _: True, streams=1)
    assert shares(None, ALL, URGENT, everything) == [
        (["heavy-0", "heavy-1", "heavy-2", "small-0", "small-1"], False),
        (["urgent-0"], False),
    ]


def test_others_have_no_more_tasks_than_they_are_to_have_although_slots_are_free():
    only_small = {f"small-{n}": LARGE for n in range(6)}
    assert len(shares(None, only_small, HEAVY, URGENT)) == 2


def test_kinds_that_get_little_are_copied_by_one_task_each_and_stay_apart(monkeypatch):
    monkeypatch.setattr(pace, "SMALL_BACKLOG", 50_000)
    quiet = dict.fromkeys(ALL, 1)
    assert [share for share, _ in shares(None, quiet, HEAVY)] == [
        ["heavy-0", "heavy-1", "heavy-2"],
        ["small-0", "small-1", "urgent-0"],
    ]


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        (3, [["heavy-0", "heavy-1", "heavy-2"], ["small-0", "small-1"], ["urgent-0"]]),
        # Heavy and small ones have as much to copy for a task.
        (4, [["heavy-0", "heavy-2"], ["heavy-1"], ["small-0", "small-1"], ["urgent-0"]]),
        # Fewer slots than kinds: all share them, by what each has to copy.
        (2, [["heavy-0", "small-0", "urgent-0"], ["heavy-1", "heavy-2", "small-1"]]),
        (1, [["heavy-0", "heavy-1", "heavy-2", "small-0", "small-1", "urgent-0"]]),
    ],
)
def test_with_few_slots_every_kind_keeps_one_or_all_share_them(slots, expected):
    assert [share for share, _ in shares(slots, ALL, HEAVY, URGENT)] == expected


def test_slots_that_are_left_go_to_who_has_the_most_to_copy():
    behind = {"heavy-0": 5, "heavy-1": 5, **{f"small-{n}": LARGE for n in range(4)}}
    found = [share for share, _ in shares(4, behind, HEAVY, streams=8)]
    assert [len(share) for share in found] == [2, 2, 1, 1]
    assert found[0] == ["heavy-0", "heavy-1"]


@pytest.mark.parametrize(
    ("tasks", "dedicated", "expected"),
    [
        # One task has all that is heavy, as in the next round.
        (["heavy-0 heavy-1", "small-0 small-1"], [replace(HEAVY, streams=1)], False),
        (["heavy-0 heavy-1", "small-0 small-1"], [HEAVY], True),
        (["heavy-0", "heavy-1", "small-0 small-1"], [HEAVY], False),
        (["heavy-0 heavy-2", "heavy-1", "small-0 small-1"], [HEAVY], False),
        (["heavy-0 heavy-1", "heavy-2", "small-0 small-1"], [HEAVY], True),
        # Whoever waits for the pause has a backlog as well.
        (["heavy-0 heavy-1", "small-0 small-1"], [], True),
    ],
)
def test_round_with_a_backlog_ends_for_all_only_if_the_next_one_evens_that_out(tasks, dedicated, expected):
    assert evens_out(tasks, *dedicated) is expected


def evens_out(
    tasks: list[str], *dedicated: Dedicated, suspects: str = "", limits: Limits = UNLIMITED, throttle: int | None = None
) -> bool:
    places = [[TopicPartition(*_place(name)) for name in task.split()] for task in tasks]
    orders: Any = [SimpleNamespace(assignments=[SimpleNamespace(partition=tp) for tp in task]) for task in places]
    backlog = {tp: LARGE if tp.topic == "heavy" and tp.partition < 2 else 3 for task in places for tp in task}
    quarantine = Quarantine(1, tried={TopicPartition(*_place(name)) for name in suspects.split()})
    by_hand = Throttle(bytes_per_second=throttle, by="a person", at="noon")
    link: Any = SimpleNamespace(controls=lambda: Controls(throttle=by_hand if throttle else None))
    return replace(assigner_of(None, *dedicated), link=link, limits=limits).evens_out(orders, backlog, quarantine)


def test_round_that_lacks_tasks_or_has_a_throttle_ends_for_all():
    tasks = ["heavy-0", "heavy-1", "small-0", "small-1"]
    assert not evens_out(tasks, HEAVY)
    assert not evens_out(tasks, HEAVY, suspects="gone-0")
    assert evens_out(tasks, HEAVY, suspects="small-1"), "who survived goes back to the others"
    assert evens_out(["heavy-0", "heavy-1 small-0", "small-1"], HEAVY), "a slot was missing"
    assert evens_out(tasks, HEAVY, limits=Limits(throttle_bytes_per_second=1_000))
    assert evens_out(tasks, HEAVY, throttle=1_000)


def test_throttle_is_given_to_who_has_something_to_copy_and_alike_where_there_is_little():
    assert parts_of([0, 0, 10_000_000]) == pytest.approx([0.005, 0.005, 0.99], abs=0.001)
    assert parts_of([3, 700, 0]) == pytest.approx([1 / 3] * 3, abs=0.01)
    assert sum(parts_of([1, 10, 10**9])) == pytest.approx(1)
    assert parts_of([]) == []


def test_plan_says_whose_they_are_and_with_what_sizes():
    made = mirror._dedicated(DedicatedStreams(topics=("clicks", r"events\..*"), num_streams=3, request_bytes=2**20))
    assert [made.has(name) for name in ("clicks", "events.a", "clicks2", "orders")] == [True, True, False, False]
    assert made.streams == 3
    limits = Limits(**made.sizes)
    assert limits == Limits(request_bytes=2**20), "all else is as in other tasks"
    nice = Limits(**mirror._dedicated(DedicatedStreams(topics=("t",), niceness=7)).sizes)
    assert nice == Limits(niceness=7, in_flight_requests=1), "brokers know nothing of it"
    large = Limits(**mirror._dedicated(DedicatedStreams(topics=("t",), fetch_bytes=2**26, queue_bytes=2**29)).sizes)
    assert (large.partition_fetch_bytes, large.partition_queue_bytes) == (2**22, 2**24), "or a few gain nothing"


@pytest.fixture
def names() -> tuple[str, str]:
    name = uuid.uuid4().hex[:8]
    return f"heavy-{name}", f"other-{name}"


def test_run_copies_heavy_topics_and_others_by_tasks_of_their_own_exactly(source_cluster, target_cluster, names):
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    with bench(source, target, dict.fromkeys(names, 2)) as it:
        for topic in it.topics:
            produce(source, topic, records(2_000, 2, seed=7))
        runner = ThreadRunner()
        limits = Limits(**BRIEF, throttle_bytes_per_second=10_000_000)
        settings = Settings(streams=1, dedicated=[HEAVY], epoch_seconds=5, limits=limits)
        end = it.mirror(runner, settings=settings).run(until_caught_up=True)
        assert (end.records, assert_same(it)) == (4_000, 4_000)
        orders = runner.orders[0]
        assert [sorted({a.partition.topic for a in each.assignments}) for each in orders] == [
            [names[0]],
            [names[0]],
            [names[1]],
        ]
        assert [each.limits.request_bytes == 4711 for each in orders] == [True, True, False]
        assert {each.limits.lease_seconds for each in orders} == {BRIEF["lease_seconds"]}
        rates = [each.limits.throttle_bytes_per_second or 0 for each in orders]
        assert sum(rates) == pytest.approx(10_000_000, abs=10)
        assert [round(each.part * 10_000_000) for each in orders] == pytest.approx(rates, abs=1)


class SlowTasks(ThreadRunner):
    """Tasks of the first round copy as slowly as if they had a throttle, of so many bytes per second for each."""

    def __init__(self, bytes_per_second: int) -> None:
        super().__init__()
        self.bytes_per_second = bytes_per_second

    def start(self, orders: list[TaskOrders]) -> ThreadRound:
        if self.orders:
            return super().start(orders)
        slow = [replace(each.limits, throttle_bytes_per_second=self.bytes_per_second) for each in orders]
        return super().start([replace(each, limits=limits) for each, limits in zip(orders, slow, strict=True)])


@pytest.mark.parametrize("is_throttled", [False, True])
def test_topics_with_a_task_of_their_own_have_no_pause_between_rounds_for_the_backlog_of_others(
    source_cluster, target_cluster, names, monkeypatch, is_throttled
):
    monkeypatch.setattr(pace, "_AROUND_SECONDS", 0.1)
    # Slow is not standing still: that ends a round, too.
    monkeypatch.setattr(Settings, "still_seconds", 100.0)
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    with bench(source, target, dict.fromkeys(names, 1)) as it:
        produce(source, names[0], records(12_000, 1, seed=7))
        produce(source, names[1], records(100, 1, seed=7))
        limits = Limits(**BRIEF, throttle_bytes_per_second=BYTES_PER_SECOND if is_throttled else None)
        settings = Settings(streams=1, dedicated=[replace(HEAVY, streams=1)], epoch_seconds=1, limits=limits)
        # Copied within seconds, or, where the round is to end before, hardly within a minute: the driver has to see it.
        runner = SlowTasks(20_000 if is_throttled else BYTES_PER_SECOND // 2)
        it.mirror(runner, settings=settings).run(until_caught_up=True)
        assert assert_same(it) == 12_100
        assert (len(runner.orders) > 1) is is_throttled, "a throttle is shared out by what there is to copy by then"


def test_suspects_are_tried_with_the_sizes_of_the_task_that_died(source_cluster, target_cluster, names):
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    with bench(source, target, dict.fromkeys(names, 2)) as it:
        for topic in it.topics:
            produce(source, topic, records(100, 2, seed=7))
        runner = ThreadRunner()
        run = it.mirror(runner, settings=Settings(streams=1, dedicated=[HEAVY], limits=Limits(**BRIEF)))
        suspect = TopicPartition(names[0], 1)
        run._quarantine.suspects, run._quarantine.tried = {suspect}, {suspect}
        run.run(until_caught_up=True)
        assert [a.partition for a in runner.orders[0][-1].assignments] == [suspect]
        assert runner.orders[0][-1].limits.request_bytes == 4711
