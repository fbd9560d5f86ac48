"""What the client asks of a registry, asked of the one in memory and of a real one: both answer alike."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.schemas.connection import RegistryConnection
from kafka_migration.schemas.registry import IMPORT, Registry, RegistryRefused
from kafka_migration.schemas.types import Content, Reference, Version
from tests.schemas.registry_server import RegistryServer
from tests.schemas.worlds import JSON_SCHEMA, record, register


@pytest.fixture(params=["in memory", pytest.param("Apicurio", marks=pytest.mark.long)])
def registry(request: pytest.FixtureRequest) -> Iterator[Registry]:
    """A client of a running registry."""
    server = RegistryServer() if request.param == "in memory" else request.getfixturevalue("apicurio")
    with Registry("source", RegistryConnection(conn_id="it", url=server.url)) as found:
        yield found
    if isinstance(server, RegistryServer):
        server.close()


@pytest.fixture
def name() -> str:
    """A subject of the test's own, which has to be quoted in a path."""
    return f"it {uuid.uuid4().hex[:8]}/é-value"


def test_subject_is_read_with_versions_ids_and_references(registry: Registry, name: str) -> None:
    url, other = registry.connection.url, f"{name}-other"
    first = register(url, other, record("Money", "cents"))
    second = register(url, name, record("Order", price="Money"), ("Money", other, 1))
    assert {name, other} <= {*registry.subjects()}
    found = registry.subject(name)
    assert found.versions[1].content.is_same(
        Content(
            type="AVRO",
            text='{"type":"record","name":"Order","fields":[{"name":"price","type":"Money"}]}',
            references=(Reference(name="Money", subject=other, version=1),),
        )
    )
    assert (found.versions[1].id, registry.subject(other).versions[1].id) == (second, first)
    by_id = registry.content(second)
    assert by_id is not None
    assert by_id.is_same(found.versions[1].content)


def test_types_other_than_avro_are_read_as_what_they_are(registry: Registry, name: str) -> None:
    register(registry.connection.url, name, JSON_SCHEMA, schemaType="JSON")
    assert registry.subject(name).versions[1].content.type == "JSON"


def test_what_is_not_there_is_nothing(registry: Registry, name: str) -> None:
    assert not registry.subject(name).is_there
    assert registry.content(2_000_000_000) is None
    schema = Content(type="AVRO", text='"int"')
    assert registry.read_back(Version(subject=name, version=1, id=1, content=schema)) is None
    registry.delete(name, 1)
    registry.delete(name, 1, for_good=True)
    assert name not in registry.subjects()


def test_config_of_a_subject_is_its_own_or_the_registrys(registry: Registry, name: str) -> None:
    register(registry.connection.url, name, "string")
    assert registry.config(name) == registry.config()
    registry.set_config(name, {"compatibilityLevel": "FULL_TRANSITIVE"})
    assert registry.config(name)["compatibilityLevel"] == "FULL_TRANSITIVE"
    registry.unset_config(name)
    assert registry.config(name) == registry.config()
    registry.unset_config(name)


def test_mode_of_a_subject_is_its_own_or_the_registrys(registry: Registry, name: str) -> None:
    register(registry.connection.url, name, "string")
    assert registry.mode(name) == registry.mode() == "READWRITE"
    registry.set_mode(name, IMPORT)
    assert registry.mode(name) == registry.own_mode(name) == IMPORT
    registry.unset_mode(name)
    assert registry.mode(name) == "READWRITE"
    registry.unset_mode(name)


def test_deleted_version_is_still_listed_and_gone_once_it_is_deleted_for_good(registry: Registry, name: str) -> None:
    url = registry.connection.url
    register(url, name, "int")
    register(url, name, "long")
    registry.delete(name, 1)
    registry.delete(name, 1)
    found = registry.subject(name)
    # A registry may keep what is deleted to itself, but lists it.
    is_shown = 1 in found.versions and found.versions[1].is_deleted
    assert is_shown or found.unreadable == (1,)
    assert not found.versions[2].is_deleted
    registry.delete(name, 1, for_good=True)
    assert registry.subject(name).versions.keys() == {2}


def test_schema_that_is_none_is_refused_with_the_registrys_reason(registry: Registry, name: str) -> None:
    registry.set_mode(name, IMPORT)
    schema = Content(type="AVRO", text='{"type":')
    with pytest.raises(RegistryRefused) as refused:
        registry.register(Version(subject=name, version=1, id=1_000_000, content=schema))
    assert refused.value.code == 42201


@pytest.mark.parametrize("answer", [None, 7, "text", [None], {"id": "x"}, {"mode": None, "version": []}])
def test_answer_of_another_shape_could_not_be_found_out(name: str, answer: Any) -> None:
    server = RegistryServer()
    server.register(name, record("Order", "number"))
    try:
        with Registry("source", RegistryConnection(conn_id="it", url=server.url)) as found:
            server.after = lambda path, right: right if path == "/subjects?deleted=true" else answer
            for look in (found.subject, found.newest, found.config, found.own_mode, lambda _name: found.content(1)):
                with suppress(CouldNotFindOut):
                    look(name)
            with pytest.raises(CouldNotFindOut, match="as a schema registry does"):
                found.subject(name)
            server.after = lambda _path, _right: answer
            with suppress(CouldNotFindOut):
                found.subjects()
    finally:
        server.close()


def test_answer_that_comes_bit_by_bit_is_not_waited_for_longer_than_there_is_time() -> None:
    server = RegistryServer(byte_seconds=0.05)
    server.subjects = {f"subject-{at}": {} for at in range(20)}
    server.register("long", record("Order", *(f"field{at}" for at in range(9))))
    try:
        began = time.monotonic()
        with Registry("source", RegistryConnection(conn_id="it", url=server.url)) as found:
            found.end_in(0.3)
            with pytest.raises(CouldNotFindOut, match="does not answer GET /schemas"):
                found.content(1)
        assert time.monotonic() - began < 1.5
    finally:
        server.close()


def test_path_that_is_no_registrys_is_refused(registry: Registry) -> None:
    url = str(httpx.URL(registry.connection.url).copy_with(path="/nowhere"))
    with Registry("source", RegistryConnection(conn_id="it", url=url)) as lost, pytest.raises(RegistryRefused):
        lost.subjects()
