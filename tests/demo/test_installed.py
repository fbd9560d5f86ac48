"""The demo from the wheel, as far as that shows without a run: what is pinned, and that the workers share no folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from demo import installed
from demo.installed import VARIABLE, WORKERS, Installation, versions
from demo.workers import two_workers

ROOT = Path(__file__).resolve().parents[2]


def test_environment_of_the_wheel_is_pinned_as_the_lock_has_it() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = versions(lock).splitlines()
    assert {"apache-airflow==3.3.2", "pyspark==4.2.0"} <= set(pins)
    assert len(pins) == len(re.findall(r"^[a-z]", lock, flags=re.MULTILINE))
    assert not [pin for pin in pins if not re.fullmatch(r"[a-z0-9._-]+(\[[a-z0-9,-]+\])?==\S+( ; .+)?", pin)]


def named_homes(installation: Installation) -> str:
    return os.pathsep.join(str(home) for home in installation.homes)


def test_worker_sees_no_folder_of_the_other_one_nor_of_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert two_workers.VARIABLE == VARIABLE
    plan = tmp_path / "plan.yaml"
    plan.write_text("version: 1\n", encoding="utf-8")
    installation = Installation(tmp_path / "installed")

    def pretend(command: list[str]) -> None:
        if "wheel" in command:
            (tmp_path / "installed" / "wheels" / "kafka_migration-0-py3-none-any.whl").touch()

    monkeypatch.setattr(installed, "_run", pretend)
    installation.make(plan, log=lambda _line: None)
    for name, value in installation.environment().items():
        monkeypatch.setenv(name, value)
    for own, other in (WORKERS, WORKERS[::-1]):
        home = tmp_path / "installed" / own
        seen = two_workers.environment_of(home)
        named = {n: v for n, v in seen.items() if n in ("HOME", "TMPDIR") or "FOLDER" in n or n.startswith("KAFKA_")}
        assert named.pop(VARIABLE) == named_homes(installation)
        assert not {name: value for name, value in named.items() if f"/{other}/" in f"{value}/"}
        assert str(ROOT) not in seen["PYTHONPATH"]
        for name in ("AIRFLOW__CORE__DAGS_FOLDER", "KAFKA_MIGRATION_PLANS", "KAFKA_MIGRATION_APPROVAL_KEYS_FILE"):
            assert Path(seen[name]).is_relative_to(home)
            assert Path(seen[name]).exists()
        assert (home / "approval.key").stat().st_mode & 0o077 == 0
