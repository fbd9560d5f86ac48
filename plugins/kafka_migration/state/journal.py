"""The journal of a migration: what was done, by evidence, so that any later run knows where to go on.

Keys are ``<migration>/<kind>/<id>``, so that migrations and parallel steps of one never write the same key. Locks are
``_lock/<topic>/<migration>``, the topic by its name on the target: a compacted topic knows no compare-and-set, but its
order is the same for every reader, so of two migrations that claim a topic the one whose claim stands first holds it,
and the other withdraws.

Owners of one thing within a migration (of a group that is moved) are ordered in the same log, the other way
round: the newest claim wins, so that one of a dead process keeps nobody waiting. Whoever lost it ends at its next look.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_migration.domain.errors import TakenOver
from kafka_migration.state.store import Store

_LOCKS = "_lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one owner claimed: it holds until somebody claims the same name.

    ``owner`` is unique to the claim. ``owner_epoch`` is the place of the claim in the journal's log: of two claims of
    one name the later one's is higher, for every reader.
    """

    kind: str
    name: str
    owner: str
    owner_epoch: int


class Journal:
    """The journal of the migration called ``migration``. ``locked_as`` is how the target calls a topic: that is what
    locks are on, since migrations may have other names for it."""

    def __init__(self, store: Store, migration: str, *, locked_as: Callable[[str], str] = str) -> None:
        self._store, self.migration, self._locked_as = store, migration, locked_as

    def record(self, kind: str, name: str, value: dict[str, Any]) -> None:
        """Write down ``value``; durable on return, and replaces what stood there."""
        self._store.put(self._key(kind, name), value)

    def record_all(self, kind: str, values: Mapping[str, dict[str, Any]]) -> None:
        """As :meth:`record`, of many names, in one write; some of them stand there if this dies."""
        self.write({(kind, name): value for name, value in values.items()})

    def write(self, values: Mapping[tuple[str, str], dict[str, Any] | None]) -> None:
        """As :meth:`record`, of many (kind, name), in order and in one write; None removes what stood there."""
        self._store.put_all({self._key(kind, name): value for (kind, name), value in values.items()})

    def read(self, kind: str, name: str) -> dict[str, Any] | None:
        """What was last recorded, or None."""
        return self._store.get(self._key(kind, name))

    def all(self, kind: str) -> dict[str, dict[str, Any]]:
        """Everything of a kind, by name, ordered by when it was last written."""
        prefix = self._key(kind, "")
        return {key[len(prefix) :]: value for key, value in self._store.items(prefix).items()}

    def of_others(self, kind: str) -> dict[tuple[str, str], dict[str, Any]]:
        """Everything of a kind that other migrations recorded here, by migration and name."""
        return {(one.migration, name): value for one in self.others() for name, value in one.all(kind).items()}

    def others(self) -> tuple[Journal, ...]:
        """Those of the other migrations that recorded something here, by name."""
        names = {key.partition("/")[0] for key in self._store.keys("")} - {self.migration, _LOCKS}
        return tuple(Journal(self._store, name, locked_as=self._locked_as) for name in sorted(names))

    def called(self, locked_as: Callable[[str], str]) -> Journal:
        """The same, with other names of the target for its topics."""
        return Journal(self._store, self.migration, locked_as=locked_as)

    def deleted(self, kind: str) -> tuple[str, ...]:
        """Names of a kind whose records were removed, as far back as the store remembers that."""
        prefix = self._key(kind, "")
        return tuple(key[len(prefix) :] for key in self._store.deleted(prefix))

    def forget(self, kind: str, name: str) -> None:
        """Remove a record."""
        self._store.delete(self._key(kind, name))

    def forget_all(self, kind: str, names: Iterable[str]) -> None:
        """As :meth:`forget`, of many names."""
        self.write({(kind, name): None for name in names})

    def claim(self, kind: str, name: str, *, at: str) -> Claim:
        """Become the owner of ``name``, whoever was it before. ``at`` is the wall clock as ISO-8601, for people.

        Raises TakenOver if somebody else claims it at the same time, and later in the log.
        """
        owner = uuid.uuid4().hex
        key = self._key(f"{kind}-owner", name)
        self._store.put(key, {"owner": owner, "at": at})
        value, place = self._store.located(key) or ({}, -1)
        claim = Claim(kind=kind, name=name, owner=owner, owner_epoch=place)
        self._require_owner(claim, value)
        return claim

    def require(self, claim: Claim) -> None:
        """Raise TakenOver unless ``claim`` still stands, as of now."""
        self._require_owner(claim, self.read(f"{claim.kind}-owner", claim.name) or {})

    def _require_owner(self, claim: Claim, found: Mapping[str, Any]) -> None:
        if found.get("owner") != claim.owner:
            raise TakenOver(f"{claim.kind} {claim.name} of migration {self.migration}")

    def holders(self, topics: Iterable[str]) -> dict[str, str]:
        """Which migration holds each of ``topics``; those that nobody holds are left out."""
        wanted, held = {self._locked_as(topic): topic for topic in topics}, dict[str, str]()
        for key in self._store.keys(f"{_LOCKS}/"):
            _, topic, migration = key.split("/", 2)
            if topic in wanted:
                held.setdefault(wanted[topic], migration)
        return held

    def held_elsewhere(self, topics: Iterable[str]) -> dict[str, str]:
        """Which other migration holds each of ``topics``; those that none holds are left out."""
        return self._of_others(self.holders(topics))

    def lock(self, topics: Iterable[str], *, at: str) -> dict[str, str]:
        """Claim ``topics`` for this migration; returns those that another one holds (then nothing is claimed).

        ``at`` is the wall clock as ISO-8601, for people.
        """
        wanted = list(topics)
        before = self.holders(wanted)
        if others := self._of_others(before):
            # Not looked at again: whoever holds them may withdraw meanwhile, and nothing has been claimed here.
            return others
        mine = [self._lock(topic) for topic in wanted if topic not in before]
        self._store.put_all({key: {"at": at} for key in mine})
        if others := self.held_elsewhere(wanted):
            self._store.put_all(dict.fromkeys(mine))
        return others

    def _of_others(self, held: dict[str, str]) -> dict[str, str]:
        return {topic: by for topic, by in held.items() if by != self.migration}

    def unlock(self, topics: Iterable[str]) -> None:
        """Give up what this migration holds."""
        self._store.put_all({self._lock(topic): None for topic in topics})

    def close(self) -> None:
        """Give up the connection to the store."""
        self._store.close()

    def _lock(self, topic: str) -> str:
        return f"{_LOCKS}/{self._locked_as(topic)}/{self.migration}"

    def _key(self, kind: str, name: str) -> str:
        return f"{self.migration}/{kind}/{name}"
