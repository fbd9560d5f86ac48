"""What a producer notes of records that no broker took."""

from pathlib import Path

import pytest

from checker.history import UNKNOWN
from checker.reading import read
from demo.brokers.ports import PortReservation
from demo.clients import producers
from demo.clients.producers import NotingProducer, Place
from demo.clients.scenarios import BY_TOPIC
from demo.clients.settings import Settings
from demo.notes import RunDirectory, read_status


def test_records_that_no_broker_took_are_noted_as_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(producers.DELIVERY, "delivery.timeout.ms", 1_000)
    ports = PortReservation(1)
    servers = {"bootstrap.servers": f"127.0.0.1:{next(iter(ports))}", "log_level": "0"}
    run = RunDirectory(tmp_path / "run")
    settings = Settings(source=servers, target=servers)
    run.create(settings)
    producer = NotingProducer(run, settings, "producer-1", pace="live")
    producer.send(Place(BY_TOPIC["demo.orders"], 2))
    producer.send(Place(BY_TOPIC["demo.clicks"], 0))
    producer.end()
    ports.release()
    history = read(run.notes)
    assert history.value_names == ["producer-1-0", "producer-1-1"]
    assert [history.topic_names[number] for number in history.values.topic] == ["demo.orders", "demo.clicks"]
    # It may be in the log all the same: nobody has to receive it, and whoever does received what was sent.
    assert history.values.outcome.tolist() == [UNKNOWN, UNKNOWN]
    status = read_status(run.producer_notes("producer-1"))
    assert status == {"sent": 2, "acknowledged": 0, "failed": 2, "ended": True}
