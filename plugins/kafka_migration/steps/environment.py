"""What machines need: this one before its first plan, and executors on others.

This one: packages, Java and Spark, jars, keys, Airflow, places, the clock. Changes nothing, and asks no cluster: what a
plan needs of its clusters is `check`'s.

Executors need, besides Spark, a Python of the driver's minor version, and our package, which each session ships by
itself: an archive for ``spark.archives``, or the line of an image. The archive holds the very files that this
environment runs, so nothing is fetched, and driver and executors cannot differ. They are built for this platform:
executors on another one take the image's line.
"""

from __future__ import annotations

import ctypes
import gzip
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from importlib import metadata
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from pathlib import Path

from kafka_migration import __version__
from kafka_migration.compare.session import spark_jars
from kafka_migration.copy.package import require_private
from kafka_migration.domain.checks import CheckResult
from kafka_migration.domain.errors import BadInput, CouldNotFindOut, MigrationError
from kafka_migration.domain.shipped import checkout
from kafka_migration.migration.reports import place_of
from kafka_migration.migration.signing import HOW_TO_SET, find_keys, without_keys
from kafka_migration.plans.places import PLANS_DIRECTORY, REPORTS_DIRECTORY

_NEEDED = ("apache-airflow", "pyspark", "confluent-kafka", "kafka-python", "great-expectations")
_LEAST_JAVA = 17
_JVM_SECONDS = 120.0
_PLUGIN = "kafka_migration"
#: What adjtimex(2) returns for a clock that is not synchronized.
_UNSYNCHRONIZED = 5

#: All that the rooms on executors import, and Spark for ``mapInArrow``. None of them needs anything that is not listed.
PACKAGES = (
    "cramjam",
    "crc32c",
    "kafka-python",
    "lz4",
    "numpy",
    "pyarrow",
    "python-snappy",
    "xxhash",
    "zstandard",
)

#: What executors work without, as long as it is not installed here, by the package that shows that it is: what a
#: cluster with Kerberos needs, and what decodes records for validation.
OPTIONAL = {"gssapi": ("decorator", "gssapi"), "numba": ("llvmlite", "numba")}

#: The folder that Spark unpacks the archive to, in each executor's working directory.
FOLDER = "environment"

#: What an installer wrote of itself, and where from: it differs from machine to machine.
_OF_THE_INSTALLER = ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json")


def check(environ: Mapping[str, str] | None = None, *, only: str | None = None) -> tuple[CheckResult, ...]:
    """Every check of this machine and this user, or the one of that name; one that fails does not hide the others."""
    environ = os.environ if environ is None else environ
    asked: dict[str, Callable[[str], CheckResult]] = {
        "packages": _installed,
        "Java and Spark": lambda name: _spark(name, environ),
        "jars of Spark's Kafka source": lambda name: _jars(name, environ),
        "approval key": lambda name: _key(name, environ),
        "Airflow: plugin": lambda name: _plugin(name, environ),
        "Airflow: DAGs": lambda name: _dags(name, environ),
        "plans": lambda name: _plans(name, environ),
        "reports": lambda name: _reports(name, environ),
        "clock": _clock,
    }
    return tuple(_run(name, ask) for name, ask in asked.items() if only in (None, name))


def _run(name: str, ask: Callable[[str], CheckResult]) -> CheckResult:
    try:
        return ask(name)
    except MigrationError as error:
        value = f": {error.value}" if isinstance(error, BadInput) and error.value is not None else ""
        return CheckResult.failed(name, error.message + value, remedy=error.remedy)


def _installed(name: str) -> CheckResult:
    found, missing = [f"Python {sys.version.split()[0]}", f"kafka-migration {__version__}"], []
    for package in _NEEDED:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(package)
    if missing:
        remedy = "install requirements.txt, or the wheel, into the environment that runs this command"
        return CheckResult.failed(name, f"not installed: {', '.join(missing)}", remedy=remedy)
    return CheckResult.passed(name, ", ".join(found))


def _spark(name: str, environ: Mapping[str, str]) -> CheckResult:
    """Spark's own launcher finds Java as the mirror will."""
    import pyspark

    remedy = f"install a JDK {_LEAST_JAVA} or later, and set JAVA_HOME to it, or have its java on PATH"
    home = environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
    try:
        done = subprocess.run(
            [str(Path(home, "bin", "spark-submit")), "--version"],
            capture_output=True,
            text=True,
            timeout=_JVM_SECONDS,
            check=False,
            env=without_keys(environ),
        )
    except (OSError, subprocess.SubprocessError) as error:
        return CheckResult.failed(name, f"spark-submit does not run: {error}", remedy=remedy)
    text = done.stdout + done.stderr
    java, spark = re.search(r"Using .*, (\d+)[.\d]*", text), re.search(r"version (\d+\.\d+\.\d+)", text)
    if done.returncode or java is None or spark is None:
        output = " ".join(text.split())[-300:]
        return CheckResult.failed(name, f"spark-submit --version: exit {done.returncode}: {output}", remedy=remedy)
    evidence = f"Spark {spark[1]} on Java {java[1]}"
    if int(java[1]) < _LEAST_JAVA:
        return CheckResult.failed(name, evidence, remedy=remedy)
    if spark[1] != version("pyspark"):
        return CheckResult.failed(
            name,
            f"{evidence}, of {home}; pyspark here is {version('pyspark')}",
            remedy="unset SPARK_HOME, or have it lead to the same version",
        )
    return CheckResult.passed(name, evidence)


def _jars(name: str, environ: Mapping[str, str]) -> CheckResult:
    found = spark_jars(environ)
    return CheckResult.passed(name, f"{len(found)} in {found[0].parent}")


def _key(name: str, environ: Mapping[str, str]) -> CheckResult:
    found = find_keys(environ)
    if not found:
        return CheckResult.warned(name, "none: a plan whose answers are signed cannot be approved", remedy=HOW_TO_SET)
    return CheckResult.passed(name, f"{len(found.keys)}, the first one signs")


def _plugin(name: str, environ: Mapping[str, str]) -> CheckResult:
    installed = [one for one in entry_points(group="airflow.plugins") if one.name == _PLUGIN]
    if installed:
        return CheckResult.passed(name, "by the entry point of the installed package")
    folder = environ.get("AIRFLOW__CORE__PLUGINS_FOLDER") or str(Path(_airflow_home(environ), "plugins"))
    if Path(folder, f"{_PLUGIN}_plugin.py").is_file():
        return CheckResult.passed(name, f"in {folder}")
    return CheckResult.warned(
        name,
        f"Airflow would not find it: no entry point, and none in {folder}",
        remedy="install the wheel where Airflow runs, or set AIRFLOW__CORE__PLUGINS_FOLDER to the checkout's plugins/"
        " (docs/airflow.md, Set up); commands do without Airflow",
    )


def _dags(name: str, environ: Mapping[str, str]) -> CheckResult:
    folder = Path(environ.get("AIRFLOW__CORE__DAGS_FOLDER") or Path(_airflow_home(environ), "dags"))
    files = [path for path in sorted(folder.glob("*.py")) if "kafka_migration.airflow.dags" in _text(path)]
    if files:
        return CheckResult.passed(name, f"{', '.join(path.name for path in files)} in {folder}")
    return CheckResult.warned(
        name,
        f"no file in {folder} makes the DAGs of plans",
        remedy="copy the checkout's dags/, or a file of three lines, there (docs/airflow.md, Set up); commands do"
        " without Airflow",
    )


def _airflow_home(environ: Mapping[str, str]) -> str:
    return environ.get("AIRFLOW_HOME") or str(Path("~/airflow").expanduser())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _plans(name: str, environ: Mapping[str, str]) -> CheckResult:
    beside = checkout()
    given = environ.get(PLANS_DIRECTORY) or (str(beside / "migration_plans") if beside else "")
    if not given:
        remedy = f"set {PLANS_DIRECTORY} to the folder of plans; a command is given its plan's path"
        return CheckResult.warned(name, "no folder is named", remedy=remedy)
    if not Path(given).is_dir():
        return CheckResult.failed(name, f"{given} is no folder", remedy=f"make it, or correct {PLANS_DIRECTORY}")
    found = [path for path in Path(given).iterdir() if path.suffix in (".yaml", ".yml")]
    return CheckResult.passed(name, f"{len(found)} in {given}")


def _reports(name: str, environ: Mapping[str, str]) -> CheckResult:
    place = place_of(environ.get(REPORTS_DIRECTORY) or "reports")
    if not isinstance(place, Path):
        return CheckResult.passed(name, f"{place}: a store, which is not asked here")
    there = next(one for one in (place.absolute(), *place.absolute().parents) if one.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        remedy = f"let this user write there, or set {REPORTS_DIRECTORY} to where it may"
        return CheckResult.failed(name, f"nothing can be written to {place.absolute()}", remedy=remedy)
    return CheckResult.passed(name, str(place.absolute()))


def _clock(name: str) -> CheckResult:
    """Approvals hold for a time, and several machines have to agree on it."""
    try:
        # Larger than struct timex is anywhere; all zero, so that it only reads.
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(1024))
    except (OSError, AttributeError):
        return CheckResult.warned(
            name, "this system does not show whether its clock is synchronized", remedy="run NTP, or chrony, on it"
        )
    if state == _UNSYNCHRONIZED:
        return CheckResult.warned(
            name,
            "not synchronized, as far as the kernel knows",
            remedy="run NTP, or chrony: approvals of another machine are not taken if clocks differ by minutes",
        )
    return CheckResult.passed(name, "synchronized, as far as the kernel knows")


def versions() -> dict[str, str]:
    """The packages, and the versions that run here. Raises BadInput for one that is not installed."""
    return {name: _distribution(name).version for name in _packages()}


def _packages() -> tuple[str, ...]:
    there = [names for package, names in OPTIONAL.items() if find_spec(package) is not None]
    return (*PACKAGES, *(name for names in there for name in names))


def python() -> str:
    """The interpreter that executors need: pickled functions do not go from one minor version to another."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def spark_conf(archive: Path) -> dict[str, str]:
    """The configs of a session whose executors unpack ``archive``. A relative PYTHONPATH counts from where they run."""
    return {
        "spark.archives": f"{archive.absolute().as_uri()}#{FOLDER}",
        "spark.executorEnv.PYTHONPATH": f"./{FOLDER}",
    }


def image_line() -> str:
    """The line of a Dockerfile that installs the packages."""
    pins = " ".join(f"{name}=={version}" for name, version in versions().items())
    return f"RUN {python()} -m pip install --no-cache-dir --no-deps {pins}"


def write_archive(path: Path) -> int:
    """Write the archive to ``path``, for this user alone, in place of what is there; its bytes. The same packages give
    the same file.

    Raises BadInput where others may write to its folder, since executors run what is in it, or for a package that is
    not installed; CouldNotFindOut if it cannot be written.
    """
    files = {name: file for package in _packages() for name, file in _files(package).items()}
    part = None
    try:
        require_private(path.parent)
        handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")  # mode 0600
        # Without a name and a time, so that it is the same each time.
        with (
            os.fdopen(handle, "wb") as raw,
            gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for name, file in sorted(files.items()):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = file.stat().st_size, 0o644
                with file.open("rb") as content:
                    archive.addfile(entry, content)
        size = Path(part).stat().st_size
        os.replace(part, path)
    except OSError as error:
        raise CouldNotFindOut(
            f"the archive cannot be written to {path}: {error.strerror or error}",
            remedy="name another file by --output, or free some space, and run this again",
        ) from error
    finally:
        if part is not None:
            Path(part).unlink(missing_ok=True)
    return size


def _files(package: str) -> Mapping[str, Path]:
    """The files of ``package`` by their place in the archive, without scripts, tests and compiled modules."""
    found = _distribution(package).files
    if found is None:
        raise _unknown(package, "was installed without a list of its files")
    return {
        file.as_posix(): Path(str(file.locate()))
        for file in found
        if not {"..", "__pycache__", "tests"} & set(file.parts)
        and not (file.parts[0].endswith(".dist-info") and file.name in _OF_THE_INSTALLER)
    }


def _distribution(package: str) -> metadata.Distribution:
    try:
        return metadata.distribution(package)
    except metadata.PackageNotFoundError:
        raise _unknown(package, "is not installed here") from None


def _unknown(package: str, problem: str) -> BadInput:
    return BadInput(
        f"this package {problem}, and executors need it",
        field="package",
        value=package,
        remedy=f"{sys.executable} -m pip install --force-reinstall --no-deps {package}, in the version of"
        " requirements.lock",
    )
