"""The format, the recorder that writes it, and what a process that was killed leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from checker.findings import Fault
from checker.notes import BadNotes
from checker.reading import read
from checker.recorder import Recorder
from checker.verdict import judge
from tests.checker.worlds import SOURCE, Notes, Writer

ROOT = Path(__file__).resolve().parents[2]


def test_what_the_recorder_writes_is_what_the_judge_reads(tmp_path: Path) -> None:
    with_all = Recorder(
        tmp_path / "worker.jsonl", client="worker", cluster="source", kind="transactional", group="billing", started=5
    )
    with_all.ready()
    with_all.assign([("orders", 0, None), ("orders", 1, 4)])
    txn = with_all.begin()
    seq = with_all.send("a", "orders", partition=0, key="k", txn=txn)
    with_all.ack(seq, 0, 0)
    with_all.failed(with_all.send("b", "orders"), certain=False)
    commit = with_all.commit([("orders", 1, 5)], txn=txn)
    with_all.end(txn, "commit")
    with_all.ended(txn, "committed")
    with_all.committed(commit, "ok")
    with_all.receipt("orders", 0, 0, "a", key="k", cluster="source")
    with_all.revoke([("orders", 1)])
    with_all.stop(mono=7)
    with_all.close()
    found = read(tmp_path)
    assert found.events == len((tmp_path / "worker.jsonl").read_text().splitlines()) == 16
    (process,) = found.processes
    assert (process.client, process.kind, process.group, process.final) == ("worker", "transactional", "billing", False)
    assert process.closed is not None
    assert process.stopped is not None
    assert process.stopped - process.started == 2
    assert judge(tmp_path).exit_code == 0


def test_file_of_another_process_is_not_written_to(tmp_path: Path) -> None:
    Recorder(tmp_path / "a.jsonl", client="a", cluster="source").close()
    with pytest.raises(FileExistsError):
        Recorder(tmp_path / "a.jsonl", client="a", cluster="source")


_KILLED = """
import os, sys
from pathlib import Path
from checker.reading import read
from checker.recorder import Recorder
recorder = Recorder(Path(sys.argv[1]), client="a", cluster="source", kind="idempotent", group="g")
recorder.receipt("t", 0, 0, "x")
{last}
recorder.receipt("t", 0, 1, "y")
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(
    "last", ['recorder.send("v", "t")', 'recorder.commit([("t", 0, 1)])', 'recorder.end(1, "commit")']
)
def test_intention_outlives_a_kill_with_all_that_was_noted_before_it(tmp_path: Path, last: str) -> None:
    script = _KILLED.format(last=last)
    command = [sys.executable, "-c", script, str(tmp_path / "a.jsonl")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    events = [json.loads(line)["event"] for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert events[:2] == ["open", "receipt"]
    assert len(events) == 3


@pytest.mark.parametrize("torn", ['{"event":"receipt","wal', '{"event":"ack"}', "{"])
def test_torn_last_line_is_counted_and_everything_before_it_stands(notes: Notes, tmp_path: Path, torn: str) -> None:
    notes.files[0].torn = torn
    verdict = judge(notes.write(tmp_path))
    assert (verdict.torn_lines, verdict.exit_code, verdict.received) == (1, 0, 1)


def test_last_line_that_lacks_but_its_end_stands(notes: Notes, tmp_path: Path) -> None:
    folder = notes.write(tmp_path)
    path = folder / f"{notes.files[1].name}.jsonl"
    path.write_text(path.read_text().removesuffix("\n"))
    assert (judge(folder).torn_lines, judge(folder).received) == (0, 1)


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        (0, '{"event":"ack","wal\n', "line 4: line: Invalid JSON"),
        (0, '{"event":"ack","wall":1,"mono":1,"seq":"x","partition":0}\n', "line 4: ack.seq: Input should be a valid"),
        (0, '{"event":"ack","wall":1,"mono":1,"seq":1,"partition":-1}\n', "line 4: ack.partition: Input should be gre"),
        (0, '{"event":"ready","wall":1,"mono":1e30}\n', "line 4: ready.mono: Input should be a valid integer"),
        (0, '{"event":"ready","wall":99999999999999999999,"mono":1}\n', "line 4: ready.wall: Input should be less"),
        (0, '{"event":"ack","wall":1,"mono":1,"seq":1,"partition":0,"ofset":3}\n', "line 4: ack.ofset: Unexpected"),
        (0, '{"event":"ack","wall":1,"mono":1,"seq":9,"partition":0}\n', "line 4: seq: no send 9 waits"),
        (0, '{"event":"ack","wall":1,"mono":1,"seq":1,"partition":0}\n', "line 4: seq: no send 1 waits"),
        (0, '{"event":"send","wall":1,"mono":1,"seq":1,"value":"b","topic":"t"}\n', "line 4: seq: 1 comes after 1"),
        (
            0,
            '{"event":"send","wall":1,"mono":1,"seq":2,"value":"a","topic":"t"}\n',
            "line 4: value: 'a' was sent before",
        ),
        (0, '{"event":"commit","wall":1,"mono":1,"commit":1,"positions":[]}\n', "line 4: commit: the 'open' of this"),
        (0, '{"event":"end","wall":1,"mono":1,"txn":1,"how":"commit"}\n', "line 4: txn: 1 has no 'begin'"),
        (1, '{"event":"send","wall":1,"mono":1,"seq":1,"value":"b","topic":"t"}\n', "line 3: send: the 'open' of this"),
        (1, '{"event":"committed","wall":1,"mono":1,"commit":3,"outcome":"ok"}\n', "line 3: commit: no commit 3 waits"),
        (1, '{"event":"close","wall":1,"mono":1}\n{"event":"stop","wall":1,"mono":1}\n', "line 4: event: nothing may"),
    ],
)
def test_notes_that_contradict_themselves_are_refused_with_file_line_and_field(
    notes: Notes, tmp_path: Path, file: int, line: str, message: str
) -> None:
    notes.files[file].torn = line
    with pytest.raises(BadNotes) as refused:
        judge(notes.write(tmp_path))
    assert str(refused.value).startswith(f"{notes.files[file].name}.jsonl, {message}")


def test_file_that_does_not_begin_with_open_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"event":"ready","wall":1,"mono":1}\n')
    with pytest.raises(BadNotes, match=r"a\.jsonl, line 1: event: the first note must be 'open', not 'ready'"):
        judge(tmp_path)


def test_wall_clock_that_is_set_back_meanwhile_reorders_nothing(notes: Notes, tmp_path: Path) -> None:
    Writer(notes, notes.files[1]).commit(0, 1)
    reader = notes.open("billing-2", SOURCE, group="billing")
    reader.got("a", 0, 0)
    for note in reader.file.notes:
        note["wall"] -= 10**15
    # By its wall clock this member got the partition before the commit, which would excuse it.
    verdict = judge(notes.write(tmp_path))
    assert (verdict.findings.counts[Fault.DOUBLED], verdict.redelivered) == (1, 0)


@pytest.fixture
def notes() -> Notes:
    made = Notes()
    made.open("shop", SOURCE, kind="idempotent").sent("a", 0, 0)
    made.open("billing-1", SOURCE, group="billing").got("a", 0, 0)
    return made
