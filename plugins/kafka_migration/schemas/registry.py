"""A client of Confluent's API of schema registries, as far as copying needs it.

Every call may be made again: what was written is written the same. So one that no answer came to is tried again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
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
_TIMEOUT_SECONDS, _TRY_SECONDS, _PAUSE_SECONDS = 20.0, 10.0, 0.5
_SHOWN_CHARACTERS = 300
_DELETED = {"deleted": "true"}
IMPORT = "IMPORT"
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
    """One registry; ``role`` is whose clients use it. Close it."""

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._http.close()

    def each(self, do: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """What ``do`` makes of each of ``items``, in order, side by side. Raises what one of them raises."""
        futures = [self._pool.submit(do, item) for item in items]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            # None may still be under way while the caller puts things in order again.
            for future in futures:
                future.cancel()
            wait(futures)
        for future in futures:
            if not future.cancelled() and (error := future.exception()) is not None:
                raise error
        return [future.result() for future in futures]

    # -- looking -------------------------------------------------------------------------------------------------------

    def subjects(self) -> list[str]:
        """Names of all subjects, soft-deleted ones included; those of other contexts than the default one begin with
        a colon, as the registry shows them."""
        return sorted(self._call("GET", "/subjects", params=_DELETED))

    def subject(self, name: str) -> Subject:
        """All that there is of it. One that the registry does not have has no version."""
        path = f"/subjects/{_quoted(name)}/versions"
        every = sorted(self._call("GET", path, params=_DELETED, missing=[]))
        live = {*self.live(name)} if every else set[int]()
        found = {at: self._version(name, at, is_deleted=at not in live) for at in every}
        return Subject(
            name=name,
            versions={at: version for at, version in found.items() if version is not None},
            unreadable=tuple(at for at, version in found.items() if version is None),
            config=self.config(name),
            mode=self.mode(name),
        )

    def live(self, name: str) -> list[int]:
        """Numbers of the versions of a subject that are not deleted."""
        return list(self._call("GET", f"/subjects/{_quoted(name)}/versions", missing=[]))

    def _version(self, name: str, version: int, *, is_deleted: bool) -> Version | None:
        try:
            value = self._call("GET", f"/subjects/{_quoted(name)}/versions/{version}", params=_DELETED)
        except _Missing:
            if is_deleted:
                # Some keep it for themselves, though they list it.
                return None
            raise
        return Version(
            subject=name, version=value["version"], id=value["id"], content=_content(value), is_deleted=is_deleted
        )

    def read_back(self, version: Version) -> Version | None:
        """What stands where ``version`` should."""
        try:
            return self._version(version.subject, version.version, is_deleted=version.is_deleted)
        except _Missing:
            return None

    def content(self, schema_id: int) -> Content | None:
        """What an id stands for; None if for nothing."""
        value = self._call("GET", f"/schemas/ids/{schema_id}", missing=None)
        return None if value is None else _content(value)

    def config(self, subject: str = "") -> Mapping[str, Any]:
        """What holds for a subject, or for the registry."""
        found = self._in_force("config", subject)
        return {name: value for name, value in found.items() if value is not None}

    def mode(self, subject: str = "") -> str:
        """The mode that holds for a subject, or for the registry."""
        return str(self._in_force("mode", subject)["mode"])

    def _in_force(self, what: str, subject: str) -> dict[str, Any]:
        query = {"defaultToGlobal": "true"}
        found: dict[str, Any] | None = self._call("GET", _of(what, subject), params=query, missing=None)
        # Some do not know what would hold for a subject that is not there yet.
        return dict(self._call("GET", _of(what, ""))) if found is None else found

    def own_mode(self, subject: str) -> str:
        """The mode that a subject was given itself; "" for one that goes by the registry's."""
        found = self._call("GET", _of("mode", subject), missing=None)
        return "" if found is None else str(found["mode"])

    # -- writing -------------------------------------------------------------------------------------------------------

    def register(self, version: Version) -> None:
        """Have ``version`` where it says, by its id; its subject must be in mode IMPORT. Nothing is read back."""
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
        """Have a subject go by the registry's mode again."""
        self._call("DELETE", _of("mode", subject), missing=None)

    def set_config(self, subject: str, config: Mapping[str, Any]) -> None:
        """Set a subject's own config, as :meth:`config` shows it."""
        # The one field that is called otherwise where it is written.
        body = {"compatibility" if name == "compatibilityLevel" else name: value for name, value in config.items()}
        self._call("PUT", _of("config", subject), json=body)

    def unset_config(self, subject: str) -> None:
        """Have a subject go by the registry's config again."""
        self._call("DELETE", _of("config", subject), missing=None)

    # -- both ----------------------------------------------------------------------------------------------------------

    def _call(self, method: str, path: str, *, missing: Any = ..., **more: Any) -> Any:
        """The answer. Where there is no such thing: ``missing``, if that is given."""
        why = ""
        for _ in tries(time, seconds=_TRY_SECONDS, pause=_PAUSE_SECONDS):
            try:
                answer = self._http.request(method, self.connection.url + path, **more)
            except httpx.HTTPError as error:
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

    def _bad(self, name: str, message: str, remedy: str) -> BadInput:
        where = f"connection {self.connection.conn_id}"
        return BadInput(f"{self.connection.url} {message}", file=where, field=name, remedy=remedy)


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _of(what: str, subject: str) -> str:
    return f"/{what}/{_quoted(subject)}" if subject else f"/{what}"


def _content(value: Mapping[str, Any]) -> Content:
    return Content(
        type=value.get("schemaType") or "AVRO",
        text=value["schema"],
        references=tuple(
            Reference(name=one["name"], subject=one["subject"], version=one["version"])
            for one in value.get("references") or ()
        ),
        more={name: value[name] for name in _MORE if value.get(name)},
    )
