"""What an installation lacks is named, with what to do about it; one that works passes each check."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from kafka_migration.cli.app import app
from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.steps import environment

KEY = "0123456789abcdef" * 4


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """As a shell has it, with nothing set up beyond what `make setup` does."""
    # An earlier test may have loaded Airflow, which finds the key of the tests.
    monkeypatch.delitem(sys.modules, "airflow", raising=False)
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "KAFKA_MIGRATION"))}
    return mine | {"AIRFLOW_HOME": str(tmp_path / "airflow")}


def seen(environ: dict[str, str], name: str) -> CheckResult:
    [found] = environment.check(environ, only=name)
    return found


def test_installation_of_this_checkout_has_what_the_mirror_needs(environ: dict[str, str]) -> None:
    found = {one.name: one for one in environment.check(environ)}
    for name in ("packages", "Java and Spark", "jars of Spark's Kafka source", "plans", "reports"):
        assert found[name].verdict is Verdict.PASS, found[name]
    assert "pyspark 4." in found["packages"].evidence
    assert "Spark 4." in found["Java and Spark"].evidence
    assert found["approval key"].verdict is Verdict.WARN
    assert "KAFKA_MIGRATION_APPROVAL_KEYS_FILE" in found["approval key"].remedy


def launcher(tmp_path: Path, text: str, *, exit_code: int = 0) -> dict[str, str]:
    """A Spark whose launcher prints this text."""
    script = tmp_path / "bin" / "spark-submit"
    script.parent.mkdir(exist_ok=True)
    script.write_text(f"#!/bin/sh\ncat <<'END' >&2\n{text}\nEND\nexit {exit_code}\n")
    script.chmod(0o755)
    return {"SPARK_HOME": str(tmp_path)}


@pytest.mark.parametrize(
    ("text", "exit_code", "evidence", "remedy"),
    [
        ("version 4.2.0\nUsing OpenJDK 64-Bit Server VM, 11.0.2\n", 0, "on Java 11", "JDK 17 or later"),
        ("version 3.5.1\nUsing OpenJDK 64-Bit Server VM, 17.0.9\n", 0, "Spark 3.5.1 on Java 17", "unset SPARK_HOME"),
        ("JAVA_HOME is not set", 1, "exit 1: JAVA_HOME is not set", "set JAVA_HOME"),
    ],
)
def test_java_or_spark_that_will_not_do_is_named(
    environ: dict[str, str], tmp_path: Path, text: str, exit_code: int, evidence: str, remedy: str
) -> None:
    found = seen(environ | launcher(tmp_path, text, exit_code=exit_code), "Java and Spark")
    assert found.verdict is Verdict.FAIL
    assert evidence in found.evidence
    assert remedy in found.remedy


def test_launcher_gets_no_approval_key(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"{KEY}\n")
    (tmp_path / "keys").chmod(0o600)
    more = launcher(tmp_path, "${KAFKA_MIGRATION_APPROVAL_KEYS_FILE-none}", exit_code=1)
    script = tmp_path / "bin" / "spark-submit"
    script.write_text(script.read_text().replace("'END'", "END"))
    found = seen(environ | more | {"KAFKA_MIGRATION_APPROVAL_KEYS_FILE": str(tmp_path / "keys")}, "Java and Spark")
    assert found.evidence == "spark-submit --version: exit 1: none"


def test_spark_without_a_launcher_is_named(environ: dict[str, str], tmp_path: Path) -> None:
    found = seen(environ | {"SPARK_HOME": str(tmp_path)}, "Java and Spark")
    assert found.verdict is Verdict.FAIL
    assert "does not run" in found.evidence


def test_jars_that_are_not_there_are_named(environ: dict[str, str], tmp_path: Path) -> None:
    found = seen(environ | {"KAFKA_MIGRATION_SPARK_JARS": str(tmp_path / "no.jar")}, "jars of Spark's Kafka source")
    assert found.verdict is Verdict.FAIL
    assert "no.jar" in found.evidence + found.remedy


def test_approval_key_is_counted_and_never_shown_and_one_that_others_may_read_fails(
    environ: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "keys"
    file.write_text(f"{KEY}\n")
    environ["KAFKA_MIGRATION_APPROVAL_KEYS_FILE"] = str(file)
    file.chmod(0o644)
    found = seen(environ, "approval key")
    assert found.verdict is Verdict.FAIL
    assert "chmod 600" in found.remedy
    file.chmod(0o600)
    found = seen(environ, "approval key")
    assert (found.verdict, found.evidence) == (Verdict.PASS, "1, the first one signs")
    assert not any(KEY in str(one) for one in environment.check(environ))


def test_airflow_without_plugin_or_dags_is_warned_of_and_found_by_its_folders(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "entry_points", lambda **_: [])
    for name in ("Airflow: plugin", "Airflow: DAGs"):
        assert seen(environ, name).verdict is Verdict.WARN
    for folder, file, text in (
        ("plugins", "kafka_migration_plugin.py", ""),
        ("dags", "mine.py", "from kafka_migration.airflow.dags import dags\n"),
    ):
        there = tmp_path / "airflow" / folder
        there.mkdir(parents=True)
        (there / file).write_text(text)
    assert seen(environ, "Airflow: plugin").verdict is Verdict.PASS
    found = seen(environ, "Airflow: DAGs")
    assert (found.verdict, found.evidence) == (Verdict.PASS, f"mine.py in {tmp_path / 'airflow' / 'dags'}")
    elsewhere = {"AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path), "AIRFLOW__CORE__PLUGINS_FOLDER": str(tmp_path)}
    for name in ("Airflow: plugin", "Airflow: DAGs"):
        assert seen(environ | elsewhere, name).verdict is Verdict.WARN
    monkeypatch.setattr(environment, "entry_points", lambda **_: [SimpleNamespace(name="kafka_migration")])
    assert seen(environ | elsewhere, "Airflow: plugin").verdict is Verdict.PASS


def test_folders_that_are_none_are_named(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = seen(environ | {"KAFKA_MIGRATION_PLANS": str(tmp_path / "none")}, "plans")
    assert (found.verdict, "KAFKA_MIGRATION_PLANS" in found.remedy) == (Verdict.FAIL, True)
    found = seen(environ | {"KAFKA_MIGRATION_REPORTS_DIR": str(tmp_path / "file" / "reports")}, "reports")
    assert (found.verdict, "KAFKA_MIGRATION_REPORTS_DIR" in found.remedy) == (Verdict.FAIL, True)
    found = seen(environ | {"KAFKA_MIGRATION_REPORTS_DIR": "s3://bucket?secret=x"}, "reports")
    assert found.verdict is Verdict.FAIL
    assert "secret" not in str(found)
    assert not (tmp_path / "none").exists(), "nothing is made"


@pytest.mark.parametrize(("state", "verdict"), [(0, Verdict.PASS), (5, Verdict.WARN)])
def test_clock_that_is_not_synchronized_is_warned_of(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, state: int, verdict: Verdict
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: SimpleNamespace(adjtimex=lambda _buffer: state))
    assert seen(environ, "clock").verdict is verdict


def test_command_shows_each_check_and_exits_by_them(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def km(*options: str) -> Any:
        return CliRunner().invoke(app, ["doctor", *options], env=environ)

    for name in set(os.environ) - set(environ):
        monkeypatch.delenv(name)
    done = km("--json")
    assert (done.exit_code, json.loads(done.stdout)["ok"]) == (0, True)
    environ |= {"KAFKA_MIGRATION_PLANS": str(tmp_path / "none")}
    done = km()
    assert done.exit_code == 1
    assert "is no folder" in " ".join(done.stdout.split())
