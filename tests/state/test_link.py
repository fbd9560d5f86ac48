"""The state of a link: what it remembers, and what a reader sees of it while mirrors write and fence."""

import random
import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from demo.brokers import EmbeddedKafka
from kafka_migration.domain import ledger
from kafka_migration.domain.errors import StateConflict
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.skips import Skip
from kafka_migration.domain.types import Desired, Identity, Position, TopicPartition
from kafka_migration.kafka.topic_log import Entry, TopicLog
from kafka_migration.state import store as store_module
from kafka_migration.state.link import LinkState, LinkTopic, Wish
from kafka_migration.state.store import MemoryStore

AT = "2026-01-01T00:00:00+00:00"
TOPIC = LinkTopic(name="t", source_id=uuid.UUID(int=1), target_id=uuid.UUID(int=2))
TP = TopicPartition("t", 0)


class FakeLog:
    """A log in memory. `before_reading` lets the world go on before every read."""

    def __init__(self, topic: str, before_reading: Callable[[], None] = lambda: None) -> None:
        self.topic, self.partitions = topic, ledger.PARTITIONS[topic]
        self.entries: list[Entry] = []
        self._before_reading, self._read = before_reading, 0

    def append(self, entries: Any) -> None:
        for key, value in entries:
            self.entries.append(Entry(0, len(self.entries), key, value))

    def new_entries(self, partitions: Any = None) -> Iterator[Entry]:
        self._before_reading()
        end = len(self.entries)
        while self._read < end:
            yield self.entries[self._read]
            self._read += 1

    def read_up_to(self) -> dict[int, int]:
        return {0: self._read} | dict.fromkeys(range(1, self.partitions), 0)

    def close(self) -> None:
        pass


class World:
    """Mirrors at work on one partition: each step is one durable write or one append, in an order they could have."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.openings = FakeLog(ledger.OFFSET_MAP_TOPIC, self.go_on)
        self.progress = FakeLog(ledger.PROGRESS_TOPIC, self.go_on)
        self.link = LinkState("l", MemoryStore(), self.openings, self.progress)  # type: ignore[arg-type]
        self.link.pin(source_cluster="s", target_cluster="t", topics=[TOPIC], at=AT)
        self.stands_at: dict[int, int] = {}
        self._steps = self._script()
        self._late: list[Callable[[], None]] = []

    def go_on(self) -> None:
        for _ in range(self.chance.choice([0, 0, 1, 2, 7])):
            next(self._steps, None)

    def _script(self) -> Iterator[None]:
        source, target, epoch = self.chance.randrange(20), 0, -1
        for _ in range(8):
            epoch, data_end = epoch + self.chance.choice([1, 2]), target
            target = data_end + self.chance.choice([1, 1, 2])
            self.link.record_fence(epoch, Identity(7, epoch), at=AT)
            yield
            self._open(RunOpening(fence=epoch, records=0, source=source, target=target, closes=data_end))
            yield
            start, records, told = target, 0, (0, source)
            for _ in range(self.chance.randrange(6)):
                if self.chance.random() < 0.4:
                    source += self.chance.randrange(1, 5)
                    closes = data_end if records == 0 else None
                    self._open(RunOpening(fence=epoch, records=records, source=source, target=target, closes=closes))
                    yield
                for _ in range(self.chance.randrange(1, 4)):
                    self.stands_at[source] = target
                    source, target, records = source + 1, target + 1, records + 1
                yield
                if self.chance.random() < 0.7:
                    told = (records, source)
                    self._log(epoch, start, *told)
                    yield
            if self.chance.random() < 0.5:  # runs written ahead of batches that a fence kept out
                void = RunOpening(fence=epoch, records=records + 5, source=source + 9, target=target + 5)
                self._open(void)
                self._late.append(lambda void=void: self._open(void))  # type: ignore[misc]
            # An attempt that was fenced may tell its last word long after.
            self._late.append(lambda args=(epoch, start, *told): self._log(*args))  # type: ignore[misc]
            if self._late and self.chance.random() < 0.5:
                self._late.pop(self.chance.randrange(len(self._late)))()
            yield

    def _open(self, opening: RunOpening) -> None:
        self.openings.append([(ledger.opening_key("l", TOPIC.key, 0, opening), ledger.opening_value(opening))])

    def _log(self, epoch: int, start: int, records: int, source: int) -> None:
        position = Position(source=source, target=start + records, fence=epoch, records=records)
        self.progress.append(ledger.progress_records("l", "0", {TP: ledger.Told(position, 0, "run", 0)}))


@pytest.mark.parametrize("first", range(0, 300, 25))
def test_map_read_at_any_moment_is_exact_up_to_a_position_that_never_goes_back(first):
    for seed in range(first, first + 25):
        world, newest = World(seed), -1
        for _ in range(60):
            found = world.link.offset_maps().get(TP)
            if found is None:
                continue
            assert found.source_end >= newest, seed
            newest = found.source_end
            copied = [offset for offset in sorted(world.stands_at) if offset < found.source_end]
            for offset in copied:
                assert found.to_target(offset) == world.stands_at[offset], (seed, offset)
                assert found.to_source(world.stands_at[offset]) == offset, (seed, offset)
            assert found.records == len(copied), seed
            if copied:
                assert found.to_target(found.source_end) >= world.stands_at[copied[-1]] + 1, seed
        while next(world._steps, world) is not world:
            pass
        assert world.link.records() == {TP: world.link.offset_maps()[TP].records}, seed


def test_topics_are_pinned_once_and_another_cluster_is_refused():
    link = LinkState("l", MemoryStore(), None, None)
    link.pin(source_cluster="s", target_cluster="t", topics=[TOPIC], at=AT)
    recreated = LinkTopic(name="t", source_id=uuid.UUID(int=8), target_id=uuid.UUID(int=9))
    more = LinkTopic(name="u", source_id=uuid.UUID(int=0), target_id=uuid.UUID(int=0))
    link.pin(source_cluster="s", target_cluster="t", topics=[recreated, more], at=AT)
    assert link.topics() == {"t": TOPIC, "u": more}
    assert [topic.key for topic in link.topics().values()] == [str(TOPIC.target_id), "u"]
    with pytest.raises(StateConflict, match="another name"):
        link.pin(source_cluster="s", target_cluster="elsewhere", topics=[], at=AT)


def test_fences_are_named_by_epoch_and_repeating_one_changes_nothing():
    link = LinkState("l", MemoryStore(), None, None)
    for epoch in (4, 9, 4):
        link.record_fence(epoch, Identity(7, epoch), at=AT)
    assert link.fences() == {4: Identity(7, 4), 9: Identity(7, 9)}


def test_halts_and_wishes_are_read_back():
    link = LinkState("l", MemoryStore(), None, None)
    assert link.wished() == Wish(desired=Desired.RUN)
    link.halt(TopicPartition("a-b.c", 3), "DATA_LOSS", "gone", 7, 8, AT)
    assert link.halted() == {TopicPartition("a-b.c", 3)}
    assert link.halts()[TopicPartition("a-b.c", 3)].source_offset == 7
    ends = {TopicPartition("a", 0): 5, TopicPartition("a", 1): 6, TopicPartition("b", 0): 0}
    link.wish(Wish(desired=Desired.DRAIN, ends=ends, reason="because", at=AT))
    assert link.wanted() == (Desired.DRAIN, ends)


def test_links_on_one_target_do_not_mix(target_cluster):
    properties = {"bootstrap.servers": target_cluster.bootstrap_servers}
    names = [f"link-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    names.append(f"{names[0]}2")  # one whose name another's begins with
    links = [LinkState.on_target(name, properties, create=True) for name in names]
    for n, link in enumerate(links):
        link.pin(source_cluster="s", target_cluster="t", topics=[TOPIC], at=AT)
        link.record_fence(n, Identity(n, n), at=AT)
        opening = RunOpening(fence=n, records=0, source=n, target=1, closes=0)
        link.record_openings([(TP, opening)])
        link.halt(TP, f"reason {n}", "", 0, 0, AT)
        link.record_run({"state": "running", "n": n})
    for n, name in enumerate(names):
        reader = LinkState.on_target(name, properties)
        assert reader.fences() == {n: Identity(n, n)}
        assert reader.positions() == {TP: Position(source=n, target=1, fence=n, records=0)}
        assert reader.halts()[TP].reason == f"reason {n}"
        assert reader.run() == {"state": "running", "n": n}
        reader.close()
    for link in links:
        link.close()


def test_target_without_internal_topics_has_an_empty_link_and_none_are_made(target_cluster, monkeypatch):
    for name in ("LINKS_TOPIC", "OFFSET_MAP_TOPIC", "PROGRESS_TOPIC"):
        topic = f"absent-{uuid.uuid4().hex[:8]}.internal"
        monkeypatch.setitem(ledger.PARTITIONS, topic, 1)
        monkeypatch.setattr(ledger, name, topic)
    properties = {"bootstrap.servers": target_cluster.bootstrap_servers}
    link = LinkState.on_target("l", properties)
    assert (link.topics(), link.fences(), link.positions(), link.offset_maps()) == ({}, {}, {}, {})
    with pytest.raises(StateConflict, match="no internal topics"):
        link.record_openings([(TP, RunOpening(fence=0, records=0, source=0, target=1, closes=0))])
    link.close()
    with TopicLog(properties, ledger.LINKS_TOPIC) as log:
        assert not log.exists()


def test_late_words_of_a_run_count_for_the_topic_that_it_copied_into() -> None:
    log = FakeLog(ledger.OFFSET_MAP_TOPIC, lambda: None)
    link = LinkState("l", MemoryStore(), log, None)  # type: ignore[arg-type]
    link.pin(source_cluster="s", target_cluster="t", topics=[TOPIC], at=AT)
    link.pin_again([replace(TOPIC, target_id=uuid.uuid4())], at=AT)
    link.record_openings([(TP, RunOpening(fence=0, records=0, source=0, target=1, closes=0))], {TP.topic: TOPIC.key})
    link.halt(TP, "RECREATED", "", 5, 6, AT, TOPIC.key)
    assert (link.openings(), link.halts()) == ({}, {})
    link.pin_again([TOPIC], at=AT)
    assert (list(link.openings()), list(link.halts())) == ([TP], [TP])


def test_lifted_halts_are_gone_and_what_was_given_up_is_kept_for_the_topic_that_was_copied_into() -> None:
    link = LinkState("l", MemoryStore(), None, None)
    link.pin(source_cluster="s", target_cluster="t", topics=[TOPIC], at=AT)
    other = TopicPartition("t", 1)
    skip = Skip(start=5, end=9, halt="DATA_LOSS", detail="gone", by="ada", at=AT, topic_key=TOPIC.key)
    for tp in (TP, other):
        link.halt(tp, "DATA_LOSS", "gone", 5, 6, AT)
    link.lift({TP: skip, other: None})
    assert (link.halted(), link.skips()) == (set(), {TP: (skip,)})
    later = replace(skip, start=20, end=30)
    link.lift({TP: later})
    assert link.skips() == {TP: (skip, later)}
    link.pin_again([replace(TOPIC, target_id=uuid.uuid4())], at=AT)
    assert link.skips() == {}


# -- how much of the progress topic is read -----------------------------------------------------------------------


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Internal topics of the test's own."""
    for name in ("LINKS_TOPIC", "OFFSET_MAP_TOPIC", "PROGRESS_TOPIC"):
        topic = f"own-{uuid.uuid4().hex[:8]}.internal"
        monkeypatch.setitem(ledger.PARTITIONS, topic, ledger.PARTITIONS[getattr(ledger, name)])
        monkeypatch.setattr(ledger, name, topic)


def _log(servers: str, source: int, *, share: str, partition: int = 0) -> None:
    position = Position(source=source, target=source + 1, fence=0, records=source)
    told = {TopicPartition("t", partition): ledger.Told(position, 0, "run", source)}
    with TopicLog({"bootstrap.servers": servers}, ledger.PROGRESS_TOPIC) as log:
        log.append(ledger.progress_records("l", share, told))


def test_reader_begins_where_the_mirror_wrote_down_what_is_known(
    target_cluster: EmbeddedKafka, logs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_ACCOUNT_RECORDS", 5)
    servers, read = target_cluster.bootstrap_servers, list[Entry]()
    writer = LinkState.on_target("l", {"bootstrap.servers": servers}, create=True)
    _log(servers, 7, share="9", partition=1)
    for source in range(20):
        _log(servers, source, share="0")
        writer.progress()
        writer.record_run({"state": "running"})
    with TopicLog({"bootstrap.servers": servers}, ledger.PROGRESS_TOPIC) as log:
        everything = len(list(log.new_entries()))
    entries = TopicLog.new_entries

    def counted(log: TopicLog, partitions: Collection[int] | None = None) -> Iterator[Entry]:
        for entry in entries(log, partitions):
            if log.topic == ledger.PROGRESS_TOPIC:
                read.append(entry)
            yield entry

    monkeypatch.setattr(TopicLog, "new_entries", counted)
    reader = LinkState.on_target("l", {"bootstrap.servers": servers})
    assert {tp.partition: position.source for tp, (position, _) in reader.progress().items()} == {0: 19, 1: 7}
    assert len(read) <= 7 < 20 < everything
    reader.close()
    writer.close()


@pytest.mark.parametrize("how", ["halted", "waiting"])
def test_position_of_a_partition_that_no_task_copies_any_more_is_still_known(
    target_cluster: EmbeddedKafka, logs: None, how: str
) -> None:
    servers = target_cluster.bootstrap_servers
    driver = LinkState.on_target("l", {"bootstrap.servers": servers}, create=True)
    _log(servers, 7, share="0", partition=1)
    if how == "halted":
        driver.halt(TopicPartition("t", 1), "REFUSED", "", 7, 7, "", "")
    else:
        driver.record_run({"state": "running", "waiting": "1 partitions wait"})
    _log(servers, 9, share="0", partition=0)
    reader = LinkState.on_target("l", {"bootstrap.servers": servers})
    assert {tp.partition: position.source for tp, (position, _) in reader.progress().items()} == {0: 9, 1: 7}
    reader.close()
    driver.close()


def test_progress_topic_that_is_another_one_than_was_written_down_is_read_whole(
    target_cluster: EmbeddedKafka, logs: None
) -> None:
    servers = target_cluster.bootstrap_servers
    LinkState.on_target("l", {"bootstrap.servers": servers}, create=True).close()
    for source in range(5):
        _log(servers, source, share=str(source))
    store = MemoryStore()
    store.put("l/progress", {"since": {str(p): 3 for p in range(ledger.PARTITIONS[ledger.PROGRESS_TOPIC])}})
    log = TopicLog({"bootstrap.servers": servers}, ledger.PROGRESS_TOPIC)
    link = LinkState("l", store, None, log)
    assert link.progress()[TP][0].source == 4
    link.close()


# -- how much of the offset map is read ---------------------------------------------------------------------------


class Spread(FakeLog):
    """An offset map in memory, with its partitions; `asked` are those that were read."""

    def __init__(self, *, as_before: bool) -> None:
        super().__init__(ledger.OFFSET_MAP_TOPIC)
        self._as_before = as_before
        self.asked: list[set[int]] = []
        self._was_read: set[int] = set()

    def append(self, entries: Any) -> None:
        for key, value in entries:
            spread = ledger.partition_of if self._as_before else partial(ledger.place_of, self.topic)
            self.entries.append(Entry(spread(key, partitions=self.partitions), len(self.entries), key, value))

    def new_entries(self, partitions: Any = None) -> Iterator[Entry]:
        asked = set(range(self.partitions) if partitions is None else partitions)
        self.asked.append(asked)
        yield from (it for it in self.entries if it.partition in asked and it.offset not in self._was_read)
        self._was_read |= {it.offset for it in self.entries if it.partition in asked}


@pytest.mark.parametrize("as_before", [False, True])
def test_map_of_one_partition_is_read_from_one_place_unless_an_earlier_version_began_the_link(as_before: bool) -> None:
    log, store = Spread(as_before=as_before), MemoryStore()
    if as_before:
        pinned = {"source_cluster": "s", "target_cluster": "t", "isolation": "read_committed", "at": AT}
        store.put("l", pinned)
    link = LinkState("l", store, log, FakeLog(ledger.PROGRESS_TOPIC))  # type: ignore[arg-type]
    link.pin(source_cluster="s", target_cluster="t", topics=[TOPIC], at=AT)
    tps = [TopicPartition("t", n) for n in range(40)]
    first = RunOpening(fence=0, records=0, source=0, target=1, closes=0)
    link.record_openings((tp, first) for tp in tps)
    runs = [RunOpening(fence=0, records=n, source=2 * n, target=1 + n) for n in range(1, 20)]
    link.record_openings((tp, run) for tp in tps for run in runs)
    found = link.offset_maps([tps[3]])
    assert found.keys() == {tps[3]}
    assert set(map(len, log.asked)) == ({16} if as_before else {1})
    assert len(link.openings([tps[3]])[tps[3]]) == 20
    assert link.positions().keys() == set(tps), "what is asked for later is read then"
    assert {len(it) for it in link.openings().values()} == {20}


def test_earlier_version_that_would_write_elsewhere_cannot_read_the_progress_of_a_new_link() -> None:
    progress = FakeLog(ledger.PROGRESS_TOPIC)
    link = LinkState("l", MemoryStore(), Spread(as_before=False), progress)  # type: ignore[arg-type]
    link.pin(source_cluster="s", target_cluster="t", topics=[TOPIC], at=AT)
    (entry,) = progress.entries
    with pytest.raises(StateConflict, match="another version"):
        ledger.decode(entry.value or b"", where="what an earlier version knows")
    assert link.progress() == {}


def test_what_the_target_holds_beside_the_copy_is_of_the_topic_that_is_pinned() -> None:
    link = LinkState("one", MemoryStore(), None, None)
    link.pin_again([TOPIC], at=AT)
    link.record_extras({TP: [(0, 4), (9, 10)], TopicPartition("t", 1): []}, TOPIC.key)
    assert link.extras() == {TP: ((0, 4), (9, 10)), TopicPartition("t", 1): ()}
    link.pin_again([replace(TOPIC, target_id=uuid.UUID(int=3))], at=AT)
    assert link.extras() == {}
