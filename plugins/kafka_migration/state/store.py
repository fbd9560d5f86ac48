"""Keys and values that survive: the one interface under journal and link, in memory or in an internal topic.

Over it, what validations found out, segment by segment, so that the next one reads only what is new. Its keys are
``<migration>/<topic>/<partition>/<segment>``: a topic's name has no slash. What stands in a value is the validate
phase's business; it holds the topics' ids, so that a recreated topic is not taken for the one before.

Beside it, where a mirror's partitions stand, as its tasks reported last: read from an account on (docs/adr, 11).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any, Protocol

from kafka_migration.domain import ledger
from kafka_migration.domain.types import Position, TopicPartition
from kafka_migration.kafka.topic_log import TopicLog

Value = dict[str, Any]
Standing = tuple[Position, dict[str, Any]]

_ACCOUNT_RECORDS = 1_000
"""A reader reads about so many records at most, and those of the last seconds."""
_OF_MANY_SECONDS = 1.0


class Store(Protocol):
    """JSON values under string keys. What ``put`` wrote is durable, and visible to every later reader."""

    def get(self, key: str) -> Value | None:
        """The value of ``key``, as of now, or None."""

    def located(self, key: str) -> tuple[Value, int] | None:
        """The value of ``key``, as of now, and its place in the order of all writes; None if there is none."""

    def put(self, key: str, value: Value) -> None:
        """Write ``value``; durable on return."""

    def put_all(self, values: Mapping[str, Value | None]) -> None:
        """Write many, in order; None removes a key. All are durable on return, some of them if this dies."""

    def delete(self, key: str) -> None:
        """Remove ``key``; durable on return. Nothing happens if it is not there."""

    def items(self, prefix: str = "") -> dict[str, Value]:
        """All values whose key begins with ``prefix``, ordered by when they were last written."""

    def keys(self, prefix: str = "") -> list[str]:
        """All keys that begin with ``prefix``, in the order of ``items``, whether their values can be read or not."""

    def deleted(self, prefix: str = "") -> tuple[str, ...]:
        """Keys that begin with ``prefix`` and were removed, as far back as the store remembers that."""

    def close(self) -> None:
        """Give up connections."""


class _Kept:
    """What a store holds, as it is stored: most values are never asked for, and nobody shares an object."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._places: dict[str, int] = {}
        self._deleted: set[str] = set()

    def get(self, key: str) -> Value | None:
        found = self.located(key)
        return None if found is None else found[0]

    def located(self, key: str) -> tuple[Value, int] | None:
        self._refresh()
        return (self._value(key), self._places[key]) if key in self._values else None

    def items(self, prefix: str = "") -> dict[str, Value]:
        return {key: self._value(key) for key in self.keys(prefix)}

    def keys(self, prefix: str = "") -> list[str]:
        self._refresh()
        return [key for key in self._values if key.startswith(prefix)]

    def deleted(self, prefix: str = "") -> tuple[str, ...]:
        self._refresh()
        return tuple(sorted(key for key in self._deleted if key.startswith(prefix)))

    def _refresh(self) -> None:
        """Take in what was written since."""

    def _value(self, key: str) -> Value:
        return ledger.decode(self._values[key], where=key)

    def _note(self, key: str, value: bytes | None, place: int) -> None:
        # Removed first: the newest write stands last.
        self._values.pop(key, None)
        self._deleted.discard(key)
        if value is None:
            self._deleted.add(key)
        else:
            self._values[key], self._places[key] = value, place


class MemoryStore(_Kept):
    """A store for the lifetime of this object. What a topic would not hold fails here, too."""

    def __init__(self) -> None:
        super().__init__()
        self._writes = itertools.count()

    def put(self, key: str, value: Value) -> None:
        self._note(key, ledger.encode(value), next(self._writes))

    def put_all(self, values: Mapping[str, Value | None]) -> None:
        for key, value in values.items():
            if value is None:
                self.delete(key)
            else:
                self.put(key, value)

    def delete(self, key: str) -> None:
        self._note(key, None, next(self._writes))

    def close(self) -> None:
        """Nothing to give up."""


class TopicStore(_Kept):
    """A store in an internal topic of a single partition. Reads see every write that was durable before them.

    A value that cannot be read is refused where it is asked for, and nowhere else: migrations share the topics, and one
    bad record must not hold up every one of them. What was removed is remembered for as long as the topic keeps
    tombstones (``delete.retention.ms``, a day).
    """

    def __init__(self, log: TopicLog) -> None:
        super().__init__()
        if log.partitions != 1:
            raise ValueError(f"{log.topic} has {log.partitions} partitions: their writes have no common order")
        self._log = log

    def put(self, key: str, value: Value) -> None:
        self.put_all({key: value})

    def put_all(self, values: Mapping[str, Value | None]) -> None:
        self._log.append([(k.encode(), None if value is None else ledger.encode(value)) for k, value in values.items()])

    def delete(self, key: str) -> None:
        self.put_all({key: None})

    def warm(self) -> None:
        """Get ready to write soon, and quickly."""
        self._log.warm()

    def close(self) -> None:
        self._log.close()

    def end(self) -> int:
        """The offset from which later writes can be followed."""
        return self._log.end()

    def _value(self, key: str) -> Value:
        return ledger.decode(self._values[key], where=f"{self._log.topic} {key}")

    def _refresh(self) -> None:
        for entry in self._log.new_entries():
            try:
                key = entry.key.decode()
            except (UnicodeDecodeError, AttributeError):
                # No key of ours, so nobody asks for it.
                continue
            self._note(key, entry.value, entry.offset)


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

    def apart(self) -> SegmentStore:
        """An empty one that nobody else sees."""
        return SegmentStore()

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


class Progress:
    """The progress of one link. ``links`` holds where to begin, ``log`` holds the records (None: there is none)."""

    def __init__(self, link: str, links: Store, log: TopicLog | None) -> None:
        self._link, self._links, self._log = link, links, log
        self._pointer = ledger.link_key(link, "progress").decode()
        self._known: dict[TopicPartition, Standing] = {}
        self._unread: dict[bytes, bytes] = {}
        self._began, self._count = False, 0
        #: Whether an account was asked for that is not written yet, and when the last one was.
        self._is_due, self._written_at = False, float("-inf")

    def warm(self) -> None:
        """Get ready to write soon, and quickly."""
        if isinstance(self._log, TopicLog):
            self._log.warm()

    def close(self) -> None:
        """Give up connections."""
        if self._log is not None:
            self._log.close()

    def begin(self) -> bool:
        """Begin a link, with an account of nothing: what earlier versions refuse to read. False without a log."""
        if self._log is None:
            return False
        self._log.append(ledger.progress_records(self._link, ledger.ACCOUNT, {}))
        return True

    def newest(self) -> dict[TopicPartition, Standing]:
        """The newest reported position per partition, with ``b`` bytes since the fence, ``x`` state, ``at`` ms."""
        if self._log is not None:
            self._read(self._log)
        while self._unread:
            # Only the newest of a key counts, so only that is decoded.
            key = next(iter(self._unread))
            for tp, position, rest in ledger.read_progress(key, self._unread[key]):
                before = self._known.get(tp)
                # Tasks of an earlier fence may still be reporting: that cannot move a position back.
                if before is None or _age(*before) <= _age(position, rest):
                    self._known[tp] = (position, rest)
            del self._unread[key]
        return dict(self._known)

    def _read(self, log: TopicLog) -> None:
        pointer = None if self._began else self._links.get(self._pointer)
        if pointer is not None:
            log.start_at({int(partition): offset for partition, offset in pointer["since"].items()})
        has_account = self._take(log)
        if pointer is not None and not has_account:
            # The topic is another one than the account was written to.
            log.start_at(dict.fromkeys(range(log.partitions), 0))
            self._take(log)
        self._began = True

    def _take(self, log: TopicLog) -> bool:
        """Read on; true if an account was among it."""
        mine, account = f"{self._link}/".encode(), ledger.progress_key(self._link, ledger.ACCOUNT)
        has_account = False
        for entry in log.new_entries():
            self._count += 1
            if entry.value is not None and entry.key.startswith(mine):
                self._unread[entry.key] = entry.value
                has_account = has_account or entry.key.startswith(account)
        return has_account

    def write_account(self, *, at_once: bool, of_many: bool = False) -> None:
        """Write what is known of all partitions, for readers to begin at, once there is much to read; or ``at_once``,
        when a run ends, or goes on without a partition, which no record of a share holds any more then. What is asked
        for ``of_many``, one after the other, is written with the first, and by the next account."""
        self._is_due = self._is_due or at_once
        if of_many and time.monotonic() < self._written_at + _OF_MANY_SECONDS:
            return
        log, known = self._log, self.newest()
        if log is None or self._count < (1 if self._is_due else _ACCOUNT_RECORDS):
            return
        self._is_due, self._written_at = False, time.monotonic()
        since = log.read_up_to()
        reports = {
            tp: ledger.Told(position, rest["b"], rest["x"], rest["at"], rest.get("q", 0))
            for tp, (position, rest) in sorted(known.items())
        }
        log.append(ledger.progress_records(self._link, ledger.ACCOUNT, reports))
        # Only now: who begins there must find it.
        self._links.put(self._pointer, {"since": {str(p): offset for p, offset in since.items()}})
        self._count = 0


def _age(position: Position, rest: Mapping[str, Any]) -> tuple[int, ...]:
    """What was reported later is not less. Clocks count only for what did not move."""
    return position.fence, position.records, position.source, rest["at"]
