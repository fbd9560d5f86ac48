"""A schema registry in memory, with the semantics of Confluent's, on a free port of 127.0.0.1.

Ids are given by the registry, or in mode IMPORT by whoever registers; one id is one schema. A soft-deleted version
keeps its id, and is deleted for good only then; with the last version its subject's config and mode go, too. What
others than Confluent's do otherwise is switched on by attributes.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

READ_WRITE, READ_ONLY, IMPORT = "READWRITE", "READONLY", "IMPORT"


class Error(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, code: int, message: str) -> None:
        self.status, self.body = status, {"error_code": code, "message": message}
        super().__init__(message)


@dataclass
class Stored:
    """A version of a subject."""

    id: int
    body: dict[str, Any]
    is_deleted: bool = False


@dataclass
class RegistryServer:
    """Listens from its making on, until :meth:`close`."""

    #: As Apicurio: mode IMPORT is accepted, and ids and versions are given all the same.
    gives_own_ids: bool = False
    tls: ssl.SSLContext | None = None
    #: What a request has to have as Authorization.
    credentials: str = ""
    #: May raise, or change something, before a request is looked at: method and path.
    before: Callable[[str, str], None] = lambda _method, _path: None
    #: May change what is answered: path and answer.
    after: Callable[[str, Any], Any] = lambda _path, answer: answer
    #: How long each byte of an answer takes, if it comes byte by byte.
    byte_seconds: float = 0.0
    subjects: dict[str, dict[int, Stored]] = field(default_factory=dict)
    configs: dict[str, dict[str, Any]] = field(default_factory=lambda: {"": {"compatibilityLevel": "BACKWARD"}})
    modes: dict[str, str] = field(default_factory=lambda: {"": READ_WRITE})
    requests: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock, outer = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # The answer's two parts go at once.
            wbufsize = -1
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                outer._handle(self)

            def do_POST(self) -> None:
                outer._handle(self)

            def do_PUT(self) -> None:
                outer._handle(self)

            def do_DELETE(self) -> None:
                outer._handle(self)

            def log_message(self, *_: Any) -> None:
                """Tests read ``requests`` instead."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # -- as its users do ----------------------------------------------------------------------------------------------

    def register(self, subject: str, schema: Any, *references: tuple[str, str, int], **more: Any) -> int:
        """Register ``schema`` (JSON types, or a text); its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema, separators=(",", ":"))
        named = [{"name": name, "subject": of, "version": at} for name, of, at in references]
        with self._lock:
            return int(self._register(subject, {"schema": text, "references": named, **more})["id"])

    def delete(self, subject: str, version: int) -> None:
        """Delete a version softly."""
        with self._lock:
            self._delete_version(subject, version, for_good=False)

    def shown(self) -> dict[str, Any]:
        """Everything but which requests were made."""
        every = {name: {at: vars(one) for at, one in versions.items()} for name, versions in self.subjects.items()}
        return {"subjects": every, "configs": dict(self.configs), "modes": dict(self.modes)}

    # -- requests -----------------------------------------------------------------------------------------------------

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        size = int(request.headers.get("Content-Length") or 0)
        body = json.loads(request.rfile.read(size)) if size else {}
        status, answer = 200, dict[str, Any]()
        try:
            if self.credentials and request.headers.get("Authorization") != self.credentials:
                raise Error(401, 401, "Unauthorized")
            self.before(request.command, request.path)
            with self._lock:
                self.requests.append((request.command, request.path))
                answer = self.after(request.path, self._answer(request.command, request.path, body))
        except Error as error:
            status, answer = error.status, error.body
        data = json.dumps(answer).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        if self.byte_seconds:
            self._trickle(request, data)
        else:
            request.wfile.write(data)

    def _trickle(self, request: BaseHTTPRequestHandler, data: bytes) -> None:
        request.wfile.flush()
        try:
            for at in range(len(data)):
                time.sleep(self.byte_seconds)
                request.wfile.write(data[at : at + 1])
                request.wfile.flush()
        except OSError:
            request.close_connection = True

    def _answer(self, method: str, path: str, body: dict[str, Any]) -> Any:
        parts = urlsplit(path)
        query = {name: values[-1] == "true" for name, values in parse_qs(parts.query).items()}
        match method, *(unquote(part) for part in parts.path.split("/")[1:]):
            case "GET", "subjects":
                return [name for name in self.subjects if self._versions(name, deleted=query.get("deleted", False))]
            case "GET", "subjects", name, "versions":
                return self._listed(name, deleted=query.get("deleted", False))
            case "GET", "subjects", name, "versions", at:
                return self._shown(name, int(at), deleted=query.get("deleted", False))
            case "POST", "subjects", name, "versions":
                return self._register(name, body)
            case "DELETE", "subjects", name, "versions", at:
                return self._delete_version(name, int(at), for_good=query.get("permanent", False))
            case "DELETE", "subjects", name:
                return self._delete_subject(name, for_good=query.get("permanent", False))
            case "GET", "schemas", "ids", schema_id:
                return self._by_id(int(schema_id))
            case "GET", ("config" | "mode") as what, *name:
                return self._setting(what, "".join(name), is_default_taken=query.get("defaultToGlobal", False))
            case "PUT", "config", *name:
                self._require_writable("".join(name))
                level = {"compatibilityLevel": body["compatibility"]}
                self.configs["".join(name)] = level | {key: body[key] for key in body if key != "compatibility"}
                return body
            case "PUT", "mode", *name:
                return self._set_mode("".join(name), body["mode"], by_force=query.get("force", False))
            case "DELETE", ("config" | "mode") as what, name:
                found = self._setting(what, name)
                if what == "config":
                    self._require_writable(name)
                (self.configs if what == "config" else self.modes).pop(name)
                return found
        raise Error(404, 404, "HTTP 404 Not Found")

    def _versions(self, name: str, *, deleted: bool) -> list[int]:
        return [at for at, one in sorted(self.subjects.get(name, {}).items()) if deleted or not one.is_deleted]

    def _listed(self, name: str, *, deleted: bool) -> list[int]:
        if found := self._versions(name, deleted=deleted):
            return found
        if self.subjects.get(name):
            raise Error(404, 40404, f"Subject '{name}' was soft deleted. Set permanent=true to delete permanently")
        raise Error(404, 40401, f"Subject '{name}' not found.")

    def _shown(self, name: str, at: int, *, deleted: bool) -> dict[str, Any]:
        self._listed(name, deleted=deleted)
        found = self.subjects[name].get(at)
        if found is None or (found.is_deleted and not deleted):
            raise Error(404, 40402, f"Version {at} not found.")
        return {"subject": name, "version": at, "id": found.id, **found.body}

    def _by_id(self, schema_id: int) -> dict[str, Any]:
        for versions in self.subjects.values():
            for one in versions.values():
                if one.id == schema_id:
                    return one.body
        raise Error(404, 40403, f"Schema {schema_id} not found")

    def _mode(self, name: str) -> str:
        return self.modes.get(name, self.modes[""])

    def _require_writable(self, name: str) -> None:
        if self._mode(name) == READ_ONLY:
            raise Error(422, 42205, f"Subject {name} is in read-only mode")

    def _register(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        mode, stored = self._mode(name), {key: body[key] for key in body if key not in ("id", "version") and body[key]}
        if self.gives_own_ids:
            mode, body = READ_WRITE, {key: value for key, value in body.items() if key not in ("id", "version")}
        self._require_writable(name)
        if ("id" in body) is not (mode == IMPORT):
            raise Error(422, 42205, f"Subject {name} is not in {'import' if 'id' in body else 'read-write'} mode")
        for one in body.get("references") or ():
            if one["version"] not in self.subjects.get(one["subject"], {}):
                raise Error(422, 42201, f"Invalid schema: no reference found for subject {one['subject']}")
        if body.get("schemaType", "AVRO") != "PROTOBUF":
            stored["schema"] = self._canonical(body["schema"])
        versions = self.subjects.get(name, {})
        same = [one.id for every in self.subjects.values() for one in every.values() if one.body == stored]
        if mode != IMPORT and any(one.body == stored and not one.is_deleted for one in versions.values()):
            return {"id": same[0]}
        if mode != IMPORT and self._is_incompatible(name, stored):
            raise Error(409, 409, "Schema being registered is incompatible with an earlier schema")
        used = {one.id: one.body for every in self.subjects.values() for one in every.values()}
        schema_id = body["id"] if mode == IMPORT else (same[0] if same else max(used, default=0) + 1)
        if used.get(schema_id, stored) != stored:
            raise Error(422, 42205, f"Overwrite new schema with id {schema_id} is not permitted.")
        at = body.get("version") or max(versions, default=0) + 1
        self.subjects.setdefault(name, {})[at] = Stored(schema_id, stored)
        return {"id": schema_id}

    @staticmethod
    def _canonical(text: str) -> str:
        try:
            return json.dumps(json.loads(text), separators=(",", ":"))
        except ValueError:
            raise Error(422, 42201, "Invalid schema") from None

    def _is_incompatible(self, name: str, stored: dict[str, Any]) -> bool:
        """As much of Avro as tests need: a record's new fields need defaults."""
        level = self.configs.get(name, self.configs[""])["compatibilityLevel"]
        last = [one for one in self.subjects.get(name, {}).values() if not one.is_deleted][-1:]
        if level == "NONE" or not last:
            return False
        before, now = (_fields(one["schema"]) for one in (last[0].body, stored))
        return any("default" not in now[name] for name in now.keys() - before.keys())

    def _delete_version(self, name: str, at: int, *, for_good: bool) -> int:
        self._require_writable(name)
        found = self.subjects.get(name, {}).get(at)
        if found is None:
            self._listed(name, deleted=True)
            raise Error(404, 40402, f"Version {at} not found.")
        if found.is_deleted is not for_good:
            word = "was soft deleted" if found.is_deleted else "was not deleted first before being permanently deleted"
            raise Error(404, 40406 if found.is_deleted else 40407, f"Subject '{name}' Version {at} {word}")
        for subject, versions in self.subjects.items():
            for one in versions.values():
                refers = {(ref["subject"], ref["version"]) for ref in one.body.get("references") or ()}
                if (name, at) in refers and (for_good or not one.is_deleted):
                    raise Error(422, 42206, f"One or more references exist to the schema {subject}")
        if for_good:
            del self.subjects[name][at]
            if not self.subjects[name]:
                del self.subjects[name]
        else:
            found.is_deleted = True
        if not self._versions(name, deleted=False):
            self.configs.pop(name, None)
            self.modes.pop(name, None)
        return at

    def _delete_subject(self, name: str, *, for_good: bool) -> list[int]:
        found = self._versions(name, deleted=for_good)
        if not found or (for_good and self._versions(name, deleted=False)):
            self._listed(name, deleted=for_good)
            raise Error(404, 40405, f"Subject '{name}' was not deleted first before being permanently deleted")
        return [self._delete_version(name, at, for_good=for_good) for at in found]

    def _setting(self, what: str, name: str, *, is_default_taken: bool = False) -> dict[str, Any]:
        settings = self.configs if what == "config" else {of: {"mode": mode} for of, mode in self.modes.items()}
        if name in settings:
            return dict(settings[name])
        if is_default_taken:
            return dict(settings[""])
        raise Error(404, 40408 if what == "config" else 40409, f"Subject '{name}' does not have subject-level {what}")

    def _set_mode(self, name: str, mode: str, *, by_force: bool) -> dict[str, Any]:
        here = self.subjects.get(name, {}) if name else {str(at): one for at, one in enumerate(self.subjects)}
        if mode == IMPORT and not by_force and here:
            if self._versions(name, deleted=False) or not name:
                raise Error(422, 42205, "Cannot import since found existing subjects")
            # As Confluent's: what is soft-deleted would go.
            self.subjects.pop(name)
        self.modes[name] = mode
        return {"mode": mode}


def _fields(text: str) -> dict[str, Any]:
    """Those of an Avro record; none of another type."""
    schema = json.loads(text)
    return {one["name"]: one for one in schema.get("fields", ())} if isinstance(schema, dict) else {}
