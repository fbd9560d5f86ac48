"""What is shown of a cluster that cannot be reached, by both kinds of connections."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import kafka.errors as kafka_errors
import pytest
from kafka.net.manager import KafkaConnectionManager

from kafka_migration.kafka.raw import _Connections
from kafka_migration.wire.connections import Connections

REFUSED, CUT_OFF = kafka_errors.KafkaConnectionError("refused"), kafka_errors.KafkaTimeoutError("no time left")


@pytest.mark.parametrize("kind", [_Connections, Connections])
@pytest.mark.parametrize(
    ("tries", "shown"),
    [
        ([REFUSED, CUT_OFF], REFUSED),
        ([CUT_OFF, REFUSED], REFUSED),
        ([CUT_OFF], CUT_OFF),
        ([REFUSED, None], None),
    ],
)
def test_last_reason_is_shown_and_not_that_time_was_over(
    kind: type[KafkaConnectionManager],
    tries: list[Exception | None],
    shown: Exception | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def connect(*_: object) -> None: ...

    monkeypatch.setattr(KafkaConnectionManager, "_connect", connect)
    connections: Any = object.__new__(kind)
    connections.last_failure = None
    for failure in tries:
        with pytest.raises(StopIteration):
            connections._connect(None, SimpleNamespace(init_future=SimpleNamespace(exception=failure))).send(None)
    assert connections.last_failure is shown
