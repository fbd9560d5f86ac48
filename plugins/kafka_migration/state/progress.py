"""Where a mirror's partitions stand, as its tasks reported last: read from an account on (docs/adr, 11)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from kafka_migration.domain import ledger
from kafka_migration.domain.types import Position, TopicPartition
from kafka_migration.kafka.topic_log import TopicLog
from kafka_migration.state.store import Store

_ACCOUNT_RECORDS = 1_000
"""A reader reads about so many records at most, and those of the last seconds."""
_OF_MANY_SECONDS = 1.0

Standing = tuple[Position, dict[str, Any]]


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
