"""Switching producers over between two real clusters with authorizers: live clients, their notes, and the commands."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import confluent_kafka
import pytest
import yaml
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from typer.testing import CliRunner

from checker.logs import LeaderChange
from checker.recorder import Recorder
from checker.verdict import Verdict, judge
from demo.brokers import EmbeddedKafka
from kafka_migration.cli.app import app
from kafka_migration.domain.types import TopicPartition, TopicSpec
from kafka_migration.kafka import jaas
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.types import Acl
from kafka_migration.link import switched
from kafka_migration.link.switched import Switch
from kafka_migration.migration.context import Context, open_context
from kafka_migration.plans.load import load_plan
from tests.cli.processes import Ended, connection, environment, finish
from tests.steps import histories
from tests.steps.hook_server import HookServer
from tests.waiting import wait_until

Side = Literal["source", "target"]
#: Principals: the migration's own, the probe, three producers, and a consumer group.
USERS = ("mover", "probe", "web", "till", "pay", "billing")
TOPICS = {"orders": 4, "payments": 2}
#: From one record of a producer (or one transaction of five) to the next.
EVERY_SECONDS = 0.02
PROGRAM = [sys.executable, "-m", "kafka_migration"]
#: The same, whose mirror copies in two threads of its own, for what is not about Spark: a session takes 20 s of CPU.
IN_THREADS = """
from kafka_migration.cli.app import app
from kafka_migration.steps import mirror
from tests.copy.bench import ThreadRunner
mirror.open_session = lambda *_, **__: None
mirror.close_session = lambda _: None
mirror.SparkRunner = lambda _: ThreadRunner()
app()
"""
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
#: Of brokers that let nobody do anything without an ACL.
AUTHORIZED = {
    "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.client.plain.sasl.jaas.config": jaas.entry(_PLAIN, {f"user_{user}": user for user in USERS}),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "group.initial.rebalance.delay.ms": "0",
}


class Clusters:
    """Source and target, which let nobody do anything without an ACL."""

    def __init__(self, source: EmbeddedKafka, target: EmbeddedKafka) -> None:
        self.both: dict[Side, EmbeddedKafka] = {"source": source, "target": target}

    def login(self, side: Side, user: str) -> dict[str, Any]:
        """Properties of a client."""
        return {
            "bootstrap.servers": self.both[side].bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": user,
        }

    @contextmanager
    def admin(self, side: Side) -> Iterator[Cluster]:
        """As a super user."""
        inside = {"bootstrap.servers": self.both[side].internal_servers}
        with Cluster(side, ClusterConnection("admin", inside)) as cluster:
            yield cluster


@contextmanager
def clusters() -> Iterator[Clusters]:
    """Both, started side by side."""
    both = [EmbeddedKafka(name=name, properties=AUTHORIZED, heap_megabytes=384) for name in ("from", "to")]
    try:
        for cluster in both:
            cluster.launch()
        for cluster in both:
            cluster.wait_ready()
        yield Clusters(*both)
    finally:
        for cluster in both:
            cluster.stop()


def acl(kind: str, name: str, user: str, operation: str, *, pattern: str = "LITERAL") -> Acl:
    return Acl(
        resource_type=kind,
        resource=name,
        pattern=pattern,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission="ALLOW",
    )


class Client:
    """An application, with a thread for each time that it is started. ``successes`` counts over all of them."""

    def __init__(self, cut: Cut, name: str) -> None:
        self.cut, self.name = cut, name
        self.successes = self.refused = self.starts = 0
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._recorder: Recorder | None = None
        self.died: BaseException | None = None

    def start(self, side: Side) -> None:
        self.stop()
        started, self.starts = time.monotonic_ns(), self.starts + 1
        self._stopping = threading.Event()
        self._recorder = self.recorder(side, started)
        self._thread = threading.Thread(target=self._run, args=(side, self._recorder, self._stopping), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Asked to stop, and waited for."""
        if self._thread is None or self._recorder is None:
            return
        self._recorder.stop()
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        self._recorder.close()
        self._thread = None
        assert self.died is None, (self.name, self.died)

    def lives(self) -> None:
        """Wait until it gets on."""
        so_far = self.successes
        wait_until(lambda: self.successes > so_far + 5, lambda: f"{self.name} gets on; died of {self.died}")

    def _run(self, side: Side, recorder: Recorder, stopping: threading.Event) -> None:
        try:
            self.work(side, recorder, stopping)
        except BaseException as error:
            self.died = error

    def recorder(self, side: Side, started: int) -> Recorder:
        raise NotImplementedError

    def work(self, side: Side, recorder: Recorder, stopping: threading.Event) -> None:
        raise NotImplementedError

    def _notes(self, side: Side) -> Path:
        return self.cut.notes / f"{self.name}.{self.starts}.{side}.jsonl"


class Writer(Client):
    """Writes by keys of its own, each to its partition, and goes on after a refusal with other values."""

    def __init__(self, cut: Cut, name: str, kind: Literal["idempotent", "transactional", "acks=1"], topic: str) -> None:
        super().__init__(cut, name)
        self.kind, self.topic, self._called = kind, cut.topic(topic), ""
        self._number = 0

    def recorder(self, side: Side, started: int) -> Recorder:
        return Recorder(self._notes(side), client=self.name, cluster=side, kind=self.kind, started=started)

    def work(self, side: Side, recorder: Recorder, stopping: threading.Event) -> None:
        kinds: dict[str, dict[str, Any]] = {
            "idempotent": {"enable.idempotence": True},
            "acks=1": {"acks": 1, "enable.idempotence": False},
            "transactional": {"transactional.id": f"{self.cut.name}.{self.name}"},
        }
        login, self._called = self.cut.clusters.login(side, self.name), self.cut.called(side, self.topic)
        producer = Producer({**login, **kinds[self.kind], "linger.ms": 2, "log_level": 0})
        if self.kind == "transactional":
            producer.init_transactions(60)
        recorder.ready()
        while not stopping.is_set():
            if self.kind == "transactional":
                self._transaction(producer, recorder)
            else:
                self._send(producer, recorder)
            # A record of a steady rate, or a transaction: what is measured is the switch, and not a full machine.
            producer.poll(0)
            stopping.wait(EVERY_SECONDS)
        if producer.flush(0.5 if self.kind == "idempotent" else 30):
            producer.purge()
            producer.poll(0.1)

    def _transaction(self, producer: Producer, recorder: Recorder) -> None:
        producer.begin_transaction()
        txn = recorder.begin()
        for _ in range(5):
            self._send(producer, recorder, txn)
        recorder.end(txn, "commit")
        try:
            producer.commit_transaction(60)
        except KafkaException:
            recorder.ended(txn, "unknown")
            raise
        recorder.ended(txn, "committed")

    def _send(self, producer: Producer, recorder: Recorder, txn: int | None = None) -> None:
        self._number += 1
        key, value = f"{self.name}-{self._number % 7}", f"{self.name}-{self._number}"
        seq = recorder.send(value, self.topic, key=key, txn=txn)

        def delivered(error: KafkaError | None, message: Message) -> None:
            partition = message.partition()
            if error is None and partition is not None:
                recorder.ack(seq, partition, message.offset())
                self.successes += 1
            else:
                recorder.failed(seq, certain=False)
                self.refused += 1

        try:
            producer.produce(self._called, value.encode(), key.encode(), on_delivery=delivered)
        except KafkaException as error:
            # Once it was refused, the client refuses by itself, until metadata show the topic again.
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            recorder.failed(seq, certain=True)
            self.refused += 1


class Reader(Client):
    """The only member of a group, which commits what it has received: of all topics, unless they are given."""

    def __init__(self, cut: Cut, group: str, name: str = "billing", topics: Iterable[str] = ()) -> None:
        super().__init__(cut, name)
        self.group, self.topics = group, list(topics) or list(cut.topics)

    def recorder(self, side: Side, started: int) -> Recorder:
        return Recorder(self._notes(side), client=self.name, cluster=side, group=self.group, started=started)

    def work(self, side: Side, recorder: Recorder, stopping: threading.Event) -> None:
        own = {"group.id": self.group, "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
        consumer = Consumer({**self.cut.clusters.login(side, "billing"), **own})
        known = self.cut.known
        consumer.subscribe(
            [self.cut.called(side, topic) for topic in self.topics],
            on_assign=lambda _, added: recorder.assign(
                [(known(place.topic), place.partition, None) for place in added]
            ),
            on_revoke=lambda _, gone: recorder.revoke([(known(place.topic), place.partition) for place in gone]),
        )
        stands: dict[tuple[str, int], int] = {}
        while not stopping.is_set():
            for message in consumer.consume(500, 0.1):
                if message.error() is None:
                    place = _receive(self.cut, recorder, message)
                    stands[place[:2]] = place[2] + 1
                    self.successes += 1
            if stands:
                self._commit(consumer, recorder, stands)
        consumer.close()

    def _commit(self, consumer: Consumer, recorder: Recorder, stands: dict[tuple[str, int], int]) -> None:
        positions = [(topic, partition, offset) for (topic, partition), offset in stands.items()]
        number = recorder.commit([(self.cut.known(topic), number, offset) for topic, number, offset in positions])
        self._commit_now(consumer, positions)
        recorder.committed(number, "ok")
        stands.clear()

    @staticmethod
    def _commit_now(consumer: Consumer, positions: list[tuple[str, int, int]]) -> None:
        consumer.commit(offsets=[confluent_kafka.TopicPartition(*place) for place in positions], asynchronous=False)


def _receive(cut: Cut, recorder: Recorder, message: Message) -> tuple[str, int, int]:
    """Notes it as the source calls its topic; returns its place here."""
    topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
    value, key = message.value(), message.key()
    assert isinstance(value, bytes)
    assert isinstance(key, bytes)
    recorder.receipt(cut.known(topic), partition, offset, value.decode(), key=key.decode())
    return topic, partition, offset


def plan(name: str, hooks: HookServer, producers: Mapping[str, Any], **sections: Any) -> dict[str, Any]:
    """Of a migration between both clusters, of the topics and groups whose names begin with its own."""
    mine = f"{name}\\..*"
    urls = {verb: [{"http": {"url": f"{hooks.url}/{verb}/{{cluster}}/{{phase}}/"}}] for verb in ("stop", "start")}
    fence = {"probe": "probe_source", "super_users": ["User:ANONYMOUS"]}
    return {
        "version": 1,
        "name": name,
        "source": "mover_source",
        "target": "mover_target",
        "topics": {"include": [mine]},
        "groups": {"include": [mine]},
        "approvals": {"plan": False, "cutover": False},
        "consumers": hooks.consumers,
        "lag_gate": {"threshold_records": 2_000},
        "producers": {"fence": fence, **urls, **producers},
        **sections,
    }


class Cut:
    """One migration, from its clients' first record to the judge. Begin it with :meth:`begin`."""

    replicas = 1
    on_spark = True

    def __init__(
        self, both: Clusters, hooks: HookServer, folder: Path, producers: dict[str, Any] | None = None, **sections: Any
    ) -> None:
        self.clusters, self.hooks, self.folder = both, hooks, folder
        self.name = f"cut-{uuid.uuid4().hex[:8]}"
        #: What the target's names of topics begin with.
        self.prefix = f"{sections['naming']['prefix']}." if "naming" in sections else ""
        self.producers_first = bool((producers or {}).get("first"))
        self.topics = {self.topic(name): count for name, count in TOPICS.items()}
        self.group = f"{self.name}.billing"
        self.notes = folder / "notes"
        self.path = folder / f"{self.name}.yaml"
        self.path.write_text(
            yaml.safe_dump(plan(self.name, self.hooks, producers or {}, cutover={"rest_seconds": 1}, **sections))
        )
        self.web = Writer(self, "web", "idempotent", "orders")
        self.till = Writer(self, "till", "transactional", "payments")
        self.pay = Writer(self, "pay", "acks=1", "orders")
        self.writers = (self.web, self.till, self.pay)
        self.reader = Reader(self, self.group)
        self.mirror: subprocess.Popen[str] | None = None
        hooks.on("stop", "source", lambda group: self.reader.stop() if group else self._stop_politely())
        hooks.on("start", "source", lambda group: self._start("source", group))
        hooks.on("start", "target", lambda group: self._start("target", group))

    @property
    def clients(self) -> tuple[Client, ...]:
        """All of its applications."""
        return *self.writers, self.reader

    def all_live(self) -> None:
        """Wait until each gets on."""
        for client in self.clients:
            client.lives()

    def topic(self, name: str) -> str:
        return f"{self.name}.{name}"

    def called(self, side: Side, topic: str) -> str:
        """What ``side`` calls ``topic``."""
        return self.prefix + topic if side == "target" else topic

    def known(self, name: str) -> str:
        """The topic that a side calls ``name``: as the source does."""
        return name.removeprefix(self.prefix)

    def _stop_politely(self) -> None:
        """Two of three: the third one meets the fence."""
        self.till.stop()
        self.pay.stop()

    def _start(self, side: Side, group: str) -> None:
        for client in (self.reader,) if group else self.writers:
            client.start(side)

    # -- up to the switch ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Clients write and read, everything is mirrored, and the group was moved unless producers go first."""
        self._grant()
        self._start("source", "")
        self.reader.start("source")
        self.all_live()
        self.run("create")
        self.start_mirror()
        self.run("lag", "--gate")
        self.validated()
        if not self.producers_first:
            self.cut_over()

    def cut_over(self) -> None:
        """The group is moved, and goes on on the target."""
        self.run("cutover")
        self.run("watch")

    def _grant(self) -> None:
        for side in self.clusters.both:
            self._grant_on(side)
        with self.clusters.admin("source") as admin:
            admin.create_topics(
                [
                    TopicSpec(name=name, partitions=count, replication_factor=self.replicas)
                    for name, count in self.topics.items()
                ]
            )
            wait_until(lambda: admin.topics(self.topics).keys() == self.topics.keys(), "topics are there")

    def _grant_on(self, side: Side) -> None:
        topics = self.called(side, self.name)
        everything = [
            *(acl(kind, "*", "mover", "ALL") for kind in ("TOPIC", "GROUP", "TRANSACTIONAL_ID")),
            acl("CLUSTER", "kafka-cluster", "mover", "ALL"),
            *(acl("TOPIC", topics, user, "WRITE", pattern="PREFIXED") for user in ("web", "till", "pay", "probe")),
            acl("TRANSACTIONAL_ID", self.name, "till", "ALL", pattern="PREFIXED"),
            acl("TOPIC", topics, "billing", "READ", pattern="PREFIXED"),
            acl("GROUP", self.name, "billing", "READ", pattern="PREFIXED"),
            acl("GROUP", self.name, "probe", "READ", pattern="PREFIXED"),
        ]
        with self.clusters.admin(side) as admin:
            admin.create_acls(everything)
            wait_until(lambda: set(everything) <= set(admin.acls()), "ACLs are known")

    def refuses(self, side: Side, user: str) -> bool:
        """Whether ``side`` denies ``user`` writing a record (one that is let in is lost: do not judge after that)."""
        errors: list[KafkaError | None] = []
        producer = Producer({**self.clusters.login(side, user), "log_level": 0})
        producer.produce(
            self.called(side, self.topic("orders")), b"x", on_delivery=lambda error, _: errors.append(error)
        )
        producer.flush(60)
        return errors == [KafkaError.TOPIC_AUTHORIZATION_FAILED]

    def commits_on_source(self) -> None:
        """A commit of the group, as if it went on there."""
        consumer = Consumer({**self.clusters.login("source", "billing"), "group.id": self.group, "log_level": 0})
        try:
            consumer.commit(offsets=[confluent_kafka.TopicPartition(self.topic("orders"), 0, 1)], asynchronous=False)
        finally:
            consumer.close()

    def start_mirror(self, *words: str) -> None:
        """As a process of its own."""
        log = (self.folder / f"{self.name}.mirror.log").open("a")
        program = PROGRAM if self.on_spark else [sys.executable, "-c", IN_THREADS]
        self.mirror = subprocess.Popen(
            [*program, "mirror", str(self.path), "--master", "local[2]", *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            text=True,
            env=environment({}),
            cwd=self.folder,
        )

    def validated(self) -> None:
        """A verdict, as a validation records it."""
        with self.context() as ctx:
            histories.equal(ctx, [TopicPartition(topic, p) for topic, n in self.topics.items() for p in range(n)])

    # -- commands -----------------------------------------------------------------------------------------------------

    def run(self, command: str, *words: str, code: int = 0) -> Ended:
        """In this process."""
        result = CliRunner().invoke(app, [command, str(self.path), *words])
        ended = Ended(result.exit_code, result.stdout, result.stderr)
        assert ended.code == code, f"{command} {words}: {ended} {result.exception!r}\n{self.mirror_log()}"
        return ended

    def begin_switch(self, dies_before: str = "", words: Sequence[str] = ()) -> subprocess.Popen[str]:
        """In a process of its own, which kills itself before it calls what is named as ``module:name``."""
        line = PROGRAM
        if dies_before:
            module, _, name = dies_before.partition(":")
            code = (
                f"import os, signal, {module} as at\n"
                f"at.{name} = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
                "from kafka_migration.cli.app import app\napp()"
            )
            line = [sys.executable, "-c", code]
        return self.begin_command("switch", line, words)

    def begin_command(
        self, command: str, line: Sequence[str] = PROGRAM, words: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        """In a process of its own."""
        return subprocess.Popen(
            [*line, command, str(self.path), "--json", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment({}),
            cwd=self.folder,
        )

    def switch(self, dies_before: str = "", *, words: Sequence[str] = (), code: int = 0) -> Ended:
        ended = finish(self.begin_switch(dies_before, words))
        wanted = -signal.SIGKILL if dies_before else code
        assert ended.code == wanted, f"{ended}\n{self.mirror_log()}"
        return ended

    def mirror_log(self) -> str:
        log = self.folder / f"{self.name}.mirror.log"
        return log.read_text()[-3000:] if log.exists() else ""

    @contextmanager
    def context(self) -> Iterator[Context]:
        with open_context(load_plan(self.path)) as ctx:
            yield ctx

    def record(self) -> Switch:
        """What the journal has."""
        with self.context() as ctx:
            found = switched.read(ctx)
        assert found is not None
        return found

    # -- afterwards ---------------------------------------------------------------------------------------------------

    def judged(
        self, *sides: Side, settle: Callable[[], object] = lambda: None, leaders: Sequence[LeaderChange] = ()
    ) -> Verdict:
        """All clients get on and are ended; after ``settle``, ``sides`` (or the target) are read to their ends.
        ``leaders`` have changed meanwhile."""
        self.all_live()
        for client in self.clients:
            client.stop()
        settle()
        for side in sides or ("target",):
            self.read_finally(side)
        return judge(self.notes, leaders=leaders)

    def read_finally(self, side: Side) -> None:
        """Read all that stands there to its end, as a super user."""
        recorder = Recorder(self.notes / f"final.{side}.jsonl", client=f"final-{side}", cluster=side, final=True)
        inside = {"bootstrap.servers": self.clusters.both[side].internal_servers}
        own = {"group.id": f"{self.name}-final", "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = Consumer({**inside, **own})
        places = [
            confluent_kafka.TopicPartition(self.called(side, topic), p, 0)
            for topic, n in self.topics.items()
            for p in range(n)
        ]
        recorder.assign([(self.known(place.topic), place.partition, 0) for place in places])
        consumer.assign(places)
        ended: set[tuple[str | None, int | None]] = set()

        def is_read() -> bool:
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    _receive(self, recorder, message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add((message.topic(), message.partition()))
            return len(ended) == len(places)

        wait_until(is_read, f"the {side} is read to its end")
        consumer.close()
        recorder.close()

    def close(self) -> None:
        for client in self.clients:
            client.died = None
            client.stop()
        if self.mirror is not None and self.mirror.poll() is None:
            self.mirror.kill()
            self.mirror.wait()


def milliseconds(start: str, end: str) -> float:
    """Between two times of the journal."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds() * 1000


def connect(patch: pytest.MonkeyPatch, both: Clusters, hooks: HookServer) -> None:
    """The connections of plans, and the permission to call hooks, in this process's environment."""
    for user in ("mover", "probe"):
        for side in both.both:
            login = {name.replace(".", "_"): value for name, value in both.login(side, user).items()}
            servers = login.pop("bootstrap_servers")
            patch.setenv(f"AIRFLOW_CONN_{user}_{side}".upper(), connection(servers, **login))
    for name, value in hooks.environ.items():
        patch.setenv(name, value)
