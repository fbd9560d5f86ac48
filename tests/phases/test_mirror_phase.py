"""What the mirror phase notes around the copy itself."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kafka_migration.domain.errors import HaltedPartition
from kafka_migration.phases import mirror
from tests.phases import histories
from tests.phases.gates import Migration


def test_mirror_that_has_nothing_left_to_copy_is_noted_as_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the stop gate waits for it, and a task would start it again, for ever."""
    shop = Migration()
    histories.created(shop)
    ctx = shop.ctx()
    connection = SimpleNamespace(kafka_python=dict)
    ctx.source.connection = ctx.target.connection = connection  # type: ignore[misc,assignment]

    class Halted:
        def __init__(self, **_: object) -> None:
            pass

        def run(self, **_: object) -> None:
            raise HaltedPartition(topic="shop.orders", partition=0, reason="HALTED", detail="nothing is left to copy")

    monkeypatch.setattr(mirror, "pin", lambda _: [])
    monkeypatch.setattr(mirror, "Mirror", Halted)
    with pytest.raises(HaltedPartition):
        mirror.apply(ctx, runner=None)  # type: ignore[arg-type]
    run = ctx.link.run()
    assert run is not None
    assert (run["state"], run["reason"]) == ("ended", "halted")
