"""The bytecode of a new checkout, written once before the workers start.

Each worker imports every test, all in the same order at the same time. In a new checkout each would rewrite the
assertions of every test, too, which takes as long as all the rest of its start.
"""

import compileall
import os
import re
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

ROOT = Path(__file__).resolve().parents[1]
_FOLDERS = ("plugins", "checker", "demo", "bench", "tests")
#: Others than these keep their assertions as they are.
_REWRITTEN = re.compile(r"/(test_[^/]*|conftest)\.py$")


def write(config: pytest.Config, *, root: Path = ROOT) -> None:
    """Write what is missing or older than its source, with all cores; nothing if Python is to write no bytecode."""
    if sys.dont_write_bytecode:
        return
    tests = sorted(path for path in (root / "tests").rglob("*.py") if _REWRITTEN.search(str(path)))
    cores = os.cpu_count() or 1
    started = []
    for core in range(cores):
        if (pid := os.fork()) == 0:
            try:
                for test in tests[core::cores]:
                    # What goes wrong goes wrong in the workers, too, and is reported there.
                    with suppress(SyntaxError, OSError):
                        _rewrite(config, test)
                for folder in _FOLDERS[core::cores]:
                    compileall.compile_dir(root / folder, quiet=2, rx=_REWRITTEN)
            finally:
                os._exit(0)
        started.append(pid)
    for pid in started:
        os.waitpid(pid, 0)


def _rewrite(config: pytest.Config, test: Path) -> None:
    """As pytest does when it imports the file."""
    folder = rewrite.get_cache_dir(test)
    kept = folder / f"{test.stem}{rewrite.PYC_TAIL}"
    if rewrite._read_pyc(test, kept) is None and rewrite.try_makedirs(folder):
        stat, code = rewrite._rewrite_test(test, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, stat, kept)
