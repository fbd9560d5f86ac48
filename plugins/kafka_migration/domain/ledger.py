"""Keys and values of the internal topics: the one place that knows their format.

All are JSON objects with a version ``v``; an unknown version is refused, since acting on half-understood state is how
records get lost. Topic names carry the suffix ``.internal``, which the usual default patterns exclude from mirroring.
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from kafka_migration.domain.errors import StateConflict
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.types import Position, TopicPartition

JOURNAL_TOPIC = "kafka-migration.journal.internal"
LINKS_TOPIC = "kafka-migration.links.internal"
OFFSET_MAP_TOPIC = "kafka-migration.offset-map.internal"
PROGRESS_TOPIC = "kafka-migration.progress.internal"
SEGMENTS_TOPIC = "kafka-migration.segments.internal"
PARTITIONS = {JOURNAL_TOPIC: 1, LINKS_TOPIC: 1, OFFSET_MAP_TOPIC: 16, PROGRESS_TOPIC: 4, SEGMENTS_TOPIC: 1}
#: Configs that internal topics are made with, and what is different for one of them. What stands in them must stay: a
#: topic with another cleanup policy, which a consumer may have had a broker create, loses approvals, locks and offset
#: maps without a word.
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
OWN_CONFIGS: dict[str, dict[str, str]] = {}
VERSION = 1
PAUSE, THROTTLE = "pause", "throttle"


def configs_of(topic: str) -> dict[str, str]:
    """The configs of the internal topic ``topic``, as far as they do not depend on the cluster."""
    return {**CONFIGS, **OWN_CONFIGS.get(topic, {})}


def partition_of(key: bytes, partitions: int) -> int:
    """Which partition of an internal topic holds ``key``: fixed, so that compaction sees all of its values."""
    return zlib.crc32(key) % partitions


def encode(value: dict[str, Any]) -> bytes:
    """A value as stored, with the version of this format. Raises ValueError if it claims the version's name."""
    if "v" in value:
        raise ValueError(f"a stored value cannot have a field called v: {sorted(value)}")
    return json.dumps({"v": VERSION, **value}, separators=(",", ":"), sort_keys=True).encode()


def decode(data: bytes, *, where: str) -> dict[str, Any]:
    """A stored value. Raises StateConflict for an unknown version or anything that is not our JSON."""
    try:
        value = json.loads(data)
        version = value.pop("v")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise StateConflict(
            f"{where}: not a value of this tool: {data[:80]!r}",
            remedy="something else writes to the internal topics; find out what before going on",
        ) from error
    if version != VERSION:
        raise StateConflict(
            f"{where}: written by another version (format {version}, this one knows {VERSION})",
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


def progress_key(link: str, tp: TopicPartition) -> bytes:
    """One record per partition: the newest replaces the one before."""
    return f"{link}/{tp.topic}/{tp.partition}".encode()


def progress_value(position: Position, *, bytes_copied: int, state: str, at_ms: int) -> bytes:
    """``bytes_copied`` since the fence; ``state`` is ``run``, ``unsettled``, or a halt's name; ``at_ms`` wall clock."""
    return encode(
        {
            "f": position.fence,
            "n": position.records,
            "s": position.source,
            "t": position.target,
            "b": bytes_copied,
            "x": state,
            "at": at_ms,
        }
    )


def read_progress(key: bytes, data: bytes) -> tuple[str, TopicPartition, Position, dict[str, Any]]:
    """Link, partition, position, and the remaining fields (``b``, ``x``, ``at``)."""
    link, topic, partition = key.decode().rsplit("/", 2)
    value = decode(data, where=f"{PROGRESS_TOPIC} {key.decode()}")
    position = Position(source=value["s"], target=value["t"], fence=value["f"], records=value["n"])
    return link, TopicPartition(topic, int(partition)), position, value


def link_key(link: str, *parts: str) -> bytes:
    """Key of a link's record: ``<link>``, ``<link>/desired``, ``<link>/fence/3``, ``<link>/topic/orders``…"""
    return "/".join((link, *parts)).encode()
