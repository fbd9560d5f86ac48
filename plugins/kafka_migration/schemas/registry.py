"""A client of Confluent's API of schema registries, as far as copying needs it.

Every call may be made again: what was written is written the same. So one that no answer came to is tried again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ALL_COMPLETED, FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx

from kafka_migration.domain.direction import Side
from kafka_migration.domain.errors import BadInput, CouldNotFindOut, Refused
from kafka_migration.domain.waiting import tries
from kafka_migration.schemas.connection import RegistryConnection
from kafka_migration.schemas.types import Content, Reference, Subject, Version

T = TypeVar("T")
R = TypeVar("R")

#: Requests under way at once: a registry is a small server that all clients of a cluster share.
AT_ONCE = 16
#: So many are begun before it is looked whether there is still time.
_PART = 4 * AT_ONCE
_TIMEOUT_SECONDS, _TRY_SECONDS, _PAUSE_SECONDS = 20.0, 10.0, 0.5
_SHOWN_CHARACTERS = 300
_DELETED = {"deleted": "true"}
#: And how modes begin in which nothing can be changed.
IMPORT, READONLY = "IMPORT", "READONLY"
#: Metadata and rules (data contracts), which only some registries have.
_MORE = ("metadata", "ruleSet")


class RegistryRefused(Refused):
    """The registry has answered that it does not do this. ``code`` is its own error code."""

    def __init__(self, where: str, what: str, status: int, code: int, message: str) -> None:
        self.code = code
        super().__init__(
            f"{where} refuses {what}: {message or 'no reason given'} (HTTP {status}, code {code})",
            remedy="look at the registry's modes and configs, and at what this connection's user may do there",
        )


class _Missing(RegistryRefused):
    """There is no such thing there."""


class Registry:
    """One registry; ``role`` is whose clients use it. ``before_part`` is called before each part of many requests, and
    may raise. Close it."""

    def __init__(self, role: Side, connection: RegistryConnection) -> None:
        self.role, self.connection = role, connection
        self._where = f"the schema registry of the {role} ({connection.url})"
        token = {"Authorization": f"Bearer {connection.token}"} if connection.token else {}
        self._http = httpx.Client(
            auth=(connection.login, connection.password) if connection.login else None,
            headers={"Accept": "application/vnd.schemaregistry.v1+json, application/json", **token},
            # What the environment names as a proxy would read along.
            trust_env=False,
            verify=connection.verify(),
            timeout=_TIMEOUT_SECONDS,
            limits=httpx.Limits(max_connections=AT_ONCE),
        )
        self._pool = ThreadPoolExecutor(AT_ONCE)
        # One that is answered bit by bit must not hold up who waits for it: httpx bounds each bit alone.
        self._requests = ThreadPoolExecutor(AT_ONCE)
        self._until = math.inf
        self.before_part: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._requests.shutdown(wait=False, cancel_futures=True)
        self._http.close()

    def end_in(self, seconds: float) -> None:
        """Wait for no answer any longer than that: it could not be found out then."""
        self._until = time.monotonic() + seconds

    def each(self, do: Callable[[T], R], items: Iterable[T], *, leaves_none: bool = False) -> list[R]:
        """What ``do`` makes of each of ``items``, in order, side by side. Raises what one of them raises: at once, or
        with ``leaves_none`` once all were tried."""
        every, found, errors = list(items), list[R](), list[BaseException]()
        for at in range(0, len(every), _PART):
            self.before_part()
            futures = [self._pool.submit(do, item) for item in every[at : at + _PART]]
            try:
                wait(futures, return_when=ALL_COMPLETED if leaves_none else FIRST_EXCEPTION)
            finally:
                # None may still be under way while the caller puts things in order again.
                for future in futures:
                    future.cancel()
                wait(futures)
            errors += [error for one in futures if not one.cancelled() and (error := one.exception()) is not None]
            if errors and not leaves_none:
                break
            found += [one.result() for one in futures if one.exception() is None]
        if errors:
            raise errors[0]
        return found

    # -- looking -------------------------------------------------------------------------------------------------------

    def subjects(self) -> list[str]:
        """Names of all subjects, soft-deleted ones included; those of other contexts than the default one begin with
        a colon, as the registry shows them."""
        with self._as_a_registry("/subjects"):
            return sorted(map(str, self._call("GET", "/subjects", params=_DELETED)))

    def subject(self, name: str) -> Subject:
        """All that there is of it. One that the registry does not have has no version."""
        every = self._numbers(name, _DELETED)
        live = {*self._numbers(name)} if every else set[int]()
        found = {at: self._version(name, at, is_deleted=at not in live) for at in every}
        return Subject(
            name=name,
            versions={at: version for at, version in found.items() if version is not None},
            unreadable=tuple(at for at, version in found.items() if version is None),
            config=self.config(name),
            mode=self.mode(name),
        )

    def newest(self, name: str) -> tuple[int, ...]:
        """As :attr:`Subject.newest`."""
        every = self._numbers(name, _DELETED)
        last = self._version(name, every[-1], is_deleted=True) if every else None
        return (*every, 0 if last is None else last.id) if every else ()

    def _numbers(self, name: str, params: Mapping[str, str] | None = None) -> list[int]:
        path = f"/subjects/{_quoted(name)}/versions"
        with self._as_a_registry(path):
            return sorted(map(int, self._call("GET", path, params=params, missing=[])))

    def _version(self, name: str, version: int, *, is_deleted: bool) -> Version | None:
        path = f"/subjects/{_quoted(name)}/versions/{version}"
        try:
            value = self._call("GET", path, params=_DELETED)
        except _Missing:
            if is_deleted:
                # Some keep it for themselves, though they list it.
                return None
            raise
        with self._as_a_registry(path):
            at, schema_id, content = int(value["version"]), int(value["id"]), _content(value)
        return Version(subject=name, version=at, id=schema_id, content=content, is_deleted=is_deleted)

    def read_back(self, version: Version) -> Version | None:
        """What stands where ``version`` should."""
        try:
            return self._version(version.subject, version.version, is_deleted=version.is_deleted)
        except _Missing:
            return None

    def content(self, schema_id: int) -> Content | None:
        """What an id stands for; None if for nothing."""
        path = f"/schemas/ids/{schema_id}"
        with self._as_a_registry(path):
            value = self._call("GET", path, missing=None)
            return None if value is None else _content(value)

    def config(self, subject: str = "") -> Mapping[str, Any]:
        """What holds for a subject, or for the registry."""
        found = self._in_force("config", subject)
        return {name: value for name, value in found.items() if value is not None}

    def mode(self, subject: str = "") -> str:
        """The mode that holds for a subject, or for the registry."""
        with self._as_a_registry("/mode"):
            return str(self._in_force("mode", subject)["mode"])

    def _in_force(self, what: str, subject: str) -> dict[str, Any]:
        query = {"defaultToGlobal": "true"}
        with self._as_a_registry(_of(what, subject)):
            found = self._call("GET", _of(what, subject), params=query, missing=None)
            # Some do not know what would hold for a subject that is not there yet.
            return dict(self._call("GET", _of(what, "")) if found is None else found)

    def own_mode(self, subject: str) -> str:
        """The mode that a subject was given itself; "" for one that goes by the registry's."""
        with self._as_a_registry(_of("mode", subject)):
            found = self._call("GET", _of("mode", subject), missing=None)
            return "" if found is None else str(found["mode"])

    # -- writing -------------------------------------------------------------------------------------------------------

    def register(self, version: Version) -> None:
        """Register ``version`` with its number and id; its subject must be in mode IMPORT. Nothing is read back."""
        content = version.content
        body = {"schema": content.text, "id": version.id, "version": version.version, **content.more}
        if content.type != "AVRO":
            body["schemaType"] = content.type
        if content.references:
            body["references"] = [
                {"name": one.name, "subject": one.subject, "version": one.version} for one in content.references
            ]
        self._call("POST", f"/subjects/{_quoted(version.subject)}/versions", json=body)

    def delete(self, subject: str, version: int, *, for_good: bool = False) -> None:
        """Delete a version softly, or (one that is so already) for good; nothing if that was done."""
        params = {"permanent": "true"} if for_good else {}
        self._call("DELETE", f"/subjects/{_quoted(subject)}/versions/{version}", params=params, missing=None)

    def delete_subject(self, subject: str) -> None:
        """Delete a subject for good; nothing if there is none."""
        for params in ({}, {"permanent": "true"}):
            self._call("DELETE", f"/subjects/{_quoted(subject)}", params=params, missing=None)

    def set_mode(self, subject: str, mode: str) -> None:
        """Set a subject's own mode. ``IMPORT`` by force, without which what is soft-deleted there would be gone."""
        params = {"force": "true"} if mode == IMPORT else {}
        self._call("PUT", _of("mode", subject), params=params, json={"mode": mode})

    def unset_mode(self, subject: str) -> None:
        """Remove a subject's own mode, so that the registry's applies."""
        self._call("DELETE", _of("mode", subject), missing=None)

    def set_config(self, subject: str, config: Mapping[str, Any]) -> None:
        """Set a subject's own config, as :meth:`config` shows it."""
        # The one field that is called otherwise where it is written.
        body = {"compatibility" if name == "compatibilityLevel" else name: value for name, value in config.items()}
        self._call("PUT", _of("config", subject), json=body)

    def unset_config(self, subject: str) -> None:
        """Remove a subject's own config, so that the registry's applies."""
        self._call("DELETE", _of("config", subject), missing=None)

    # -- both ----------------------------------------------------------------------------------------------------------

    def _call(self, method: str, path: str, *, missing: Any = ..., **more: Any) -> Any:
        """The answer. Where there is no such thing: ``missing``, if that is given."""
        why, url = "no time is left", self.connection.url + path
        for _ in tries(time, seconds=min(_TRY_SECONDS, self._until - time.monotonic()), pause=_PAUSE_SECONDS):
            timeout = min(_TIMEOUT_SECONDS, self._until - time.monotonic())
            if timeout <= 0:
                continue
            request = self._requests.submit(self._http.request, method, url, timeout=timeout, **more)
            try:
                answer = request.result(timeout)
            except (httpx.HTTPError, TimeoutError) as error:
                request.cancel()
                why = f"{type(error).__name__}: {error}"[:_SHOWN_CHARACTERS]
                continue
            if answer.status_code < 500 and answer.status_code not in (408, 429):
                break
            why = f"HTTP {answer.status_code}"
        else:
            raise CouldNotFindOut(
                f"{self._where} does not answer {method} {path} ({why})",
                remedy="check the connection's host and path, and that the registry runs",
            )
        if answer.is_success:
            return self._json(answer)
        if answer.is_redirect:
            raise self._bad("host", f"redirects elsewhere (HTTP {answer.status_code})", "write where it leads as host")
        if answer.status_code in (401, 403):
            what = "does not accept this connection's credentials" if answer.status_code == 401 else "denies this user"
            raise Refused(
                f"{self._where} {what}: {method} {path} (HTTP {answer.status_code})",
                remedy=f"correct login, password or token of connection {self.connection.conn_id}, or what it may do",
            )
        reason = self._json(answer, is_error=True)
        with self._as_a_registry(path):
            code = int(reason.get("error_code", answer.status_code))
            shown = str(reason.get("message", ""))[:_SHOWN_CHARACTERS]
        details = (self._where, f"{method} {path}", answer.status_code, code, shown)
        # Some answer 409 where something is deleted already.
        if 40400 < code < 40500:
            if missing is not ...:
                return missing
            raise _Missing(*details)
        raise RegistryRefused(*details)

    def _json(self, answer: httpx.Response, *, is_error: bool = False) -> Any:
        try:
            return answer.json()
        except ValueError:
            if is_error:
                return {}
            raise self._bad("path", "does not answer in JSON", "add the API's path, such as /apis/ccompat/v7") from None

    @contextmanager
    def _as_a_registry(self, path: str) -> Iterator[None]:
        """For reading an answer: one of another shape may be that of something on the way, which is gone soon."""
        try:
            yield
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CouldNotFindOut(
                f"{self._where} does not answer {path} as a schema registry does ({error!r})"[:_SHOWN_CHARACTERS],
                remedy="check the connection's host and path, and what stands between",
            ) from error

    def _bad(self, name: str, message: str, remedy: str) -> BadInput:
        where = f"connection {self.connection.conn_id}"
        return BadInput(f"{self.connection.url} {message}", file=where, field=name, remedy=remedy)


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _of(what: str, subject: str) -> str:
    return f"/{what}/{_quoted(subject)}" if subject else f"/{what}"


def _content(value: Mapping[str, Any]) -> Content:
    return Content(
        type=str(value.get("schemaType") or "AVRO"),
        text=str(value["schema"]),
        references=tuple(
            Reference(name=str(one["name"]), subject=str(one["subject"]), version=int(one["version"]))
            for one in value.get("references") or ()
        ),
        more={name: value[name] for name in _MORE if value.get(name)},
    )
