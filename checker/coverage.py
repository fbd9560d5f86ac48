"""Who had to read which record, and who did not: what lies between two records that a reader got.

A reader is a group, or a consumer that assigns partitions to itself. It has passed a value if it got, or began at,
something before it and got something after it, where before and after are the order of any one log, or, on a cluster
where nobody saw the value, the order in which its client sent to one partition with one key. The latter reaches over a
move: a record that stands only on the first cluster lies before what its client wrote to the second.

A final reader has passed everything in its partitions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from checker.history import ACKED, NONE, Flags, History, Numbers
from checker.logs import Logs
from checker.order import Sends


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What is missing, and for whom.

    Attributes:
        missing: by value: somebody had to get it, and nobody did; or a final reader did not.
        skipped: (reader, value) of values that exist, and that a reader has passed without getting them.
        readers: names of readers, by number.
        unfinished: final readers that did not close in order: nothing follows from what they did not get.
    """

    missing: Flags
    skipped: list[tuple[int, int]]
    readers: list[str]
    unfinished: list[str]


def of(history: History, logs: Logs, sends: Sends) -> Coverage:
    """Go through all readers."""
    count = len(history.value_names)
    readers = sorted({process.reader for process in history.processes})
    number = {name: index for index, name in enumerate(readers)}
    reader_of = np.array([number[process.reader] for process in history.processes], dtype=np.int64)
    unfinished = sorted({process.client for process in history.processes if process.final and process.closed is None})
    final = np.array([process.final and process.closed is not None for process in history.processes], dtype=bool)

    owed = np.zeros(count, dtype=bool)
    covered = np.zeros(count, dtype=bool)
    absent = np.zeros(count, dtype=bool)
    skipped: list[tuple[int, int]] = []
    spans, receipts = history.spans, history.receipts
    span_reader = reader_of[spans.process] if len(spans.process) else np.zeros(0, dtype=np.int64)
    by_reader = np.argsort(span_reader[receipts.span], kind="stable") if len(receipts.span) else np.zeros(0, np.int64)
    edges = np.searchsorted(span_reader[receipts.span][by_reader], np.arange(len(readers) + 1))
    gaps = _gaps(history, logs)
    for reader in range(len(readers)):
        rows = by_reader[edges[reader] : edges[reader + 1]]
        got = np.zeros(count, dtype=bool)
        got[receipts.value[rows]] = True
        own = np.flatnonzero(span_reader == reader)
        passed = _passed(history, logs, sends, got, rows, own) & ~got
        owed |= passed
        must = _finally(history, logs, own[final[spans.process[own]]])
        covered |= must
        absent |= must & ~got
        inside = {value for span in own.tolist() for value in gaps.get(span, ())}
        skipped += [(reader, value) for value in sorted(inside | set(np.flatnonzero(passed & logs.visible).tolist()))]
    return Coverage(
        missing=np.where(covered, absent, owed & ~logs.received),
        skipped=skipped,
        readers=readers,
        unfinished=unfinished,
    )


def _passed(history: History, logs: Logs, sends: Sends, got: Flags, receipts: Numbers, own: Numbers) -> Flags:
    """Values before and after which a reader got something; ``receipts`` and ``own`` are its receipts and spans."""
    before, after = np.zeros(len(got), dtype=bool), np.zeros(len(got), dtype=bool)
    starts = own[history.spans.position[own] != NONE]
    low = np.full(len(history.log_tp), np.iinfo(np.int64).max)
    high = np.full(len(history.log_tp), NONE)
    np.minimum.at(low, history.receipts.log[receipts], history.receipts.offset[receipts])
    np.maximum.at(high, history.receipts.log[receipts], history.receipts.offset[receipts])
    np.minimum.at(low, history.spans.log[starts], history.spans.position[starts] - 1)
    # What it got on one cluster has its place on the others, too.
    for log, offset in zip(logs.log, logs.offset, strict=True):
        rows = np.flatnonzero(got & logs.single & (log != NONE))
        np.minimum.at(low, log[rows], offset[rows])
        np.maximum.at(high, log[rows], offset[rows])
    for log, offset in zip(logs.log, logs.offset, strict=True):
        if len(low):
            before |= (log != NONE) & (offset > low[log])
            after |= (log != NONE) & (offset < high[log])
    chain, rank = sends.chain, sends.rank
    chains = int(chain.max(initial=NONE)) + 1
    acknowledged = (chain != NONE) & (history.values.outcome == ACKED)
    for log in logs.log if chains else ():
        # Where a value has a place, the log decides; a client's order decides for a cluster that it is missing on.
        rows = np.flatnonzero(got & (chain != NONE) & (log != NONE))
        low, high = np.full(chains, np.iinfo(np.int64).max), np.full(chains, NONE)
        np.minimum.at(low, chain[rows], rank[rows])
        np.maximum.at(high, chain[rows], rank[rows])
        absent = acknowledged & (log == NONE)
        before |= absent & (rank > low[chain])
        after |= absent & (rank < high[chain])
    return before & after & logs.stands


def _finally(history: History, logs: Logs, spans: Numbers) -> Flags:
    """What a final reader has to have: all of its partitions, but what lay before their beginning."""
    if not len(spans):
        return np.zeros(len(logs.tp), dtype=bool)
    mine = np.zeros(len(history.tp_topic) + 1, dtype=bool)
    mine[history.log_tp[history.spans.log[spans]]] = True
    must = mine[logs.tp] & logs.stands
    start = np.full(len(history.log_tp), np.iinfo(np.int64).max)
    np.minimum.at(start, history.spans.log[spans], history.spans.position[spans])
    start[np.setdiff1d(np.arange(len(start)), history.spans.log[spans])] = NONE
    for log, offset in zip(logs.log, logs.offset, strict=True):
        must &= (log == NONE) | (offset >= start[log])
    return must


def _gaps(history: History, logs: Logs) -> dict[int, set[int]]:
    """Visible values between two successive receipts of one span, or between its beginning and its first receipt."""
    rows = [np.flatnonzero(logs.visible & (log != NONE)) for log in logs.log]
    value = np.concatenate([np.zeros(0, np.int64), *rows])
    log = np.concatenate([np.zeros(0, np.int64), *(log[found] for log, found in zip(logs.log, rows, strict=True))])
    offset = np.concatenate([np.zeros(0, np.int64), *(at[found] for at, found in zip(logs.offset, rows, strict=True))])
    receipts, spans = history.receipts, history.spans
    if not len(log) or not len(receipts.span):
        return {}
    order = np.lexsort((offset, log))
    log, offset, value = log[order], offset[order], value[order]
    # One sorted column of numbers: offsets of each log follow those of the log before it.
    room = 2 + max(int(offset.max()), int(receipts.offset.max()), int(spans.position.max(initial=0)))
    keys = log * room + offset
    turn = np.lexsort((np.arange(len(receipts.span)), receipts.span))
    span, base = receipts.span[turn], receipts.log[turn] * room
    first = np.ones(len(turn), dtype=bool)
    first[1:] = span[1:] != span[:-1]
    previous = np.concatenate([[0], receipts.offset[turn][:-1]])
    began = np.where(spans.position[span] == NONE, receipts.offset[turn], spans.position[span] - 1)
    previous = np.where(first, began, previous)
    begin = np.searchsorted(keys, base + previous, side="right")
    end = np.searchsorted(keys, base + receipts.offset[turn], side="left")
    found: dict[int, set[int]] = {}
    for row in np.flatnonzero(end > begin).tolist():
        found.setdefault(int(span[row]), set()).update(value[begin[row] : end[row]].tolist())
    # What a span got later is out of order there, not skipped.
    for number, skipped in found.items():
        begun, ended = np.searchsorted(span, [number, number + 1])
        skipped.difference_update(receipts.value[turn[begun:ended]].tolist())
    return found
