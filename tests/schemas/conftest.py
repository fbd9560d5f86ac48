"""Two schema registries in memory, and a real one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from demo.java import JavaError, java_since
from tests.schemas.apicurio import JAVA, Apicurio
from tests.schemas.worlds import Registries


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registries]:
    """Two registries with Confluent's semantics, both empty."""
    found = Registries(monkeypatch)
    yield found
    found.close()


@pytest.fixture(scope="session")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    """The real server; tests share it, so each names subjects of its own."""
    try:
        java_since(JAVA)
    except JavaError as error:
        pytest.skip(str(error))
    with Apicurio(tmp_path_factory.mktemp("apicurio")) as server:
        yield server
