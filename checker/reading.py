"""Reading a folder of notes into a history, note by note: what stays of each are numbers in growing columns."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from checker import notes
from checker.history import (
    ABORTED,
    ACKED,
    COMMITTED,
    FAILED,
    NONE,
    OPEN,
    UNANSWERED,
    UNKNOWN,
    Commits,
    History,
    Numbers,
    Process,
    Receipts,
    Spans,
    Transactions,
    Values,
)
from checker.notes import BadNotes, Note


def read(folder: Path) -> History:
    """Read every `*.jsonl` in and below ``folder``.

    Raises:
        BadNotes: a file contradicts the format, itself, or another one.
        NotADirectoryError: there is no such folder.
    """
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is no folder; name the one with the clients' notes (*.jsonl).")
    building = _Building()
    for path in sorted(folder.rglob("*.jsonl")):
        building.read(path, str(path.relative_to(folder)))
    return building.history()


class _Building:
    def __init__(self) -> None:
        self._values, self._topics, self._keys, self._clusters = Names(), Names(), Names(), Names()
        self._tps: dict[tuple[int, int], int] = {}
        self._logs: dict[tuple[int, int], int] = {}
        self._anchors: dict[str, int] = {}
        self._processes: list[Process] = []
        self._sends = Columns.of(
            "sender", "seq", "topic", "tp", "key", "txn", "sent", "outcome", "acked", "log", "offset"
        )
        self._receipts = Columns.of("value", "log", "offset", "span", "key", "time")
        self._spans = Columns.of("process", "log", "begun", "position")
        self._commits = Columns.of("process", "log", "offset", "tried", "answered", "outcome", "txn")
        self._transactions = Columns.of("process", "state", "tried", "ended")
        self._events = self._torn = self._tries = self._answers = 0

    def read(self, path: Path, name: str) -> None:
        file: _File | None = None
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    note = self._parsed(line)
                    if note is None:
                        return
                    if file is not None:
                        file.add(note)
                    elif isinstance(note, notes.Open):
                        file = _File(self, name, note)
                    else:
                        raise BadNotes(f"event: the first note must be 'open', not {note.event!r}")
                except BadNotes as error:
                    raise BadNotes(f"{name}, line {number}: {error}") from error
                self._events += 1

    def _parsed(self, line: bytes) -> Note | None:
        """None for what a process that was killed left of its last line."""
        try:
            return notes.parse(line)
        except BadNotes:
            if line.endswith(b"\n"):
                raise
            self._torn += 1
            return None

    def value(self, name: str) -> int:
        number = self._values[name]
        if number == len(self._sends["sender"]):
            self._sends.add(NONE, NONE, NONE, NONE, NONE, NONE, NONE, UNKNOWN, NONE, NONE, NONE)
        return number

    def tp(self, topic: str, partition: int) -> int:
        return self._tps.setdefault((self._topics[topic], partition), len(self._tps))

    def log(self, cluster: str, topic: str, partition: int) -> int:
        return self._logs.setdefault((self._clusters[cluster], self.tp(topic, partition)), len(self._logs))

    def anchor(self, note: notes.Open) -> int:
        return self._anchors.setdefault(note.clock, note.wall - note.mono)

    def history(self) -> History:
        transactions = self._transactions.arrays()
        commits = self._commits.arrays()
        _settle(commits, transactions)
        tps, logs = list(self._tps), list(self._logs)
        return History(
            processes=self._processes,
            value_names=list(self._values),
            topic_names=list(self._topics),
            key_names=list(self._keys),
            cluster_names=list(self._clusters),
            tp_topic=np.array([topic for topic, _ in tps], dtype=np.int64),
            tp_partition=np.array([partition for _, partition in tps], dtype=np.int64),
            log_cluster=np.array([cluster for cluster, _ in logs], dtype=np.int64),
            log_tp=np.array([tp for _, tp in logs], dtype=np.int64),
            values=Values(**self._sends.arrays()),
            receipts=Receipts(**self._receipts.arrays()),
            spans=Spans(**self._spans.arrays()),
            commits=Commits(**{name: column for name, column in commits.items() if name != "txn"}),
            transactions=Transactions(**{name: column for name, column in transactions.items() if name != "ended"}),
            events=self._events,
            torn_lines=self._torn,
            unanswered_commits=self._tries - self._answers,
        )


def _settle(commits: dict[str, Numbers], transactions: dict[str, Numbers]) -> None:
    """Offsets that were committed in a transaction have its outcome."""
    for row in np.flatnonzero(commits["txn"] != NONE):
        txn = commits["txn"][row]
        outcome = {COMMITTED: ACKED, UNANSWERED: UNKNOWN}.get(int(transactions["state"][txn]), FAILED)
        commits["outcome"][row] = outcome
        commits["answered"][row] = transactions["ended"][txn] if outcome == ACKED else NONE


class _File:
    """Adds the notes of one file."""

    def __init__(self, building: _Building, name: str, opened: notes.Open) -> None:
        self._all = building
        self._anchor = building.anchor(opened)
        self._number = len(building._processes)
        at = opened.mono + self._anchor
        self._process = Process(
            file=name,
            client=opened.client,
            cluster=opened.cluster,
            kind=opened.kind,
            group=opened.group,
            isolation=opened.isolation,
            final=opened.final,
            clock=opened.clock,
            started=at if opened.started is None else opened.started + self._anchor,
            opened=at,
            last=at,
        )
        building._processes.append(self._process)
        self._seq = 0
        self._pending: dict[int, tuple[int, str]] = {}
        self._txns: dict[int, int] = {}
        self._tried: dict[int, list[int]] = {}
        self._current: dict[int, int] = {}

    def add(self, note: Note) -> None:
        """Raises BadNotes if it contradicts an earlier one."""
        if self._process.closed is not None:
            raise BadNotes(f"event: nothing may follow 'close', not {note.event!r}")
        at = self._process.last = note.mono + self._anchor
        match note:
            case notes.Receipt():
                self._receipt(note, at)
            case notes.Send():
                self._send(note, at)
            case notes.Ack():
                self._ack(note, at)
            case notes.Failed():
                value, _ = self._pending_send(note.seq)
                self._all._sends["outcome"][value] = FAILED if note.certain else UNKNOWN
            case notes.Begin() | notes.End() | notes.Ended():
                self._transaction(note, at)
            case notes.Assign():
                for topic, partition, position in note.partitions:
                    log = self._log(note.cluster, topic, partition)
                    self._current[log] = self._span(log, at, NONE if position is None else position)
                if self._process.ready is None:
                    self._process.ready = at
            case notes.Revoke():
                for topic, partition in note.partitions:
                    self._current.pop(self._log(note.cluster, topic, partition), None)
            case notes.Commit() | notes.Committed():
                self._commit(note, at)
            case notes.Ready():
                self._process.ready = at
            case notes.Stop():
                self._process.stopped = at
            case notes.Close():
                self._process.closed = at
            case notes.Open():
                raise BadNotes("event: 'open' stands first in a file, and once")

    def _send(self, note: notes.Send, at: int) -> None:
        if note.seq <= self._seq:
            raise BadNotes(f"seq: {note.seq} comes after {self._seq}; each send has a higher one")
        self._seq = note.seq
        if self._process.kind is None:
            raise BadNotes("send: the 'open' of this file names no kind of producer")
        value = self._all.value(note.value)
        row = self._all._sends
        if row["sender"][value] != NONE:
            other = self._all._processes[row["sender"][value]].file
            raise BadNotes(f"value: {note.value!r} was sent before, in {other}; each send needs a value of its own")
        row["sender"][value], row["seq"][value], row["sent"][value] = self._number, note.seq, at
        row["topic"][value] = self._all._topics[note.topic]
        if note.partition is not None:
            row["tp"][value] = self._all.tp(note.topic, note.partition)
        row["key"][value] = NONE if note.key is None else self._all._keys[note.key]
        row["txn"][value] = NONE if note.txn is None else self._txn(note.txn)
        # An acknowledgement names the partition alone.
        self._pending[note.seq] = value, note.topic

    def _ack(self, note: notes.Ack, at: int) -> None:
        value, topic = self._pending_send(note.seq)
        row = self._all._sends
        row["outcome"][value], row["acked"][value] = ACKED, at
        row["log"][value] = self._log(note.cluster, topic, note.partition)
        row["tp"][value] = self._all.tp(topic, note.partition)
        if note.offset is not None:
            row["offset"][value] = note.offset

    def _pending_send(self, seq: int) -> tuple[int, str]:
        try:
            return self._pending.pop(seq)
        except KeyError:
            raise BadNotes(f"seq: no send {seq} waits for its outcome in this file") from None

    def _receipt(self, note: notes.Receipt, at: int) -> None:
        log = self._log(note.cluster, note.topic, note.partition)
        span = self._current.get(log)
        if span is None:
            # A client that notes no assignments has each log from its beginning on.
            span = self._current[log] = self._span(log, self._process.opened, NONE)
        key = NONE if note.key is None else self._all._keys[note.key]
        self._all._receipts.add(self._all.value(note.value), log, note.offset, span, key, at)

    def _transaction(self, note: notes.Begin | notes.End | notes.Ended, at: int) -> None:
        rows = self._all._transactions
        if isinstance(note, notes.Begin):
            if note.txn in self._txns:
                raise BadNotes(f"txn: {note.txn} began before in this file")
            self._txns[note.txn] = rows.add(self._number, OPEN, NONE, NONE)
            return
        txn = self._txn(note.txn)
        state = rows["state"][txn]
        if isinstance(note, notes.End):
            if note.how == "commit" and state == OPEN:
                rows["state"][txn], rows["tried"][txn] = UNANSWERED, at
            elif state == OPEN:
                rows["state"][txn] = ABORTED
        elif note.outcome == "committed":
            if state != UNANSWERED:
                raise BadNotes(f"outcome: {note.txn} is committed without an 'end' that asks for it")
            rows["state"][txn], rows["ended"][txn] = COMMITTED, at
        elif note.outcome == "aborted":
            if state == COMMITTED:
                raise BadNotes(f"outcome: {note.txn} is aborted after it was committed")
            rows["state"][txn] = ABORTED

    def _txn(self, txn: int) -> int:
        if txn not in self._txns:
            raise BadNotes(f"txn: {txn} has no 'begin' in this file")
        return self._txns[txn]

    def _commit(self, note: notes.Commit | notes.Committed, at: int) -> None:
        rows = self._all._commits
        if isinstance(note, notes.Commit):
            if self._process.group is None:
                raise BadNotes("commit: the 'open' of this file names no group")
            if note.commit in self._tried:
                raise BadNotes(f"commit: {note.commit} was tried before in this file")
            txn = NONE if note.txn is None else self._txn(note.txn)
            self._all._tries += txn == NONE
            self._tried[note.commit] = [
                rows.add(self._number, self._log(note.cluster, topic, partition), offset, at, NONE, UNKNOWN, txn)
                for topic, partition, offset in note.positions
            ]
            return
        if note.commit not in self._tried:
            raise BadNotes(f"commit: no commit {note.commit} waits for its outcome in this file")
        tried = self._tried.pop(note.commit)
        if note.outcome == "unknown":
            return
        self._all._answers += 1
        for row in tried:
            rows["outcome"][row] = ACKED if note.outcome == "ok" else FAILED
            rows["answered"][row] = at

    def _log(self, cluster: str | None, topic: str, partition: int) -> int:
        return self._all.log(cluster or self._process.cluster, topic, partition)

    def _span(self, log: int, at: int, position: int) -> int:
        return self._all._spans.add(self._number, log, at, position)


class Names(dict[str, int]):
    """Numbers names from 0, in the order in which they are first asked for."""

    def __missing__(self, name: str) -> int:
        number = self[name] = len(self)
        return number


@dataclass(slots=True)
class Columns:
    """A table under construction: a list of numbers for each column."""

    columns: dict[str, array[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, *names: str) -> Columns:
        """An empty table."""
        return cls({name: array("q") for name in names})

    def add(self, *row: int) -> int:
        """Append a row, in the order of the columns; its number."""
        for column, number in zip(self.columns.values(), row, strict=True):
            column.append(number)
        return len(column) - 1

    def __getitem__(self, name: str) -> array[int]:
        return self.columns[name]

    def arrays(self) -> dict[str, Numbers]:
        """The finished columns."""
        return {name: np.frombuffer(column, dtype=np.int64).copy() for name, column in self.columns.items()}
