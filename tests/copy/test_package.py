"""The zip that workers run: always what this checkout holds, wherever somebody has put a file of its name."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kafka_migration.copy.package import package_zip
from kafka_migration.domain.errors import BadInput
from tests.waiting import HANGS_SECONDS

SHOWN = "from kafka_migration.copy.package import package_zip; print(package_zip()); input()"


def test_planted_zip_of_the_same_name_is_not_what_workers_run(tmp_path: Path) -> None:
    planted = package_zip(tmp_path)
    genuine = planted.read_bytes()
    with zipfile.ZipFile(planted, "w") as archive:
        archive.writestr("kafka_migration/__init__.py", "raise SystemExit('planted')")
    assert package_zip(tmp_path) == planted
    assert planted.read_bytes() == genuine
    assert [path.name for path in tmp_path.iterdir()] == [planted.name]


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_folder_that_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    with pytest.raises(BadInput, match="other users of this machine may write to this folder"):
        package_zip(shared)
    assert not list(shared.iterdir())


def test_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(BadInput, match="other users of this machine may write to this folder"):
        package_zip(tmp_path)


def test_zip_without_a_named_folder_lies_where_only_this_user_looks_and_goes_with_the_process() -> None:
    process = subprocess.Popen([sys.executable, "-c", SHOWN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    path = Path(process.stdout.readline().strip())
    try:
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert zipfile.is_zipfile(path)
    finally:
        process.communicate("\n", timeout=HANGS_SECONDS)
    assert not path.parent.exists()
