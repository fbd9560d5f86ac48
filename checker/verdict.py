"""The decision: every check over one history, and the summary that machines read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from checker import coverage, groups, logs, order, pauses, records
from checker.evidence import Evidence
from checker.findings import Fault, Findings
from checker.history import NONE, UNANSWERED, UNKNOWN, History
from checker.reading import read


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the notes show.

    Attributes:
        findings: faults.
        unknown: sends, transactions and commits of offsets whose outcome nobody noted; no fault, whichever it was.
        unseen: acknowledged records that nobody received and nobody had to, as everybody stopped before them.
        retried: values that stand twice as the retries of their own acks=1 producer may leave them.
        truncated: acknowledged records of acks=1 producers that went with their leader when it changed.
        redelivered: receipts that repeat others as at-least-once allows.
        inconclusive: why nothing follows from these notes if no fault was found; empty if something does.
    """

    findings: Findings
    events: int
    clients: int
    sent: int
    acknowledged: int
    received: int
    unknown: int
    unseen: int
    retried: int
    truncated: int
    redelivered: int
    torn_lines: int
    pauses_ms: dict[str, pauses.Figures]
    inconclusive: tuple[str, ...]

    @property
    def faults(self) -> int:
        """How many, of all kinds."""
        return sum(self.findings.counts.values())

    @property
    def exit_code(self) -> int:
        """1 for faults, 3 for a history from which nothing follows, otherwise 0."""
        return 1 if self.faults else 3 if self.inconclusive else 0

    def summary(self) -> dict[str, object]:
        """The last line of the output."""
        counts = {fault.value: self.findings.counts[fault] for fault in Fault}
        more = {
            name: getattr(self, name)
            for name in ("unknown", "unseen", "retried", "truncated", "redelivered", "torn_lines")
        }
        size = {name: getattr(self, name) for name in ("events", "clients", "sent", "acknowledged", "received")}
        return {**counts, **more, **size, "pauses_ms": self.pauses_ms, "inconclusive": list(self.inconclusive)}


def judge(folder: Path, *, examples: int = 5, leaders: Sequence[logs.LeaderChange] = ()) -> Verdict:
    """Decide from the notes in ``folder``, and from when ``leaders`` changed, if that is known.

    Raises:
        BadNotes, NotADirectoryError: see `checker.reading.read`.
    """
    return decide(read(folder), examples=examples, leaders=leaders)


def decide(history: History, *, examples: int = 5, leaders: Sequence[logs.LeaderChange] = ()) -> Verdict:
    """Decide from a history."""
    findings = Findings(limit=examples)
    rebuilt = logs.rebuild(history, leaders)
    sends = order.Sends(history, rebuilt)
    covered = coverage.of(history, rebuilt, sends)
    evidence = Evidence(history, rebuilt)
    retried = records.check(history, rebuilt, covered, evidence, findings)
    order.check(history, rebuilt, sends, evidence, findings)
    redelivered = groups.check(history, rebuilt, evidence, findings)
    values = history.values
    unanswered = rebuilt.sent & (values.txn == NONE) & (values.outcome == UNKNOWN)
    unseen = rebuilt.acknowledged & ~rebuilt.received & ~covered.missing
    return Verdict(
        findings=findings,
        events=history.events,
        clients=len({process.client for process in history.processes}),
        sent=int(rebuilt.sent.sum()),
        acknowledged=int(rebuilt.acknowledged.sum()),
        received=len(history.receipts.value),
        unknown=int(unanswered.sum())
        + int((history.transactions.state == UNANSWERED).sum())
        + history.unanswered_commits,
        unseen=int(np.count_nonzero(unseen)),
        retried=retried,
        truncated=int(np.count_nonzero(rebuilt.truncated)),
        redelivered=redelivered,
        torn_lines=history.torn_lines,
        pauses_ms=pauses.of(history),
        inconclusive=tuple(_doubts(history, covered)),
    )


def _doubts(history: History, covered: coverage.Coverage) -> list[str]:
    found = []
    if not len(history.receipts.value):
        found.append("nobody received anything: let consumers note what they receive")
    if not (history.values.sender != NONE).any():
        found.append("nobody sent anything: let producers note what they send")
    found += [f"the final reader {client} did not close: let it read to the end" for client in covered.unfinished]
    return found
