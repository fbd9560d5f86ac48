"""The package as a zip file, for ``--py-files``: all that executors need of ours."""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_EPOCH = (1980, 1, 1, 0, 0, 0)


def is_zipped() -> bool:
    """True if this very process runs the package out of a zip file, so that executors have it already."""
    return not _ROOT.is_dir()


def package_zip(directory: Path | None = None) -> Path:
    """Write the package's modules and resources into ``directory``; the same sources give the same file, once.

    The name holds a digest of the content, so that executors which keep files by name never run an older version.
    Without ``directory`` the file goes to the temporary directory.
    """
    folder = directory or Path(tempfile.gettempdir())
    files = sorted(path for path in _ROOT.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    digest = hashlib.sha256()
    for path in files:
        digest.update(str(path.relative_to(_ROOT)).encode() + b"\0" + path.read_bytes())
    target = folder / f"kafka_migration-{digest.hexdigest()[:16]}.zip"
    if target.exists():
        return target
    handle, part = tempfile.mkstemp(dir=folder, suffix=".part")
    with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            name = zipfile.ZipInfo(str(Path(_ROOT.name) / path.relative_to(_ROOT)), _EPOCH)
            archive.writestr(name, path.read_bytes(), zipfile.ZIP_DEFLATED)
    os.replace(part, target)
    return target
