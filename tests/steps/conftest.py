"""Worlds to move groups in: every scenario that asks for ``world`` runs in memory and on real brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafka_migration.approvals.cutover import CutoverGate
from tests.steps.hook_server import HookServer
from tests.steps.worlds import FakeWorld, RealWorld, World


@pytest.fixture
def open_gate() -> Iterator[None]:
    """The cutover gate lets pass: what it asks is tests/steps/test_cutover_gate.py's."""
    # Its own: a test that undoes what it patched must not undo this.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CutoverGate, "ask", lambda _gate: "open")
        yield


@pytest.fixture(params=["fake", "real"])
def world(request: pytest.FixtureRequest, open_gate: None) -> Iterator[World]:
    """Two clusters with consumers, in memory and real."""
    if request.param == "fake":
        yield FakeWorld()
        return
    source, target = request.getfixturevalue("source_cluster"), request.getfixturevalue("target_cluster")
    real = RealWorld(source.bootstrap_servers, target.bootstrap_servers)
    yield real
    real.close()


@pytest.fixture
def fake_world(open_gate: None) -> FakeWorld:
    """In memory only: for what real brokers cannot be made to do."""
    return FakeWorld()


@pytest.fixture
def hooks() -> Iterator[HookServer]:
    """What stops and starts consumers; this process may call it."""
    server = HookServer()
    # Its own: a test that undoes what it patched must not undo this.
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environ.items():
            patch.setenv(name, value)
        yield server
    server.close()
