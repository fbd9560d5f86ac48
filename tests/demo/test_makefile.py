"""The Makefile as a newcomer meets it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def make(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *arguments], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def test_make_without_a_target_lists_every_target_with_its_purpose() -> None:
    phony = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    listed = dict(re.findall(r"^  make (\S+) +(\S.*)$", make().stdout, re.MULTILINE))
    assert listed.keys() == set(phony.group(1).split())
    assert {"setup", "lint", "test", "demo", "up", "down", "brokers", "brokers-down", "clean"} <= listed.keys()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Just enough of a checkout for a set-up to begin."""
    for name in ("Makefile", "requirements.txt", "requirements.lock", "jars.lock"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "demo", tmp_path / "demo", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_setup_with_an_older_python_refused_with_the_remedy_and_nothing_made(checkout: Path) -> None:
    old = checkout / "python3.9"
    # What an older Python does with the question whether it is 3.11 or later.
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    run = make("setup", f"PYTHON={old}", cwd=checkout)
    assert run.returncode != 0
    assert "is not Python 3.11 or later" in run.stderr
    assert not (checkout / ".venv").exists()


def test_setup_with_an_older_java_refused_before_anything_is_installed(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = checkout / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.22\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(checkout / "jdk"))
    run = make("setup", cwd=checkout)
    assert run.returncode != 0
    assert "Java 11; 17 or later is needed" in run.stderr
    assert not (checkout / ".venv").exists()
