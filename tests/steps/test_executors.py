"""What executors elsewhere get: all that their rooms import, in the versions that run here, and nothing else."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tarfile
import time
import venv
from importlib import metadata
from pathlib import Path

import pyspark
import pytest
from packaging.requirements import Requirement

from kafka_migration.domain.errors import BadInput, CouldNotFindOut
from kafka_migration.steps import environment
from tests.test_architecture import NOT_ON_EXECUTORS, ON_EXECUTORS, PACKAGE, PLUGINS, imported, python_files

#: What Spark itself gives to Python workers.
OF_SPARK = "pyspark", "py4j"
#: Imported only by what the driver runs in a process of its own: Great Expectations' suite.
OF_THE_DRIVER = {"great_expectations", "jinja2", "pandas"}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "executors.tar.gz"
    assert environment.write_archive(path) == path.stat().st_size
    return path


@pytest.mark.long
def test_python_with_nothing_but_the_archive_and_spark_loads_all_that_executors_run(
    archive: Path, tmp_path: Path
) -> None:
    _require_names_nobody(archive)
    with tarfile.open(archive) as file:
        file.extractall(tmp_path / environment.FOLDER, filter="data")
    venv.create(tmp_path / "bare", with_pip=False)
    modules = [
        ".".join(path.relative_to(PLUGINS).with_suffix("").parts).removesuffix(".__init__")
        for room in ON_EXECUTORS
        for path in python_files(PACKAGE / room)
    ]
    files = [path for room in ON_EXECUTORS for path in python_files(PACKAGE / room)]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in files]
    # Those that functions import, too: a task may call them.
    heads = {name.split(".")[0] for tree in trees for name in imported(tree)} - OF_THE_DRIVER
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\nprint(*sys.modules)"
    spark = [str(path) for path in (Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip")]
    done = subprocess.run(
        [str(tmp_path / "bare" / "bin" / environment.python()), "-c", code, *modules, *sorted(heads), "pyspark.worker"],
        env={"PYTHONPATH": os.pathsep.join([f"./{environment.FOLDER}", str(PLUGINS), *spark])},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {"numpy", "kafka", "pyarrow", *OF_SPARK} <= set(done.stdout.split())
    assert not set(done.stdout.split()) & {*NOT_ON_EXECUTORS, *OF_THE_DRIVER}


def test_nothing_that_a_package_needs_is_left_out() -> None:
    needed = {
        requirement.name
        for name in environment.PACKAGES
        for requirement in map(Requirement, metadata.requires(name) or ())
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    }
    assert needed <= set(environment.PACKAGES)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Two packages make an archive: all of them take seconds to pack."""
    monkeypatch.setattr(environment, "PACKAGES", ("crc32c", "xxhash"))
    monkeypatch.setattr(environment, "OPTIONAL", {})
    return monkeypatch


def test_archive_is_for_this_user_alone_and_the_same_each_time(tmp_path: Path, small: pytest.MonkeyPatch) -> None:
    small.setattr(time, "time", lambda: 1.0)
    first, again = tmp_path / "first.tar.gz", tmp_path / "another.tgz"
    environment.write_archive(first)
    small.setattr(time, "time", lambda: 100_000.0)
    small.setattr(environment, "PACKAGES", ("xxhash", "crc32c"))
    again.write_bytes(b"an older one")
    again.chmod(0o644)
    environment.write_archive(again)
    assert again.read_bytes() == first.read_bytes()
    assert {path.stat().st_mode & 0o777 for path in (first, again)} == {0o600}
    assert sorted(tmp_path.iterdir()) == [again, first]


@pytest.mark.usefixtures("small")
def test_archive_names_nobody_and_no_place_of_this_machine(tmp_path: Path) -> None:
    environment.write_archive(tmp_path / "some.tar.gz")
    _require_names_nobody(tmp_path / "some.tar.gz")


def _require_names_nobody(archive: Path) -> None:
    with tarfile.open(archive) as file:
        entries = file.getmembers()
    assert {(entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime) for entry in entries} == {(0, 0, "", "", 0)}
    names = {Path(entry.name).name for entry in entries}
    assert "METADATA" in names
    assert not names & {"direct_url.json", "INSTALLER", "RECORD"}


def test_folder_that_others_may_write_to_gets_no_archive(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(BadInput, match="other users of this machine may write to this folder"):
        environment.write_archive(tmp_path / "executors.tar.gz")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("small")
def test_archive_that_cannot_be_written_leaves_nothing_and_names_why(tmp_path: Path) -> None:
    with pytest.raises(CouldNotFindOut, match="No such file or directory"):
        environment.write_archive(tmp_path / "missing" / "executors.tar.gz")
    (tmp_path / "executors.tar.gz").mkdir()
    with pytest.raises(CouldNotFindOut, match="Is a directory"):
        environment.write_archive(tmp_path / "executors.tar.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["executors.tar.gz"]


def test_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "PACKAGES", ("no-such-package",))
    with pytest.raises(BadInput, match="no-such-package") as caught:
        environment.versions()
    assert f"{sys.executable} -m pip install" in caught.value.remedy


def test_image_gets_the_very_versions_that_run_here() -> None:
    line = environment.image_line()
    assert line.startswith(f"RUN {environment.python()} -m pip install ")
    for name in environment.PACKAGES:
        assert f" {name}=={metadata.version(name)}" in line


def test_place_of_the_archive_reaches_spark_whole() -> None:
    conf = environment.spark_conf(Path("/data/a b,c#d/executors.tar.gz"))
    assert conf["spark.archives"] == "file:///data/a%20b%2Cc%23d/executors.tar.gz#environment"
