"""The logs as clients saw them: which value stands at which offset of which partition, on each cluster.

An offset with two values, and a value with two offsets, are faults of their own. For all other questions, offsets with
two values are left out, and of several offsets of a value on one cluster the first counts. What a new leader cut off is
no such fault, where whoever judges knows that leaders changed: an `acks=1` record that only its leader had, and whose
offset was given to another record, or lies behind the log's end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from checker.history import ABORTED, ACKED, COMMITTED, FAILED, NONE, OPEN, UNANSWERED, Flags, History, Numbers

#: A record that is truncated was acknowledged at most so long before its leader went, in nanoseconds.
_BEFORE = 10_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderChange:
    """Partitions of ``cluster`` got other leaders at some time from ``began`` to ``ended`` (nanoseconds since 1970).
    That is in no client's notes: whoever took leaders away knows it. ``ends``: log ends that brokers gave after that,
    by topic and partition."""

    cluster: str
    began: int
    ended: int
    ends: Mapping[tuple[str, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """What stands where, and what may be relied on of each value.

    Attributes:
        log, offset: by cluster, arrays by value: where it stands on that cluster, NONE if nobody saw it there.
        tp: by value: its partition, of whichever cluster; NONE if unknown.
        again: rows of (log, offset, value): where a value stands besides.
        contested: rows of (log, offset, value), several values for each log and offset.
        sent: by value: some producer noted that it sends it.
        stands: by value: nothing forbids that it is read: not aborted, not failed for certain.
        visible: by value: it must be seen by whoever reads past it: known to be in a log, and `stands` beyond doubt.
        acknowledged: by value: the broker promised to keep it. Not what was truncated: acks=1 promises nothing beyond
            its leader.
        truncated: by value: acknowledged to an acks=1 producer when leaders changed, received by nobody, and its offset
            was given again, or lies behind the log's end.
        committed: by transaction: acknowledged, or seen by a read_committed consumer.
        received: by value: some consumer got it.
        single: by value: it has one place on each cluster for sure, so that its places on two clusters are of the very
            same record. Retries of an acks=1 producer may leave copies of which nobody saw the first.
    """

    log: list[Numbers]
    offset: list[Numbers]
    tp: Numbers
    again: Numbers
    contested: Numbers
    sent: Flags
    stands: Flags
    visible: Flags
    acknowledged: Flags
    truncated: Flags
    committed: Flags
    received: Flags
    single: Flags


def rebuild(history: History, leaders: Sequence[LeaderChange] = ()) -> Logs:
    """The logs of a history, while which ``leaders`` changed."""
    values, receipts = history.values, history.receipts
    count = len(history.value_names)
    sent = values.sender != NONE
    received = np.zeros(count, dtype=bool)
    received[receipts.value] = True

    real = sent[receipts.value]
    acked = (values.offset != NONE) & (values.log != NONE)
    rows = np.stack(
        [
            np.concatenate([receipts.log[real], values.log[acked]]),
            np.concatenate([receipts.offset[real], values.offset[acked]]),
            np.concatenate([receipts.value[real], np.flatnonzero(acked)]),
        ]
    )
    rows = _distinct(rows)
    truncated = _truncated(history, rows, received, leaders)
    rows = rows[:, ~truncated[rows[2]]]
    contested = _contested(rows)
    clean = rows[:, ~contested]
    log, offset, again = _places(history, clean, count)

    tp = values.tp.copy()
    for log_here in reversed(log):
        tp = np.where(log_here != NONE, history.log_tp[log_here], tp) if len(history.log_tp) else tp
    committed = _committed(history)
    txn = values.txn
    plain = txn == NONE
    state = history.transactions.state
    doomed = np.zeros(count, dtype=bool)
    settled = plain.copy()
    if len(state):
        doomed = ~plain & ((state[txn] == OPEN) | (state[txn] == ABORTED))
        settled = plain | committed[txn]
    failed = values.outcome == FAILED
    stands = sent & ~doomed & ~failed
    single = sent.copy()
    if len(history.processes):
        single &= np.array([process.kind != "acks=1" for process in history.processes], dtype=bool)[values.sender]
    single[again[:, 2]] = False
    somewhere = np.zeros(count, dtype=bool)
    for log_here in log:
        somewhere |= log_here != NONE
    return Logs(
        log=log,
        offset=offset,
        tp=tp,
        again=again,
        contested=rows[:, contested].T,
        sent=sent,
        stands=stands,
        visible=stands & settled & somewhere,
        acknowledged=stands & ~truncated & ((plain & (values.outcome == ACKED)) | (~plain & settled)),
        truncated=truncated,
        committed=committed,
        received=received,
        single=single,
    )


def isolated(history: History) -> Flags:
    """By receipt: a read_committed consumer got it."""
    by_process = np.array([process.isolation == "read_committed" for process in history.processes], dtype=bool)
    found: Flags = np.zeros(0, dtype=bool)
    if len(by_process):
        found = by_process[history.spans.process[history.receipts.span]]
    return found


def _committed(history: History) -> Flags:
    """A commit without an answer took place if a read_committed consumer got one of its values."""
    state = history.transactions.state
    committed: Flags = state == COMMITTED
    if len(state):
        txns = history.values.txn[history.receipts.value[isolated(history)]]
        seen = np.zeros(len(state), dtype=bool)
        seen[txns[txns != NONE]] = True
        committed |= seen & (state == UNANSWERED)
    return committed


def _distinct(rows: Numbers) -> Numbers:
    """Each column once, sorted by log, offset, value."""
    rows = rows[:, np.lexsort(rows[::-1])]
    if rows.shape[1] < 2:
        return rows
    new = np.ones(rows.shape[1], dtype=bool)
    new[1:] = (rows[:, 1:] != rows[:, :-1]).any(axis=0)
    return rows[:, new]


def _contested(rows: Numbers) -> Flags:
    """Columns that share log and offset with a neighbour: values differ, as each column is there once."""
    found = np.zeros(rows.shape[1], dtype=bool)
    same = (rows[0, 1:] == rows[0, :-1]) & (rows[1, 1:] == rows[1, :-1])
    found[1:] |= same
    found[:-1] |= same
    return found


def _truncated(history: History, rows: Numbers, received: Flags, leaders: Sequence[LeaderChange]) -> Flags:
    """By value: ``rows`` are distinct (log, offset, value)."""
    found = np.zeros(len(received), dtype=bool)
    if not leaders:
        return found
    values = history.values
    of_one = np.array([process.kind == "acks=1" for process in history.processes], dtype=bool)
    # A row is of an acknowledgement, if nobody received the value.
    mine = rows[:, of_one[values.sender[rows[2]]] & ~received[rows[2]]].T.tolist()
    changed: set[int] = set()
    for log, offset, value in mine:
        cluster, acked = history.cluster_names[history.log_cluster[log]], int(values.acked[value])
        place = int(history.log_tp[log])
        name = history.topic_names[history.tp_topic[place]], int(history.tp_partition[place])
        for change in leaders:
            if change.cluster == cluster and change.began - _BEFORE <= acked <= change.ended:
                changed.add(value)
                found[value] |= name in change.ends and offset >= change.ends[name]
    for _, group in groupby(rows[:, _contested(rows)].T.tolist(), key=lambda row: row[:2]):
        there = [value for _, _, value in group]
        gone = [value for value in there if value in changed]
        if len(gone) == len(there):
            # Whichever was acknowledged last may have stayed: somebody has to have received it.
            gone.remove(max(gone, key=lambda value: int(values.acked[value])))
        found[gone] = True
    return found


def _places(history: History, rows: Numbers, count: int) -> tuple[list[Numbers], list[Numbers], Numbers]:
    clusters = history.log_cluster[rows[0]] if rows.shape[1] else np.zeros(0, dtype=np.int64)
    order = np.lexsort((rows[1], rows[0], rows[2], clusters))
    rows, clusters = rows[:, order], clusters[order]
    first = np.ones(len(clusters), dtype=bool)
    first[1:] = (clusters[1:] != clusters[:-1]) | (rows[2, 1:] != rows[2, :-1])
    logs, offsets = [], []
    for cluster in range(len(history.cluster_names)):
        here = rows[:, first & (clusters == cluster)]
        log, offset = np.full(count, NONE, dtype=np.int64), np.full(count, NONE, dtype=np.int64)
        log[here[2]], offset[here[2]] = here[0], here[1]
        logs.append(log)
        offsets.append(offset)
    return logs, offsets, rows[:, ~first].T


def behind(groups: Numbers, positions: Numbers, ranks: Numbers) -> Numbers:
    """Rows whose rank (0 or more) is lower than that of a row before it, by position, in the same group."""
    if not len(groups):
        return np.zeros(0, dtype=np.int64)
    order = np.lexsort((positions, groups))
    _, dense = np.unique(groups[order], return_inverse=True)
    # Ranks of a later group are higher, so the running maximum starts again at each group by itself.
    key = dense.astype(np.int64) * (int(ranks.max()) + 1) + ranks[order]
    found: Numbers = order[key < np.maximum.accumulate(key)]
    return found
