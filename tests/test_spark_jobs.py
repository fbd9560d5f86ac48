"""The Spark applications: their exit code is what whoever submitted them learns."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from kafka_migration.steps import mirror
from kafka_migration.validation import job as validate_job

JOBS = Path(__file__).resolve().parent.parent / "spark_jobs"


@pytest.mark.parametrize(("name", "job"), [("mirror.py", mirror), ("validate.py", validate_job)])
def test_application_exits_with_what_its_job_returns(name: str, job: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "main", len)
    monkeypatch.setattr(sys, "argv", [name, "one", "two", "three"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(JOBS / name), run_name="__main__")
    assert ended.value.code == 3
