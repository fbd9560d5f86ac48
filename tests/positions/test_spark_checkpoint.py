"""Checkpoints of Spark, as Spark 4.2 writes them: the last batches exactly, all else as it is, in another folder.

What a real query makes of them is in test_spark_query.py.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

from kafka_migration.domain.errors import BadInput, Refused
from kafka_migration.positions import files, formats
from kafka_migration.positions.files import FileTranslation
from kafka_migration.positions.translation import NotExact, Rules
from tests.positions.conftest import MIRRORED
from tests.steps.worlds import FakeWorld

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1795533830202,"conf":{"spark.sql.shuffle.partitions":"1"}}'


class Checkpoint:
    """A query with a source that is not Kafka (0), and one that reads ``topic`` (1)."""

    def __init__(self, folder: Path, topic: str, version: int = 1) -> None:
        self.folder, self.topic, self.version = folder, topic, version
        self.file("metadata", '{"id":"50a53730-4bfc-47ed-b3fa-0c3f504f9438"}')
        self.file("state/0/0/1.delta", "not text: \udcff")
        self.file("sources/0/0", '{"path":"a.json","timestamp":0,"batchId":0}')

    def file(self, name: str, text: str, *, crc: bool = False) -> None:
        path, content = self.folder / name, text.encode(errors="surrogateescape")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if crc:
            checksums = b"".join(
                zlib.crc32(content[at : at + 512]).to_bytes(4, "big") for at in range(0, len(content), 512)
            )
            path.with_name(f".{path.name}.crc").write_bytes(b"crc\0" + (512).to_bytes(4, "big") + checksums)

    def began(self, offset: int) -> None:
        self.file("sources/1/0", f'\0v1\n{{"{self.topic}":{{"0":{offset}}}}}', crc=True)

    def batch(self, number: int, offset: int | None, *, committed: bool = True) -> None:
        kafka = "-" if offset is None else f'{{"{self.topic}":{{"0":{offset}}}}}'
        names = ("0:", "1:") if self.version == 2 else ("", "")
        lines = [f"v{self.version}", METADATA, f'{names[0]}{{"logOffset":{number}}}', names[1] + kafka]
        self.file(f"offsets/{number}", "\n".join(lines), crc=True)
        if committed:
            self.file(f"commits/{number}", 'v1\n{"nextBatchWatermarkMs":0}', crc=True)

    def contents(self) -> dict[str, bytes]:
        return contents(self.folder)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def query(gappy: str, tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "in", gappy)


def translated(world: FakeWorld, folder: Path, output: Path | None = None, *, back: bool = False) -> FileTranslation:
    return files.translate(world.ctx(), files.read(folder), rules=Rules(back=back), output=output)


@pytest.mark.parametrize("version", [1, 2])
def test_checkpoint_that_is_translated_and_back_is_the_very_same(world, gappy, tmp_path, version):
    query = Checkpoint(tmp_path / "in", gappy, version)
    query.began(10)
    for number, offset in enumerate((12, 12, 19, 26)):
        query.batch(number, offset, committed=number < 3)
    shown = translated(world, query.folder, tmp_path / "there")
    assert [(one.position.offset, one.offset) for _, one in shown.rows] == [
        (12, 3),
        (12, 3),
        (19, 10),
        (26, 13),
        (10, 1),
    ]
    there = contents(tmp_path / "there")
    line = (b"1:" if version == 2 else b"") + f'{{"{gappy}":{{"0":13}}}}'.encode()
    assert there["offsets/3"].split(b"\n") == [*query.contents()["offsets/3"].split(b"\n")[:3], line]
    assert there["sources/1/0"] == f'\0v1\n{{"{gappy}":{{"0":1}}}}'.encode()
    for name in ("offsets/3", "sources/1/0"):
        path = tmp_path / "there" / name
        crc = formats.checksum_file(path).read_bytes()
        assert crc[8:12] == zlib.crc32(path.read_bytes()[:512]).to_bytes(4, "big")
    changed = {name for name, content in there.items() if content != query.contents()[name]}
    # Whatever holds no position of Kafka is as it was: other sources, commits, state, the query's id.
    assert {name.replace(".crc", "").replace("/.", "/") for name in changed} == {
        "offsets/0", "offsets/1", "offsets/2", "offsets/3", "sources/1/0"
    }  # fmt: skip
    translated(world, tmp_path / "there", tmp_path / "back", back=True)
    assert contents(tmp_path / "back") == query.contents()


def test_history_is_left_out_from_where_it_has_no_exact_answer(world, query, tmp_path):
    """The source's log starts at 5: what a batch ended at before was never copied, and nobody reads it again."""
    query.began(0)
    for number, offset in enumerate((7, 4, 11, 15, 19)):
        query.batch(number, offset)
    shown = translated(world, query.folder, tmp_path / "out")
    assert (shown.exit_code, shown.left_out) == (
        0, ("offsets/0", "commits/0", "offsets/1", "commits/1", "sources/1/0")
    )  # fmt: skip
    out = contents(tmp_path / "out")
    assert not [name for name in out if name.endswith(("/0.crc", "/1", ".1.crc")) and "state" not in name]
    assert {name for name in out if name.startswith("offsets/") and ".crc" not in name} == {
        "offsets/2", "offsets/3", "offsets/4"
    }  # fmt: skip
    assert out["state/0/0/1.delta"] == query.contents()["state/0/0/1.delta"]
    assert "sources/0/0" in out


@pytest.mark.parametrize(
    ("began", "batches"),
    [
        (10, [(4, True), (15, True)]),
        (10, [(15, True), (4, True)]),
        (10, [(15, True), (MIRRORED + 1, False)]),
        (0, [(15, False)]),
        (0, [(None, True)]),
        (0, [(None, True), (15, False)]),
        (0, []),
    ],
    ids=[
        "the end of the batch before the last",
        "the end of the last batch",
        "a planned batch whose end is not mirrored yet",
        "the beginning of the first batch, to be read again",
        "the beginning of a source without an offset",
        "the beginning of a batch to be read again",
        "the beginning, before any batch",
    ],
)
def test_position_from_which_the_query_goes_on_is_exact_or_nothing_is_written(world, query, tmp_path, began, batches):
    query.began(began)
    for number, (offset, committed) in enumerate(batches):
        query.batch(number, offset, committed=committed)
    with pytest.raises(NotExact, match=r"1 of \d positions cannot be translated exactly, so nothing was written"):
        translated(world, query.folder, tmp_path / "out")
    assert os.listdir(tmp_path) == ["in"]


def test_beginning_of_a_source_is_not_needed_once_a_batch_has_its_offset(world, query, tmp_path):
    query.began(0)
    query.batch(0, 12)
    query.batch(1, 15, committed=False)
    assert translated(world, query.folder, tmp_path / "out").left_out == ("sources/1/0",)


def test_query_that_goes_on_meanwhile_is_refused(world, query, tmp_path):
    query.batch(0, 12)
    found = files.read(query.folder)
    query.batch(1, 15, committed=False)
    with pytest.raises(Refused, match=r"was changed while it was translated.*\n.*the query"):
        files.translate(world.ctx(), found, rules=Rules(), output=tmp_path / "out")
    assert os.listdir(tmp_path) == ["in"]


def test_output_in_the_checkpoint_itself_is_refused(world, query):
    query.batch(0, 12)
    for output in (query.folder, query.folder / "state" / "out"):
        with pytest.raises(BadInput, match=r"--output: (exists already|lies in the folder that is read)"):
            translated(world, query.folder, output)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("offsets/0", "v3\n{}\n5", "offsets/0: line 1: has version 'v3', which is not known"),
        ("offsets/0", "", "offsets/0: line 1: has version ''"),
        ("offsets/0", 'v1\n{}\n{"a":{"0":1', "offsets/0: line 3: is not JSON"),
        ("offsets/0", 'v1\n{}\n{"a":{"0":"x"}}', "offsets/0: line 3, a.0: is not an offset"),
        ("offsets/0", "v1\n{}\n{\udcff}", "offsets/0: is not UTF-8"),
        ("offsets/0", "v1\n{}\n5", "holds no position of Kafka"),
        ("commits/0", "v1\n{}", "is no checkpoint of Spark Structured Streaming"),
    ],
)
def test_checkpoint_that_is_not_whole_is_bad_input_that_names_file_and_line(query, name, text, said):
    query.file(name, text)
    with pytest.raises(BadInput, match=r"remedy: ") as caught:
        files.read(query.folder)
    assert said in str(caught.value)
