"""Connections to schema registries: in Airflow's forms, by TLS, and refused where they would be of no use."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from demo.brokers.certificates import Authority
from kafka_migration.domain.errors import BadInput, CouldNotFindOut
from kafka_migration.schemas import registry
from kafka_migration.schemas.connection import find_registry
from kafka_migration.schemas.registry import Registry
from tests.schemas.registry_server import RegistryServer

VARIABLE = "AIRFLOW_CONN_REGISTRY"


@pytest.mark.parametrize(
    ("stated", "url"),
    [
        ("http://registry:8081", "http://registry:8081"),
        ("https://app:p%40ss@registry:8081", "https://registry:8081"),
        ("http://registry:8081/https", "https://registry:8081"),
        ({"conn_type": "http", "host": "https://registry/"}, "https://registry"),
        ({"conn_type": "http", "host": "registry", "port": 8081, "schema": "https"}, "https://registry:8081"),
        ({"conn_type": "http", "host": "http://registry", "port": 8081}, "http://registry:8081"),
        (
            {"conn_type": "http", "host": "http://registry:8080", "extra": {"path": "/apis/ccompat/v7/"}},
            "http://registry:8080/apis/ccompat/v7",
        ),
        ({"conn_type": "http", "host": "http://registry:8080/v7", "extra": "{}"}, "http://registry:8080/v7"),
    ],
)
def test_connection_is_read_in_each_of_airflows_forms(stated: Any, url: str) -> None:
    text = stated if isinstance(stated, str) else json.dumps(stated)
    found = find_registry("registry", {VARIABLE: text})
    assert found.url == url
    assert (found.login, found.password) == (("app", "p@ss") if "@" in text else ("", ""))
    assert "p@ss" not in repr(found)


def test_unknown_connection_is_refused_with_how_to_state_it() -> None:
    with pytest.raises(BadInput, match="no connection has the id 'registry'") as refused:
        find_registry("registry", {})
    assert VARIABLE in refused.value.remedy


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[RegistryServer, dict[str, str]]]:
    """A registry that wants certificates, and what a connection needs for it."""
    authority = Authority(tmp_path / "authority")
    authority.issue("registry")
    mine = authority.client("migration")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.ca)
    context.load_cert_chain(authority.directory / "registry.crt", authority.directory / "registry.key")
    context.verify_mode = ssl.CERT_REQUIRED
    with closing(RegistryServer(tls=context)) as server:
        yield server, {name: value for name, value in mine.items() if name.endswith(".location")}


def names_of(server: RegistryServer, extra: dict[str, str]) -> list[str]:
    stated = json.dumps({"conn_type": "http", "host": server.url, "extra": extra})
    with Registry("source", find_registry("registry", {VARIABLE: stated})) as found:
        return found.subjects()


def test_certificates_are_verified_and_shown(
    guarded: tuple[RegistryServer, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, files = guarded
    assert names_of(server, files) == []
    monkeypatch.setattr(registry, "_TRY_SECONDS", 0.0)
    with pytest.raises(CouldNotFindOut, match="CERTIFICATE_VERIFY_FAILED"):
        names_of(server, {})
    with pytest.raises(CouldNotFindOut):
        names_of(server, {"ssl.ca.location": files["ssl.ca.location"]})


def test_file_that_is_no_certificate_is_refused(guarded: tuple[RegistryServer, dict[str, str]], tmp_path: Path) -> None:
    server, _ = guarded
    (tmp_path / "ca.pem").write_text("nonsense")
    with pytest.raises(BadInput, match="no PEM files of use") as refused:
        names_of(server, {"ssl.ca.location": str(tmp_path / "ca.pem")})
    assert refused.value.field == "ssl.ca.location"
