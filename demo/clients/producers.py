"""A producer process: fills the topics once, or writes to them at a steady pace until SIGTERM.

    python -m demo.clients.producers RUN_DIRECTORY NAME preload|live INDEX

It notes each record before it is sent, and what became of it (docs/checker.md).
"""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from checker.recorder import Recorder
from demo.clients.records import RecordMaker
from demo.clients.settings import Settings
from demo.clients.termination import Termination
from demo.clients.topics import MIB, TOPICS, Codec, TopicSpec
from demo.notes import RunDirectory, status_path, write_json

TICK_SECONDS = 0.02
STATUS_SECONDS = 0.5
DELIVERY_TIMEOUT_MS = 60_000
PRELOAD_BURST = 500
LARGE_RECORD_GAP = 25
"""Records between two large ones of a preload."""

DELIVERY = {
    "enable.idempotence": True,
    "acks": "all",
    "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
    "message.max.bytes": 4 * MIB,
}
# What a preload writes behind a batch boundary has to be one batch of eight records or more, however long this process
# waits for a core between them: it lingers long. A flush does not wait for that.
PACE = {
    "preload": {"linger.ms": 2_000, "batch.size": MIB // 2, "queue.buffering.max.messages": 200_000},
    "live": {"linger.ms": 10, "batch.size": MIB // 4},
}


@dataclass(slots=True)
class Place:
    """A partition, and how many records this producer sent to it."""

    spec: TopicSpec
    partition: int
    sent: int = 0


class NotingProducer:
    """Sends records over all topics and notes what became of each.

    librdkafka compresses per client, not per topic, so there is one client for each codec. Delivery reports are
    called from `poll` in the caller's thread: nothing here needs a lock.
    """

    def __init__(self, run: RunDirectory, settings: Settings, name: str, *, pace: str) -> None:
        self.name = name
        self._failed = 0
        self._sent = 0
        self._acknowledged = 0
        self._maker = RecordMaker(seed=name)
        self._path = run.producer_notes(name)
        self._notes = Recorder(self._path, client=name, cluster="source", kind="idempotent")
        self._next_status = 0.0
        common = {**settings.producer_properties(), **DELIVERY, **PACE[pace], "client.id": name}
        codecs: set[Codec] = {spec.codec for spec in TOPICS}
        self._clients = {codec: Producer({**common, "compression.type": codec}) for codec in sorted(codecs)}

    def send(self, place: Place, *, large: bool = False) -> None:
        """Send one record to a partition; waits while librdkafka's queue is full."""
        spec, n = place.spec, self._sent
        record_id = f"{self.name}-{n}"
        key, value, headers = self._maker.make(spec, record_id, n, place.sent, large=large)
        client = self._clients[spec.codec]
        noted_key = None if key is None else key.decode()
        seq = self._notes.send(record_id, spec.name, partition=place.partition, key=noted_key)
        delivered = partial(self._delivered, seq, record_id, place)
        while True:
            try:
                client.produce(
                    spec.name,
                    value=value,
                    key=key,
                    partition=place.partition,
                    headers=headers,
                    on_delivery=delivered,
                )
                break
            except BufferError:
                client.poll(TICK_SECONDS)
        self._sent += 1
        place.sent += 1

    def poll(self) -> None:
        """Take delivery reports, and report progress twice a second."""
        for client in self._clients.values():
            client.poll(0)
        if time.monotonic() >= self._next_status:
            self._next_status = time.monotonic() + STATUS_SECONDS
            self._notes.flush()
            self._log(ended=False)

    def flush(self) -> None:
        """Wait until each record is acknowledged or given up."""
        for client in self._clients.values():
            client.flush(DELIVERY_TIMEOUT_MS / 1000 + 10)

    def end(self) -> None:
        """Flush, note the rest, and say that the notes are complete."""
        self.flush()
        self._notes.close()
        resolved = self._acknowledged + self._failed
        if resolved != self._sent:
            raise RuntimeError(f"{self.name}: {self._sent - resolved} records were neither acknowledged nor given up.")
        self._log(ended=True)

    def _delivered(self, seq: int, record_id: str, place: Place, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._notes.ack(seq, place.partition, message.offset())
            self._acknowledged += 1
        else:
            # It may have been written, and the answer lost.
            self._notes.failed(seq, certain=False)
            self._failed += 1
            print(f"{record_id} was not acknowledged: {error}", file=sys.stderr, flush=True)

    def _log(self, *, ended: bool) -> None:
        write_json(
            status_path(self._path),
            {"sent": self._sent, "acknowledged": self._acknowledged, "failed": self._failed, "ended": ended},
        )


def preload(producer: NotingProducer, settings: Settings, index: int) -> None:
    """Fill this preloader's part of the partitions, as fast as possible.

    Everything before the batch boundary of a partition is flushed before the rest is sent: so a batch ends there, and
    the log start offset can be put beside it or into the batch after it.
    """
    places = [Place(spec, number) for spec in TOPICS for number in range(spec.partitions)][index :: settings.preloaders]
    for place in places:
        for _ in range(place.spec.batch_boundary(place.partition)):
            producer.send(place)
    producer.flush()
    left = {id(place): _records(place.spec, settings, place.partition) - place.sent for place in places}
    while any(left.values()):
        for place in places:
            burst = min(PRELOAD_BURST, left[id(place)])
            left[id(place)] -= burst
            for _ in range(burst):
                producer.send(place, large=_is_large(place))
            producer.poll()


def live(producer: NotingProducer, settings: Settings, stop: Termination) -> None:
    """Write to all topics until `stop`: each at its share of the pace, in bursts, partition after partition."""
    total = sum(spec.share for spec in TOPICS)
    pace = settings.produced_per_second / settings.producers
    turns = [(spec, pace * spec.share / total, _turns(spec)) for spec in TOPICS]
    sent = dict.fromkeys((spec.name for spec in TOPICS), 0)
    started = time.monotonic()
    while not stop.asked:
        elapsed = time.monotonic() - started
        for spec, per_second, places in turns:
            # Due since the start, not since the last tick: after a pause the producer catches up.
            while elapsed * per_second - sent[spec.name] >= spec.burst:
                place = next(places)
                for _ in range(spec.burst):
                    producer.send(place)
                sent[spec.name] += spec.burst
        producer.poll()
        time.sleep(TICK_SECONDS)


def main(arguments: list[str]) -> int:
    """Run one producer. A record that was not acknowledged is noted so, and no failure of the producer."""
    directory, name, kind, index = arguments
    run = RunDirectory(Path(directory))
    settings = run.settings()
    stop = Termination().install()
    producer = NotingProducer(run, settings, name, pace=kind)
    if kind == "preload":
        preload(producer, settings, int(index))
    else:
        live(producer, settings, stop)
    producer.end()
    return 0


def _records(spec: TopicSpec, settings: Settings, partition: int) -> int:
    records = settings.big_topic_records if spec.big else settings.small_topic_records
    return spec.log_start(partition) - (-records // spec.partitions)


def _is_large(place: Place) -> bool:
    number, gap = divmod(place.sent - place.spec.batch_boundary(place.partition), LARGE_RECORD_GAP)
    return place.partition == 0 and gap == 0 and 0 < number <= place.spec.large_records


def _turns(spec: TopicSpec) -> Iterator[Place]:
    places = [Place(spec, partition) for partition in range(spec.partitions)]
    while True:
        yield from places


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
