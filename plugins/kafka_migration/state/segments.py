"""What validations found out, segment by segment, so that the next one reads only what is new.

Keys are ``<migration>/<topic>/<partition>/<segment>``: a topic's name has no slash. What stands in a value is the
validate phase's business; it holds the topics' ids, so that a recreated topic is not taken for the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.topic_log import TopicLog
from kafka_migration.state.store import MemoryStore, Store, TopicStore

Value = dict[str, Any]


class SegmentStore:
    """The segments of the migration called ``migration``; without a log, for the lifetime of this object.

    With ``create`` the log is made now, as other internal topics are. Else it is looked for when it is first asked for,
    since most who open a migration have no use for it, and made when there is first something to write: a migration may
    be older than it.
    """

    def __init__(self, log: TopicLog | None = None, migration: str = "", *, create: bool = False) -> None:
        self._log, self._migration = log, migration
        self._store: Store | None = MemoryStore() if log is None else None
        if log is not None and create:
            log.ensure()
            self._store = TopicStore(log)

    def of(self, tp: TopicPartition) -> dict[int, Value]:
        """Segment -> what is known of it."""
        prefix = self._key(tp, "")
        return {int(key[len(prefix) :]): value for key, value in self._items(prefix).items()}

    def all(self) -> dict[TopicPartition, dict[int, Value]]:
        """Everything, by partition and segment."""
        prefix = f"{self._migration}/"
        found: dict[TopicPartition, dict[int, Value]] = {}
        for key, value in self._items(prefix).items():
            topic, partition, segment = key[len(prefix) :].split("/")
            found.setdefault(TopicPartition(topic, int(partition)), {})[int(segment)] = value
        return found

    def record(self, values: Mapping[tuple[TopicPartition, int], Value]) -> None:
        """Write down what is known of segments; durable on return."""
        if self._store is None and self._log is not None:
            self._log.ensure()
            self._store = TopicStore(self._log)
        if self._store is not None:
            self._store.put_all({self._key(tp, str(segment)): value for (tp, segment), value in values.items()})

    def close(self) -> None:
        """Give up the connection to the store."""
        if self._log is not None:
            self._log.close()

    def _items(self, prefix: str) -> dict[str, Value]:
        if self._store is None and self._log is not None and self._log.exists():
            self._store = TopicStore(self._log)
        return {} if self._store is None else self._store.items(prefix)

    def _key(self, tp: TopicPartition, segment: str) -> str:
        return f"{self._migration}/{tp.topic}/{tp.partition}/{segment}"
