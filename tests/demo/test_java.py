"""A machine without a usable Java hears so, with the remedy, before anything else fails."""

from pathlib import Path

import pytest

from demo.java import JavaError, java_major_version, java_since, require_java


def fake_java(directory: Path, version_line: str) -> Path:
    """A `java` that says which version it is, on standard error as real ones do."""
    executable = directory / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho '{version_line}' >&2\n")
    executable.chmod(0o755)
    return executable


@pytest.mark.parametrize(
    ("line", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "21" 2023-09-19 LTS', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('java version "1.8.0_402"', 8),
    ],
)
def test_java_says_its_version_major_is_read(tmp_path: Path, line: str, major: int) -> None:
    assert java_major_version(fake_java(tmp_path, line)) == major


def test_java_home_is_too_old_refused_with_both_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, 'openjdk version "11.0.22"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match=r"Java 11; 17 or later"):
        require_java()


def test_java_home_holds_no_java_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaError, match="JAVA_HOME"):
        require_java()


def test_no_java_on_path_refused_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaError, match=r"Install a JDK 17"):
        require_java()


def test_java_of_a_later_version_is_the_one_in_use_or_another_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = fake_java(tmp_path, 'openjdk version "21.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java_since(21) == mine
    with pytest.raises(JavaError, match="no Java 999 or later on this machine"):
        java_since(999)
