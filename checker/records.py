"""Faults of records: lost, doubled in a log, read uncommitted, torn, skipped, phantom, inconsistent."""

from __future__ import annotations

from itertools import groupby

import numpy as np

from checker.coverage import Coverage
from checker.evidence import Evidence, clock, names
from checker.findings import Example, Fault, Findings
from checker.history import NONE, UNANSWERED, History
from checker.logs import Logs, isolated


def check(history: History, logs: Logs, coverage: Coverage, evidence: Evidence, findings: Findings) -> int:
    """Add what is wrong with records; how many stand doubled as a producer's own retries may leave them."""
    _lost(history, logs, coverage, evidence, findings)
    _uncommitted(history, logs, evidence, findings)
    _torn(history, logs, coverage, evidence, findings)
    _phantom(history, logs, evidence, findings)
    _inconsistent(history, logs, evidence, findings)
    return _doubled(history, logs, evidence, findings)


def _lost(history: History, logs: Logs, coverage: Coverage, evidence: Evidence, findings: Findings) -> None:
    lost = coverage.missing & logs.acknowledged
    received = _Received(history)

    def missing(value: int) -> Example:
        row = received.first(value)
        text = "received by nobody" if row is None else f"received by {evidence.receipt(row)}, not by a final reader"
        return evidence.example(f"{evidence.value(value)} was {text}", value)

    def passed(item: tuple[int, int]) -> Example:
        reader, value = coverage.readers[item[0]], item[1]
        row = received.first(value)
        seen = "" if row is None else f", which {evidence.receipt(row)} received"
        text = f"{reader} received records before and after {evidence.value(value)}{seen}, and not the record itself"
        return evidence.example(text, value, reader=reader)

    findings.add(Fault.LOST, np.flatnonzero(lost).tolist(), missing)
    # A record that is lost is no fault of those who did not get it.
    skipped = [item for item in coverage.skipped if logs.received[item[1]] and not lost[item[1]]]
    findings.add(Fault.SKIPPED, skipped, passed)


class _Received:
    """A receipt of each value, if there is one."""

    def __init__(self, history: History) -> None:
        self._values, self._rows = np.unique(history.receipts.value, return_index=True)

    def first(self, value: int) -> int | None:
        at = int(np.searchsorted(self._values, value))
        return int(self._rows[at]) if at < len(self._values) and self._values[at] == value else None


def _uncommitted(history: History, logs: Logs, evidence: Evidence, findings: Findings) -> None:
    receipts, values, spans = history.receipts, history.values, history.spans
    value, txn = receipts.value, values.txn[receipts.value]
    # Whatever the isolation: what failed for certain is in no log.
    failed = logs.sent[value] & ~logs.stands[value] & (txn == NONE)
    inside = isolated(history) & (txn != NONE)
    doomed = inside & ~logs.stands[value]
    early = np.zeros(len(value), dtype=bool)
    if len(history.transactions.tried):
        clocks = {name: number for number, name in enumerate(sorted({process.clock for process in history.processes}))}
        clock_of = np.array([clocks[process.clock] for process in history.processes], dtype=np.int64)
        same_clock = clock_of[spans.process[receipts.span]] == clock_of[values.sender[value]]
        early = inside & same_clock & (receipts.time < history.transactions.tried[txn])
    rows = np.flatnonzero(failed | doomed | early)
    _, first = np.unique(value[rows], return_index=True)

    def seen(row: int) -> Example:
        found, why = int(value[row]), "which failed for certain"
        if early[row] and not doomed[row]:
            why = f"before its producer asked to commit, at {clock(int(history.transactions.tried[txn[row]]))}"
        elif not failed[row]:
            why = "whose transaction was not committed"
        text = f"{evidence.value(found)} was received by {evidence.receipt(row)}, {why}"
        return evidence.example(text, found)

    findings.add(Fault.READ_UNCOMMITTED, rows[np.sort(first)].tolist(), seen)


def _torn(history: History, logs: Logs, coverage: Coverage, evidence: Evidence, findings: Findings) -> None:
    txn = history.values.txn
    count = len(history.transactions.state)
    whole = (txn != NONE) & logs.stands
    if not count:
        return
    absent = whole & coverage.missing
    seen = whole & logs.received & ~absent
    torn = (
        logs.committed & (np.bincount(txn[absent], minlength=count) > 0) & (np.bincount(txn[seen], minlength=count) > 0)
    )

    def some(number: int) -> Example:
        client = history.processes[int(history.transactions.process[number])].client
        here, gone = np.flatnonzero(seen & (txn == number)), np.flatnonzero(absent & (txn == number))
        text = f"of a transaction of {client}, {names(evidence, here)} was received and {names(evidence, gone)} was not"
        if history.transactions.state[number] == UNANSWERED:
            text += "; its commit got no answer, and took place, as a read_committed consumer received a part"
        return evidence.example(text, int(gone[0]), client=client)

    findings.add(Fault.TORN, np.flatnonzero(torn).tolist(), some)


def _doubled(history: History, logs: Logs, evidence: Evidence, findings: Findings) -> int:
    by_own_retry = np.array([process.kind == "acks=1" for process in history.processes], dtype=bool)
    again = logs.again
    excused = by_own_retry[history.values.sender[again[:, 2]]] if len(again) else np.zeros(0, dtype=bool)

    def twice(row: list[int]) -> Example:
        log, offset, value = row
        text = f"{evidence.value(value)} stands a second time at offset {offset} of {evidence.log(log)}"
        return evidence.example(text, value, second_offset=offset, cluster=evidence.cluster(log))

    findings.add(Fault.DOUBLED, again[~excused].tolist(), twice)
    return int(excused.sum())


def _phantom(history: History, logs: Logs, evidence: Evidence, findings: Findings) -> None:
    receipts = history.receipts
    rows = np.flatnonzero(~logs.sent[receipts.value])
    _, first = np.unique(receipts.value[rows], return_index=True)

    def unsent(row: int) -> Example:
        value = int(receipts.value[row])
        text = f"{evidence.name(value)}, which nobody sent, was received by {evidence.receipt(row)}"
        return evidence.example(text, value)

    findings.add(Fault.PHANTOM, rows[np.sort(first)].tolist(), unsent)


def _inconsistent(history: History, logs: Logs, evidence: Evidence, findings: Findings) -> None:
    """One offset with two values; one value in two partitions, or with a key that it was not sent with."""
    contested = [list(rows) for _, rows in groupby(logs.contested.tolist(), key=lambda row: row[:2])]

    def several(rows: list[list[int]]) -> Example:
        log, offset, value = rows[0]
        found = ", ".join(evidence.name(row[2]) for row in rows)
        text = f"offset {offset} of {evidence.log(log)} has several values: {found}"
        return evidence.example(text, value, offset=offset, cluster=evidence.cluster(log))

    findings.add(Fault.INCONSISTENT, contested, several)
    moved = np.zeros(len(logs.tp), dtype=bool)
    for log in logs.log:
        moved |= (log != NONE) & (history.log_tp[log] != logs.tp) if len(history.log_tp) else False
    findings.add(
        Fault.INCONSISTENT,
        np.flatnonzero(moved).tolist(),
        lambda value: evidence.example(
            f"{evidence.value(value)} stands in different partitions on different clusters", value
        ),
    )
    receipts, sent_with = history.receipts, history.values.key[history.receipts.value]
    rows = np.flatnonzero((receipts.key != NONE) & (receipts.key != sent_with) & logs.sent[receipts.value])
    _, first = np.unique(receipts.value[rows], return_index=True)
    findings.add(
        Fault.INCONSISTENT,
        rows[np.sort(first)].tolist(),
        lambda row: evidence.example(
            f"{evidence.value(int(receipts.value[row]))} was received by {evidence.receipt(row)} "
            f"with the key {history.key_names[int(receipts.key[row])]!r}",
            int(receipts.value[row]),
        ),
    )
