"""What executors on other machines need besides Spark, a Python of the driver's minor version, and our package, which
each session ships by itself: an archive for ``spark.archives``, or the line of an image.

The archive holds the very files that this environment runs, so nothing is fetched, and driver and executors cannot
differ. They are built for this platform: executors on another one take the image's line.
"""

from __future__ import annotations

import gzip
import os
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from kafka_migration.copy.package import require_private
from kafka_migration.domain.errors import BadInput, CouldNotFindOut

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
