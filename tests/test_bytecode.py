"""What is written before the workers start is what they load."""

import importlib.util
from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from tests import bytecode


def test_tests_are_written_with_their_assertions_and_the_rest_as_python_does(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    folder = tmp_path / "tests" / "part"
    folder.mkdir(parents=True)
    for name in ("test_one", "conftest", "waiting", "test_broken"):
        (folder / f"{name}.py").write_text("assert (" if name == "test_broken" else "VALUE = 1\nassert VALUE == 1\n")
    bytecode.write(pytestconfig, root=tmp_path)
    for name in ("test_one", "conftest"):
        test = folder / f"{name}.py"
        code = rewrite._read_pyc(test, rewrite.get_cache_dir(test) / f"{name}{rewrite.PYC_TAIL}")
        assert code is not None
        assert "@pytest_ar" in code.co_names
    python = importlib.util.cache_from_source
    assert [Path(python(folder / f"{name}.py")).exists() for name in ("waiting", "test_one")] == [True, False]
