"""Judges a folder of notes.

    python -m checker FOLDER [--json] [--examples N]

Exit codes: 0 no fault; 1 faults; 2 the folder holds no notes that can be read; 3 nothing follows from these notes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from checker.findings import Fault
from checker.notes import BadNotes
from checker.verdict import Verdict, judge

_MEANS = {
    Fault.LOST: "acknowledged, and missing",
    Fault.DOUBLED: "twice in a log, or twice to a group that had committed it",
    Fault.REORDERED: "in another order than sent, or than on the other cluster",
    Fault.READ_UNCOMMITTED: "read before a commit, or without one",
    Fault.TORN: "transactions of which a part is missing",
    Fault.COMMITS_BACKWARDS: "a group's position before one that it had committed",
    Fault.SKIPPED: "passed over by a reader while others read it",
    Fault.PHANTOM: "received, and sent by nobody",
    Fault.INCONSISTENT: "one offset with two values, or one value in two partitions",
}


def main(arguments: Sequence[str]) -> int:
    """Print the verdict; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m checker", description="Judges a folder of clients' notes.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="with *.jsonl, one file for each client process")
    parser.add_argument("--json", action="store_true", help="print JSON alone, with the evidence of each example")
    parser.add_argument("--examples", type=int, default=5, metavar="N", help="of each fault, at most (default: 5)")
    options = parser.parse_args(arguments)
    try:
        verdict = judge(options.folder, examples=options.examples)
    except (BadNotes, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.json:
        examples = {
            fault.value: [{"text": example.text, **example.evidence} for example in found]
            for fault, found in verdict.findings.examples.items()
            if found
        }
        print(json.dumps({**verdict.summary(), "examples": examples}))
    else:
        show(verdict, Console(highlight=False))
        print(json.dumps(verdict.summary()))
    return verdict.exit_code


def show(verdict: Verdict, console: Console) -> None:
    """A table, and examples in sentences."""
    table = Table("fault", "count", "what it is")
    table.columns[1].justify = "right"
    for fault, means in _MEANS.items():
        count = verdict.findings.counts[fault]
        table.add_row(fault.value, f"{count:,}", means, style="bold red" if count else None)
    console.print(table)
    console.print(
        f"{verdict.clients:,} clients, {verdict.events:,} notes: {verdict.sent:,} records sent, "
        f"{verdict.acknowledged:,} acknowledged, {verdict.received:,} received"
    )
    console.print(
        f"not faults: {verdict.unknown:,} unknown outcomes, {verdict.unseen:,} records that nobody had to read, "
        f"{verdict.redelivered:,} redelivered, {verdict.torn_lines:,} torn last lines; of acks=1 producers "
        f"{verdict.retried:,} doubled by retries, {verdict.truncated:,} truncated by a change of leaders"
    )
    for who, figures in verdict.pauses_ms.items():
        shown = ", ".join(f"{name} {'-' if value is None else f'{value:,}'}" for name, value in figures.items())
        console.print(f"pauses of {who} in ms: {shown}")
    for fault, examples in verdict.findings.examples.items():
        for example in examples:
            console.print(Text(f"{fault.value}: {example.text}"))
        more = verdict.findings.counts[fault] - len(examples)
        if more and examples:
            console.print(Text(f"{fault.value}: and {more:,} more"))
    for doubt in verdict.inconclusive:
        console.print(Text(f"inconclusive: {doubt}"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
