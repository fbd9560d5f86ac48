"""Handlers: Python functions that drop or change records between source and target, as the plan names them by topic.

Like MirrorMaker 1's message handler or a transform of Kafka Connect, a function is given one record, and returns that
record, another one in its place, or None, which drops it. It sees no neighbours: batches are cut otherwise by a copy
that resumes, and by a validation, and every time the same must come of a record (docs/adr/0021-handlers.md).
"""

from __future__ import annotations

import hashlib
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from typing import Any, NamedTuple

from kafka_migration.domain.errors import BadInput

FUNCTION = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*"
"""A function as a plan names it: its module, dotted, and its name there."""
_TIMES = range(-1, 1 << 63)
#: What code of others may raise; KeyboardInterrupt is nobody's fault.
_ERRORS = (Exception, SystemExit)


class Record(NamedTuple):
    """A record, as a handler is given it, and gives it back: ``record._replace(value=...)`` is one with another value.

    ``key`` and ``value`` may be null (None), and so may the value of a header, which is a pair of name and value.
    ``timestamp`` is in milliseconds since the epoch, -1 for none. ``offset`` is the source's, and stays as it is. A
    header's name that is not UTF-8 has surrogates in place of the bytes that are not (Python's ``surrogateescape``).
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int
    offset: int


Handle = Callable[[Record], Record | None]


class HandlerFailed(Exception):
    """A handler raised an error, or returned what it may not. The text holds nothing of the record but its offset."""

    def __init__(self, function: str, offset: int, why: str) -> None:
        super().__init__(function, offset, why)
        self.offset = offset

    def __str__(self) -> str:
        return "{}, record at source offset {}: {}".format(*self.args)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A function by its name, and the SHA-256 of its module's source, so that other code than the plan means is never
    run. ``keeps_keys``: each record keeps its key, and whether it has a value, and none is dropped."""

    function: str
    sha256: str
    keeps_keys: bool = False

    def __str__(self) -> str:
        return f"{self.function} {self.sha256}"

    def load(self) -> Handle:
        """The function, whose results are checked: it raises HandlerFailed. Raises BadInput if it cannot be imported,
        or is not the one that the plan means."""
        function = _function(self.function, self.sha256)

        def handle(record: Record) -> Record | None:
            try:
                result: object = function(record)
            except _ERRORS as error:
                raise HandlerFailed(self.function, record.offset, _kind(error)) from None
            if result is record:
                return record
            if why := _fault(record, result, keeps_keys=self.keeps_keys):
                raise HandlerFailed(self.function, record.offset, why)
            return _copied(result)

        return handle


#: The handler of a topic, None if it has none.
HandlerOf = Callable[[str], Handler | None]


def no_handler(_topic: str) -> Handler | None:
    """Where records are copied as they are."""
    return None


def _fault(record: Record, result: Any, *, keeps_keys: bool) -> str:
    """Why ``result`` may not stand for ``record``; empty if it may."""
    if result is None:
        return "dropped, although keeps_keys is set" if keeps_keys else ""
    if type(result) is not Record:
        return f"returned a {type(result).__name__}, not a Record or None"
    for name in ("key", "value"):
        if not _is_bytes(getattr(result, name)):
            return f"{name} is a {type(getattr(result, name)).__name__}, not bytes or None"
    if not isinstance(result.headers, tuple | list) or not all(map(_is_header, result.headers)):
        return "headers are not pairs of a name (str) and a value (bytes or None)"
    if type(result.timestamp) is not int or result.timestamp not in _TIMES:
        return "timestamp is not a number of milliseconds, or -1"
    if result.offset != record.offset:
        return "changed the offset"
    if keeps_keys and (result.key != record.key or (result.value is None) is not (record.value is None)):
        return "changed the key, or whether there is a value, although keeps_keys is set"
    return ""


def _copied(result: Any) -> Record | None:
    """A checked result, with headers that cannot change any more."""
    if result is None:
        return None
    return Record(result.key, result.value, tuple(map(tuple, result.headers)), result.timestamp, result.offset)


def _is_bytes(value: object) -> bool:
    return value is None or type(value) is bytes


def _is_header(header: Any) -> bool:
    try:
        name, value = header
        encoded(name)
    except (TypeError, ValueError, AttributeError):
        return False
    return _is_bytes(value)


def decoded(name: bytes) -> str:
    """A header's name for handlers."""
    return name.decode("utf-8", "surrogateescape")


def encoded(name: str) -> bytes:
    """The inverse of :func:`decoded`. Raises ValueError for what no bytes are."""
    return name.encode("utf-8", "surrogateescape")


def source_digest(function: str) -> str:
    """SHA-256 (hexadecimal) of the file of ``function``'s module, which is not run for it, though the packages are that
    it lies in. Raises BadInput if there is none."""
    return hashlib.sha256(_source(function)[1]).hexdigest()


def source_file(function: str) -> str:
    """The file of ``function``'s module, if that lies in no package, so that the file is all of it; "" otherwise.
    Raises BadInput if there is none."""
    origin = _source(function)[0].origin or ""
    return "" if "." in function.partition(":")[0] or not os.path.isfile(origin) else origin


def _source(function: str) -> tuple[ModuleSpec, bytes]:
    module = function.partition(":")[0]
    try:
        found = find_spec(module)
    except _ERRORS as error:
        raise _not_found(function, _kind(error)) from None
    loader: Any = None if found is None else found.loader
    if found is None or not (found.origin or "").endswith(".py") or not hasattr(loader, "get_data"):
        raise _not_found(function, f"there is no module {module} in a file of its own")
    return found, loader.get_data(found.origin)


@cache
def _function(function: str, sha256: str) -> Callable[[Record], object]:
    """Once in a process. What runs are the very bytes that the digest is of, whatever becomes of the file."""
    spec, source = _source(function)
    if (found := hashlib.sha256(source).hexdigest()) != sha256:
        raise BadInput(
            f"the module of handler {function} has the SHA-256 {found}, the plan {sha256 or 'has none'}",
            field="handlers",
            value=sha256,
            remedy="have the same module on every machine; if this is the one that is meant, write its SHA-256 into the"
            " plan, as sha256 of the handler",
        )
    module, _, name = function.partition(":")
    sys.modules[module] = loaded = module_from_spec(spec)
    try:
        exec(compile(source, spec.origin or "", "exec", dont_inherit=True), loaded.__dict__)
    except _ERRORS as error:
        raise _not_found(function, _kind(error)) from None
    found_function: Callable[[Record], object] | None = loaded.__dict__.get(name)
    if not callable(found_function):
        raise _not_found(function, f"{name} is no function there")
    return found_function


def _kind(error: BaseException) -> str:
    """Of what kind ``error`` is, and where it was raised. Not its text: that may quote the record, or a secret."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    file, line = (error.filename, error.lineno) if isinstance(error, SyntaxError) else (place.filename, place.lineno)
    return f"{type(error).__name__} ({(file or '').rpartition('/')[2]}, line {line})"


def _not_found(function: str, why: str) -> BadInput:
    return BadInput(
        f"handler {function} cannot be loaded: {why}",
        field="handlers",
        value=function,
        remedy="correct the name (package.module:function), and have the module on the PYTHONPATH of this machine, and"
        " of Spark's executors, where it lies in a package",
    )
