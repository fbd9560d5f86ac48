"""The small files of a run, and what groups owe."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from checker.findings import Fault
from checker.recorder import Recorder
from checker.verdict import judge
from demo.clients.settings import Settings
from demo.notes import RunDirectory, read_status, status_path, write_json

SERVERS = {"bootstrap.servers": "127.0.0.1:1"}


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


def test_record_that_a_group_owes_and_nobody_received_is_lost(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.write_owed({"g": {"t": [10, 12]}})
    producer = Recorder(run.producer_notes("p"), client="p", cluster="source", kind="idempotent")
    for offset in range(9, 15):
        producer.ack(producer.send(f"v{offset}", "t", partition=1), 1, offset)
    member = Recorder(run.member_notes("g", "source", "m"), client="m", cluster="source", group="g")
    for offset in (12, 14):
        member.receipt("t", 1, offset, f"v{offset}")
    member.close()
    producer.close()
    verdict = judge(run.notes)
    assert verdict.findings.counts == {Fault.LOST: 1}
    assert "'v13'" in verdict.findings.examples[Fault.LOST][0].text
    member = Recorder(run.member_notes("g", "target", "m"), client="m", cluster="target", group="g")
    member.receipt("t", 1, 0, "v13")
    member.close()
    assert judge(run.notes).findings.counts[Fault.LOST] == 0


def test_status_of_a_client_that_said_nothing_is_empty(tmp_path: Path) -> None:
    notes = tmp_path / "member.jsonl"
    assert read_status(notes) == {}
    write_json(status_path(notes), {"processed": 3})
    assert read_status(notes) == {"processed": 3}


def test_threads_that_replace_one_file_at_once_do_not_take_it_from_each_other(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: write_json(path, [number] * 1_000), range(400)))
    assert len(set(json.loads(path.read_text()))) == 1
    assert [one.name for one in tmp_path.iterdir()] == ["state.json"]
