"""A KDC for tests, and a cluster that lets in whoever has one of its tickets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from demo.brokers import EmbeddedKafka
from demo.brokers.kdc import Kdc, missing_tools
from demo.brokers.security import kerberos_client, kerberos_listener
from kafka_migration.kafka.connections import ClusterConnection

KERBEROS_IS_SET_UP = not missing_tools() and find_spec("gssapi") is not None
NEEDS_KERBEROS = pytest.mark.skipif(not KERBEROS_IS_SET_UP, reason="Kerberos is not set up: make setup-kerberos")


@dataclass(frozen=True)
class Kerberized:
    """A cluster without an authorizer: its principals may do everything. Its internal listener is open to tests."""

    kdc: Kdc
    kafka: EmbeddedKafka

    def properties(self, principal: str = "reader", **changes: str) -> dict[str, str]:
        """Of a connection; ``changes`` with underscores for dots."""
        return {
            "bootstrap.servers": self.kafka.bootstrap_servers,
            **kerberos_client(self.kdc, principal),
            **{name.replace("_", "."): value for name, value in changes.items()},
        }

    def connection(self, principal: str = "reader", **changes: str) -> ClusterConnection:
        return ClusterConnection("kerberized", self.properties(principal, **changes))


@contextmanager
def kdc_for(directory: Path, *, ticket_seconds: int = 36_000) -> Iterator[Kdc]:
    """A KDC that this process's clients go to while the block runs."""
    with Kdc(directory, ticket_seconds=ticket_seconds) as kdc, pytest.MonkeyPatch.context() as patch:
        for name, value in kdc.environment.items():
            patch.setenv(name, value)
        yield kdc


@contextmanager
def kerberized_cluster(kdc: Kdc, properties: Mapping[str, str] | None = None) -> Iterator[Kerberized]:
    """A cluster that clients reach by SASL_PLAINTEXT."""
    listener = {**kerberos_listener(kdc), **(properties or {})}
    settings = {
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        **{f"listener.name.client.{name}": value for name, value in listener.items()},
    }
    with EmbeddedKafka(name="kerberized", properties=settings, jvm_options=[kdc.jvm_option]) as kafka:
        yield Kerberized(kdc, kafka)
