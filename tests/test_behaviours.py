"""docs/behaviours.md names tests for everything that it claims; they exist, are collected, and run in `make test`."""

import ast
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import COLLECTED

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "behaviours.md"
#: What this version promises. A number moves in here together with its line and its tests.
IN_SCOPE = {*range(1, 9), *range(10, 40), 41, 42, 43, 45, 46, 47, 48, *range(60, 77)}
_SKIPS = {"skip", "skipif", "xfail", "importorskip"}
NAMED = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")


def lines_of(text: str) -> dict[int, list[tuple[str, str]]]:
    """Every claimed line by its number, with the tests that it names. Raises ValueError for one that stands twice."""
    found: dict[int, list[tuple[str, str]]] = {}
    for part in re.split(r"^(?=\*\*\d+\.\*\* |## )", text, flags=re.MULTILINE):
        begun = re.match(r"\*\*(\d+)\.\*\* ", part)
        if begun:
            number = int(begun[1])
            if number in found:
                raise ValueError(f"line {number} stands twice")
            found[number] = NAMED.findall(part)
    return found


@cache
def shown_by(path: Path) -> frozenset[str]:
    """The tests of a file: functions, and methods as Class::name."""
    if not path.is_file():
        return frozenset()
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        inner, prefix = (node.body, f"{node.name}::") if isinstance(node, ast.ClassDef) else ([node], "")
        names |= {prefix + it.name for it in inner if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef)}
    return frozenset(name for name in names if name.rpartition("::")[2].startswith("test_"))


def skipping(file: Path) -> list[str]:
    """Names in a file of tests by which any of them could be skipped."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in _SKIPS]


LINES = lines_of(DOCUMENT.read_text(encoding="utf-8"))


def test_document_claims_exactly_what_this_version_promises():
    assert set(LINES) == IN_SCOPE


@pytest.mark.parametrize("number", sorted(LINES))
def test_claimed_line_names_tests_and_all_of_them_exist(number):
    assert LINES[number], "a line that no test shows is a wish"
    assert len(set(LINES[number])) == len(LINES[number]), "a test is named twice"
    assert not [f"{file}::{test}" for file, test in LINES[number] if test not in shown_by(ROOT / file)]


def collected(config: pytest.Config) -> dict[str, list[bool]]:
    """Every test of this run's files, as file::name, and for each of its parameters whether `make test` leaves it out.
    Of a run of some files, of all that lines name: in a process of its own."""
    files = {file for named in LINES.values() for file, _ in named}
    found = config.stash[COLLECTED]
    if not files <= {nodeid.partition("::")[0] for nodeid, _ in found}:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "plugins"), str(ROOT)])}
        command = [sys.executable, "-c", _COLLECT, *sorted(files)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        (line,) = (line for line in done.stdout.splitlines() if line.startswith("COLLECTED "))
        found = json.loads(line.removeprefix("COLLECTED "))
    tests: dict[str, list[bool]] = {}
    for nodeid, waits in found:
        tests.setdefault(nodeid.partition("[")[0], []).append(waits)
    return tests


_COLLECT = """
import json, os, sys, pytest
from tests.conftest import COLLECTED

class Shown:
    def pytest_collection_finish(self, session):
        print("COLLECTED", json.dumps(session.config.stash[COLLECTED]))

os.environ["PYTEST_ADDOPTS"] = ""
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[Shown()]))
"""


@pytest.mark.timeout(300)
def test_every_named_test_is_collected_and_every_line_is_shown_by_make_test(
    pytestconfig: pytest.Config,
) -> None:
    found = collected(pytestconfig)
    named = {number: [f"{file}::{test}" for file, test in tests] for number, tests in LINES.items()}
    assert not {test for tests in named.values() for test in tests if test not in found}
    everyday = {test for test, waits in found.items() if not all(waits)}
    assert not [number for number, tests in named.items() if not everyday & set(tests)]


def test_no_named_test_lies_in_a_file_that_skips() -> None:
    files = {file for named in LINES.values() for file, _ in named}
    assert not {file: found for file in sorted(files) if (found := skipping(ROOT / file))}


@pytest.mark.parametrize("document", sorted(path.relative_to(ROOT) for path in ROOT.glob("docs/**/*.md")), ids=str)
def test_document_names_no_test_that_does_not_exist(document):
    named = NAMED.findall((ROOT / document).read_text(encoding="utf-8"))
    assert not [f"{file}::{test}" for file, test in named if test not in shown_by(ROOT / file)]


def test_reader_finds_numbers_their_tests_and_lines_without_any():
    text = "**1.** A.\n- `tests/a.py::test_b`\n- `tests/a.py::TestC::test_d`\n**2.** B.\n\n## C\n`tests/e.py::test_f`"
    assert lines_of(text) == {1: [("tests/a.py", "test_b"), ("tests/a.py", "TestC::test_d")], 2: []}
    with pytest.raises(ValueError, match="line 1 stands twice"):
        lines_of("**1.** One.\n**1.** Again.\n")


def test_reader_of_tests_knows_methods_and_no_helpers():
    assert "test_reader_of_tests_knows_methods_and_no_helpers" in shown_by(Path(__file__))
    assert "lines_of" not in shown_by(Path(__file__))
    assert not shown_by(ROOT / "tests" / "no_such_file.py")
