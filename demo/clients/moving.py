"""A producer process of `make demo-full`: writes steadily on one cluster until SIGTERM, by librdkafka.

    python -m demo.clients.moving RUN_DIRECTORY NAME source|target TURN BEGUN_NS

Each process notes in a file of its own, by the name of the producer. MovingProducer.java is the same for Java's client.
With `preload` for a name it writes some records to every partition instead, and ends.
"""

import sys
import time
from functools import partial
from itertools import count
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from checker.recorder import Recorder
from demo.clients.scenarios import FULL, ProducerSpec
from demo.clients.settings import ClusterName, Settings, cluster_name
from demo.clients.termination import Termination
from demo.clients.topics import HEALTH
from demo.notes import RunDirectory, status_path, write_json

PRELOAD = "preload"
PRELOADED = 200
KEYS = 50
PARTITION_UA = -1
"""librdkafka chooses, by the key."""
TICK_SECONDS = 0.05
PER_TRANSACTION, ABORTS_EVERY = 3, 10
STATUS_SECONDS = 0.5
END_SECONDS = 60.0


class MovingProducer:
    """One producer on one cluster."""

    def __init__(
        self, run: RunDirectory, spec: ProducerSpec, cluster: ClusterName, turn: str, begun_ns: int, stop: Termination
    ) -> None:
        self._spec = spec
        self._stop = stop
        self._turn = turn
        self._path = run.producer_notes(f"{spec.name}-{turn}")
        self._notes = Recorder(self._path, client=spec.name, cluster=cluster, kind=spec.kind, started=begun_ns)
        settings = run.settings()
        self._per_second = settings.produced_per_second / len(FULL.producers)
        self._producer = Producer(client_properties(settings, spec, cluster))
        self._numbers = count()
        self._sent = self._acknowledged = self._failed = 0
        self._next_status = 0.0

    def run(self) -> None:
        """Until it is stopped; what was sent is acknowledged or given up by then.

        Raises:
            KafkaException: a transaction failed for good.
        """
        try:
            self._try_out()
            self._notes.ready()
            self._write()
            self._notes.stop(mono=self._stop.asked_ns)
        finally:
            self._producer.flush(END_SECONDS)
            # To end its connections and threads is a part of its end, as Java's close() is.
            del self._producer
            self._notes.close()
            self._log(has_ended=True)

    def _try_out(self) -> None:
        """It is at work once it can write, as an application is whose readiness probe does so: it has its connections,
        its producer id, and knows the partitions of its topics."""
        if self._spec.kind == "transactional":
            self._producer.init_transactions(END_SECONDS)
            self._producer.begin_transaction()
        problems: list[KafkaError | None] = []
        self._producer.produce(HEALTH, b"", on_delivery=lambda error, _: problems.append(error))
        self._producer.flush(END_SECONDS)
        if problems != [None]:
            raise RuntimeError(f"{self._spec.name}: nothing could be written to {HEALTH}: {problems}")
        if self._spec.kind == "transactional":
            self._producer.commit_transaction(END_SECONDS)
        # Last: until the markers of that commit are written, the coordinator takes no further transaction.
        for topic in self._spec.topics:
            self._producer.list_topics(topic, timeout=END_SECONDS)

    def preload(self, partitions: dict[str, int]) -> None:
        """Some records for every partition."""
        for topic, number in partitions.items():
            for partition in range(number):
                for _ in range(PRELOADED):
                    self._send(topic, partition=partition)
        self._producer.flush(END_SECONDS)
        self._notes.close()
        self._log(has_ended=True)

    def _write(self) -> None:
        done = 0
        each = PER_TRANSACTION if self._spec.kind == "transactional" else 1
        # The first is due at once: work has waited for an application that was away.
        started = time.monotonic() - each / self._per_second
        while not self._stop.asked:
            while not self._stop.asked and (time.monotonic() - started) * self._per_second - done >= each:
                done += each
                if self._spec.kind == "transactional":
                    self._transaction(is_aborted=done // each % ABORTS_EVERY == 0)
                else:
                    self._send(self._spec.topics[done % len(self._spec.topics)])
            self._producer.poll(TICK_SECONDS)
            if time.monotonic() >= self._next_status:
                self._next_status = time.monotonic() + STATUS_SECONDS
                self._notes.flush()
                self._log()

    def _transaction(self, *, is_aborted: bool) -> None:
        self._producer.begin_transaction()
        txn = self._notes.begin()
        for number in range(PER_TRANSACTION):
            self._send(self._spec.topics[number % len(self._spec.topics)], txn=txn)
        self._producer.flush(END_SECONDS)
        self._notes.end(txn, "abort" if is_aborted else "commit")
        try:
            if is_aborted:
                self._producer.abort_transaction(END_SECONDS)
            else:
                self._producer.commit_transaction(END_SECONDS)
        except KafkaException:
            self._notes.ended(txn, "unknown")
            raise
        self._notes.ended(txn, "aborted" if is_aborted else "committed")

    def _send(self, topic: str, *, partition: int | None = None, txn: int | None = None) -> None:
        number = next(self._numbers)
        record_id, key = f"{self._spec.name}.{self._turn}-{number}", f"key-{number % KEYS}"
        seq = self._notes.send(record_id, topic, partition=partition, key=key, txn=txn)
        self._sent += 1
        number = PARTITION_UA if partition is None else partition
        value, delivered = f'{{"id":"{record_id}"}}', partial(self._delivered, seq)
        self._producer.produce(topic, value, key, number, on_delivery=delivered)

    def _delivered(self, seq: int, error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        if error is None and partition is not None:
            self._notes.ack(seq, partition, message.offset())
            self._acknowledged += 1
        else:
            self._notes.failed(seq, certain=False)
            self._failed += 1
            print(f"not acknowledged: {error}", file=sys.stderr, flush=True)

    def _log(self, *, has_ended: bool = False) -> None:
        counts = {"sent": self._sent, "acknowledged": self._acknowledged, "failed": self._failed}
        write_json(status_path(self._path), {**counts, "ended": has_ended})


def client_properties(settings: Settings, spec: ProducerSpec, cluster: ClusterName) -> dict[str, str | int | bool]:
    """librdkafka properties of a producer."""
    properties: dict[str, str | int | bool] = {
        **settings.producer_properties(cluster),
        "client.id": spec.name,
        "linger.ms": 5,
        "compression.type": "lz4",
    }
    if spec.kind == "acks=1":
        return properties | {"acks": "1"}
    if spec.kind == "transactional":
        return properties | {"transactional.id": transactional_id(spec)}
    return properties | {"enable.idempotence": True}


def transactional_id(spec: ProducerSpec) -> str:
    """The same on both clusters, and over restarts."""
    return f"demo.{spec.name}"


def main(arguments: list[str]) -> int:
    """Run one producer."""
    directory, name, cluster, turn, begun_ns = arguments
    stop = Termination().install()
    preloader = ProducerSpec(name=PRELOAD, kind="idempotent", topics=())
    spec = {spec.name: spec for spec in (preloader, *FULL.producers)}[name]
    run = RunDirectory(Path(directory))
    producer = MovingProducer(run, spec, cluster_name(cluster), turn, int(begun_ns), stop)
    if spec is preloader:
        producer.preload({topic.name: topic.partitions for topic in FULL.topics})
    else:
        producer.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
