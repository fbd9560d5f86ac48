"""Keys and values of the internal topics: the one place that knows their format.

All are JSON objects with a version ``v``; an unknown version is refused, since acting on half-understood state is how
records get lost. Topic names carry the suffix ``.internal``, which the usual default patterns exclude from mirroring.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kafka_migration.domain.errors import StateConflict
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.types import Position, TopicPartition

JOURNAL_TOPIC = "kafka-migration.journal.internal"
LINKS_TOPIC = "kafka-migration.links.internal"
OFFSET_MAP_TOPIC = "kafka-migration.offset-map.internal"
PROGRESS_TOPIC = "kafka-migration.progress.internal"
SEGMENTS_TOPIC = "kafka-migration.segments.internal"
STRAGGLERS_TOPIC = "kafka-migration.stragglers.internal"
PARTITIONS = {JOURNAL_TOPIC: 1, LINKS_TOPIC: 1, OFFSET_MAP_TOPIC: 16, PROGRESS_TOPIC: 4, SEGMENTS_TOPIC: 1}
#: Those that few migrations need: made by what needs them.
SELDOM_PARTITIONS = {STRAGGLERS_TOPIC: 1}
#: Configs that internal topics are made with, and what is different for one of them. What stands in them must stay: a
#: topic with another cleanup policy, which a consumer may have had a broker create, loses approvals, locks and offset
#: maps without any error.
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "unclean.leader.election.enable": "false"}
OWN_CONFIGS: dict[str, dict[str, str]] = {
    # Written again and again: what is out of date goes within minutes, and not with the next gigabyte.
    PROGRESS_TOPIC: {"segment.bytes": str(16 * 1024 * 1024), "segment.ms": "300000"},
    OFFSET_MAP_TOPIC: {"compression.type": "zstd"},
}
VERSION, PACKED = 1, 2
_PROGRESS_PARTITIONS = 5_000
PAUSE, THROTTLE = "pause", "throttle"


def stragglers_id(migration: str) -> str:
    """The transactional id by which records of stragglers are forwarded; no migration's name holds a colon."""
    return f"kafka-migration.{migration}:stragglers"


def configs_of(topic: str) -> dict[str, str]:
    """The configs of the internal topic ``topic``, as far as they do not depend on the cluster."""
    return {**CONFIGS, **OWN_CONFIGS.get(topic, {})}


def partition_of(key: bytes, partitions: int) -> int:
    """Which partition of an internal topic holds ``key``: fixed, so that compaction sees all of its values."""
    return zlib.crc32(key) % partitions


def place_of(topic: str, key: bytes, partitions: int) -> int:
    """Which of ``partitions`` of an internal topic holds ``key``. All openings of a partition stand in one of them, so
    whoever needs its map reads no other."""
    return partition_of(key.rsplit(b"/", 2)[0] if topic == OFFSET_MAP_TOPIC else key, partitions)


def place_of_openings(link: str, topic_key: str, partition: int) -> int:
    """Which partition of the offset map holds those of ``partition``."""
    return partition_of(f"{link}/{topic_key}/{partition}".encode(), PARTITIONS[OFFSET_MAP_TOPIC])


def encode(value: dict[str, Any], *, version: int = VERSION) -> bytes:
    """A value as stored, with the version of its format. Raises ValueError if it claims the version's name."""
    if "v" in value:
        raise ValueError(f"a stored value cannot have a field called v: {sorted(value)}")
    return json.dumps({"v": version, **value}, separators=(",", ":"), sort_keys=True).encode()


def decode(data: bytes, *, where: str, newest: int = VERSION) -> dict[str, Any]:
    """A stored value. Raises StateConflict for an unknown version or anything that is not our JSON."""
    try:
        value = json.loads(data)
        version = value.pop("v")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise StateConflict(
            f"{where}: not a value of this tool: {data[:80]!r}",
            remedy="something else writes to the internal topics; find out what before going on",
        ) from error
    if version not in range(VERSION, newest + 1):
        raise StateConflict(
            f"{where}: written by another version (format {version}, this one knows {newest})",
            remedy="use the version of this tool that wrote it",
        )
    return dict(value)


def opening_key(link: str, topic_key: str, partition: int, opening: RunOpening) -> bytes:
    """Openings never change once written, so their key holds all that identifies them."""
    return f"{link}/{topic_key}/{partition}/{opening.fence}/{opening.records}".encode()


def opening_value(opening: RunOpening) -> bytes:
    """Where the run begins on both sides, what it closes, and the source's leader epoch."""
    value: dict[str, Any] = {"s": opening.source, "t": opening.target}
    if opening.closes is not None:
        value["c"] = opening.closes
    if opening.epoch >= 0:
        value["e"] = opening.epoch
    return encode(value)


def read_opening(key: bytes, data: bytes) -> tuple[str, str, int, RunOpening]:
    """Link, topic key, partition and opening of a record of the offset map topic."""
    link, topic_key, partition, fence, records = key.decode().rsplit("/", 4)
    value = decode(data, where=f"{OFFSET_MAP_TOPIC} {key.decode()}")
    opening = RunOpening(
        fence=int(fence),
        records=int(records),
        source=value["s"],
        target=value["t"],
        closes=value.get("c"),
        epoch=value.get("e", -1),
    )
    return link, topic_key, int(partition), opening


class Told(NamedTuple):
    """What a task reports of a partition. ``bytes_copied`` since the fence; ``state`` is ``run``, ``unsettled`` or a
    halt's name; ``at_ms`` is the wall clock when it moved, ``held_ms`` until when a quota holds it back, or 0."""

    position: Position
    bytes_copied: int
    state: str
    at_ms: int
    held_ms: int = 0


ACCOUNT = "all"
"""The share of whoever writes what is known of every partition."""


def progress_records(link: str, share: str, reports: Mapping[TopicPartition, Told]) -> list[tuple[bytes, bytes]]:
    """Keys and values of a share, in the order of ``reports``: each of so many partitions that it fits a record."""
    rows, most = list(reports.items()), _PROGRESS_PARTITIONS
    return [
        (progress_key(link, f"{share}.{n}"), progress_value(dict(rows[at : at + most])))
        for n, at in enumerate(range(0, len(rows) or 1, most))
    ]


def progress_key(link: str, share: str) -> bytes:
    """One record per share of the partitions: the newest replaces the one before. No topic has an empty name."""
    return f"{link}//{share}".encode()


def progress_value(reports: Mapping[TopicPartition, Told]) -> bytes:
    """All partitions of a share, packed."""
    topics: dict[str, list[list[int | str]]] = {}
    for tp, (at, copied, state, at_ms, held_ms) in reports.items():
        row: list[int | str] = [tp.partition, at.fence, at.records, at.source, at.target, copied, state, at_ms]
        topics.setdefault(tp.topic, []).append([*row, held_ms] if held_ms else row)
    return encode({"z": pack(topics, level=1)}, version=PACKED)


def read_progress(key: bytes, data: bytes) -> Iterator[tuple[TopicPartition, Position, dict[str, Any]]]:
    """Partition, position, and the remaining fields (``b`` bytes, ``x`` state, ``at``, and ``q`` if a quota holds it
    back) of all partitions of a record. Versions before this one wrote one partition a record."""
    _, topic, partition = key.decode().rsplit("/", 2)
    value = decode(data, where=f"{PROGRESS_TOPIC} {key.decode()}", newest=PACKED)
    if "z" not in value:
        position = Position(source=value["s"], target=value["t"], fence=value["f"], records=value["n"])
        yield TopicPartition(topic, int(partition)), position, value
        return
    for name, rows in unpack(value["z"]).items():
        for number, fence, records, source, target, copied, state, at, *held in rows:
            rest = {"b": copied, "x": state, "at": at} | ({"q": held[0]} if held else {})
            position = Position(source=source, target=target, fence=fence, records=records)
            yield TopicPartition(name, number), position, rest


def pack(value: Any, *, level: int = 6) -> str:
    """JSON types as a text that is many times shorter where names repeat."""
    return base64.b64encode(zlib.compress(json.dumps(value, separators=(",", ":")).encode(), level)).decode()


def unpack(text: str) -> Any:
    """The inverse of :func:`pack`."""
    return json.loads(zlib.decompress(base64.b64decode(text)))


def pack_ends(ends: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets by partition as JSON types: by topic, and by partition as text."""
    packed: dict[str, dict[str, int]] = {}
    for tp, end in sorted(ends.items()):
        packed.setdefault(tp.topic, {})[str(tp.partition)] = end
    return packed


def unpack_ends(value: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The inverse of :func:`pack_ends`."""
    return {TopicPartition(topic, int(p)): end for topic, parts in value.items() for p, end in parts.items()}


def link_key(link: str, *parts: str) -> bytes:
    """Key of a link's record: ``<link>``, ``<link>/desired``, ``<link>/fence/3``, ``<link>/topic/orders``…"""
    return "/".join((link, *parts)).encode()
