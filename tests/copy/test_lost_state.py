"""What is lost beside the records: receipts with their driver, internal topics, the memory of the transactional id."""

import time
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from kafka.protocol.admin import DescribeTransactionsRequest

from demo.brokers import EmbeddedKafka
from kafka_migration.copy.driver import takeover
from kafka_migration.copy.driver.fencing import Fences
from kafka_migration.domain import ledger
from kafka_migration.domain.errors import CouldNotFindOut, HaltedPartition, MigrationError, NotAuthorized, StateConflict
from kafka_migration.domain.types import Halt, Identity, TopicPartition
from kafka_migration.state.link import LinkState
from kafka_migration.wire.batch import readdress
from kafka_migration.wire.cluster import WireCluster
from kafka_migration.wire.fence import take_identity
from kafka_migration.wire.markers import keep_alive
from tests.copy.bench import Bench, ThreadRound, ThreadRunner, assert_same, bench, records
from tests.copy.test_interleavings import FENCED, QUICK, SMALL_BATCHES
from tests.kafka_tools import delete_topic, produce, read_all
from tests.waiting import wait_until
from tests.wire.made import Wire, made_batch, wired


@pytest.fixture
def topic() -> str:
    return f"lost-{uuid.uuid4().hex[:8]}"


class Killed(BaseException):
    """The driver's process ends here."""


class DiesWithReceipts(ThreadRound):
    def ended(self):
        super().ended()
        raise Killed


class Mortal(ThreadRunner):
    """Its tasks do all their work; then the driver dies with what they gave back."""

    def start(self, orders):
        return DiesWithReceipts(orders)


@pytest.mark.parametrize("told", [True, False])
def test_receipts_that_are_lost_with_the_driver_are_made_good_from_the_log(
    source_cluster, target_cluster, topic, told, monkeypatch
):
    if not told:  # nor did any task say how far it had come
        monkeypatch.setattr("kafka_migration.copy.task.task.CopyTask._write_progress", _say_nothing)
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        for seed in range(2):
            produce(it.source, topic, records(400, 2, seed), **SMALL_BATCHES)
            with pytest.raises(Killed):
                it.mirror(Mortal(), settings=QUICK).run(until_caught_up=True)
            assert sum(len(rows) for rows in read_all(it.target, it.topics).values()) == 400 * (seed + 1)
        monkeypatch.undo()
        outcome = it.mirror(settings=QUICK).run(until_caught_up=True)
        assert (outcome.halted, outcome.records) == ((), 0)
        assert assert_same(it) == 800


async def _say_nothing(_task: object) -> None:
    return


@pytest.fixture
def own_target() -> Iterator[EmbeddedKafka]:
    """A cluster whose internal topics no other test needs."""
    with EmbeddedKafka(name="robbed") as cluster:
        yield cluster


@pytest.mark.parametrize("lost", ["offset map", "all but the journal"])
def test_internal_topics_that_are_gone_halt_what_they_explained_and_nothing_is_doubled(
    source_cluster, own_target, topic, lost
):
    tp = TopicPartition(topic, 0)
    with bench(source_cluster.bootstrap_servers, own_target.bootstrap_servers, {topic: 1}) as it:
        topics = it.link.topics()
        produce(it.source, topic, records(100, 1, 1), **SMALL_BATCHES)
        it.mirror(settings=QUICK).run(until_caught_up=True)
        there = set(AdminClient({"bootstrap.servers": it.target}).list_topics(timeout=10).topics) & set(
            ledger.PARTITIONS
        )
        for name in [ledger.OFFSET_MAP_TOPIC] if lost == "offset map" else sorted(there - {ledger.JOURNAL_TOPIC}):
            delete_topic(it.target, name)
        link = LinkState.on_target(it.link.name, {"bootstrap.servers": it.target}, create=True)
        link.pin(source_cluster="source", target_cluster="target", topics=topics.values(), at="")
        new = Bench(link, it.topics, it.source, it.target)
        produce(it.source, topic, records(100, 1, 2), **SMALL_BATCHES)
        with pytest.raises(HaltedPartition, match="nothing is left to copy"):
            new.mirror(settings=QUICK).run(until_caught_up=True)
        halt = link.halts()[tp]
        assert (halt.reason, halt.target_offset) == (Halt.FOREIGN_WRITER, 1)
        assert len(read_all(it.target, it.topics)[tp]) == 100
        link.close()


class Robber(ThreadRunner):
    """While the first epoch runs somebody deletes an internal topic and makes it again."""

    def __init__(self, it: Bench, lost: str) -> None:
        super().__init__()
        self._it, self._lost = it, lost

    def start(self, orders):
        if self.orders:
            return super().start(orders)
        epoch = super().start(orders)
        wait_until(lambda: sum(it.records for it in self._it.link.positions().values()) == 100, "all is copied")
        delete_topic(self._it.target, self._lost)
        LinkState.on_target(self._it.link.name, {"bootstrap.servers": self._it.target}, create=True).close()
        return epoch


@pytest.mark.timeout(90)  # without the check it never ends
@pytest.mark.parametrize("lost", [ledger.OFFSET_MAP_TOPIC, ledger.LINKS_TOPIC])
def test_internal_topic_that_is_made_again_under_a_running_mirror_ends_it(source_cluster, own_target, topic, lost):
    said: list[str] = []
    with bench(source_cluster.bootstrap_servers, own_target.bootstrap_servers, {topic: 1}) as it:
        produce(it.source, topic, records(100, 1, 1), **SMALL_BATCHES)
        settings = type(QUICK)(streams=1, epoch_seconds=1, limits=QUICK.limits)
        began = time.monotonic()
        with pytest.raises(StateConflict, match=rf"{lost} was deleted and created again"):
            it.mirror(Robber(it, lost), settings=settings, log=said.append).run()
        assert time.monotonic() - began < 30
        assert any(text.startswith("ending: ") for text in said)


# -- the transactional id -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def oblivious() -> Iterator[EmbeddedKafka]:
    """A cluster that forgets a transactional id three seconds after its last use."""
    memory = {
        "transactional.id.expiration.ms": "3000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
    }
    with EmbeddedKafka(name="oblivious", properties=memory) as cluster:
        yield cluster


async def _producer_of(cluster: WireCluster, transactional_id: str) -> int:
    """What the coordinator remembers, without using the id; -1 for nothing. (The cluster has a single broker.)"""
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (state,) = (await cluster.send(request, None)).transaction_states
    return -1 if state.error_code else int(state.producer_id)


def _until_id_is_forgotten(wire: Wire, it: Bench) -> None:
    wait_until(lambda: wire(_producer_of, it.link.transactional_id) == -1, "the id is forgotten")


def test_forgotten_transactional_id_is_fenced_directly_and_the_copy_goes_on(source_cluster, oblivious, topic):
    tp = TopicPartition(topic, 0)
    with (
        bench(source_cluster.bootstrap_servers, oblivious.bootstrap_servers, {topic: 1}) as it,
        wired(it.target, topic) as wire,
    ):
        for seed in range(3):  # the last but one leaves a producer with epochs of its own
            produce(it.source, topic, records(100, 1, seed), **SMALL_BATCHES)
            it.mirror(settings=QUICK).run(until_caught_up=True)
        (old, *_) = (identity for _, identity in sorted(it.link.fences().items(), reverse=True))
        _until_id_is_forgotten(wire, it)
        produce(it.source, topic, records(100, 1, 7), **SMALL_BATCHES)
        outcome = it.mirror(settings=QUICK).run(until_caught_up=True)
        assert (outcome.halted, outcome.records) == ((), 100)
        new = max(it.link.fences().items())[1]
        assert new.producer_id != old.producer_id
        zombie = readdress(
            made_batch([b"late"] * 5), producer_id=old.producer_id, producer_epoch=old.producer_epoch, sequence=100
        )
        ((answer,),) = wire.append({tp: zombie})
        assert answer.error == FENCED
        assert assert_same(it) == 400
        it.mirror(settings=QUICK).run(until_caught_up=True)
        assert assert_same(it) == 400


def test_forgotten_transactional_id_without_cluster_action_is_a_conflict_and_nothing_is_written(
    source_cluster, oblivious, topic, monkeypatch
):
    async def forbidden(*_args: object, **_more: object) -> None:
        raise NotAuthorized("target", "ClusterAction", "cluster")

    monkeypatch.setattr(takeover, "write_markers_directly", forbidden)
    with (
        bench(source_cluster.bootstrap_servers, oblivious.bootstrap_servers, {topic: 1}) as it,
        wired(it.target, topic) as wire,
    ):
        produce(it.source, topic, records(20, 1, 1))
        it.mirror(settings=QUICK).run(until_caught_up=True)
        _until_id_is_forgotten(wire, it)
        produce(it.source, topic, records(20, 1, 2))
        with pytest.raises(MigrationError, match="forgot transactional id"):
            it.mirror(settings=QUICK).run(until_caught_up=True)
        assert len(read_all(it.target, it.topics)[TopicPartition(topic, 0)]) == 20


def test_seal_outlives_its_forgotten_transactional_id_and_needs_no_cluster_action(
    source_cluster, oblivious, topic, monkeypatch
):
    async def forbidden(*_args: object, **_more: object) -> None:
        raise NotAuthorized("target", "ClusterAction", "cluster")

    with (
        bench(source_cluster.bootstrap_servers, oblivious.bootstrap_servers, {topic: 1}) as it,
        wired(it.target, topic) as wire,
    ):
        produce(it.source, topic, records(20, 1, 1))
        it.mirror(settings=QUICK).run(until_caught_up=True)
        # On a machine that is slow enough, the id was forgotten already.
        done = it.seal()
        monkeypatch.setattr(takeover, "write_markers_directly", forbidden)
        _until_id_is_forgotten(wire, it)
        assert it.seal() == done
        assert wire.end(TopicPartition(topic, 0)) == done.ends[TopicPartition(topic, 0)] + 1


def test_id_that_is_used_now_and_then_keeps_its_producer_and_its_epoch(source_cluster, oblivious, topic):
    with (
        bench(source_cluster.bootstrap_servers, oblivious.bootstrap_servers, {topic: 1}) as it,
        wired(it.target, topic, ledger.LINKS_TOPIC) as wire,
    ):
        it.mirror(settings=QUICK).run(until_caught_up=True)
        ((_, identity),) = it.link.fences().items()

        def use(who: Identity) -> None:
            wire(keep_alive, it.link.transactional_id, who, deadline=time.monotonic() + 5)

        until = time.monotonic() + 6  # twice as long as it is remembered

        def is_over() -> bool:
            use(identity)
            assert wire(_producer_of, it.link.transactional_id) == identity.producer_id
            return time.monotonic() > until

        wait_until(is_over, "time passes")
        it.mirror(settings=QUICK).run(until_caught_up=True)
        after = max(it.link.fences().items())[1]
        assert after == Identity(identity.producer_id, identity.producer_epoch + 1)
        _until_id_is_forgotten(wire, it)
        with pytest.raises(CouldNotFindOut):
            use(after)


class Idler(ThreadRunner):
    """Before the second epoch the coordinator raises the epoch by itself, as it does 60 s after a broken-off use."""

    def __init__(self, it: Bench, wire: Wire) -> None:
        super().__init__()
        self._it, self._wire = it, wire

    def start(self, orders):
        if not self.orders:
            self._wire(take_identity, self._it.link.transactional_id, deadline=time.monotonic() + 20)
        return super().start(orders)


def test_epoch_that_nobody_took_is_no_takeover(source_cluster, target_cluster, topic, monkeypatch):
    monkeypatch.setitem(Fences.keep_alive.__kwdefaults__, "every", 0.0)
    with (
        bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it,
        wired(it.target, topic, ledger.LINKS_TOPIC) as wire,
    ):
        produce(it.source, topic, records(100, 1, 1), **SMALL_BATCHES)
        said: list[str] = []
        outcome = it.mirror(Idler(it, wire), settings=QUICK, log=said.append).run(until_caught_up=True)
        assert (outcome.reason, outcome.records, outcome.halted) == ("caught_up", 100, ())
        assert any("nobody else runs the link" in text for text in said)
        assert assert_same(it) == 100
