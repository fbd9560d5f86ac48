"""The package as a zip file, for ``--py-files``: all that executors need of ours."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import zipfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_migration.domain.errors import BadInput
from kafka_migration.domain.handlers import Handler, source_file

if TYPE_CHECKING:
    from pyspark import SparkContext

_ROOT = Path(__file__).resolve().parent.parent
_OLDEST = (1980, 1, 1, 0, 0, 0)


def is_zipped() -> bool:
    """True if this very process runs the package out of a zip file, so that executors have it already."""
    return not _ROOT.is_dir()


def ship(context: SparkContext) -> None:
    """Have executors find the package: those of a local master where this process does, by PYTHONPATH, so that what
    Python and numba compile is kept beside the sources; others in a zip file."""
    is_local = (context.master or "").partition("[")[0] == "local"
    if not is_zipped() and not (is_local and str(_ROOT.parent) in os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        context.addPyFile(str(package_zip()))


def ship_handlers(context: SparkContext, handlers: Iterable[Handler]) -> None:
    """Have executors find the modules of handlers. Those in packages they must have themselves: a part of a package
    would hide the rest. Raises BadInput for one that is not here."""
    for path in dict.fromkeys(source_file(handler.function) for handler in handlers):
        if path:
            context.addPyFile(path)


def package_zip(directory: Path | None = None) -> Path:
    """Write the package's modules and resources into ``directory``; the same sources give the same file.

    The name holds a digest of the content, so that executors which keep files by name never run an older version.
    Always written: workers run what is in the file, with the credentials of both clusters, and the name alone is no
    proof of who wrote it. For the same reason nobody else may write to ``directory``: BadInput is raised
    otherwise. Without ``directory`` the file goes to a folder of this process, which goes when the process ends.
    """
    folder = Path(_own_folder().name) if directory is None else directory
    require_private(folder)
    contents = {
        str(path.relative_to(_ROOT)): path.read_bytes()
        for path in sorted(_ROOT.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(name.encode() + b"\0" + content)
    handle, part = tempfile.mkstemp(dir=folder, suffix=".part")
    with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(str(Path(_ROOT.name) / name), _OLDEST), content, zipfile.ZIP_DEFLATED)
    target = folder / f"kafka_migration-{digest.hexdigest()[:16]}.zip"
    os.replace(part, target)
    return target


@cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="kafka-migration-")


def require_private(folder: Path) -> None:
    """Raise BadInput unless ``folder`` is this user's, and nobody else may write to it."""
    found = folder.stat()
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
        raise BadInput(
            "other users of this machine may write to this folder, and workers run what is in it",
            field="directory",
            value=str(folder),
            remedy="name a folder that is yours, and that nobody else may write to (mode 0755 or less)",
        )
