"""How to reach a schema registry: an Airflow connection of type ``http``, found as those of clusters are."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kafka_migration.domain.errors import BadInput
from kafka_migration.kafka.connections import require_readable
from kafka_migration.kafka.lookup import find_fields, variable_of

_CA, _CERTIFICATE, _KEY = "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"
#: What a connection's Extra may have, beside Airflow's own fields.
_EXTRA = frozenset({"path", "token", _CA, _CERTIFICATE, _KEY})


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConnection:
    """Address and credentials. ``token`` is sent as a bearer's; ``files`` are PEM files, by librdkafka's names."""

    conn_id: str
    url: str
    login: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    files: Mapping[str, str] = field(default_factory=dict)

    def secrets(self) -> frozenset[str]:
        """Every string that must never be shown."""
        return frozenset({self.password, self.token} - {""})

    def verify(self) -> ssl.SSLContext | bool:
        """How the registry's certificate is verified, and ours shown; False without TLS. Raises BadInput for a bad
        file."""
        for name, path in self.files.items():
            require_readable(self.conn_id, name, Path(path))
        if not self.url.startswith("https:"):
            return False
        try:
            context = ssl.create_default_context(cafile=self.files.get(_CA))
            if _CERTIFICATE in self.files:
                # A key that is encrypted must not be asked for at the terminal.
                context.load_cert_chain(self.files[_CERTIFICATE], self.files.get(_KEY), password="")
        except ssl.SSLError as error:
            names = ", ".join(self.files)
            raise _bad(self.conn_id, names, f"no PEM files of use ({error.reason})", "check these files") from None
        return context


def find_registry(conn_id: str, environ: Mapping[str, str] | None = None) -> RegistryConnection:
    """The connection called ``conn_id``. Raises BadInput, naming connection, field and remedy, and never a secret."""
    found = find_fields(conn_id, environ)
    if found is None:
        raise BadInput(
            f"no connection has the id {conn_id!r}",
            field="conn_id",
            value=conn_id,
            remedy=f'set {variable_of(conn_id)} to JSON like {{"conn_type": "http", "host": "https://registry:8081"}},'
            " or add it in Airflow under Admin, Connections",
        )
    where, fields = found
    kind = str(fields.get("conn_type") or "")
    if kind not in ("http", "https"):
        raise _bad(where, "conn_type", f"the connection's type is {kind!r}, not 'http'", "make it one of type HTTP")
    extra = _extra(where, fields.get("extra") or {})
    login, password, token = (str(fields.get("login") or ""), str(fields.get("password") or ""), extra.pop("token", ""))
    if token and (login or password):
        raise _bad(where, "token", "stands in the Extra, and a login beside it", "keep one of the two")
    if _KEY in extra and _CERTIFICATE not in extra:
        raise _bad(where, _CERTIFICATE, f"missing, and {_KEY} is there", "name both files, or none")
    url = _url(where, kind, fields, extra.pop("path", ""))
    if (token or password) and not _is_private(url):
        raise _bad(
            where, "host", "credentials would cross the network in clear by http", "write https://HOST:PORT as host"
        )
    return RegistryConnection(conn_id=conn_id, url=url, login=login, password=password, token=token, files=extra)


def secrets_of(conn_ids: Iterable[str]) -> frozenset[str]:
    """Every string of these connections that must never be shown. Whoever needs one that is no use is refused, and
    reports it."""
    found = set[str]()
    for conn_id in conn_ids:
        with suppress(BadInput):
            found |= find_registry(conn_id).secrets()
    return frozenset(found)


def _url(where: str, kind: str, fields: Mapping[str, Any], path: str) -> str:
    host, port = str(fields.get("host") or ""), fields.get("port")
    scheme = str(fields.get("schema") or kind)
    remedy = "write https://HOST:PORT as host, and what stands before /subjects as path in the Extra"
    text = host if "://" in host else f"{scheme}://{host}"
    try:
        parts = urlsplit(f"{text}:{port}" if port and urlsplit(text).port is None else text)
        usable = parts.scheme in ("http", "https") and parts.hostname and "@" not in parts.netloc
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or "/contexts/" in parts.path + path:
        raise _bad(where, "host", "no address of a schema registry's default context", remedy)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}{'/' + path.strip('/') if path.strip('/') else ''}"


def _is_private(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in ("localhost", "127.0.0.1", "::1")


def _extra(where: str, extra: object) -> dict[str, str]:
    if isinstance(extra, str):
        try:
            extra = json.loads(extra)
        except ValueError:
            extra = None
    if not isinstance(extra, dict) or not all(isinstance(value, str) for value in extra.values()):
        raise _bad(where, "extra", "is not a JSON object of texts", f"it may have {', '.join(sorted(_EXTRA))}")
    if unknown := sorted(set(extra) - _EXTRA):
        raise _bad(where, unknown[0], "is not known", f"remove it; the Extra may have {', '.join(sorted(_EXTRA))}")
    return {name: value for name, value in extra.items() if value}


def _bad(where: str, name: str, message: str, remedy: str) -> BadInput:
    return BadInput(message, file=where, field=name, remedy=remedy)
