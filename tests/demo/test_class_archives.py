"""Archives of classes: used where they fit, and no harm where they do not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from demo import class_archives, recording
from demo.brokers import BrokerError, EmbeddedKafka
from demo.brokers.releases import NEWEST
from demo.class_archives import ClassArchive
from demo.java import java_executable


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    path = tmp_path / "one.jar"
    path.write_bytes(b"content")
    return path


def archive(jar: Path) -> ClassArchive:
    return ClassArchive.of("some", [jar], cache=jar.parent / "classes")


def _written(options: list[str]) -> None:
    (option,) = (it for it in options if it.startswith("-XX:ArchiveClassesAtExit="))
    Path(option.partition("=")[2]).write_bytes(b"archive")


def test_archive_is_used_once_it_is_made_and_made_once(jar: Path) -> None:
    assert archive(jar).options() == []
    assert archive(jar).make(_written)
    assert archive(jar).options()[0] == f"-XX:SharedArchiveFile={archive(jar).path}"
    assert archive(jar).make(lambda _: pytest.fail("recorded again"))
    assert [it.name for it in archive(jar).path.parent.iterdir()] == [archive(jar).path.name]


def test_archive_of_a_jar_that_was_replaced_is_not_used_and_goes_when_the_next_is_made(jar: Path) -> None:
    archive(jar).make(_written)
    os.utime(jar, (1, 1))
    assert archive(jar).options() == []
    archive(jar).make(_written)
    assert [it.name for it in archive(jar).path.parent.iterdir()] == [archive(jar).path.name]


@pytest.mark.parametrize("variable", ["JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"])
def test_options_of_the_environment_make_no_other_archive(
    jar: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv(variable, raising=False)
    without = archive(jar)
    monkeypatch.setenv(variable, "-XX:TieredStopAtLevel=1")
    assert archive(jar) == without


def test_jvm_that_ends_without_an_archive_leaves_nothing(jar: Path) -> None:
    assert not archive(jar).make(lambda _: None)
    assert list(archive(jar).path.parent.iterdir()) == []


def test_broker_that_does_not_start_leaves_setup_without_an_archive_and_it_says_why(
    jar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_options: list[str]) -> None:
        raise BrokerError("no port is free")

    monkeypatch.setattr(class_archives, "of_brokers", lambda _set: archive(jar))
    monkeypatch.setattr(class_archives, "of_spark", lambda: archive(jar))
    monkeypatch.setattr(recording, "_record_broker", fails)
    monkeypatch.setattr(recording, "_record_spark", lambda _options: None)
    assert recording.make_archives() == [
        "classes, some: no archive; JVMs start without it: no port is free",
        "classes, some: no archive was written; JVMs start without it",
    ]


def test_jvm_with_a_damaged_archive_starts_and_prints_nothing_of_it(jar: Path) -> None:
    archive(jar).make(_written)
    command = [str(java_executable()), *archive(jar).options(), "--version"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0
    assert str(archive(jar).path) not in run.stdout + run.stderr


def test_broker_maps_the_archive_that_setup_made() -> None:
    made = class_archives.of_brokers(NEWEST.jar_set)
    with EmbeddedKafka(name="classes") as cluster:
        mapped = Path(f"/proc/{cluster.pids[1]}/maps").read_text()
    assert (str(made.path.resolve()) in mapped) is made.path.is_file()
