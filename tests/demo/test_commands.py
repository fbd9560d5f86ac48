"""`make up`: what it leaves on disk."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from demo import commands
from demo.errors import DemoError


def test_log_that_tells_the_password_is_for_its_user_alone_though_an_older_one_was_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log.txt"
    log.write_text("of an earlier run")
    log.chmod(0o644)
    monkeypatch.setattr(commands, "UP", tmp_path)
    monkeypatch.setattr(commands, "STATE", tmp_path / "state.json")
    ended = SimpleNamespace(poll=lambda: 1, terminate=lambda: None)
    monkeypatch.setattr(subprocess, "Popen", lambda *_arguments, **_options: ended)
    with pytest.raises(DemoError, match="did not come up"):
        commands.up(airflow_port=1)
    assert log.stat().st_mode & 0o777 == 0o600
    assert log.read_text() == ""
