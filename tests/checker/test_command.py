"""`python -m checker FOLDER`: what it prints, its exit codes, and what it costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from checker.__main__ import main
from tests.checker import large
from tests.checker.worlds import SOURCE, Notes

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def notes() -> Notes:
    made = Notes()
    shop = made.open("shop", SOURCE, kind="idempotent")
    for offset, value in enumerate("abc"):
        shop.sent(value, 0, offset, key="k")
    return made


def read_by(notes: Notes, *offsets: int, final: bool = False) -> None:
    reader = notes.open("audit", SOURCE, final=final)
    reader.assign(0)
    for offset in offsets:
        reader.got("abc"[offset], 0, offset)


def test_history_without_faults_ends_with_0_and_a_line_of_json(notes, tmp_path, capsys):
    read_by(notes, 0, 1, 2)
    assert main([str(notes.write(tmp_path))]) == 0
    *table, last = capsys.readouterr().out.splitlines()
    summary = json.loads(last)
    names = ["lost", "doubled", "reordered", "read_uncommitted", "torn", "commits_backwards", "skipped", "phantom"]
    assert [summary[name] for name in [*names, "inconsistent", "unknown"]] == [0] * 10
    assert summary["pauses_ms"] == {who: dict.fromkeys(("p50", "p99", "max")) for who in ("producers", "consumers")}
    assert max(map(len, table)) <= 100
    assert any("3 records sent, 3 acknowledged, 3 received" in line for line in table)


def test_fault_ends_with_1_and_an_example_in_a_sentence(notes, tmp_path, capsys):
    read_by(notes, 0, 2)
    assert main([str(notes.write(tmp_path))]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "lost: 'b' of shop in orders-0 (offset 1 on source, acknowledged) was received by nobody" in output


def test_json_has_the_evidence_of_each_example_and_exact_counts(notes, tmp_path, capsys):
    read_by(notes, 0, 2)
    reader = notes.open("search", SOURCE)
    for number in range(7):
        reader.got(f"ghost-{number}", 0, 10 + number)
    assert main([str(notes.write(tmp_path)), "--json", "--examples", "2"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["lost"], found["phantom"], len(found["examples"]["phantom"])) == (1, 7, 2)
    (lost,) = found["examples"]["lost"]
    assert (lost["value"], lost["client"], lost["seq"], lost["key"]) == ("b", "shop", 2, "k")
    assert (lost["topic"], lost["partition"], lost["offsets"]) == ("orders", 0, {"source": 1})
    assert lost["sent"] < lost["acknowledged"]


@pytest.mark.parametrize("case", ["nothing", "no receipt", "no send", "final reader that did not close"])
def test_history_from_which_nothing_follows_ends_with_3(notes, tmp_path, capsys, case):
    if case == "nothing":
        notes.files.clear()
    elif case == "no send":
        notes.files.clear()
        notes.open("audit", SOURCE)
    elif case == "final reader that did not close":
        read_by(notes, 0, 1, final=True)
    assert main([str(notes.write(tmp_path))]) == 3
    output = capsys.readouterr().out
    assert "inconclusive: " in output
    assert json.loads(output.splitlines()[-1])["inconclusive"]


def test_folder_that_cannot_be_read_ends_with_2(tmp_path, capsys):
    assert main([str(tmp_path / "none")]) == 2
    (tmp_path / "a.jsonl").write_text("[]\n")
    assert main([str(tmp_path)]) == 2
    missing, broken = capsys.readouterr().err.splitlines()
    assert missing.endswith("none is no folder; name the one with the clients' notes (*.jsonl).")
    assert broken.startswith("error: a.jsonl, line 1: ")


@pytest.mark.soak
def test_million_events_are_judged_in_bounded_time_and_memory(tmp_path: Path) -> None:
    events = large.write(tmp_path / "notes")
    assert events > 1_000_000
    command = [sys.executable, "-m", "checker", str(tmp_path / "notes"), "--json"]
    with (tmp_path / "out").open("w+") as out:
        process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        found = json.load(out)
    assert process.returncode == 0
    assert (found["events"], found["sent"], found["lost"]) == (events, large.SENDS, 0)
    # Of its own time, whatever else the machine does: nine seconds where this was written, with 250 MiB.
    assert usage.ru_utime + usage.ru_stime < 60
    assert usage.ru_maxrss < 1024 * 1024
