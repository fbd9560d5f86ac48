"""Takeovers on a real broker: killed at every point, raced by another driver, and by what the fenced one still does."""

import uuid
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from kafka.protocol.producer import EndTxnRequest

from kafka_migration.copy.driver import attempts, takeover
from kafka_migration.copy.driver.mirror import Settings
from kafka_migration.domain.errors import HaltedPartition, TakenOver
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.types import Halt, TopicPartition
from kafka_migration.state.link import LinkState
from kafka_migration.wire import fence
from kafka_migration.wire.batch import readdress
from kafka_migration.wire.fence import write_markers
from tests.copy.bench import Bench, assert_same, bench, records
from tests.kafka_tools import create_topics, delete_records, delete_topic, produce, read_all
from tests.waiting import wait_until
from tests.wire.made import made_batch, wired


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch):
    monkeypatch.setattr("kafka_migration.copy.driver.survey.GONE_SECONDS", 1.0)


class Killed(BaseException):
    """The driver's process ends here."""


@pytest.fixture
def topic():
    return f"fencing-{uuid.uuid4().hex[:8]}"


class Hooked:
    """The link's state, with something that happens before or after one of its writes."""

    def __init__(
        self, link: LinkState, call: str, *, before: Callable[[], None] = lambda: None, after=lambda: None
    ) -> None:
        self._link, self._call, self._before, self._after = link, call, before, after

    def __getattr__(self, name: str):
        found = getattr(self._link, name)
        if name != self._call:
            return found

        def hooked(*args, **more):
            self._before()
            result = found(*args, **more)
            self._after()
            return result

        return hooked


def _die() -> None:
    raise Killed


def _kill_after(monkeypatch, module, name: str) -> None:
    real = getattr(module, name)

    async def then_die(*args, **more):
        await real(*args, **more)
        raise Killed

    monkeypatch.setattr(module, name, then_die)


def _kill_before_end_of_transaction(monkeypatch) -> None:
    real = fence._ask_coordinator

    async def unless_it_ends(cluster, transactional_id, request, *rest):
        if isinstance(request, EndTxnRequest):
            raise Killed
        return await real(cluster, transactional_id, request, *rest)

    monkeypatch.setattr(fence, "_ask_coordinator", unless_it_ends)


def _half_of_the_openings(link: LinkState) -> Hooked:
    it = Hooked(link, "")

    def first_alone(openings, keys):
        link.record_openings(list(openings)[:1], keys)
        _die()

    it.record_openings = first_alone  # type: ignore[attr-defined]
    return it


POINTS = {
    "after InitProducerId": lambda m, _: _kill_after(m, takeover, "take_identity"),
    "after AddPartitions": lambda m, _: _kill_before_end_of_transaction(m),
    "after EndTxn": lambda m, _: _kill_after(m, takeover, "write_markers"),
    "after the markers are visible": lambda m, _: _kill_after(m, takeover, "await_markers"),
    "before the fence is recorded": lambda _, link: Hooked(link, "record_fence", before=_die),
    "after the fence is recorded": lambda _, link: Hooked(link, "record_fence", after=_die),
    "after half of the openings": lambda _, link: _half_of_the_openings(link),
    "after all openings": lambda _, link: Hooked(link, "record_openings", after=_die),
}


@pytest.mark.parametrize("point", POINTS)
def test_driver_killed_at_any_point_of_a_takeover_loses_and_doubles_nothing(
    source_cluster, target_cluster, topic, monkeypatch, point
):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        for seed in range(2):  # the first time nothing was ever fenced, the second time everything was
            produce(it.source, topic, records(100, 2, seed))
            for _ in range(seed + 1):  # and then it dies twice in a row
                with monkeypatch.context() as patch:
                    link = POINTS[point](patch, it.link) or it.link
                    with pytest.raises(Killed):
                        it.mirror(link=link).run(until_caught_up=True)
            assert it.mirror().run(until_caught_up=True).halted == ()
        assert assert_same(it) == 200


def _run_once(it: Bench) -> None:
    """Another driver, from another machine: takes over, copies all, ends."""
    link = LinkState.on_target(it.link.name, {"bootstrap.servers": it.target})
    try:
        it.mirror(link=link).run(until_caught_up=True)
    finally:
        link.close()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", ["record_fence", "record_openings"])
def test_driver_that_is_overtaken_while_it_records_its_fence_spoils_nothing(
    source_cluster, target_cluster, topic, monkeypatch, call, when
):
    """And that does not see the other one's claim: what it still sends, the fence refuses."""
    monkeypatch.setattr(attempts.Attempts, "check", lambda self: None)
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        produce(it.source, topic, records(200, 2, 1))
        it.mirror().run(until_caught_up=True)
        produce(it.source, topic, records(200, 2, 2))
        slow = Hooked(it.link, call, **{when: lambda: _run_once(it)})
        produce_more = Hooked(slow, "commands_from", before=lambda: produce(it.source, topic, records(200, 2, 3)))  # type: ignore[arg-type]
        with pytest.raises(TakenOver):
            it.mirror(link=produce_more).run()
        assert it.mirror().run(until_caught_up=True).halted == ()
        assert assert_same(it) == 600


def test_driver_that_is_overtaken_while_its_marker_becomes_visible_gives_way(
    source_cluster, target_cluster, topic, monkeypatch
):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        produce(it.source, topic, records(200, 2, 1))
        real, raced = takeover.Fenced.resume, list[bool]()

        def resume(self, known, starts):
            if not raced:
                raced.append(True)
                _run_once(it)
                # What the driver reads right after its marker, now with the other one's fence in it.
                link = LinkState.on_target(it.link.name, {"bootstrap.servers": it.target})
                known = {
                    tp: takeover.Known(openings=openings, writer=None, verified=0)
                    for tp, openings in link.openings().items()
                }
                link.close()
            return real(self, known, starts)

        monkeypatch.setattr(takeover.Fenced, "resume", resume)
        with pytest.raises(TakenOver):
            it.mirror().run(until_caught_up=True)
        assert it.mirror().run(until_caught_up=True).halted == ()
        assert assert_same(it) == 200


def test_attempt_that_opens_a_run_while_it_is_being_fenced_is_resumed_behind_that_run(
    source_cluster, target_cluster, topic, monkeypatch
):
    """Its opening is durable only after the driver has read the state, and its batch stands before the marker."""
    tp = TopicPartition(topic, 0)
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        produce(it.source, topic, records(30, 1, 1))
        it.mirror().run(until_caught_up=True)
        (position, writer), link = (it.link.positions()[tp], max(it.link.fences().items())[1]), it.link
        real = write_markers

        def zombie() -> None:
            """As if the source had nothing at 30…89 any more: the next run begins at 90."""
            link.record_openings(
                [(tp, RunOpening(fence=position.fence, records=30, source=90, target=position.target))]
            )
            batch = readdress(
                made_batch([b"v"] * 10),
                producer_id=writer.producer_id,
                producer_epoch=writer.producer_epoch,
                sequence=30,
            )
            with wired(it.target, topic) as wire:
                ((answer,),) = wire.append({tp: batch})
                assert (answer.error, answer.base_offset) == (0, position.target)

        async def too_late(*args, **more):
            zombie()
            await real(*args, **more)

        with monkeypatch.context() as patch:
            patch.setattr(takeover, "write_markers", too_late)
            with pytest.raises(Killed):
                it.mirror(link=Hooked(link, "record_openings", after=_die)).run()
        assert link.positions()[tp].source == 100
        assert link.offset_maps()[tp].to_target(90) == position.target
        assert [link.offset_maps()[tp].to_target(o) for o in (29, 30, 89)] == [position.target - 1] + [
            position.target
        ] * 2


@pytest.mark.parametrize("harm", ["deleted", "recreated", "records deleted", "written to"])
def test_target_that_is_not_what_the_link_left_halts_by_name_and_the_neighbour_goes_on(
    source_cluster, target_cluster, topic, harm
):
    other = f"{topic}-other"
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1, other: 1}) as it:
        for name in it.topics:
            produce(it.source, name, records(50, 1, 1))
        it.mirror().run(until_caught_up=True)
        if harm in ("deleted", "recreated"):
            delete_topic(it.target, topic)
        if harm == "recreated":
            create_topics(it.target, {topic: 1})
            produce(it.target, topic, records(80, 1, 9))
        if harm == "records deleted":
            produce(it.target, topic, records(80, 1, 9))
            delete_records(it.target, {TopicPartition(topic, 0): 70})
        if harm == "written to":
            produce(it.target, topic, records(1, 1, 9))
        for name in it.topics:
            produce(it.source, name, records(50, 1, 2))
        outcome = it.mirror().run(until_caught_up=True)
        reasons = {
            "deleted": Halt.TOPIC_MISSING,
            "recreated": Halt.RECREATED,
            "records deleted": Halt.LOG_REGRESSED,
            "written to": Halt.FOREIGN_WRITER,
        }
        assert {tp: halt.reason for tp, halt in it.link.halts().items()} == {TopicPartition(topic, 0): reasons[harm]}
        assert it.link.halts()[TopicPartition(topic, 0)].source_offset == 50, "where it stands, for `status` to say"
        assert outcome.records == 50
        assert len(read_all(it.target, {other: 1})[TopicPartition(other, 0)]) == 100


def test_records_in_a_target_that_was_never_mirrored_halt_it(source_cluster, target_cluster, topic):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        produce(it.source, topic, records(100, 2, 1))
        produce(it.target, topic, records(1, 1, 1))
        assert it.mirror().run(until_caught_up=True).records == 50
        assert it.link.halts()[TopicPartition(topic, 0)].reason == Halt.FOREIGN_WRITER


def test_source_partition_that_the_target_lacks_is_halted_and_not_left_out(source_cluster, target_cluster, topic):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        admin = AdminClient({"bootstrap.servers": it.source})
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
        wait_until(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 2, "a partition more")
        produce(it.source, topic, records(20, 1, 1))
        outcome = it.mirror().run(until_caught_up=True)
        assert (outcome.halted, outcome.records) == ((TopicPartition(topic, 1),), 20)
        assert it.link.halts()[TopicPartition(topic, 1)].reason == Halt.NO_PARTITION


def test_topic_of_which_nobody_knows_a_partition_any_more_is_halted_and_not_left_out(
    source_cluster, target_cluster, topic
):
    other = f"{topic}-other"
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1, other: 1}) as it:
        delete_topic(it.target, topic)
        delete_topic(it.source, topic)
        assert it.mirror().run(until_caught_up=True).halted == (TopicPartition(topic, 0),)


def test_mirror_of_a_link_whose_topics_are_all_gone_says_so(source_cluster, target_cluster, topic):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        delete_topic(it.source, topic)
        with pytest.raises(HaltedPartition, match="nothing is left to copy"):
            it.mirror(settings=Settings(streams=1, epoch_seconds=1)).run(until_caught_up=True)
        assert it.link.halts()[TopicPartition(topic, 0)].reason == Halt.TOPIC_MISSING
