"""The formats in which positions are kept: JSON of several shapes, CSV, checkpoints of Spark."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from kafka_migration.domain.digest import without_twins
from kafka_migration.domain.errors import BadInput
from kafka_migration.positions.pieces import Piece
from kafka_migration.positions.texts import Position, position, whole

# -- JSON -----------------------------------------------------------------------------------------------------------
#
# JSON whose numbers have a place: read once by the standard library, which names what is wrong, then once more for
# where each value stands.

_SPACE = re.compile(r"[ \t\r\n]*")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_PLAIN = re.compile(r"[^\s,\]}]+")
#: By which fields Connect knows the partition that MirrorSourceConnector reads, and what a sink connector reads.
_MIRRORED, _SUNK = {"cluster", "partition", "topic"}, {"kafka_topic", "kafka_partition"}
SHAPES = (
    '{"topic": {"0": 123}}, as Spark takes them; a list of objects with topic, partition and offset, or such a list as'
    ' "partitions", as Kafka\'s tools do; {"offsets": [{"partition": {...}, "offset": {...}}]}, as Connect shows them'
)


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a JSON text, at characters ``start`` to ``end`` (not included); values inside it are nodes."""

    value: Value
    start: int
    end: int

    @property
    def plain(self) -> object:
        """The value, or a sketch of one that holds others: that is no part of a position."""
        return "{...}" if isinstance(self.value, dict) else "[...]" if isinstance(self.value, list) else self.value

    @property
    def items(self) -> list[Node]:
        """What a list holds; nothing for anything else."""
        return self.value if isinstance(self.value, list) else []


Value: TypeAlias = "Mapping[str, Node] | list[Node] | str | int | float | bool | None"


def parsed(text: str, *, file: str, where: str = "") -> Node:
    """``text`` as a node. Raises BadInput if it is not JSON, or if a field stands twice in an object."""
    try:
        json.loads(text, object_pairs_hook=without_twins, parse_int=whole)
        return _node(text, _SPACE.match(text).end())  # type: ignore[union-attr]
    except ValueError as error:
        raise BadInput(f"is not JSON ({error})", file=file, field=where, remedy="correct the text") from None
    except RecursionError:
        raise BadInput("is not JSON (nested too deep)", file=file, field=where, remedy="correct the text") from None


def _node(text: str, at: int) -> Node:
    """The value that begins at ``at``, in a text that is known to be JSON."""
    if text[at] not in "{[":
        end = (_TEXT if text[at] == '"' else _PLAIN).match(text, at).end()  # type: ignore[union-attr]
        return Node(json.loads(text[at:end], parse_int=whole), at, end)
    closing, fields, items = ("}" if text[at] == "{" else "]"), dict[str, Node](), list[Node]()
    here = _skip(text, at + 1)
    while text[here] != closing:
        if closing == "}":
            name = _node(text, here)
            fields[str(name.value)] = found = _node(text, _skip(text, _skip(text, name.end) + 1))
        else:
            found = _node(text, here)
            items.append(found)
        here = _skip(text, found.end)
        if text[here] == ",":
            here = _skip(text, here + 1)
    return Node(fields if closing == "}" else items, at, here + 1)


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


# -- shapes of JSON -------------------------------------------------------------------------------------------------


def json_positions(text: str, *, file: str) -> tuple[Position, ...]:
    """The positions of a JSON file. Raises BadInput for a file of another shape, or with a value that is none."""
    root = parsed(text, file=file)
    if is_by_topic(root):
        found = by_topic(root, file=file)
    elif isinstance(root.value, list):
        found = _listed(root.value, "", file=file)
    elif isinstance(root.value, dict) and isinstance(root.value.get("partitions", Node(None, 0, 0)).value, list):
        found = _listed(root.value["partitions"].value, "partitions", file=file)
    elif isinstance(root.value, dict) and isinstance(root.value.get("offsets", Node(None, 0, 0)).value, list):
        found = _of_connect(root.value["offsets"].value, file=file)
    else:
        raise BadInput("holds no positions in a shape that is known", file=file, remedy=f"write them as {SHAPES}")
    return tuple(found)


def is_by_topic(node: Node) -> bool:
    """Whether it is topics, of partitions: what Spark's Kafka source takes and keeps."""
    return (
        isinstance(node.value, dict)
        and bool(node.value)
        and all(
            isinstance(partitions.value, dict)
            and partitions.value
            and all(name.isdecimal() for name in partitions.value)
            for partitions in node.value.values()
        )
    )


def by_topic(root: Node, *, file: str, where: str = "") -> Iterator[Position]:
    """Positions of ``{"topic": {"0": 123}}``."""
    for topic, partitions in _fields(root).items():
        for number, offset in _fields(partitions).items():
            field = f"{where}{topic}.{number}"
            span = offset.start, offset.end
            yield position(topic, whole(number), offset.plain, file=file, where=field, span=span)


def _listed(items: list[Node], name: str, *, file: str) -> Iterator[Position]:
    for at, item in enumerate(items):
        where = f"{name}[{at}]"
        fields = _fields(item)
        lacking = [field for field in ("topic", "partition", "offset") if field not in fields]
        if lacking:
            raise BadInput(
                f"has no {lacking[0]}", file=file, field=where, remedy="give topic, partition and offset of each"
            )
        topic, partition, offset = (fields[field] for field in ("topic", "partition", "offset"))
        span = offset.start, offset.end
        yield position(topic.plain, partition.plain, offset.plain, file=file, where=where, span=span)


def _of_connect(items: list[Node], *, file: str) -> Iterator[Position]:
    for at, item in enumerate(items):
        fields = _fields(item)
        if "partition" not in fields or "offset" not in fields:
            raise BadInput(
                "has no partition and offset", file=file, field=f"offsets[{at}]", remedy=f"write them as {SHAPES}"
            )
        yield from of_connect(fields["partition"], fields["offset"], file=file, where=f"offsets[{at}]")


def is_position_of_connect(partition: Mapping[str, object]) -> bool:
    """Whether a connector that keeps this partition keeps a position of Kafka."""
    return partition.keys() in (_MIRRORED, _SUNK)


def of_connect(partition: Node, offset: Node, *, file: str, where: str) -> Iterator[Position]:
    """The position that a connector keeps, if it is one of Kafka: none for a partition of another system.

    MirrorSourceConnector keeps the offset of the last record that it has copied, and resumes behind it
    (MirrorSourceTask, ``seek(offset + 1)``). A sink connector is a consumer group: its offset is the next one. What
    MirrorCheckpointConnector and MirrorHeartbeatConnector keep has more or other fields, and is no position.
    """
    fields, kept = _fields(partition), _fields(offset)
    if fields.keys() == _MIRRORED and "offset" in kept:
        topic, number, found, is_last_read = fields["topic"], fields["partition"], kept["offset"], True
    elif fields.keys() == _SUNK and "kafka_offset" in kept:
        topic, number, found, is_last_read = (
            fields["kafka_topic"],
            fields["kafka_partition"],
            kept["kafka_offset"],
            False,
        )
    else:
        return
    span = found.start, found.end
    yield position(topic.plain, number.plain, found.plain, file=file, where=where, span=span, is_last_read=is_last_read)


def _fields(node: Node) -> Mapping[str, Node]:
    return node.value if isinstance(node.value, dict) else {}


# -- CSV ------------------------------------------------------------------------------------------------------------
#
# A column each for topic, partition and offset, in any order, among any others. The standard library's reader does not
# tell where a field stands, so fields are found here: by RFC 4180, with whatever delimiter divides the first row into
# the columns that are looked for.

_COLUMNS = ("topic", "partition", "offset")
_DELIMITERS = ",;\t|"
_MARK = "\ufeff"
#: No offset: what kafka-consumer-groups prints for a partition without a commit.
_NONE = ("", "-")


@dataclass(frozen=True, slots=True)
class _Field:
    """The text of a field without its quotes, which stands from character ``start`` on."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    fields: list[_Field]


def csv_positions(text: str, *, file: str, columns: Sequence[str] | None = None) -> tuple[Position, ...]:
    """The positions of a CSV file. ``columns`` are the names of topic, partition and offset (in any case); without,
    just these words, or no header at all, as ``kafka-consumer-groups --export`` writes them: topic, partition and
    offset, or a group before them. A row with no offset (empty, or ``-``) has no position.

    Raises BadInput for a file without such columns, and for a row whose fields are no position.
    """
    delimiter, at, has_header = _layout(text, file, tuple(name.lower() for name in columns or _COLUMNS), columns)
    found = []
    for one in _rows(text, delimiter, file):
        if (has_header and one.line == 1) or [field.text for field in one.fields] == [""]:
            continue
        where = f"line {one.line}"
        if len(one.fields) <= max(at):
            raise BadInput(
                f"has {len(one.fields)} fields, and no column {max(at) + 1}",
                file=file,
                field=where,
                remedy="give topic, partition and offset in each row",
            )
        topic, partition, offset = (one.fields[column] for column in at)
        if offset.text.strip() in _NONE:
            continue
        start = offset.start + len(offset.text) - len(offset.text.lstrip())
        span = start, start + len(offset.text.strip())
        values = topic.text.strip(), _number(partition.text), _number(offset.text)
        found.append(position(*values, file=file, where=where, span=span))
    return tuple(found)


def _number(text: str) -> object:
    digits = text.strip()
    return whole(digits) if digits.removeprefix("-").isascii() and digits.removeprefix("-").isdecimal() else text


def _layout(
    text: str, file: str, names: tuple[str, ...], given: Sequence[str] | None
) -> tuple[str, tuple[int, ...], bool]:
    """Delimiter; the columns of topic, partition and offset; and whether the first row names them."""
    for delimiter in _DELIMITERS:
        first = None
        with suppress(BadInput):  # quotes that end before another delimiter than this one
            first = next(_rows(text, delimiter, file), None)
        words = [] if first is None else [field.text.strip().lower() for field in first.fields]
        if all(words.count(name) == 1 for name in names):
            return delimiter, tuple(words.index(name) for name in names), True
        is_exported = len(words) in (3, 4) and all(isinstance(_number(word), int) for word in words[-2:])
        if given is None and is_exported:
            return delimiter, (len(words) - 3, len(words) - 2, len(words) - 1), False
    raise BadInput(
        f"its first row does not name the columns {', '.join(names)}, once each",
        file=file,
        field="line 1",
        remedy="name the columns there, or give their names with --columns TOPIC,PARTITION,OFFSET",
    )


def _rows(text: str, delimiter: str, file: str) -> Iterator[_Row]:
    """All rows, by the line in which each begins."""
    at, line = len(_MARK) if text.startswith(_MARK) else 0, 1
    ends = re.compile(f"[{re.escape(delimiter)}\r\n]")
    while at < len(text):
        fields, begun = [], line
        while True:
            field, at = _field(text, at, ends, file, line)
            fields.append(field)
            line += field.text.count("\n")
            if not text.startswith(delimiter, at):
                break
            at += 1
        yield _Row(begun, fields)
        at += 2 if text.startswith("\r\n", at) else 1
        line += 1


def _field(text: str, at: int, ends: re.Pattern[str], file: str, line: int) -> tuple[_Field, int]:
    """The field that begins at ``at``, and where it ends: before one of ``ends``, or with the text."""
    if not text.startswith('"', at):
        found = ends.search(text, at)
        end = len(text) if found is None else found.start()
        return _Field(text[at:end], at), end
    end = at + 1
    while (end := text.find('"', end)) >= 0 and text.startswith('""', end):
        end += 2
    if end < 0 or (end + 1 < len(text) and not ends.match(text, end + 1)):
        raise BadInput("a quoted field does not end", file=file, field=f"line {line}", remedy="correct its quotes")
    return _Field(text[at + 1 : end], at + 1), end + 1


# -- checkpoints ----------------------------------------------------------------------------------------------------
#
# The checkpoint folder of a query of Spark Structured Streaming.
#
#     offsets/N         what batch N reads: version, metadata, and a line for each source with where the batch ends
#     commits/N         batch N is done
#     sources/S/0       where source S began, for a batch that has no other beginning
#     state/  metadata  what the query has counted, and its id: nothing of Kafka's
#
# A query that starts reads the newest batch of ``offsets`` and the one before. If the newest is committed, the next
# batch begins where it ends; else Spark plans nothing, and reads that very range again: from the end of the one before
# (or from where the source began) to its own. So the last two batches are needed, and translated exactly, or nothing is
# written. Older ones are history that nobody reads: it is translated, too, as far back as that is exact, and left out
# from there.
#
# Formats: OffsetSeqLog (versions 1 and 2), CommitLog and KafkaSourceInitialOffsetWriter of Spark.

OFFSETS, COMMITS, SOURCES = "offsets", "commits", "sources"
_HEADER_LINES = 2
_NAMED = re.compile(r"[^:{]*:")
_INITIAL = re.compile(r"\0(v\d+\n)?")
_CHECKSUM_HEADER = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """A file of ``offsets``. ``kafka`` are the ids of the sources with positions in it."""

    number: int
    piece: Piece
    kafka: frozenset[str]


def checkpoint_pieces(folder: Path) -> tuple[Piece, ...]:
    """The texts of a checkpoint that hold positions. Raises BadInput for a folder that is no checkpoint."""
    batches = [_batch(folder, number) for number in _numbers(folder / OFFSETS)]
    initial = [piece for piece in (_initial(folder, path) for path in _initial_files(folder)) if piece is not None]
    if not batches and not initial:
        raise BadInput(
            f"is no checkpoint of Spark Structured Streaming: it has no {OFFSETS}/0, {OFFSETS}/1, ...",
            file=str(folder),
            remedy="name the folder that is the query's checkpointLocation",
        )
    committed = set(_numbers(folder / COMMITS))
    needed = {batch.number for batch in batches[-2:]}
    found = [replace(batch.piece, needed=batch.number in needed) for batch in batches]
    begin = _where_it_goes_on(batches, committed)
    found += [
        replace(piece, needed=begin is None or _source_of(piece) not in begin.kafka, older=None) for piece in initial
    ]
    return tuple(found)


def _where_it_goes_on(batches: list[_Batch], committed: set[int]) -> _Batch | None:
    """The batch at whose end the next one begins, or the one that is read again; None at a source's own beginning."""
    if not batches or batches[-1].number in committed:
        return batches[-1] if batches else None
    return batches[-2] if len(batches) > 1 else None


def fingerprint(folder: Path) -> Mapping[str, bytes]:
    """What changes when the query runs on: the names of all batches, and the text of the newest."""
    numbers = _numbers(folder / OFFSETS)
    newest = (folder / OFFSETS / str(numbers[-1])).read_bytes() if numbers else b""
    return {
        OFFSETS: ",".join(map(str, numbers)).encode(),
        COMMITS: ",".join(map(str, _numbers(folder / COMMITS))).encode(),
        "newest": newest,
    }


def checksum_file(path: Path) -> Path:
    """Where Hadoop keeps the checksums of a file on a disk: it refuses to read a file that does not match them."""
    return path.with_name(f".{path.name}.crc")


def checksums(content: bytes, before: bytes) -> bytes:
    """Hadoop's checksums of ``content``, in the layout of those ``before``: a CRC-32 for every so many bytes."""
    each = int.from_bytes(before[4:_CHECKSUM_HEADER], "big")
    parts = (content[at : at + each] for at in range(0, len(content), each))
    return before[:_CHECKSUM_HEADER] + b"".join(zlib.crc32(part).to_bytes(4, "big") for part in parts)


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdecimal())


def _batch(folder: Path, number: int) -> _Batch:
    name = f"{OFFSETS}/{number}"
    text, file = _read(folder / name), str(folder / name)
    lines = text.split("\n")
    version = lines[0].strip()
    if version not in ("v1", "v2"):
        raise BadInput(
            f"has version {version[:20]!r}, which is not known",
            file=file,
            field="line 1",
            value=version[:20],
            remedy="checkpoints of Spark 2.1 to 4.2 have v1 or v2; check that the file is whole",
        )
    at, positions, kafka = 0, list[Position](), set[str]()
    for line, content in enumerate(lines):
        if line >= _HEADER_LINES:
            prefix = _NAMED.match(content) if version == "v2" else None
            source = content[: prefix.end() - 1] if prefix else str(line - _HEADER_LINES)
            begun = prefix.end() if prefix else 0
            found = list(_of_line(content[begun:], at + begun, file, f"line {line + 1}"))
            if found:
                kafka.add(source)
                positions += found
        at += len(content) + 1
    commit = f"{COMMITS}/{number}"
    with_it = (commit,) if (folder / commit).exists() else ()
    piece = Piece(name=name, text=text, positions=tuple(positions), older=number, with_it=with_it)
    return _Batch(number=number, piece=piece, kafka=frozenset(kafka))


def _of_line(content: str, at: int, file: str, where: str) -> Iterator[Position]:
    """The positions of a source's line that begins at character ``at``; none for a source that is not Kafka, and for
    one without an offset yet (``-``)."""
    if not content.lstrip().startswith("{"):
        return
    root = parsed(content, file=file, where=where)
    if is_by_topic(root):
        for one in by_topic(root, file=file, where=f"{where}, "):
            yield replace(one, start=one.start + at, end=one.end + at)


def _initial_files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{SOURCES}/*/0"))


def _initial(folder: Path, path: Path) -> Piece | None:
    """Where a source began. Spark's Kafka source writes a zero byte first, which no other source does."""
    name = path.relative_to(folder).as_posix()
    if path.is_dir() or not path.read_bytes().startswith(b"\0"):
        return None
    text = _read(path)
    begun = _INITIAL.match(text).end()  # type: ignore[union-attr]
    positions = tuple(_of_line(text[begun:], begun, str(path), "where the source began"))
    return Piece(name=name, text=text, positions=positions) if positions else None


def _source_of(piece: Piece) -> str:
    return piece.name.split("/")[1]


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise BadInput(
            f"is not UTF-8 ({error.reason} at byte {error.start})", file=str(path), remedy="check that it is whole"
        ) from None
