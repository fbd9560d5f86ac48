"""Random positions in every format, on real brokers: each leads to the very record, looked at by another reader."""

from __future__ import annotations

import json
import random
import uuid
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka.partitioner.default import murmur2

from kafka_migration.domain.errors import BadInput, Refused
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.keyed_topic import KeyedTopic, partition_of
from kafka_migration.migration.context import Context
from kafka_migration.positions import connect_offsets, files
from kafka_migration.positions.connect_offsets import Change
from kafka_migration.positions.translation import How, Rules
from tests.copy.bench import Bench, bench, records
from tests.copy.test_transactions import interleave
from tests.kafka_tools import Row, ToSend, create_topics, produce, read_all
from tests.positions.conftest import migration_of

COUNT, PARTITIONS = 200, 2


class Scene(NamedTuple):
    """A topic of interleaved transactions that was mirrored in several runs, and what a reader sees of both sides."""

    ctx: Context
    topic: str
    both: Bench
    source: dict[TopicPartition, list[Row]]
    target: dict[TopicPartition, list[Row]]

    def first(self, rows: dict[TopicPartition, list[Row]], tp: TopicPartition, offset: int) -> Row | None:
        """The record that a consumer standing at ``offset`` reads first."""
        at = bisect_left(rows[tp], offset, key=lambda row: row.offset)
        return rows[tp][at] if at < len(rows[tp]) else None

    def is_same(self, tp: TopicPartition, source: int, target: int) -> bool:
        """Whether both lead to the very same record, or both to the end."""
        one, other = self.first(self.source, tp, source), self.first(self.target, tp, target)
        return (one and one.without_offset()) == (other and other.without_offset())

    def chosen(self, seed: int, *, only_records: bool = False) -> list[tuple[TopicPartition, int]]:
        """Random positions: of all offsets that there are, the end included; or of records alone."""
        chance, maps = random.Random(seed), self.ctx.link.offset_maps()
        found = []
        for _ in range(COUNT):
            tp = TopicPartition(self.topic, chance.randrange(PARTITIONS))
            offset = chance.randrange(maps[tp].source_end + 1)
            found.append((tp, chance.choice(self.source[tp]).offset if only_records else offset))
        return found


@pytest.fixture(scope="module")
def scene(source_cluster, target_cluster) -> Iterator[Scene]:
    servers = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    topic = f"positions-{uuid.uuid4().hex[:8]}"
    with bench(*servers, {topic: PARTITIONS}) as both:
        for run in range(3):
            interleave(both.source, topic, transactions=12, seed=run)
            produce(both.source, topic, records(30, PARTITIONS, seed=run))
            assert both.mirror().run(until_caught_up=True).reason == "caught_up"
        with migration_of(both) as ctx:
            yield Scene(ctx, topic, both, *(read_all(at, both.topics) for at in servers))


def as_csv(places: list[tuple[TopicPartition, int]]) -> str:
    return "group;partition;offset;topic\r\n" + "".join(
        f'"g {o}";{tp.partition};{o};{tp.topic}\r\n' for tp, o in places
    )


def as_json(places: list[tuple[TopicPartition, int]]) -> str:
    return json.dumps([{"id": n, **tp._asdict(), "offset": offset} for n, (tp, offset) in enumerate(places)], indent=1)


def as_checkpoint(places: list[tuple[TopicPartition, int]]) -> dict[str, str]:
    """A query with a source for each position: two hundred in each of its two last batches."""
    lines = [json.dumps({tp.topic: {str(tp.partition): offset}}) for tp, offset in places]
    return {f"offsets/{n}": "\n".join(["v1", "{}", *lines]) for n in (6, 7)} | {"commits/6": "v1\n{}"}


def written(path: Path, format: str, places: list[tuple[TopicPartition, int]]) -> Path:
    if format != "checkpoint":
        path.write_bytes((as_csv if format == "csv" else as_json)(places).encode())
        return path
    for name, text in as_checkpoint(places).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path


def contents(path: Path) -> dict[str, bytes]:
    every = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return {one.relative_to(path).as_posix(): one.read_bytes() for one in every}


@pytest.mark.parametrize("format", ["csv", "json", "checkpoint"])
def test_random_positions_in_a_file_lead_to_the_very_records_and_back_to_the_very_file(scene, tmp_path, format):
    path = written(tmp_path / "in", format, scene.chosen(seed=1))
    done = files.translate(scene.ctx, files.read(path), rules=Rules(), output=tmp_path / "out")
    again = files.read(tmp_path / "out").pieces
    answers = [position.offset for piece in again for position in piece.positions]
    assert len(done.rows) == len(answers) == COUNT * (2 if format == "checkpoint" else 1)
    for (_, one), answer in zip(done.rows, answers, strict=True):
        assert (one.offset, scene.is_same(one.position.tp, one.position.offset, answer)) == (answer, True), one
    assert {one.how for _, one in done.rows} == {How.EXACT, How.GAP}
    assert sum(one.position.offset != one.offset for _, one in done.rows) > 0.5 * len(answers)
    # Of records there is one number on either side.
    path = written(tmp_path / "records", format, scene.chosen(seed=2, only_records=True))
    files.translate(scene.ctx, files.read(path), rules=Rules(), output=tmp_path / "there")
    files.translate(scene.ctx, files.read(tmp_path / "there"), rules=Rules(back=True), output=tmp_path / "back")
    assert contents(tmp_path / "back") == contents(path) != contents(tmp_path / "there")


class Connect:
    """An offsets topic on each cluster."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.name = scene, f"connect-{uuid.uuid4().hex[:8]}"
        for servers in (scene.both.source, scene.both.target):
            create_topics(servers, {self.name: 5}, {"cleanup.policy": "compact"})
        self.here, self.there = (KeyedTopic(cluster, self.name) for cluster in (scene.ctx.source, scene.ctx.target))

    def key(self, connector: str, tp: TopicPartition) -> bytes:
        # As Connect's own converter writes it: without spaces.
        partition = {"cluster": "old", "partition": tp.partition, "topic": tp.topic}
        return json.dumps([connector, partition], separators=(",", ":")).encode()

    def translate(self, **options: object) -> connect_offsets.OffsetsTranslation:
        rules = options.pop("rules", Rules())
        return connect_offsets.translate(self.scene.ctx, self.here, self.there, rules=rules, **options)  # type: ignore[arg-type]

    def records(self) -> list[Row]:
        return [row for rows in read_all(self.scene.both.target, {self.name: 5}).values() for row in rows]


@pytest.fixture
def connect(scene: Scene) -> Connect:
    return Connect(scene)


def as_offset(offset: int) -> bytes:
    return b'{"offset":%d}' % offset


def test_random_positions_of_connectors_lead_to_the_very_records_and_are_written_once(scene, connect):
    places = scene.chosen(seed=3, only_records=True)
    other = {b'["files",{"filename":"x"}]': b'{"position":7}', b"not of Connect": b"\xff"}
    kept = {connect.key(f"c{n}", tp): (tp, offset) for n, (tp, offset) in enumerate(places)}
    # What was there before the newest value of a key is no matter, nor is a key that was deleted.
    gone = connect.key("gone", places[0][0])
    connect.here.put({key: as_offset(1) for key in [*kept, gone]})
    connect.here.put({key: as_offset(offset) for key, (_, offset) in kept.items()} | other)
    produce(scene.both.source, connect.name, [ToSend(None, gone, partition_of(gone, 5))])
    assert connect_offsets.translate(scene.ctx, connect.here, rules=Rules()).written is None
    assert connect.records() == []
    assert connect.translate().written == COUNT + len(other)
    found = connect.there.latest()
    assert {key: found.pop(key) for key in other} == other
    assert found.keys() == kept.keys()
    for key, (tp, offset) in kept.items():
        there = json.loads(found[key])["offset"]
        record = scene.first(scene.target, tp, there)
        assert record is not None
        assert record.offset == there, "the last record that was read, as on the source"
        assert scene.is_same(tp, offset, there)
        assert scene.is_same(tp, offset + 1, there + 1), "it goes on with the same record"
    rows = read_all(scene.both.target, {connect.name: 5})
    for place, many in rows.items():
        assert all((murmur2(row.key) & 0x7FFFFFFF) % 5 == place.partition for row in many), "where Connect looks"
    again = connect.translate()
    assert (again.written, {one.change for one in again.moved}) == (0, {Change.SAME})
    assert len(connect.records()) == COUNT + len(other)


def test_connector_that_went_further_on_the_other_topic_is_not_rewound_without_an_order(scene, connect):
    tp = TopicPartition(scene.topic, 0)
    behind, ahead, other = connect.key("behind", tp), connect.key("ahead", tp), b'["files",{"filename":"x"}]'
    offset, target = scene.source[tp][20].offset, scene.target[tp][20].offset
    connect.here.put({behind: as_offset(offset), ahead: as_offset(offset), other: b'{"position":7}'})
    before = {behind: as_offset(target - 1), ahead: b'{ "offset": %d }' % (target + 1), other: b'{"position":8}'}
    connect.there.put(before)
    for _ in range(2):
        with pytest.raises(Refused, match=r"ahead \(.*\): further ahead there") as caught:
            connect.translate()
        assert "files (" in str(caught.value)
        assert connect.there.latest() == before
    assert connect.translate(connectors=["behind"]).written == 1
    assert connect.there.latest() == before | {behind: as_offset(target)}
    assert connect.translate(rewind=True).written == 2
    assert connect.there.latest() == {behind: as_offset(target), ahead: as_offset(target), other: b'{"position":7}'}


def test_offsets_topic_that_is_the_same_or_would_forget_is_refused(scene, connect):
    connect.here.put({connect.key("c", TopicPartition(scene.topic, 0)): as_offset(3)})
    with pytest.raises(BadInput, match=r"--output-topic: is the topic that is read"):
        connect_offsets.translate(scene.ctx, connect.here, connect.here, rules=Rules())
    with pytest.raises(BadInput, match=r"--connector: .* holds nothing of this connector\n.*it knows c"):
        connect.translate(connectors=["d"])
    forgetful = f"{connect.name}-deleted"
    create_topics(scene.both.target, {forgetful: 1})
    with pytest.raises(Refused, match=r"cleanup.policy of .* is delete"):
        connect_offsets.translate(scene.ctx, connect.here, KeyedTopic(scene.ctx.target, forgetful), rules=Rules())
    with pytest.raises(BadInput, match=r"the target has no topic none"):
        KeyedTopic(scene.ctx.target, "none")
