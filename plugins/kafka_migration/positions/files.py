"""Positions in files: read, translated, and written to another place, all of them or nothing.

What is read is never changed. The output appears under its name whole: written beside it, then renamed. Where the name
is taken nothing is written. A process that is killed leaves at most a hidden ``.NAME.…`` beside it, which nobody reads.
"""

from __future__ import annotations

import enum
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.errors import BadInput, Refused
from kafka_migration.positions import formats
from kafka_migration.positions.pieces import Piece
from kafka_migration.positions.texts import rewritten
from kafka_migration.positions.translation import (
    NotExact,
    Rules,
    Translated,
    Translator,
    offsets,
    require_same_names,
    row,
)

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


class Format(enum.StrEnum):
    """How positions are written down."""

    CSV = "csv"
    JSON = "json"
    SPARK = "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A file or folder as it was read. ``seen`` is compared once more before anything is written."""

    path: Path
    format: Format
    pieces: tuple[Piece, ...]
    seen: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def positions(self) -> int:
        """How many there are."""
        return sum(len(piece.positions) for piece in self.pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTranslation:
    """What became of each position. ``output`` is what was written, None if nothing was; ``left_out`` are files of the
    input's history that it does not have."""

    input: Input
    back: bool
    rows: tuple[tuple[str, Translated], ...]
    left_out: tuple[str, ...]
    output: Path | None

    @property
    def problems(self) -> tuple[tuple[str, Translated], ...]:
        """Positions that were not translated, and would keep the others from being written."""
        return tuple((place, one) for place, one in self.rows if one.problem)

    @property
    def exit_code(self) -> int:
        """0 if everything translates, 1 if something does not."""
        return int(bool(self.problems))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "file": str(self.input.path),
            "format": str(self.input.format),
            "positions": [row(one, where=place, back=self.back) for place, one in self.rows],
            "left_out": list(self.left_out),
            "output": None if self.output is None else str(self.output),
        }


def read(path: Path, *, format: Format | None = None, columns: Sequence[str] | None = None) -> Input:
    """What stands in ``path``; without ``format`` it is recognised. Asks no cluster.

    Raises BadInput, naming file, line or field, and value, for what cannot be read, or holds no position.
    """
    try:
        return _read(path, format, columns)
    except OSError as error:
        raise BadInput(
            f"cannot be read ({error.strerror})", file=str(error.filename or path), field="--file", remedy="correct it"
        ) from None


def _read(path: Path, format: Format | None, columns: Sequence[str] | None) -> Input:
    if not path.exists():
        raise BadInput("there is no such file", field="--file", value=str(path), remedy=f"correct the path ({path})")
    kind = format or _recognised(path)
    if (kind is Format.SPARK) != path.is_dir():
        what = "a folder" if path.is_dir() else "a file"
        raise BadInput(f"is {what}, not what {kind} needs", file=str(path), remedy="give another --format, or path")
    seen: Mapping[str, bytes] = {}
    if kind is Format.SPARK:
        seen = formats.fingerprint(path)
        pieces = formats.checkpoint_pieces(path)
    else:
        content = path.read_bytes()
        seen = {"": content}
        # Of CSV other columns may hold whatever bytes they like: they come out as they went in.
        text = content.decode(errors="surrogateescape")
        found = (
            formats.csv_positions(text, file=str(path), columns=columns)
            if kind is Format.CSV
            else formats.json_positions(text, file=str(path))
        )
        pieces = (Piece(name="", text=text, positions=found),)
    if not any(piece.positions for piece in pieces):
        raise BadInput("holds no position of Kafka", file=str(path), remedy="name another file, or another --format")
    return Input(path=path, format=kind, pieces=pieces, seen=seen)


def _recognised(path: Path) -> Format:
    if path.is_dir():
        return Format.SPARK
    if path.suffix.lower() in (".csv", ".tsv"):
        return Format.CSV
    if path.suffix.lower() == ".json":
        return Format.JSON
    with path.open("rb") as file:
        return Format.JSON if file.read(4096).lstrip()[:1] in (b"{", b"[") else Format.CSV


def require_free(output: Path, source: Path) -> None:
    """Raises BadInput unless ``output`` can be written: its name is free, its folder exists, and lies outside of
    ``source``."""
    message, remedy = "", "give another path: what is there is never overwritten"
    if os.path.lexists(output):
        message = "exists already"
    elif not output.parent.is_dir():
        message, remedy = "its folder does not exist", "create the folder first"
    elif source.resolve() in output.resolve().parents:
        message, remedy = "lies in the folder that is read", "give a path outside of it"
    if message:
        raise BadInput(message, field="--output", value=str(output), remedy=f"{remedy} ({output})")


def translate(ctx: Context, found: Input, *, rules: Rules, output: Path | None = None) -> FileTranslation:
    """Translate what was read, and write it to ``output``, if one is given and this is no dry run.

    Raises NotExact before anything is written if any position that is needed cannot be translated; without an
    ``output`` such positions are in the result. Raises Refused if the input was changed meanwhile, or the output cannot
    be written.
    """
    require_same_names(ctx)
    if output is not None:
        require_free(output, found.path)
    translator = Translator(ctx, rules)
    every = [position for piece in found.pieces for position in piece.positions]
    answers = iter(translator.translated(every))
    by_piece = [(piece, [next(answers) for _ in piece.positions]) for piece in found.pieces]
    kept = _without_lost_history(by_piece)
    rows = tuple((piece.place(one.position), one) for piece, many in kept for one in many)
    names = {piece.name for piece, _ in kept}
    left_out = tuple(name for piece, _ in by_piece if piece.name not in names for name in (piece.name, *piece.with_it))
    result = FileTranslation(input=found, back=rules.back, rows=rows, left_out=left_out, output=None)
    if output is None:
        return result
    if result.problems:
        raise NotExact(str(found.path), result.problems, of=len(rows))
    if ctx.dry_run:
        return result
    texts = {piece.name: rewritten(piece.text, offsets(many)) for piece, many in kept}
    translator.note_output((one for _, one in rows), str(output))
    try:
        if found.format is Format.SPARK:
            _write_folder(found, texts, left_out, output)
        else:
            _write_file(found, texts[""], output)
    except OSError as error:
        raise Refused(
            f"{output} cannot be written ({error.strerror or error}), so nothing was written",
            remedy="check space and permissions there; its file system must know hard links",
        ) from error
    return FileTranslation(input=found, back=rules.back, rows=rows, left_out=left_out, output=output)


def _without_lost_history(
    pieces: Sequence[tuple[Piece, list[Translated]]],
) -> list[tuple[Piece, list[Translated]]]:
    """``pieces`` without those that nobody needs and that have no exact translation, nor anything older than these."""
    lost = [piece for piece, many in pieces if not piece.needed and any(one.problem for one in many)]
    newest = max((piece.older for piece in lost if piece.older is not None), default=-1)
    return [
        (piece, many)
        for piece, many in pieces
        if piece not in lost and (piece.needed or piece.older is None or piece.older > newest)
    ]


# -- writing --------------------------------------------------------------------------------------------------------


def _write_file(found: Input, text: str, output: Path) -> None:
    handle, name = tempfile.mkstemp(dir=output.parent, prefix=f".{output.name}.")
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode(errors="surrogateescape"))
            file.flush()
            os.fsync(file.fileno())
        shutil.copymode(found.path, part)
        _require_unchanged(found)
        # A link, not a rename: that would replace what took the name meanwhile.
        os.link(part, output)
    except FileExistsError:
        require_free(output, found.path)
        raise
    finally:
        part.unlink()


def _write_folder(found: Input, texts: Mapping[str, str], left_out: Sequence[str], output: Path) -> None:
    """Everything that the input has, with ``texts`` in place of what they replace, and without ``left_out``."""
    part = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}."))
    gone = {found.path / name for name in left_out}
    gone |= {formats.checksum_file(path) for path in gone}

    def unwanted(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if Path(folder, name) in gone}

    try:
        shutil.copytree(found.path, part, ignore=unwanted, dirs_exist_ok=True)
        for name, text in texts.items():
            _replace(part / name, text.encode())
        _require_unchanged(found)
        require_free(output, found.path)
        part.rename(output)
    finally:
        with suppress(FileNotFoundError):
            shutil.rmtree(part)


def _replace(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    crc = formats.checksum_file(path)
    if crc.exists():
        crc.write_bytes(formats.checksums(content, crc.read_bytes()))


def _require_unchanged(found: Input) -> None:
    """Raises Refused if somebody wrote to the input since it was read: the output would be of a moment that is gone."""
    now = formats.fingerprint(found.path) if found.format is Format.SPARK else {"": found.path.read_bytes()}
    if now != found.seen:
        raise Refused(
            f"{found.path} was changed while it was translated, so nothing was written",
            remedy="stop whoever writes it (the query), then run this again",
        )
