"""The checkpoint folder of a query of Spark Structured Streaming.

    offsets/N         what batch N reads: version, metadata, and a line for each source with where the batch ends
    commits/N         batch N is done
    sources/S/0       where source S began, for a batch that has no other beginning
    state/  metadata  what the query has counted, and its id: nothing of Kafka's

A query that starts reads the newest batch of ``offsets`` and the one before. If the newest is committed, the next batch
begins where it ends; else Spark plans nothing, and reads that very range again: from the end of the one before (or from
where the source began) to its own. So the last two batches are needed, and translated exactly, or nothing is written.
Older ones are history that nobody reads: it is translated, too, as far back as that is exact, and left out from there.

Formats: OffsetSeqLog (versions 1 and 2), CommitLog and KafkaSourceInitialOffsetWriter of Spark.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_migration.domain.errors import BadInput
from kafka_migration.positions import json_text
from kafka_migration.positions.pieces import Piece
from kafka_migration.positions.texts import Position

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


def pieces(folder: Path) -> tuple[Piece, ...]:
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
    root = json_text.parsed(content, file=file, where=where)
    if json_text.is_by_topic(root):
        for one in json_text.by_topic(root, file=file, where=f"{where}, "):
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
