"""Positions in a CSV file: a column each for topic, partition and offset, in any order, among any others.

The standard library's reader does not tell where a field stands, so fields are found here: by RFC 4180, with whatever
delimiter divides the first row into the columns that are looked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from kafka_migration.domain.errors import BadInput
from kafka_migration.positions.texts import Position, position, whole

COLUMNS = ("topic", "partition", "offset")
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


def positions(text: str, *, file: str, columns: Sequence[str] | None = None) -> tuple[Position, ...]:
    """The positions of a CSV file. ``columns`` are the names of topic, partition and offset (in any case); without,
    just these words, or no header at all, as ``kafka-consumer-groups --export`` writes them: topic, partition and
    offset, or a group before them. A row with no offset (empty, or ``-``) has no position.

    Raises BadInput for a file without such columns, and for a row whose fields are no position.
    """
    delimiter, at, has_header = _layout(text, file, tuple(name.lower() for name in columns or COLUMNS), columns)
    found = []
    for row in _rows(text, delimiter, file):
        if (has_header and row.line == 1) or [field.text for field in row.fields] == [""]:
            continue
        where = f"line {row.line}"
        if len(row.fields) <= max(at):
            raise BadInput(
                f"has {len(row.fields)} fields, and no column {max(at) + 1}",
                file=file,
                field=where,
                remedy="give topic, partition and offset in each row",
            )
        topic, partition, offset = (row.fields[column] for column in at)
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
