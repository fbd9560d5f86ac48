"""The consumers' control without a workload: it says what is missing, and never hangs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from demo.clients.control import CONTROL_FILE, RUN_DIRECTORY_VARIABLE, main
from demo.workload import CONTROL_COMMAND


def test_without_any_workload_the_exit_code_is_three(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stop", "demo.behind", "--run-directory", str(tmp_path)]) == 3
    assert "Start it, or name the right run directory" in capsys.readouterr().err


def test_socket_of_a_dead_workload_is_no_workload(tmp_path: Path) -> None:
    (tmp_path / CONTROL_FILE).write_text(json.dumps({"socket": str(tmp_path / "gone"), "pid": 1}))
    assert main(["status", "--run-directory", str(tmp_path)]) == 3


@pytest.mark.parametrize(
    "arguments", [[], ["restart", "demo.behind"], ["stop"], ["stop", "demo.behind", "--cluster", "elsewhere"]]
)
def test_bad_arguments_exit_with_two(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_missing_run_directory_exits_with_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_DIRECTORY_VARIABLE, raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["stop", "demo.behind"])
    assert ended.value.code == 2


def test_command_runs_in_a_bare_environment_with_the_standard_library_alone(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-S", str(CONTROL_COMMAND), "status"],
        env={RUN_DIRECTORY_VARIABLE: str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert result.returncode == 3, result.stderr
    assert os.access(CONTROL_COMMAND, os.X_OK)
