"""The Great Expectations suite, in its own process: it agrees with us, and would contradict us."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from kafka_migration.compare.expectations import replaced
from kafka_migration.compare.launch import run_expectations
from kafka_migration.domain.errors import CouldNotFindOut
from tests.waiting import HANGS_SECONDS

ROW: dict[str, Any] = {
    "partition": "topic-0",
    "verdict": "EQUAL",
    "expected_records": 5,
    "source_records": 5,
    "target_records": 5,
    "source_sum": "00ab",
    "target_sum": "00ab",
    "source_ordered_sum": "00cd",
    "target_ordered_sum": "00cd",
    "pinned_offsets": 6,
    "covered_offsets": 6,
    "unequal_segments": 0,
    "lag_offsets": 0,
    "age_seconds": 600,
    "pinned_seconds": 60,
}
LIMITS = {"age_seconds": 600.0, "pinned_seconds": 60.5}
NOT_READ = dict.fromkeys(name for name in ROW if name.startswith(("source_", "target_")))


def _run(folder: Path, rows: list[dict[str, Any]], partitions: int, *, at: str = "2030", of: str = ""):
    path = folder / "summary.json"
    path.write_text(
        json.dumps(
            {"migration": "m", "id": "1", "at": at, "of": of, "partitions": partitions, "limits": LIMITS, "rows": rows}
        )
    )
    return run_expectations(path, folder / "data_docs", os.environ)


def test_equal_partitions_meet_the_suite_and_leave_data_docs(tmp_path):
    stale = tmp_path / "data_docs" / "stale.html"
    stale.parent.mkdir()
    stale.touch()
    found = _run(tmp_path, [ROW, {**ROW, "partition": "topic-1"}], 2)
    assert (found.success, found.failed) == (True, ())
    assert "m-validation" in (tmp_path / "data_docs" / "index.html").read_text()
    assert len(list((tmp_path / "data_docs").rglob("*.html"))) == 3, "index, suite and one validation"
    assert not stale.exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == [".data_docs.lock"]


def test_data_docs_need_no_other_file_and_no_script(tmp_path):
    found = _run(tmp_path, [{**ROW, "verdict": "DIFFERENT"}], 1, of="some topics")
    assert found.failed == ("every partition is EQUAL",)
    pages = {path: path.read_text() for path in (tmp_path / "data_docs").rglob("*.html")}
    for text in pages.values():
        assert not re.findall(r"<script|<link|@import|(?:src|href)=.?[a-z]+:", text)
        assert "--ground" in text, "styled as our other pages"
    index, run = tmp_path / "data_docs" / "index.html", next(path for path in pages if "validations" in path.parts)
    hrefs = {index.parent / unquote(href) for href in re.findall(r'href="([^"#]+)"', pages[index])}
    assert hrefs >= {run}
    assert all(path.is_file() for path in hrefs)
    assert (run.parent / re.findall(r'href="([^"#]+index.html)"', pages[run])[0]).resolve() == index
    assert "topic-0" in pages[run], "the partition that differs is named"
    assert "m 2030 some topics" in pages[index]


@pytest.mark.long
def test_data_docs_grow_with_each_run(tmp_path):
    for at, verdict, of in (("2030-01-01", "EQUAL", ""), ("2030-01-02", "DIFFERENT", "some topics")):
        found = _run(tmp_path, [{**ROW, "verdict": verdict}], 1, at=at, of=of)
        assert found.success is (verdict == "EQUAL")
    pages = list((tmp_path / "data_docs" / "validations").rglob("*.html"))
    assert len(pages) == 2
    index = (tmp_path / "data_docs" / "index.html").read_text()
    for at in ("2030-01-01", "2030-01-02"):
        assert f"m {at}" in index
    assert "m 2030-01-02 some topics" in index
    for page in pages:
        assert quote(page.relative_to(tmp_path / "data_docs").as_posix()) in index


PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
KILLED_AT_A_RENAME = """
import os, signal, sys
from pathlib import Path
from kafka_migration.compare import expectations

rename, left = os.rename, int(sys.argv[2])


def renaming(*paths):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(*paths)


os.rename = renaming
with expectations.replaced(Path(sys.argv[1])) as part:
    (part / "index.html").write_text("new")
    (part / "results").mkdir(exist_ok=True)
    (part / "results" / "new.json").touch()
"""


@pytest.mark.parametrize("renames", [0, 1])
def test_site_is_whole_wherever_the_run_before_died(tmp_path, renames):
    site = tmp_path / "data_docs"
    (site / "results").mkdir(parents=True)
    (site / "index.html").write_text("old")
    (site / "results" / "old.json").touch()
    # What earlier versions left behind when they were killed.
    (tmp_path / ".data_docs.4711" / "results").mkdir(parents=True)
    command = [sys.executable, "-c", KILLED_AT_A_RENAME, str(site), str(renames)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(PLUGINS)}, timeout=HANGS_SECONDS, check=False)
    assert done.returncode == -signal.SIGKILL
    with replaced(site) as part:
        assert (site / "index.html").read_text() == "old", "it is there while the next one is made"
        assert [path.name for path in (part / "results").iterdir()] == ["old.json"]
        (part / "index.html").write_text("newer")
    assert (site / "index.html").read_text() == "newer"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".data_docs.lock", "data_docs"]


def test_runs_that_end_at_once_are_both_in_the_site(tmp_path):
    site, inside = tmp_path / "data_docs", threading.Barrier(2, timeout=HANGS_SECONDS)

    def add(name: str) -> None:
        inside.wait()
        with replaced(site) as part:
            (part / "results").mkdir(exist_ok=True)
            (part / "results" / f"{name}.json").touch()

    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            shutil.rmtree(site, ignore_errors=True)
            for one in [pool.submit(add, name) for name in ("a", "b")]:
                one.result(timeout=HANGS_SECONDS)
            assert sorted(path.name for path in (site / "results").iterdir()) == ["a.json", "b.json"]


def test_suite_contradicts_rows_that_call_themselves_equal(tmp_path):
    """One table with a wrong row for each expectation: what our verdict says is not believed."""
    wrong: list[dict[str, Any]] = [
        {"target_records": 4},
        {"expected_records": 6},
        {"target_sum": "00aa"},
        {"target_ordered_sum": "00aa"},
        {"covered_offsets": 5},
        {"unequal_segments": 1},
        {"lag_offsets": 1},
        {"age_seconds": 601},
        {"pinned_seconds": 61},
        NOT_READ,
        {"verdict": "EXPIRED"},
    ]
    rows = [{**ROW, **fields, "partition": f"topic-{at}"} for at, fields in enumerate(wrong)]
    found = _run(tmp_path, [*rows, rows[0]], 13)
    assert not found.success
    assert {one for one in found.failed if " is known " not in one} == {
        "there is a row for every partition",
        "no partition stands twice",
        "counts of source and target are equal",
        "as many records were read as the offset map has",
        "order-independent sums of source and target are equal",
        "order-dependent sums of source and target are equal",
        "the segments cover everything that was pinned",
        "no segment is unequal",
        "the mirror has reached every pinned end",
        "nothing was read longer ago than validation.reread_seconds",
        "pinned no longer ago than validation.max_age_seconds",
        "every partition is EQUAL",
    }
    assert len([one for one in found.failed if " is known " in one]) == len(NOT_READ)


def test_suite_that_gives_no_verdict_is_an_error(tmp_path):
    with pytest.raises(CouldNotFindOut, match="no verdict"):
        run_expectations(tmp_path / "absent.json", tmp_path / "data_docs", os.environ)
