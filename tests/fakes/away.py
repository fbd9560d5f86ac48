"""A store of fsspec, in memory, that can be away: ``away://bucket/reports``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

SCHEME = "away"


class AwayFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """Each call that ``refuses`` is true of ends as where nobody answers; it gets the call's name and its path."""

    protocol = SCHEME
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    refuses: ClassVar[Callable[[str, str], bool]] = staticmethod(lambda _call, _path: False)
    #: Writes and removals, in order.
    done: ClassVar[list[tuple[str, str]]] = []

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(str(path).removeprefix(f"{SCHEME}://"))

    def cat_file(self, path: str, *args: Any, **kwargs: Any) -> Any:
        self._ask("read", path)
        return super().cat_file(path, *args, **kwargs)

    def find(self, path: str, *args: Any, **kwargs: Any) -> Any:
        self._ask("find", path)
        return super().find(path, *args, **kwargs)

    def pipe_file(self, path: str, *args: Any, **kwargs: Any) -> None:
        self._ask("write", path)
        super().pipe_file(path, *args, **kwargs)
        self.done.append(("write", path))

    def rm_file(self, path: str) -> None:
        self._ask("remove", path)
        super().rm_file(path)
        self.done.append(("remove", path))

    def _ask(self, call: str, path: str) -> None:
        if type(self).refuses(call, path):
            raise ConnectionRefusedError(111, "Connection refused")


@contextmanager
def away_store() -> Iterator[type[AwayFileSystem]]:
    """The store, empty, and there until ``refuses`` is set."""
    fsspec.register_implementation(SCHEME, AwayFileSystem, clobber=True)
    AwayFileSystem.store.clear()
    AwayFileSystem.done.clear()
    before = AwayFileSystem.refuses
    try:
        yield AwayFileSystem
    finally:
        AwayFileSystem.refuses = before
