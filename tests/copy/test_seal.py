"""The seal on a real broker: seen in every partition, refused by every mirror, proved again, and taken away."""

import threading
import uuid
from collections.abc import Iterable
from dataclasses import replace

import pytest

from kafka_migration.copy.driver import fencing, takeover
from kafka_migration.copy.driver.mirror import MirrorEnd, Settings
from kafka_migration.copy.driver.pinned_topics import PinnedTopics
from kafka_migration.copy.orders import Limits, TaskOrders
from kafka_migration.domain.errors import CouldNotFindOut, HaltedPartition, MigrationError, Refused
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Desired, Halt, TopicPartition
from kafka_migration.state.link import LinkState, Wish
from kafka_migration.wire.batch import readdress
from kafka_migration.wire.fence import take_identity
from tests.copy.bench import SHORT, Bench, ThreadRound, ThreadRunner, assert_same, bench, records
from tests.copy.test_interleavings import FENCED, QUICK, SMALL_BATCHES
from tests.kafka_tools import ToSend, log_ends, produce
from tests.waiting import wait_until
from tests.wire.made import made_batch, wired


@pytest.fixture
def topic() -> str:
    return f"sealed-{uuid.uuid4().hex[:8]}"


def test_seal_stands_in_every_partition_behind_its_last_record_and_nobody_writes_there_any_more(
    source_cluster, target_cluster, topic
):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 3}) as it:
        produce(it.source, topic, records(300, 2, 1), **SMALL_BATCHES)  # one partition stays empty
        it.mirror(settings=QUICK).run(until_caught_up=True)
        (last,), positions = it.link.fences().values(), it.link.positions()
        done = it.seal()
        assert done.ends == {tp: position.target for tp, position in positions.items()}
        assert it.link.seal() == done
        with wired(it.target, topic) as wire:
            for tp, position in positions.items():
                assert wire.end(tp) == done.ends[tp] + 1
                zombie = readdress(
                    made_batch([b"late"]),
                    producer_id=last.producer_id,
                    producer_epoch=last.producer_epoch,
                    sequence=position.records,
                )
                ((answer,),) = wire.append({tp: zombie})
                assert answer.error == FENCED
        produce(it.source, topic, records(10, 1, 2))
        with pytest.raises(Refused, match="sealed"):
            it.mirror(settings=QUICK).run(until_caught_up=True)
        assert log_ends(it.target, it.topics) == sum(done.ends.values()) + 3


def test_second_call_proves_the_same_seal_and_after_a_foreign_fence_seals_anew(source_cluster, target_cluster, topic):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        produce(it.source, topic, records(100, 2, 1))
        it.mirror(settings=QUICK).run(until_caught_up=True)
        first = it.seal()
        assert it.seal() == first
        it.link.unseal()
        it.mirror(settings=QUICK).run(until_caught_up=True)
        it.link.record_seal(first)  # what an old process would say
        second = it.seal()
        assert second.identity is not None
        assert first.identity is not None
        assert second.identity.producer_epoch > first.identity.producer_epoch
        assert {tp: end > first.ends[tp] for tp, end in second.ends.items()} == dict.fromkeys(first.ends, True)


def test_seal_that_cannot_be_proved_for_now_is_no_reason_to_move_the_final_ends(
    source_cluster, target_cluster, topic, monkeypatch
):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        produce(it.source, topic, records(100, 2, 1))
        it.mirror(settings=QUICK).run(until_caught_up=True)
        first, ends = it.seal(), log_ends(it.target, it.topics)

        async def no_answer(*_args, **_more) -> None:
            raise CouldNotFindOut("target: no coordinator")

        with monkeypatch.context() as patch:
            patch.setattr(fencing, "keep_alive", no_answer)
            with pytest.raises(CouldNotFindOut, match="no coordinator"):
                it.seal()
        assert (it.link.seal(), log_ends(it.target, it.topics)) == (first, ends)
        assert it.seal() == first


def test_seal_whose_markers_are_gone_is_made_anew(source_cluster, target_cluster, topic):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        produce(it.source, topic, records(100, 1, 1))
        it.mirror(settings=QUICK).run(until_caught_up=True)
        first = it.seal()
        for wrong in (50, -50):  # the log ends before it, or something else stands there
            it.link.record_seal(replace(first, ends={tp: end + wrong for tp, end in first.ends.items()}))
            first, before = it.seal(), first
            assert {tp: end - before.ends[tp] for tp, end in first.ends.items()} == dict.fromkeys(first.ends, 1)


def test_running_mirror_stops_at_the_seal_without_a_record_more(source_cluster, target_cluster, topic):
    tp = TopicPartition(topic, 0)
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        produce(it.source, topic, records(100, 1, 1))
        ends: list[BaseException] = []

        def run() -> None:
            link = LinkState.on_target(it.link.name, {"bootstrap.servers": it.target})
            try:
                Bench(link, it.topics, it.source, it.target).mirror(settings=QUICK).run()
            except MigrationError as error:
                ends.append(error)
            finally:
                link.close()

        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: tp in it.link.positions() and it.link.positions()[tp].source == 100, "100 records copied")
        done = it.seal()
        produce(it.source, topic, records(100, 1, 2))
        thread.join(30)
        assert not thread.is_alive()
        assert [type(end) for end in ends] == [Refused]
        assert "sealed" in str(ends[0])
        assert log_ends(it.target, it.topics) == done.ends[tp] + 1


class Held(ThreadRunner):
    """Its rounds seem to run until they may end, although their tasks have ended."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = threading.Event()

    def start(self, orders: list[TaskOrders]) -> ThreadRound:
        begun = super().start(orders)
        is_done = begun.is_done
        begun.is_done = lambda: self.may_end.is_set() and is_done()  # type: ignore[method-assign]
        return begun


@pytest.mark.parametrize("copied", [100, 60])
def test_mirror_that_is_sealed_while_its_drain_ends_has_drained_if_it_copied_all(
    source_cluster, target_cluster, topic, copied
):
    tp = TopicPartition(topic, 0)
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        produce(it.source, topic, records(copied, 1, 1))
        it.link.wish(Wish(desired=Desired.DRAIN, ends={tp: 100}, reason="test", at="now"))
        runner, ends = Held(), list[MirrorEnd | MigrationError]()

        def run() -> None:
            link = LinkState.on_target(it.link.name, {"bootstrap.servers": it.target})
            try:
                ends.append(it.mirror(runner, link=link).run())
            except MigrationError as error:
                ends.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: (found := it.link.positions()) and found[tp].source == copied, lambda: "all is copied")
        done = it.seal()
        runner.may_end.set()
        thread.join(60)
        (end,) = ends
        if copied == 100:
            assert isinstance(end, MirrorEnd)
            assert end.reason == "drained"
            assert (it.link.run() or {})["state"] == "ended"
        else:
            assert isinstance(end, Refused)
        assert it.link.seal() == done
        assert log_ends(it.target, it.topics) == done.ends[tp] + 1


class Killed(BaseException):
    """The process ends here."""


def test_settings_that_are_restored_behind_the_seal_halt_nothing(source_cluster, target_cluster, topic, monkeypatch):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:

        def look(_self: PinnedTopics, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[Halt, str]]:
            """Sealed and restored between the run's newest look at the link's state and this."""
            it.link.record_seal(Seal(at="noon", ends={}))
            return dict.fromkeys(partitions, (Halt.CONFIG_DRIFT, "retention.ms"))

        monkeypatch.setattr(PinnedTopics, "lost", look)
        with pytest.raises(Refused, match="sealed"):
            it.mirror(settings=QUICK).run()
        assert it.link.halts() == {}


def test_fence_of_a_mirror_that_is_sealed_meanwhile_judges_nothing_behind_it(
    source_cluster, target_cluster, topic, monkeypatch
):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        produce(it.source, topic, records(50, 1, 1))
        it.mirror(settings=QUICK).run(until_caught_up=True)
        fences, real = it.link.fences(), take_identity

        async def late(*args, **more):
            it.link.record_seal(Seal(at="noon", ends={}))
            produce(it.target, topic, [ToSend(b"of a producer that was switched over")])
            return await real(*args, **more)

        monkeypatch.setattr(takeover, "take_identity", late)
        with pytest.raises(Refused, match="sealed"):
            it.mirror(settings=QUICK).run()
        assert (it.link.halts(), it.link.fences()) == ({}, fences)


@pytest.mark.parametrize("point", ["take_identity", "write_markers", "await_markers", "record_fence", "record_seal"])
def test_seal_killed_at_any_point_refuses_mirrors_and_is_completed_by_the_next_call(
    source_cluster, target_cluster, topic, monkeypatch, point
):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        produce(it.source, topic, records(100, 2, 1))
        it.mirror(settings=QUICK).run(until_caught_up=True)
        with monkeypatch.context() as patch:
            owner = it.link if point.startswith("record") else takeover
            real = getattr(owner, point)

            def die(*args, **more):
                real(*args, **more)
                raise Killed

            async def die_later(*args, **more):
                await real(*args, **more)
                raise Killed

            patch.setattr(owner, point, die if owner is it.link else die_later)
            with pytest.raises(Killed):
                it.seal()
        begun = it.link.seal()
        assert begun is not None
        assert not begun.is_complete
        with pytest.raises(Refused, match="sealed"):
            it.mirror(settings=QUICK).run(until_caught_up=True)
        done = it.seal()
        assert (done.is_complete, done.at, it.link.seal()) == (True, begun.at, done)
        assert assert_same(it) == 100


def test_link_that_holds_more_than_it_knows_of_is_not_sealed(source_cluster, target_cluster, topic):
    tp = TopicPartition(topic, 0)
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        produce(it.source, topic, records(100, 1, 1))
        it.mirror(settings=QUICK).run(until_caught_up=True)
        (writer,), position = it.link.fences().values(), it.link.positions()[tp]
        ours = readdress(
            made_batch([b"v"] * 5),
            producer_id=writer.producer_id,
            producer_epoch=writer.producer_epoch,
            sequence=position.records,
        )
        with wired(it.target, topic) as wire:
            ((answer,),) = wire.append({tp: ours})
            assert answer.error == 0
        with pytest.raises(Refused, match=f"records end at offset {position.target + 5}"):
            it.seal()
        assert not it.link.seal().is_complete  # type: ignore[union-attr]


def test_foreign_record_at_the_end_is_named_and_not_sealed_over(source_cluster, target_cluster, topic):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        produce(it.source, topic, records(100, 1, 1))
        it.mirror(settings=QUICK).run(until_caught_up=True)
        produce(it.target, topic, [ToSend(b"foreign")])
        with pytest.raises(HaltedPartition, match="FOREIGN_WRITER, target offset 101"):
            it.seal()


def test_unsealed_link_is_mirrored_on_exactly(source_cluster, target_cluster, topic):
    settings = Settings(streams=1, epoch_seconds=5, limits=Limits(**SHORT))
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        for seed in range(3):
            produce(it.source, topic, records(100, 2, seed))
            it.link.unseal()
            assert it.mirror(settings=settings).run(until_caught_up=True).halted == ()
            it.seal()
        assert assert_same(it) == 300
