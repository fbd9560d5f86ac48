"""Notes reach the disk when they should, and no two clients write to one file."""

from pathlib import Path

import pytest

from demo.clients.settings import Settings
from demo.notes import NotesWriter, Obligations, RunDirectory, read_status, status_path, write_json

SERVERS = {"bootstrap.servers": "127.0.0.1:1"}


def test_note_added_is_in_the_file_only_after_sync(tmp_path: Path) -> None:
    path = tmp_path / "notes" / "member.tsv"
    notes = NotesWriter(path)
    notes.add("producer-1-0", "demo.orders", 2, 41)
    assert path.read_text() == ""
    notes.sync()
    record_id, topic, partition, offset, noted_ns = path.read_text().rstrip("\n").split("\t")
    assert (record_id, topic, partition, offset) == ("producer-1-0", "demo.orders", "2", "41")
    assert int(noted_ns) > 0


def test_notes_closed_hold_everything_in_the_order_of_adding(tmp_path: Path) -> None:
    path = tmp_path / "member.tsv"
    notes = NotesWriter(path)
    for number in range(5):
        notes.add(f"producer-1-{number}", "demo.orders", 0, number)
        notes.write()
    notes.close()
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    assert [line[0] for line in lines] == [f"producer-1-{number}" for number in range(5)]
    assert [int(line[4]) for line in lines] == sorted(int(line[4]) for line in lines)


def test_second_writer_of_a_file_is_refused(tmp_path: Path) -> None:
    NotesWriter(tmp_path / "member.tsv").close()
    with pytest.raises(FileExistsError):
        NotesWriter(tmp_path / "member.tsv")


def test_settings_written_are_read_back_and_private(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    settings = Settings(source=SERVERS, target={**SERVERS, "sasl.password": "x"}, producers=3)
    run.create(settings)
    assert run.settings() == settings
    assert (run.path / "settings.json").stat().st_mode & 0o077 == 0


def test_directory_of_another_run_is_refused(tmp_path: Path) -> None:
    RunDirectory(tmp_path).create(Settings(source=SERVERS, target=SERVERS))
    with pytest.raises(FileExistsError):
        RunDirectory(tmp_path).create(Settings(source=SERVERS, target=SERVERS))


def test_settings_without_servers_or_pace_are_refused() -> None:
    with pytest.raises(ValueError, match="target has no bootstrap"):
        Settings(source=SERVERS, target={})
    with pytest.raises(ValueError, match="produced_per_second is 0"):
        Settings(source=SERVERS, target=SERVERS, produced_per_second=0)
    with pytest.raises(ValueError, match="stopped_after_records"):
        Settings(source=SERVERS, target=SERVERS, small_topic_records=100)


@pytest.mark.parametrize("starts", [[9, 12], [10], [10, 12, 13]])
def test_group_that_starts_outside_the_logs_is_refused(starts: list[int]) -> None:
    with pytest.raises(ValueError, match=r"demo\.orders"):
        Obligations(log_starts={"demo.orders": [10, 12]}, groups={"demo.behind": {"demo.orders": starts}})


def test_obligations_written_are_read_back(tmp_path: Path) -> None:
    obligations = Obligations(log_starts={"t": [10, 12]}, groups={"g": {"t": [10, 13]}})
    RunDirectory(tmp_path).write_obligations(obligations)
    assert RunDirectory(tmp_path).obligations() == obligations


def test_status_of_a_client_that_said_nothing_is_empty(tmp_path: Path) -> None:
    notes = tmp_path / "member.tsv"
    assert read_status(notes) == {}
    write_json(status_path(notes), {"processed": 3})
    assert read_status(notes) == {"processed": 3}
