"""Notes as arrays: a history of some million events in some hundred megabytes.

Values, topics, keys, clusters and so on become numbers. A log is one partition on one cluster; a place (`tp`) is a
partition on whichever cluster. Times are nanoseconds since 1970, taken from monotonic clocks: each clock is anchored
once, at the first `open` that names it, so that a wall clock that is set meanwhile reorders nothing on one machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from checker import notes

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NONE = -1
"""Of any number: not known, or there is none."""
UNKNOWN, ACKED, FAILED = 0, 1, 2
"""Outcomes of sends and of commits of offsets; FAILED is certain."""
OPEN, UNANSWERED, COMMITTED, ABORTED = 0, 1, 2, 3
"""States of transactions. OPEN: nobody ever tried to commit it, so nobody may see it."""


@dataclass(slots=True, kw_only=True)
class Process:
    """One file of notes: who noted, and the moments of its life."""

    file: str
    client: str
    cluster: str
    kind: notes.Kind | None
    group: str | None
    isolation: notes.Isolation
    final: bool
    clock: str
    started: int
    opened: int
    ready: int | None = None
    stopped: int | None = None
    closed: int | None = None
    last: int = 0

    @property
    def reader(self) -> str:
        """Who reads as one: the group, or a consumer that assigns partitions to itself."""
        return f"group {self.group}" if self.group is not None else f"consumer {self.client}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What producers noted; an item a value. A value that was received and never sent has no `sender`."""

    sender: Numbers
    seq: Numbers
    topic: Numbers
    tp: Numbers
    key: Numbers
    txn: Numbers
    sent: Numbers
    outcome: Numbers
    acked: Numbers
    log: Numbers
    offset: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipts:
    """What consumers got, in the order in which each process noted it."""

    value: Numbers
    log: Numbers
    offset: Numbers
    span: Numbers
    key: Numbers
    time: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Stretches in which one consumer had one log without interruption: from `assign` to `revoke`, `assign` or end."""

    process: Numbers
    log: Numbers
    begun: Numbers
    position: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """Commits of offsets, a row for each partition. `answered` is NONE without an answer."""

    process: Numbers
    log: Numbers
    offset: Numbers
    tried: Numbers
    answered: Numbers
    outcome: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """Transactions of all producers. `tried` is when somebody first asked to commit, or NONE."""

    process: Numbers
    state: Numbers
    tried: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """All notes of a folder."""

    processes: list[Process]
    value_names: list[str]
    topic_names: list[str]
    key_names: list[str]
    cluster_names: list[str]
    tp_topic: Numbers
    tp_partition: Numbers
    log_cluster: Numbers
    log_tp: Numbers
    values: Values
    receipts: Receipts
    spans: Spans
    commits: Commits
    transactions: Transactions
    events: int
    torn_lines: int
    unanswered_commits: int
