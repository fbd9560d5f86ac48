"""What a producer notes of records that no broker took."""

from pathlib import Path

import pytest

from demo.brokers.ports import PortReservation
from demo.clients import producers
from demo.clients.producers import NotingProducer, Place
from demo.clients.settings import Settings
from demo.clients.topics import BY_NAME
from demo.notes import NOT_ACKNOWLEDGED, RunDirectory, read_status


def test_records_that_no_broker_took_are_noted_as_not_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(producers.DELIVERY, "delivery.timeout.ms", 1_000)
    ports = PortReservation(1)
    servers = {"bootstrap.servers": f"127.0.0.1:{next(iter(ports))}", "log_level": "0"}
    run = RunDirectory(tmp_path / "run")
    settings = Settings(source=servers, target=servers)
    run.create(settings)
    producer = NotingProducer(run, settings, "producer-1", pace="live")
    producer.send(Place(BY_NAME["demo.orders"], 2))
    producer.send(Place(BY_NAME["demo.clicks"], 0))
    producer.end()
    ports.release()
    lines = sorted(line.split("\t")[:4] for line in run.producer_notes("producer-1").read_text().splitlines())
    assert lines == [
        ["producer-1-0", "demo.orders", "2", str(NOT_ACKNOWLEDGED)],
        ["producer-1-1", "demo.clicks", "0", str(NOT_ACKNOWLEDGED)],
    ]
    status = read_status(run.producer_notes("producer-1"))
    assert status == {"sent": 2, "acknowledged": 0, "failed": 2, "ended": True}
