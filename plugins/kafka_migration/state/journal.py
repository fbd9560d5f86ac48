"""The journal of a migration: what was done, by evidence, so that any later run knows where to go on.

Keys are ``<migration>/<kind>/<id>``, so that migrations and parallel steps of one never write the same key. Locks are
``_lock/<topic>/<migration>``: a compacted topic knows no compare-and-set, but its order is the same for every reader,
so of two migrations that claim a topic the one whose claim stands first holds it, and the other withdraws.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kafka_migration.state.store import Store

_LOCKS = "_lock"


class Journal:
    """The journal of the migration called ``migration``."""

    def __init__(self, store: Store, migration: str) -> None:
        self._store, self.migration = store, migration

    def record(self, kind: str, name: str, value: dict[str, Any]) -> None:
        """Write down ``value``; durable on return, and replaces what stood there."""
        self._store.put(self._key(kind, name), value)

    def record_all(self, kind: str, values: Mapping[str, dict[str, Any]]) -> None:
        """As :meth:`record`, of many names, in one write; some of them stand there if this dies."""
        self._store.put_all({self._key(kind, name): value for name, value in values.items()})

    def read(self, kind: str, name: str) -> dict[str, Any] | None:
        """What was last recorded, or None."""
        return self._store.get(self._key(kind, name))

    def all(self, kind: str) -> dict[str, dict[str, Any]]:
        """Everything of a kind, by name, ordered by when it was last written."""
        prefix = self._key(kind, "")
        return {key[len(prefix) :]: value for key, value in self._store.items(prefix).items()}

    def deleted(self, kind: str) -> tuple[str, ...]:
        """Names of a kind whose records were removed, as far back as the store remembers that."""
        prefix = self._key(kind, "")
        return tuple(key[len(prefix) :] for key in self._store.deleted(prefix))

    def forget(self, kind: str, name: str) -> None:
        """Remove a record."""
        self._store.delete(self._key(kind, name))

    def forget_all(self, kind: str, names: Iterable[str]) -> None:
        """As :meth:`forget`, of many names."""
        self._store.put_all({self._key(kind, name): None for name in names})

    def holders(self, topics: Iterable[str]) -> dict[str, str]:
        """Which migration holds each of ``topics``; those that nobody holds are left out."""
        wanted, held = set(topics), dict[str, str]()
        for key in self._store.keys(f"{_LOCKS}/"):
            _, topic, migration = key.split("/", 2)
            if topic in wanted:
                held.setdefault(topic, migration)
        return held

    def lock(self, topics: Iterable[str], *, at: str) -> dict[str, str]:
        """Claim ``topics`` for this migration; returns those that another one holds (then nothing is claimed).

        ``at`` is the wall clock as ISO-8601, for people.
        """
        wanted = list(topics)
        before = self.holders(wanted)
        others = self._of_others(before)
        if others:
            # Not looked at again: whoever holds them may withdraw meanwhile, and nothing has been claimed here.
            return others
        mine = [f"{_LOCKS}/{topic}/{self.migration}" for topic in wanted if topic not in before]
        self._store.put_all({key: {"at": at} for key in mine})
        others = self._of_others(self.holders(wanted))
        if others:
            self._store.put_all(dict.fromkeys(mine))
        return others

    def _of_others(self, held: dict[str, str]) -> dict[str, str]:
        return {topic: by for topic, by in held.items() if by != self.migration}

    def unlock(self, topics: Iterable[str]) -> None:
        """Give up what this migration holds."""
        self._store.put_all({f"{_LOCKS}/{topic}/{self.migration}": None for topic in topics})

    def close(self) -> None:
        """Give up the connection to the store."""
        self._store.close()

    def _key(self, kind: str, name: str) -> str:
        return f"{self.migration}/{kind}/{name}"
