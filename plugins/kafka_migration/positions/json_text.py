"""JSON whose numbers have a place: read once by the standard library, which names what is wrong, then once more for
where each value stands. On it, the shapes in which positions are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kafka_migration.domain.digest import without_twins
from kafka_migration.domain.errors import BadInput
from kafka_migration.positions.texts import Position, position, whole

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


# -- shapes ---------------------------------------------------------------------------------------------------------


def positions(text: str, *, file: str) -> tuple[Position, ...]:
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
