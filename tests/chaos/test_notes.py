"""A run that ended early goes on; nothing of another run is taken for it."""

from pathlib import Path

import pytest

from tests.chaos.compare import Found
from tests.chaos.notes import Note, Notes, OtherRun
from tests.chaos.run import run
from tests.chaos.schedule import Fault, rounds

SETTINGS = {"seed": 7, "kinds": ["plain"]}
LEFT = Fault(kind="kill_worker", side="", after=0.3, seed=2)


def _notes(path: Path) -> Notes:
    return Notes(path, SETTINGS)


def test_rounds_that_are_noted_are_counted_and_not_played_again(tmp_path):
    notes = _notes(tmp_path / "made" / "notes.jsonl")
    assert notes.read() == []
    written = [
        Note(1, Found(records=1_000, translated=20), ["kill_worker", "rivals"], [LEFT]),
        Note(2, Found(records=2_000, translated=30), ["rivals", "kill_worker"], []),
    ]
    for note in written:
        notes.write(note)
    assert _notes(tmp_path / "made" / "notes.jsonl").read() == written
    schedule = rounds(7, 2)
    total = run(seed=7, schedule=schedule, brokers=3, records=1, kinds=["plain"], folder=tmp_path, notes=notes)
    assert total.is_good
    found = total.as_dict()
    assert (found["rounds"], found["records"], found["faults"]) == (2, 3_000, {"kill_worker": 2, "rivals": 2})


def test_run_whose_last_fault_was_never_injected_is_not_good(tmp_path):
    notes = _notes(tmp_path / "notes.jsonl")
    notes.write(Note(1, Found(records=1_000), [], [LEFT]))
    total = run(seed=7, schedule=rounds(7, 1), brokers=3, records=1, kinds=["plain"], folder=tmp_path, notes=notes)
    assert not total.is_good


def test_nothing_is_kept_without_a_file():
    notes = Notes(None, SETTINGS)
    notes.write(Note(1, Found(), [], []))
    assert notes.read() == []


@pytest.mark.parametrize("line", ["nonsense", "[]", "{}", '{"settings": {}}'])
def test_file_with_something_else_is_refused(tmp_path, line):
    (tmp_path / "notes").write_text(line + "\n")
    with pytest.raises(OtherRun, match="something else than rounds"):
        _notes(tmp_path / "notes").read()


def test_notes_of_a_run_with_other_settings_are_refused(tmp_path):
    Notes(tmp_path / "notes", {"seed": 8, "kinds": ["plain"]}).write(Note(1, Found(), [], []))
    with pytest.raises(OtherRun, match=r"'seed': 8.*'seed': 7"):
        _notes(tmp_path / "notes").read()
