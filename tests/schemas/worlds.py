"""Two schema registries in memory, and the migration ``shop`` between them."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from kafka_migration.kafka.lookup import variable_of
from kafka_migration.migration.context import Context
from kafka_migration.schemas import copy, difference
from kafka_migration.schemas.difference import Difference
from tests.schemas.registry_server import RegistryServer
from tests.steps.gates import Migration
from tests.waiting import PATIENCE_SECONDS

JSON_SCHEMA = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}


def record(name: str, *fields: str, **types: str) -> dict[str, Any]:
    """An Avro record of ints, and of fields of other types."""
    typed = {**dict.fromkeys(fields, "int"), **types}
    return {"type": "record", "name": name, "fields": [{"name": one, "type": of} for one, of in typed.items()]}


class Registries:
    """The source's registry and the target's; what is asked of both goes through new contexts each time."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch, self.shop, self.fields = patch, Migration(), dict[str, Any]()
        self.source, self.target = RegistryServer(), RegistryServer()
        self.section: dict[str, Any] = {"source": "old_registry", "target": "new_registry"}
        for conn_id, server in (("old_registry", self.source), ("new_registry", self.target)):
            self.connect(conn_id, server.url)

    def connect(self, conn_id: str, url: str, **fields: Any) -> None:
        """Have a connection lead somewhere."""
        self._patch.setenv(variable_of(conn_id), json.dumps({"conn_type": "http", "host": url, **fields}))

    def ctx(self, **fields: Any) -> Context:
        return self.shop.ctx(schemas=self.section, **self.fields, **fields)

    def difference(self) -> Difference:
        return difference.read(self.ctx())

    def apply(self) -> Difference:
        return copy.apply(self.ctx())

    def close(self) -> None:
        self.source.close()
        self.target.close()


def register(url: str, subject: str, schema: Any, *references: tuple[str, str, int], **more: Any) -> int:
    """Register ``schema`` as a producer does, who gives no id; the id that it gets."""
    named = [{"name": name, "subject": of, "version": at} for name, of, at in references]
    body = {"schema": json.dumps(schema), "references": named, **more}
    path = f"/subjects/{quote(subject, safe='')}/versions"
    answer = httpx.post(f"{url}{path}", json=body, trust_env=False, timeout=PATIENCE_SECONDS)
    assert answer.is_success, answer.text
    return int(answer.json()["id"])
