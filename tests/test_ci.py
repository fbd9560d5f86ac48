""".ci/run, with a `make` that only says what it was asked for: what counts as green."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ENOUGH = {"test": 8_100, "test-long": 80}
FOREIGN = {
    "ARGS": "-k nothing",
    "MAKEFLAGS": "-n",
    "PYTEST_ADDOPTS": "--collect-only",
    "PYTEST_PLUGINS": "green",
    "PYTHONPATH": "/elsewhere",
    "WORKERS": "0",
    "BASH_FUNC_make%%": "() { exit 0; }",
}


class Ci:
    """Runs .ci/run; ``closing`` are pytest's last lines by target, ``codes`` how `make` ends."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.environment = folder, dict[str, str]()
        self.closing = {name: f"===== {count} passed in 61.0s (0:01:01) =====" for name, count in ENOUGH.items()}
        self.codes: dict[str, int] = {}

    def run(self) -> subprocess.CompletedProcess[str]:
        make = self.folder / "make"
        cases = "".join(
            f"{name}) echo '{line}'; code={self.codes.get(name, 0)};;\n" for name, line in self.closing.items()
        )
        make.write_text(
            "#!/bin/sh\nfor target; do\ncase $target in -j|2) continue;; esac\n"
            f'env >"{self.folder}/$target.env"\ncode=0\ncase $target in\n{cases}esac\n'
            "[ $code = 0 ] || exit $code\ndone\n"
        )
        make.chmod(0o755)
        path = f"{self.folder}:{os.environ['PATH']}"
        return subprocess.run(
            [ROOT / ".ci" / "run"],
            env={**self.environment, "PATH": path, "JAVA_HOME": "/a/jdk"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def seen(self, target: str) -> dict[str, str]:
        """The environment of `make TARGET`."""
        lines = (self.folder / f"{target}.env").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)


@pytest.fixture
def ci(tmp_path: Path) -> Ci:
    return Ci(tmp_path)


def test_all_of_it_passes_green_and_the_last_lines_say_so(ci: Ci) -> None:
    done = ci.run()
    assert done.returncode == 0, done.stdout + done.stderr
    *_, first, second = done.stdout.splitlines()
    assert first == "make test: ===== 8100 passed in 61.0s (0:01:01) ====="
    assert second.startswith("make test-long: ===== 80 passed")
    assert all((ci.folder / f"{name}.env").exists() for name in ("setup", "lint", "test", "test-long"))


def test_environment_that_could_leave_tests_out_is_not_handed_on(ci: Ci) -> None:
    ci.environment = {
        **FOREIGN,
        "BASH_ENV": str(ci.folder / "green.sh"),
        "HTTPS_PROXY": "http://proxy:3128",
        "PIP_INDEX_URL": "i",
    }
    (ci.folder / "green.sh").write_text("exit 0\n")
    assert ci.run().returncode == 0
    for target in ("setup", "lint", "test", "test-long"):
        seen = ci.seen(target)
        assert not seen.keys() & {*FOREIGN, "BASH_ENV"}
        assert (seen["JAVA_HOME"], seen["HTTPS_PROXY"], seen["PIP_INDEX_URL"]) == ("/a/jdk", "http://proxy:3128", "i")


@pytest.mark.parametrize("target", ["test", "test-long"])
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("===== 9 passed, 5400 deselected in 1.00s =====", "9 tests passed, of"),
        ("===== no tests ran in 0.01s =====", "0 tests passed, of"),
        ("Killed", "pytest did not finish"),
    ],
)
def test_fewer_tests_than_there_are_is_red(ci: Ci, target: str, line: str, said: str) -> None:
    ci.closing[target] = line
    done = ci.run()
    assert done.returncode == 1
    assert f"make {target}: {said}" in done.stdout


@pytest.mark.parametrize("target", ["setup", "lint", "test", "test-long"])
def test_one_part_fails_red(ci: Ci, target: str) -> None:
    ci.closing.setdefault(target, "")
    ci.codes[target] = 2
    assert ci.run().returncode == 2
