"""Where reports and Data Docs are: in a folder of this machine, or in an object or file store that fsspec knows.

Machines that share no folder share a store: workers write there, and the API server shows it. Its credentials come from
where its library looks for them (AWS_ACCESS_KEY_ID, a role, a configuration file), never from the URL.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kafka_migration.domain.errors import BadInput, CouldNotFindOut
from kafka_migration.plans.places import REPORTS_DIRECTORY

#: No plan is called so. The reports' own folders may be another user's.
_BOARD = ".board"
#: Of the shape of what is in it: another one is not shown.
BOARD_FORMAT = 1
#: The page of a site that names the others.
_INDEX = "index.html"
#: Stores without folders: a name is enough, and to make a folder might make a bucket.
_WITHOUT_FOLDERS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "memory")


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of a store, or a file in it, as one URL."""

    url: str

    def __truediv__(self, name: str) -> Store:
        return Store(f"{self.url.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return self.url

    @property
    def parent(self) -> Store:
        """The folder that this is in."""
        return Store(self.url.rstrip("/").rpartition("/")[0])

    def read(self) -> bytes | None:
        """The content of this file, None if there is none. Raises CouldNotFindOut if the store does not answer."""
        with self._opened() as (files, path):
            try:
                # Not by way of a listing: libraries keep those, and the API server lives for weeks.
                return bytes(files.cat_file(path))
            except (FileNotFoundError, IsADirectoryError):
                return None

    def write(self, content: Mapping[str, bytes]) -> None:
        """Write files into this folder, by their relative names. Raises CouldNotFindOut if that fails. Object stores
        show a file whole or not at all, but of several some may be there then."""
        with self._opened() as (files, path):
            if not self.url.startswith(tuple(f"{scheme}://" for scheme in _WITHOUT_FOLDERS)):
                for folder in {str(PurePosixPath(path, name).parent) for name in content}:
                    files.makedirs(folder, exist_ok=True)
            if content:
                files.pipe({f"{path}/{name}": value for name, value in content.items()})

    def read_all(self) -> dict[str, bytes]:
        """All that is in this folder and below it, by relative names. Raises CouldNotFindOut if that fails."""
        with self._opened() as (files, path):
            files.invalidate_cache()
            found: list[str] = []
            with suppress(FileNotFoundError):  # of a folder that is not there, by some libraries
                found = files.find(path)
            content = {}
            for name in found:
                with suppress(FileNotFoundError):  # of what another run has removed since
                    content[name.removeprefix(f"{path}/")] = bytes(files.cat_file(name))
            return content

    def remove(self, names: set[str]) -> None:
        """Remove files of this folder. Raises CouldNotFindOut if that fails."""
        with self._opened() as (files, path):
            for name in sorted(names):
                with suppress(FileNotFoundError):
                    files.rm_file(f"{path}/{name}")

    @contextmanager
    def _opened(self) -> Iterator[tuple[Any, str]]:
        """The file system, and this folder's path in it."""
        from fsspec.core import url_to_fs

        try:
            files, path = url_to_fs(self.url)
            yield files, str(path).rstrip("/")
        except Exception as error:
            # Each store's library has its own errors, of no common kind.
            raise CouldNotFindOut(
                f"the store of reports does not serve {self.url}: {type(error).__name__}: {error}",
                remedy="check that it is up, that the bucket or folder exists, and that its library finds credentials"
                " here (for S3: AWS_ACCESS_KEY_ID, a profile or a role); then run this again",
            ) from error


Place = Path | Store


def place_of(text: str, *, field: str = REPORTS_DIRECTORY) -> Place:
    """A path, or a URL such as ``s3://bucket/reports``. ``file://`` is a path, too.

    Raises BadInput for a URL with a password or a query, which logs and pages would show, and for a kind of store whose
    library is not installed.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Path(text)
    # A password may hold any character, so no parser is asked where it ends.
    if re.search(r":.*@|[?#]", rest):
        raise BadInput(
            "a URL for reports holds no password, key or query: logs and pages show it",
            field=field,
            value=f"{scheme}://…",
            remedy="name the store alone, such as s3://bucket/reports, and give credentials in the way of its library"
            " (for S3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role)",
        )
    if not rest.strip("/"):
        raise BadInput(
            "a URL for reports names a bucket or a folder",
            field=field,
            value=text,
            remedy="write it like s3://bucket/reports",
        )
    if scheme == "file":
        return Path(rest)
    from fsspec import get_filesystem_class

    try:
        get_filesystem_class(scheme)
    except (ImportError, ValueError) as error:
        raise BadInput(
            f"reports cannot be kept in this kind of store: {error}",
            field=field,
            value=text,
            remedy="install the library that fsspec uses for it (s3fs for s3://, gcsfs for gs://, adlfs for abfs://) on"
            " every machine, or name a folder",
        ) from error
    return Store(text.rstrip("/"))


def made(folder: Place) -> Place:
    """``folder``, ready to be written to: made if it is one of this machine; the store answers if it is a store's.

    Raises BadInput if it cannot be made, CouldNotFindOut if the store does not answer.
    """
    if isinstance(folder, Store):
        (folder / _INDEX).read()
        return folder
    try:
        # What is in it may hold payloads: nothing for every user of the machine.
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"results cannot be written to {folder}: {error.strerror or error}",
            field="reports",
            value=str(folder),
            remedy="name a directory that can be written to",
        ) from error
    return folder


def write_text(file: Place, text: str) -> None:
    """Write in one step: whoever reads meanwhile sees the whole old file or the whole new one. Raises OSError, and
    CouldNotFindOut for a store."""
    if isinstance(file, Store):
        file.parent.write({file.url.rpartition("/")[2]: text.encode()})
        return
    # Several threads, and machines that share the folder, may write at once.
    beside = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(file)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def board_files(place: Place, name: str) -> tuple[Place, Place]:
    """Where migration ``name`` stands, for the board: the whole page, and what a list of migrations shows of it."""
    return place / _BOARD / "pages" / f"{name}.json", place / _BOARD / "summaries" / f"{name}.json"


def read_json(file: Place) -> dict[str, Any] | None:
    """An object, or None where there is none, or none that can be read. Raises CouldNotFindOut for a store that is
    away."""
    try:
        text = file.read() if isinstance(file, Store) else file.read_bytes()
        found = json.loads(text or b"null")
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def is_file(file: Place) -> bool:
    """Raises CouldNotFindOut if the store does not answer."""
    return file.read() is not None if isinstance(file, Store) else file.is_file()


@contextmanager
def local_site(site: Place) -> Iterator[Path]:
    """The pages of ``site`` in a folder of this machine: its own, or a copy of the store's, which what was changed
    goes back from at the end of the block.

    The page that names the others is written last, and what it names no more is removed after it: whoever reads
    meanwhile, or after a store has gone in between, finds all pages that are named. Of two that write at once each
    adds its pages, and the index names all of them again after the next.
    """
    if not isinstance(site, Store):
        yield site
        return
    with tempfile.TemporaryDirectory(prefix="kafka-migration-") as work:
        folder = Path(work) / "site"
        folder.mkdir()
        before = {}
        for name, content in site.read_all().items():
            file = folder / name
            if ".." in file.parts:
                continue  # no page of ours, and it would be written elsewhere
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            before[name] = _digest(content)
        yield folder
        now = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    changed = {name: content for name, content in now.items() if before.get(name) != _digest(content)}
    site.write({name: content for name, content in changed.items() if name != _INDEX})
    site.write({name: content for name, content in changed.items() if name == _INDEX})
    site.remove(before.keys() - now.keys())


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
