"""Taking over what MirrorMaker has copied: what is compared first, what is written of it, and what needs a person.

Clusters are in memory; the records of their logs are made up, and read as fetched ones are.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from kafka_migration.approvals.passing import NotApproved
from kafka_migration.compare.explain import matching
from kafka_migration.compare.explain.log import Chunks
from kafka_migration.compare.explain.matching import Match, Mismatch, Span
from kafka_migration.domain import ledger
from kafka_migration.domain.errors import BadInput, Refused
from kafka_migration.domain.offset_map import Run
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.kafka.types import ActiveProducer
from kafka_migration.migration.context import Context
from kafka_migration.state.link import LinkState, LinkTopic
from kafka_migration.state.store import MemoryStore
from kafka_migration.steps import adopt, outlook
from kafka_migration.steps.adopt import Adoption, Choices, Fate
from kafka_migration.steps.step import Decision
from kafka_migration.topics import create
from kafka_migration.topics.declared import INTENT, KIND, Action, steps
from kafka_migration.topics.specs import HELD_OPEN
from tests.compare.drill_sides import Side, contents
from tests.kafka.labs import FakeLab, Lab
from tests.kafka.migration import Bombs, Clock, Killed, Migration, counted
from tests.mutation.logs import Content, Log, log_of
from tests.state.test_link import FakeLog

RECORDS = contents(60, 1)
NONE, KEEP, ACCEPT, AGAIN = Choices(), Choices(keep_extra=True), Choices(accept_expired=True), Choices(copy_again=True)


class BombedLog(FakeLog):
    """A log whose writer dies around its writes."""

    bombs = Bombs()

    def append(self, entries: Any) -> None:
        self.bombs.tick()
        super().append(entries)
        self.bombs.tick()


class Reader:
    """One side's logs, by topic."""

    def __init__(self, logs: Mapping[str, Log]) -> None:
        self._logs = logs

    def chunks(self, tp: TopicPartition, start: int, end: int, **options: Any) -> Chunks:
        return Side({tp.partition: self._logs[tp.topic]}).chunks(tp, start, end, **options)

    def uncommitted(self) -> Reader:
        return self


@dataclass
class World:
    """A migration in memory whose topics MirrorMaker has filled. The state of its link outlives a process."""

    migration: Migration
    links: MemoryStore = field(default_factory=MemoryStore)
    openings: BombedLog = field(default_factory=lambda: BombedLog(ledger.OFFSET_MAP_TOPIC))
    sides: tuple[dict[str, Log], dict[str, Log]] = field(default_factory=lambda: ({}, {}))
    #: What happens while the logs are read.
    meanwhile: Callable[[], object] = lambda: None

    def filled(self, name: str, source: Sequence[Content], target: Sequence[Content]) -> str:
        """A topic with these records on both clusters."""
        labs = self.migration.source_lab, self.migration.target_lab
        for lab, logs, records in zip(labs, self.sides, (source, target), strict=True):
            self._fill(lab, logs, name, records)
        return self.migration.source_lab.name(name)

    def _fill(self, lab: Lab, logs: dict[str, Log], name: str, records: Sequence[Content]) -> None:
        full = lab.topic(name)
        logs[full] = log_of(records, [7], gaps=0)
        lab.produce(TopicPartition(full, 0), len(records), timestamp=1)

    def ctx(self, *, dry_run: bool = False, **fields: Any) -> Context:
        topics = {"include": [rf"{self.migration.name}\..*"], "adopt": sorted(self.sides[1])}
        ctx = self.migration.ctx(dry_run=dry_run, **{"topics": topics, **fields})
        openings = FakeLogAgain(self.openings)
        ctx.link = LinkState(self.migration.name, self.links, openings, None)  # type: ignore[arg-type]
        return ctx

    def adopt(self, choices: Choices = NONE, *, dry_run: bool = False, **fields: Any) -> Decision:
        options = {name: fields.pop(name) for name in ("only", "may_delete") if name in fields}
        return adopt.run(self.ctx(dry_run=dry_run, **fields), choices=choices, seconds=5, **options)

    def runs(self, topic: str) -> list[Run]:
        found = self.ctx().link.offset_maps()[TopicPartition(topic, 0)]
        return [*found.runs()]

    @property
    def is_untouched(self) -> bool:
        journal = [key for key in self.migration.store.items() if "/phase/" not in key]
        return not (self.migration.target.changes or journal or self.links.items() or self.openings.entries)


class FakeLogAgain:
    """The same log as a new process reads it: from its beginning."""

    def __init__(self, log: BombedLog) -> None:
        self._log, self._read = log, 0

    def append(self, entries: Any) -> None:
        self._log.append(entries)

    def new_entries(self, partitions: Any = None) -> Iterator[Any]:
        self._log._read, before = self._read, self._log._read
        yield from self._log.new_entries(partitions)
        self._read, self._log._read = self._log._read, before


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World(Migration(FakeLab("source"), FakeLab("target"), Clock()))

    @contextmanager
    def open_logs(*_wires: object) -> Iterator[tuple[Reader, Reader]]:
        found.meanwhile()
        yield Reader(found.sides[0]), Reader(found.sides[1])

    monkeypatch.setattr(adopt, "open_logs", open_logs)
    monkeypatch.setattr(outlook, "ask_gate", lambda _ctx, _gate: None)
    return found


def _recreate(lab: Lab, topic: str, records: int) -> None:
    lab.cluster.delete_topic(topic)
    lab.cluster.add_topic(topic)
    lab.produce(TopicPartition(topic, 0), records, timestamp=1)


def one(decision: Decision) -> Adoption:
    (found,) = decision.value
    return found  # type: ignore[no-any-return]


def test_right_copy_is_adopted_with_its_map_and_the_mirror_begins_behind_it(world):
    orders = world.filled("orders", RECORDS, RECORDS[:40])
    decision = world.adopt()
    assert (decision.exit_code, one(decision).fate, one(decision).records) == (0, Fate.ADOPTED, 40)
    link = world.ctx().link
    (position,) = link.positions().values()
    assert (position.source, position.target, position.records) == (40, 40, 0)
    assert (world.runs(orders), link.topics().keys()) == ([Run(0, 0, 40)], {orders})
    record = world.migration.journal.read(KIND, orders)
    assert (record["adopted"], world.migration.journal.holders([orders])) == (True, {orders: world.migration.name})
    assert world.migration.explicit(orders).items() >= dict(HELD_OPEN).items()
    assert [step.action for step in create.check(world.ctx())] == [Action.KEEP]


def test_dry_run_compares_and_writes_nothing(world):
    world.filled("orders", RECORDS, RECORDS)
    assert one(world.adopt(dry_run=True)).fate is Fate.ADOPTED
    assert world.is_untouched


def test_shut_gate_lets_nothing_be_written(world, monkeypatch):
    world.filled("orders", RECORDS, RECORDS)

    def shut(_ctx: Context, gate: Any) -> None:
        raise NotApproved(gate, "nobody has approved it yet")

    monkeypatch.setattr(outlook, "ask_gate", shut)
    with pytest.raises(NotApproved):
        world.adopt()
    assert world.is_untouched


def test_second_run_leaves_what_is_adopted_alone(world):
    world.filled("orders", RECORDS, RECORDS)
    world.adopt()
    before = world.links.items(), len(world.openings.entries)
    assert world.adopt().value == ()
    assert (world.links.items(), len(world.openings.entries)) == before


def test_killed_anywhere_the_next_run_ends_with_the_same_map(world):
    for at in counted():
        orders = world.filled(f"orders-{at}", RECORDS, [*RECORDS[:30], *RECORDS[20:]])
        bombs = Bombs(at)
        world.openings.bombs = bombs
        with world.migration.dying_at(at):
            world.migration.store.bombs = world.migration.target.bombs = bombs
            try:
                world.adopt(KEEP, only=[orders])
                ended = True
            except Killed:
                ended = False
        world.openings.bombs = Bombs()
        world.adopt(KEEP, only=[orders])
        create.apply(world.ctx())
        assert world.runs(orders) == [Run(0, 0, 30), Run(30, 40, 30)]
        assert world.ctx().link.extras()[TopicPartition(orders, 0)] == ((30, 40),)
        assert world.migration.journal.read(INTENT, orders) is None
        if ended:
            break


def test_what_a_killed_run_wrote_of_another_finding_is_void(world, monkeypatch):
    orders = world.filled("orders", RECORDS, RECORDS[:40])
    monkeypatch.setattr(create, "_confirm", lambda *_: (_ for _ in ()).throw(Killed))
    with pytest.raises(Killed):
        world.adopt()
    monkeypatch.undo()
    monkeypatch.setattr(adopt, "open_logs", _logs(world))
    monkeypatch.setattr(outlook, "ask_gate", lambda _ctx, _gate: None)
    # The source expires meanwhile, so that the map begins elsewhere.
    world.migration.source_lab.delete_records(TopicPartition(orders, 0), 10)
    world.adopt()
    assert world.runs(orders) == [Run(10, 10, 30)]


def _logs(world: World) -> Any:
    @contextmanager
    def open_logs(*_wires: object) -> Iterator[tuple[Reader, Reader]]:
        yield Reader(world.sides[0]), Reader(world.sides[1])

    return open_logs


class TestChoices:
    def test_doubled_records_need_a_choice_and_stay_where_they_are_with_it(self, world):
        orders = world.filled("orders", RECORDS, [*RECORDS[:30], *RECORDS[20:]])
        refused = world.adopt()
        assert (refused.exit_code, one(refused).why) == (1, "10 records doubled")
        assert "--keep-extra" in one(refused).remedy
        assert "--copy-again" in one(refused).remedy
        assert world.is_untouched
        assert world.adopt(KEEP).exit_code == 0
        assert world.runs(orders) == [Run(0, 0, 30), Run(30, 40, 30)]
        assert world.ctx().link.extras() == {TopicPartition(orders, 0): ((30, 40),)}

    def test_missing_records_can_only_be_copied_again(self, world):
        world.filled("orders", RECORDS, [*RECORDS[:20], *RECORDS[25:]])
        for choices in (KEEP, ACCEPT):
            found = one(world.adopt(choices))
            assert (found.fate, found.why) == (Fate.LEFT, "5 records missing")
            assert found.remedy.startswith("`--copy-again`")
        assert world.is_untouched

    def test_copy_that_is_made_again_is_deleted_once_that_was_confirmed_and_created_by_create(self, world):
        orders = world.filled("orders", RECORDS, [*RECORDS[:20], *RECORDS[25:]])
        right = world.filled("right", RECORDS, RECORDS)
        asked = list[str]()

        def no(doomed: Sequence[Adoption]) -> None:
            asked.extend(one.topic for one in doomed)
            raise Refused("declined")

        with pytest.raises(Refused, match="declined"):
            world.adopt(AGAIN, may_delete=no)
        assert asked == [orders]
        assert orders in world.migration.target.topics([orders])
        assert world.ctx().link.topics().keys() == {right}
        decision = world.adopt(AGAIN)
        assert decision.facts == {"adopted": 0, "copied_again": 1, "left": 0}
        assert not world.migration.target.topics([orders])
        (step,) = steps(world.ctx(), only=[orders])
        assert (step.action, step.problem) == (Action.CREATE, "")

    def test_message_says_that_a_topic_is_still_to_be_copied_after_its_deletion(self, world):
        world.filled("orders", RECORDS, RECORDS[5:])
        assert world.adopt(AGAIN).message == "1 topics deleted, to be copied again"

    def test_topic_that_changed_since_it_was_compared_is_not_deleted(self, world):
        orders = world.filled("orders", RECORDS, RECORDS[5:])
        lab = world.migration.target_lab
        for change in (
            lambda: lab.produce(TopicPartition(orders, 0), 1, timestamp=1),
            lambda: _recreate(lab, orders, 55),
            lambda: _recreate(world.migration.source_lab, orders, 60),
        ):
            with pytest.raises(Refused, match="while it was compared"):
                world.adopt(AGAIN, may_delete=lambda _doomed, change=change: change())
            assert orders in world.migration.target.topics([orders])
            assert world.migration.journal.holders([orders]) == {}

    def test_topic_that_another_migration_took_meanwhile_is_not_deleted(self, world):
        orders = world.filled("orders", RECORDS, RECORDS[5:])
        other = world.migration.ctx(migration="other").journal
        with pytest.raises(Refused, match="other migrations hold"):
            world.adopt(AGAIN, may_delete=lambda _doomed: other.lock([orders], at="now"))
        assert orders in world.migration.target.topics([orders])

    def test_topic_that_is_no_copy_of_the_sources_is_never_deleted(self, world, monkeypatch):
        orders = world.filled("orders", RECORDS, contents(60, 9))
        mixed = world.filled("mixed", RECORDS, [*RECORDS[:10], *contents(11, 9)])
        for found in world.adopt(AGAIN).value:
            assert (found.fate, "too little of it" in found.why) == (Fate.LEFT, True)
            assert f"delete {found.here} on the target by hand" in found.remedy
        assert world.migration.target.topics([orders, mixed]).keys() == {orders, mixed}

    def test_copy_whose_logs_cannot_be_followed_is_deleted_only_if_most_of_it_is_known(self, world, monkeypatch):
        monkeypatch.setattr(matching, "_MOST", 8)
        half, most = ([*RECORDS[:at], *RECORDS[at - 9 : at], *RECORDS[at:]] for at in (20, 40))
        world.filled("half", RECORDS, half)
        world.filled("most", RECORDS, most)
        assert [found.fate for found in world.adopt(AGAIN).value] == [Fate.LEFT, Fate.COPIED_AGAIN]

    def test_what_a_killed_run_has_pinned_of_a_deleted_topic_is_forgotten(self, world, monkeypatch):
        orders = world.filled("orders", RECORDS, RECORDS)
        with monkeypatch.context() as dying:
            dying.setattr(create, "_confirm", lambda *_: (_ for _ in ()).throw(Killed))
            with pytest.raises(Killed):
                world.adopt()
        assert world.ctx().link.topics().keys() == {orders}
        world.sides[1][orders] = log_of([*RECORDS[:30], *contents(1, 9), *RECORDS[31:]], [7], gaps=0)
        assert world.adopt(AGAIN).facts["copied_again"] == 1
        assert world.ctx().link.topics() == {}
        assert world.migration.journal.read(INTENT, orders) is None
        assert world.migration.journal.holders([orders]) == {}

    def test_topic_that_a_group_reads_on_the_target_is_not_deleted(self, world):
        orders = world.filled("orders", RECORDS, RECORDS[5:])
        world.migration.target_lab.join("readers", [orders])
        with pytest.raises(Refused, match=rf"readers \({orders}\)"):
            world.adopt(AGAIN)
        assert orders in world.migration.target.topics([orders])

    def test_first_records_that_the_target_has_deleted_are_left_out_by_choice(self, world):
        orders = world.filled("orders", RECORDS, RECORDS)
        world.migration.target_lab.delete_records(TopicPartition(orders, 0), 10)
        refused = one(world.adopt())
        assert refused.why == "10 records expired"
        assert "--accept-expired" in refused.remedy
        world.adopt(ACCEPT)
        ((skip,),) = world.ctx().link.skips().values()
        assert (skip.start, skip.end, world.runs(orders)) == (0, 10, [Run(10, 10, 50)])

    def test_plan_that_does_not_begin_at_the_beginning_needs_no_choice_for_that(self, world):
        world.filled("orders", RECORDS, RECORDS[10:])
        world.adopt(mirror={"start": "latest"})
        ((skip,),) = world.ctx().link.skips().values()
        assert (skip.start, skip.end) == (0, 10)

    def test_what_the_source_has_deleted_is_no_difference_and_known_to_be_there(self, world):
        orders = world.filled("orders", RECORDS, RECORDS)
        world.migration.source_lab.delete_records(TopicPartition(orders, 0), 10)
        assert world.adopt().exit_code == 0
        assert world.ctx().link.extras() == {TopicPartition(orders, 0): ((0, 10),)}

    def test_more_stretches_than_are_kept_are_copied_again(self, world, monkeypatch):
        monkeypatch.setattr(adopt, "_MOST_KEPT", 1)
        strange = contents(2, 9)
        world.filled("orders", RECORDS, [*RECORDS[:20], strange[0], *RECORDS[20:40], strange[1], *RECORDS[40:]])
        found = one(world.adopt(KEEP))
        assert found.remedy.startswith("`--copy-again`")
        assert found.why == "partition 0: the target has 2 stretches beside the copy, and at most 1 are kept"

    def test_stretches_that_the_source_has_deleted_count_among_those_that_are_kept(self, world, monkeypatch):
        orders = world.filled("orders", RECORDS, RECORDS)
        world.migration.source_lab.delete_records(TopicPartition(orders, 0), 10)
        monkeypatch.setattr(adopt, "_MOST_KEPT", 0)
        assert "1 stretches beside the copy" in one(world.adopt()).why
        assert world.is_untouched

    def test_stretches_that_overlap_are_one(self):
        tp, ends = TopicPartition("orders", 0), PartitionEnds(start=0, end=60)
        spans = {
            Mismatch.OLDER: (Span(0, 20, 15), Span(30, 40, 10)),
            Mismatch.DOUBLED: (Span(5, 10, 5), Span(20, 25, 5)),
        }
        assert adopt._kept(Match(tp=tp, source=ends, target=ends, differences=spans)) == [(0, 25), (30, 40)]

    def test_topics_whose_copies_are_right_are_adopted_beside_others_that_are_not(self, world):
        world.filled("orders", RECORDS, RECORDS[5:])
        right = world.filled("right", RECORDS, RECORDS)
        assert world.adopt().facts == {"adopted": 1, "copied_again": 0, "left": 1}
        assert world.ctx().link.topics().keys() == {right}


class TestRefused:
    """Nothing is read, and nothing written, of a topic that cannot be compared now."""

    def refused(self, world: World, **fields: Any) -> Adoption:
        world.meanwhile = lambda: pytest.fail("its logs are read")
        found = one(world.adopt(**fields))
        assert found.fate is Fate.LEFT
        assert world.is_untouched
        return found

    def test_somebody_still_writes(self, world):
        orders = TopicPartition(world.filled("orders", RECORDS, RECORDS), 0)
        world.migration.clock.while_asleep = lambda: world.migration.target_lab.produce(orders, 3, timestamp=1)
        found = self.refused(world)
        assert found.why == "somebody writes to partition 0 on the target: it has grown by 3 offsets in 5 s"
        assert "stop MirrorMaker" in found.remedy

    def test_open_transaction(self, world, monkeypatch):
        world.filled("orders", RECORDS, RECORDS)
        producer = ActiveProducer(producer_id=1, epoch=0, last_timestamp=1, is_transactional=True, in_transaction=True)
        cluster = world.migration.target_lab.cluster
        monkeypatch.setattr(cluster, "producers", lambda tps: dict.fromkeys(tps, (producer,)))
        assert "a transaction is open in partition 0" in self.refused(world).why

    def test_open_transaction_on_the_source(self, world):
        orders = world.filled("orders", RECORDS, RECORDS)
        world.migration.source_lab.cluster.hold_back(TopicPartition(orders, 0), 50)
        found = self.refused(world)
        assert found.why == "a transaction is open in partition 0 on the source, from offset 50 on"
        assert found.remedy.startswith("wait until it ends")

    def test_mirror_runs(self, world):
        world.filled("orders", RECORDS, RECORDS)
        ctx = world.ctx()
        ctx.link.record_run({"state": "running", "at": ctx.stamp()})
        with pytest.raises(Refused, match="is running") as caught:
            world.adopt()
        assert caught.value.remedy.startswith("stop the mirror first")
        assert one(world.adopt(dry_run=True)).fate is Fate.ADOPTED

    def test_mirror_that_was_started_while_logs_were_compared(self, world):
        world.filled("orders", RECORDS, RECORDS)
        ctx = world.ctx()
        world.meanwhile = lambda: ctx.link.record_run({"state": "running", "at": ctx.stamp()})
        with pytest.raises(Refused, match="is running"):
            world.adopt()
        assert world.ctx().link.topics() == {}

    def test_source_topic_that_was_recreated_since_an_adoption_was_killed(self, world, monkeypatch):
        orders = world.filled("orders", RECORDS, RECORDS)
        with monkeypatch.context() as dying:
            dying.setattr(create, "_confirm", lambda *_: (_ for _ in ()).throw(Killed))
            with pytest.raises(Killed):
                world.adopt()
        _recreate(world.migration.source_lab, orders, 60)
        world.meanwhile = lambda: pytest.fail("its logs are read")
        found = one(world.adopt())
        assert (found.fate, "was recreated since an earlier run" in found.why) == (Fate.LEFT, True)
        assert "delete it on the target" in found.remedy

    @pytest.mark.parametrize("side", ["source", "target"])
    def test_compacted(self, world, side):
        orders = world.filled("orders", RECORDS, RECORDS)
        lab = getattr(world.migration, f"{side}_lab")
        lab.cluster.alter_configs(orders, set={"cleanup.policy": "compact,delete"})
        assert f"compacted on the {side}" in self.refused(world).why

    def test_target_that_stamps_records_itself(self, world):
        orders = world.filled("orders", RECORDS, RECORDS)
        world.migration.target_lab.cluster.alter_configs(orders, set={"message.timestamp.type": "LogAppendTime"})
        assert "LogAppendTime" in self.refused(world).why

    def test_other_partitions(self, world):
        orders = world.filled("orders", RECORDS, RECORDS)
        world.migration.source_lab.cluster.add_partitions(orders, 2)
        found = self.refused(world)
        assert "it has 1 partitions, and its source 2" in found.why

    def test_another_migrations(self, world):
        orders = world.filled("orders", RECORDS, RECORDS)
        world.migration.ctx(migration="other").journal.lock([orders], at="now")
        world.meanwhile = lambda: pytest.fail("its logs are read")
        assert one(world.adopt()).why == "migration other holds it"

    def test_what_the_link_has_copied_before(self, world):
        orders = world.filled("orders", RECORDS, RECORDS)
        pin = LinkTopic(name=orders, source_id=uuid.uuid4(), target_id=uuid.uuid4())
        world.ctx().link.pin_again([pin], at="now")
        world.meanwhile = lambda: pytest.fail("its logs are read")
        assert "has copied it before" in one(world.adopt()).why

    def test_topic_without_records_is_left_to_create(self, world):
        world.filled("orders", RECORDS, [])
        assert (world.adopt().value, world.is_untouched) == ((), True)
        assert "`create` sees to it" in world.migration.told[-1]

    def test_plan_that_adopts_nothing_names_what_it_could(self, world):
        orders = world.filled("orders", RECORDS, RECORDS)
        with pytest.raises(Refused) as caught:
            world.adopt(topics={"include": [orders]})
        assert f"the target has {orders}" in caught.value.remedy

    def test_topic_that_the_plan_does_not_adopt(self, world):
        world.filled("orders", RECORDS, RECORDS)
        with pytest.raises(BadInput) as caught:
            world.adopt(only=["payments"])
        assert (caught.value.field, caught.value.value) == ("--topic", "payments")

    def test_log_that_changed_while_it_was_compared(self, world):
        orders = world.filled("orders", RECORDS, RECORDS)
        lab, tp = world.migration.target_lab, TopicPartition(orders, 0)
        for change in (lambda: lab.produce(tp, 1, timestamp=1), lambda: lab.delete_records(tp, 5)):
            world.meanwhile = change
            with pytest.raises(Refused, match="while it was compared"):
                world.adopt()
            assert (world.ctx().link.topics(), world.openings.entries) == ({}, [])
            assert world.migration.journal.read(KIND, orders) is None

    @pytest.mark.parametrize("side", ["source", "target"])
    def test_topic_that_was_recreated_or_grew_while_it_was_compared(self, world, side):
        orders = world.filled("orders", RECORDS, RECORDS)
        lab = getattr(world.migration, f"{side}_lab")
        for change in (lambda: _recreate(lab, orders, 60), lambda: lab.cluster.add_partitions(orders, 2)):
            world.meanwhile = change
            with pytest.raises(Refused):
                world.adopt()
            assert (world.ctx().link.topics(), world.openings.entries) == ({}, [])
            assert world.migration.journal.read(KIND, orders) is None

    def test_source_that_lost_its_end_while_it_was_compared(self, world):
        orders = world.filled("orders", RECORDS, RECORDS)
        world.meanwhile = lambda: world.migration.source_lab.cluster.truncate(TopicPartition(orders, 0), 50)
        with pytest.raises(Refused, match="the source lost records"):
            world.adopt()
        assert world.ctx().link.topics() == {}


def test_preflight_lets_topics_pass_that_are_to_be_compared(world):
    orders = world.filled("orders", RECORDS, RECORDS)
    (step,) = steps(world.ctx())
    assert (step.is_filled, "`adopt` takes it over" in step.remedy) == (True, True)
    (step,) = steps(world.ctx(), compared=[orders])
    assert (step.is_filled, step.problem, step.action) == (False, "", Action.ADOPT)
