"""Evidence in plain English: who sent a value, where it stands, when it was received."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from checker.findings import Example
from checker.history import ABORTED, ACKED, COMMITTED, FAILED, NONE, OPEN, UNANSWERED, History
from checker.logs import Logs

_TRANSACTION = {
    OPEN: "never committed",
    UNANSWERED: "whose commit got no answer",
    COMMITTED: "committed",
    ABORTED: "aborted",
}


class Evidence:
    """Describes values, logs and receipts of one history."""

    def __init__(self, history: History, logs: Logs) -> None:
        self._history = history
        self._logs = logs

    def example(self, text: str, value: int, **more: object) -> Example:
        """An example whose evidence has all that is known of a value."""
        return Example(text=text, evidence={**self._of_value(value), **more})

    def value(self, value: int) -> str:
        """`'v7' of orders-1 in orders-0 (offset 4 on source, 2 on target, acknowledged)`."""
        found = self._of_value(value)
        where = f" in {found['topic']}" if "topic" in found else ""
        if "partition" in found:
            where += f"-{found['partition']}"
        offsets = found.get("offsets")
        details = []
        if isinstance(offsets, dict) and offsets:
            details.append("offset " + ", ".join(f"{offset} on {cluster}" for cluster, offset in offsets.items()))
        if "outcome" in found:
            details.append(str(found["outcome"]))
        sender = f" of {found['client']}" if "client" in found else ""
        return f"{self.name(value)}{sender}{where}" + (f" ({', '.join(details)})" if details else "")

    def name(self, value: int) -> str:
        """The value in quotes."""
        return repr(self._history.value_names[value])

    def log(self, log: int) -> str:
        """`orders-0 on source`."""
        return f"{self.tp(int(self._history.log_tp[log]))} on {self.cluster(log)}"

    def tp(self, tp: int) -> str:
        """`orders-0`."""
        topic = self._history.topic_names[int(self._history.tp_topic[tp])]
        return f"{topic}-{int(self._history.tp_partition[tp])}"

    def cluster(self, log: int) -> str:
        """The name of a log's cluster."""
        return self._history.cluster_names[int(self._history.log_cluster[log])]

    def receipt(self, row: int) -> str:
        """`c1 at offset 4 of orders-0 on source, 15:02:01.123`."""
        receipts = self._history.receipts
        process = self.process_of_span(int(receipts.span[row]))
        log, offset = int(receipts.log[row]), int(receipts.offset[row])
        return f"{process} at offset {offset} of {self.log(log)}, {clock(int(receipts.time[row]))}"

    def process_of_span(self, span: int) -> str:
        """Client and group of whoever read it."""
        process = self._history.processes[int(self._history.spans.process[span])]
        return process.client if process.group is None else f"{process.client} of group {process.group}"

    def _of_value(self, value: int) -> dict[str, object]:
        history, values = self._history, self._history.values
        found: dict[str, object] = {"value": history.value_names[value]}
        if values.sender[value] != NONE:
            found["client"] = history.processes[int(values.sender[value])].client
            found["seq"] = int(values.seq[value])
            found["topic"] = history.topic_names[int(values.topic[value])]
            found["sent"] = moment(int(values.sent[value]))
            found["outcome"] = self._outcome(value)
        tp = int(self._logs.tp[value])
        if tp != NONE:
            found["topic"] = history.topic_names[int(history.tp_topic[tp])]
            found["partition"] = int(history.tp_partition[tp])
        if values.key[value] != NONE:
            found["key"] = history.key_names[int(values.key[value])]
        if values.acked[value] != NONE:
            found["acknowledged"] = moment(int(values.acked[value]))
        offsets = {
            name: int(self._logs.offset[cluster][value])
            for cluster, name in enumerate(history.cluster_names)
            if self._logs.log[cluster][value] != NONE
        }
        if offsets:
            found["offsets"] = offsets
        return found

    def _outcome(self, value: int) -> str:
        values = self._history.values
        sent = {ACKED: "acknowledged", FAILED: "failed for certain"}.get(
            int(values.outcome[value]), "without an answer"
        )
        txn = int(values.txn[value])
        if txn == NONE:
            return sent
        return f"{sent}, in a transaction {_TRANSACTION[int(self._history.transactions.state[txn])]}"


def moment(time_ns: int) -> str:
    """A time in UTC, to the microsecond."""
    return datetime.fromtimestamp(time_ns // 1000 / 1e6, tz=UTC).isoformat(timespec="microseconds")


def clock(time_ns: int) -> str:
    """The time of day in UTC, to the millisecond."""
    return datetime.fromtimestamp(time_ns // 1000 / 1e6, tz=UTC).strftime("%H:%M:%S.%f")[:-3]


def names(evidence: Evidence, values: np.ndarray) -> str:
    """Some values by name, as many as fit a line."""
    shown = ", ".join(evidence.name(int(value)) for value in values[:5])
    return shown if len(values) <= 5 else f"{shown} and {len(values) - 5} more"
