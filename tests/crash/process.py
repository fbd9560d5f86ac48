"""One process at the product's boundary: each change that it makes is recorded, and it may die before or after one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from kafka_migration.kafka.topic_log import Entry
from kafka_migration.state.store import Store, Value
from tests.crash.boundary import CLUSTER_OTHERS, CLUSTER_READS, CLUSTER_WRITES
from tests.steps.killing import Killed

T = TypeVar("T")
_ID = re.compile(r"\b[0-9a-f]{32}\b")


@dataclass(slots=True)
class Process:
    """``changes`` are those that it made, or died at, by name. It dies at the ``dies_at``-th (0: never), before that is
    made or ``after`` it; from then on nothing of it does anything, whatever it catches."""

    dies_at: int = 0
    after: bool = False
    changes: list[str] = field(default_factory=list)
    is_dead: bool = False

    def change(self, name: str, make: Callable[[], T]) -> T:
        """Make a change, and die before or after it if it is time."""
        self.look()
        self.changes.append(_ID.sub("ID", name))
        is_time = len(self.changes) == self.dies_at
        if is_time and not self.after:
            self._die()
        made = make()
        if is_time:
            self._die()
        return made

    def look(self) -> None:
        """Whatever else it does: not if it is dead."""
        if self.is_dead:
            raise Killed("a dead process goes on")

    def _die(self) -> None:
        self.is_dead = True
        raise Killed(f"at {self.changes[-1]}")


class ClusterOf:
    """A cluster as ``process`` uses it. What is neither known as a read nor as a write cannot be called."""

    def __init__(self, cluster: Any, process: Process, state: Callable[[], object] | None = None) -> None:
        """``state`` shows whatever a call could change: with it, each read is proved to change nothing."""
        self._cluster, self._process, self._state = cluster, process, state

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cluster, name)
        if not callable(found) or name in (*CLUSTER_OTHERS, "as_principal"):
            return found
        if name in CLUSTER_WRITES:
            return lambda *args, **kwargs: self._write(name, found, *args, **kwargs)
        if name in CLUSTER_READS:
            return lambda *args, **kwargs: self._read(name, found, *args, **kwargs)
        raise AssertionError(f"{name} is neither a read nor a write in tests/crash/boundary.py")

    def _write(self, name: str, call: Callable[..., Any], first: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("dry_run"):
            return self._read(name, call, first, *args, **kwargs)
        if name in ("create_acls", "delete_acls", "create_topics", "delete_topics"):
            # One request may be half done: it fails in the middle, or is several.
            return self._one_by_one(name, call, list(first))
        return self._process.change(f"{self._cluster.role}: {name} {first}", lambda: call(first, *args, **kwargs))

    def _one_by_one(self, name: str, call: Callable[..., Any], wanted: list[Any]) -> Any:
        answers: list[Any] = []
        for one in wanted:
            what = one if isinstance(one, str) else getattr(one, "name", "") or f"{one.principal} {one.resource}"
            done = self._process.change(f"{self._cluster.role}: {name} {what}", partial(call, [one]))
            answers += done or ()
        return tuple(answers) if name == "delete_acls" else None

    def _read(self, name: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._process.look()
        before = self._state() if self._state else None
        answer = call(*args, **kwargs)
        if self._state and self._state() != before:
            raise AssertionError(f"{name} is a read in tests/crash/boundary.py, and changed something")
        return answer


class StoreOf(Store):
    """A store as ``process`` uses it: of a write of many, some may stand when it dies."""

    def __init__(self, store: Store, process: Process, topic: str) -> None:
        self._store, self._process, self._topic = store, process, topic

    def get(self, key: str) -> Value | None:
        self._process.look()
        return self._store.get(key)

    def located(self, key: str) -> tuple[Value, int] | None:
        self._process.look()
        return self._store.located(key)

    def items(self, prefix: str = "") -> dict[str, Value]:
        self._process.look()
        return self._store.items(prefix)

    def keys(self, prefix: str = "") -> list[str]:
        self._process.look()
        return self._store.keys(prefix)

    def deleted(self, prefix: str = "") -> tuple[str, ...]:
        self._process.look()
        return self._store.deleted(prefix)

    def put(self, key: str, value: Value) -> None:
        state = str(value.get("state", value.get("desired", "")))
        self._process.change(f"{self._topic}: {key} {state}".rstrip(), lambda: self._store.put(key, value))

    def put_all(self, values: Mapping[str, Value | None]) -> None:
        for key, value in values.items():
            if value is None:
                self.delete(key)
            else:
                self.put(key, value)

    def delete(self, key: str) -> None:
        self._process.change(f"{self._topic}: delete {key}", lambda: self._store.delete(key))

    def warm(self) -> None:
        self._process.look()

    def close(self) -> None:
        """Others use it, too."""


class LogOf:
    """An internal topic as ``process`` uses it, read from its beginning."""

    def __init__(self, topic: str, entries: list[Any], process: Process, partitions: int) -> None:
        self.topic, self.partitions = topic, partitions
        self._entries, self._process, self._read = entries, process, 0

    def append(self, entries: Iterable[tuple[bytes, bytes | None]]) -> None:
        for key, value in entries:
            entry = Entry(0, len(self._entries), key, value)
            self._process.change(f"{self.topic}: {_place(key)}", partial(self._entries.append, entry))

    def ensure(self) -> None:
        self._process.change(f"{self.topic}: ensure", lambda: None)

    def new_entries(self, _partitions: Any = None) -> Iterator[Any]:
        self._process.look()
        while self._read < len(self._entries):
            self._read += 1
            yield self._entries[self._read - 1]

    def start_at(self, _offsets: Any) -> None:
        """There is little to read."""

    def read_up_to(self) -> dict[int, int]:
        return {0: self._read} | dict.fromkeys(range(1, self.partitions), 0)

    def warm(self) -> None:
        self._process.look()

    def close(self) -> None:
        """There is nothing to give up."""


def _place(key: bytes) -> str:
    """Link, partition and fence of an entry's key, without the ids of topics."""
    return key.decode(errors="replace").split("/", 1)[0]
