"""Several migrations between three clusters while producers write on every side: fan-out, aggregation, two clusters
which copy to each other, a chain. Each record is everywhere where it belongs, once and in order, and nowhere else."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from demo.brokers import EmbeddedKafka
from tests.cli.processes import connection, environment, run
from tests.kafka_tools import Row, create_topics, read_all
from tests.steps.cuts import IN_THREADS
from tests.waiting import wait_until

PARTITIONS, WRITING_SECONDS, PER_SECOND = 2, 6.0, 200
Rows = list[list[Row]]


@dataclass(frozen=True)
class Flow:
    """A migration from one cluster to another; ``never`` is what would go back otherwise, as a pattern."""

    source: str
    target: str
    prefix: str = ""
    never: str = ""


TOPOLOGIES = {
    "fan-out": (Flow("a", "b"), Flow("a", "c", prefix="a")),
    "aggregation": (Flow("a", "c", prefix="a"), Flow("b", "c", prefix="b")),
    "active/active": (Flow("a", "b", "a", never=r"(.*\.)?b\..*"), Flow("b", "a", "b", never=r"(.*\.)?a\..*")),
    "chain": (Flow("a", "b", prefix="a"), Flow("b", "c", prefix="b")),
}


@pytest.fixture(scope="module")
def clusters() -> Iterator[Mapping[str, EmbeddedKafka]]:
    with ExitStack() as stack:
        found = {name: EmbeddedKafka(name=f"{name}-of-three", heap_megabytes=384) for name in "abc"}
        for cluster in found.values():
            stack.callback(cluster.stop)
            cluster.launch()
        for cluster in found.values():
            cluster.wait_ready()
        yield found


class Scene:
    """The flows of one topology, each a plan of its own, of topics whose names end with ``topic``."""

    def __init__(self, flows: tuple[Flow, ...], servers: Mapping[str, str], folder: Path) -> None:
        self.flows, self.servers, self._folder = flows, servers, folder
        self.topic = f"topic-{uuid.uuid4().hex[:8]}"
        self._connections = {f"cluster_{name}": connection(address) for name, address in servers.items()}
        self.plans = [self._plan(number, flow) for number, flow in enumerate(flows)]

    def _plan(self, number: int, flow: Flow) -> str:
        path = self._folder / f"flow-{number}.yaml"
        document = {
            "version": 1,
            "name": f"{self.topic}-{number}",
            "source": f"cluster_{flow.source}",
            "target": f"cluster_{flow.target}",
            "topics": {"include": [rf"(.*\.)?{self.topic}"], "exclude": [flow.never] if flow.never else []},
            "naming": {"prefix": flow.prefix} if flow.prefix else "identity",
            "mirror": {"follow_new_topics": True},
            "approvals": {"plan": False, "cutover": False},
        }
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return str(path)

    @contextmanager
    def mirrors(self) -> Iterator[None]:
        """All copy meanwhile."""
        with ExitStack() as stack:
            for plan in self.plans:
                self.run("create", plan)
                log = stack.enter_context((self._folder / f"{Path(plan).stem}.log").open("w"))
                line = [sys.executable, "-c", IN_THREADS, "mirror", plan]
                mirror = subprocess.Popen(
                    line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment(self._connections)
                )
                stack.callback(mirror.wait, 60)
                stack.callback(mirror.send_signal, signal.SIGTERM)
            yield

    def run(self, command: str, plan: str) -> None:
        run(command, plan, connections=self._connections, directory=self._folder)

    def write(self, cluster: str) -> None:
        """Produce for some seconds."""
        producer = Producer({"bootstrap.servers": self.servers[cluster], "linger.ms": 5})
        began, sent = time.monotonic(), 0
        while (elapsed := time.monotonic() - began) < WRITING_SECONDS:
            while sent < elapsed * PER_SECOND:
                producer.produce(self.topic, f"{cluster}-{sent}".encode(), partition=sent % PARTITIONS)
                sent += 1
            producer.poll(0.01)
        assert producer.flush(60) == 0

    def rows(self, cluster: str, topic: str) -> Rows:
        found = read_all(self.servers[cluster], {topic: PARTITIONS})
        return [rows for _, rows in sorted(found.items())]

    def there(self, cluster: str) -> set[str]:
        """Topics of this scene on ``cluster``, whatever stands before their names."""
        names = AdminClient({"bootstrap.servers": self.servers[cluster]}).list_topics(timeout=30).topics
        return {name for name in names if name.endswith(self.topic)}

    def expected(self, written: set[str]) -> dict[str, dict[str, str]]:
        """Topics by cluster, each with the cluster where its records were written."""
        found: dict[str, dict[str, str]] = {name: {} for name in self.servers}
        for name in written:
            found[name][self.topic] = name
        # As often as there are flows: what one copied, another one copies on.
        for flow in self.flows * len(self.flows):
            for topic, origin in list(found[flow.source].items()):
                if not (flow.never and re.fullmatch(flow.never, topic)):
                    found[flow.target][f"{flow.prefix}.{topic}" if flow.prefix else topic] = origin
        return found


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_records_reach_every_cluster_where_they_belong_once_and_in_order(
    clusters: Mapping[str, EmbeddedKafka], topology: str, tmp_path: Path
) -> None:
    flows = TOPOLOGIES[topology]
    scene = Scene(flows, {name: cluster.bootstrap_servers for name, cluster in clusters.items()}, tmp_path)
    written = {flow.source for flow in flows}
    for name in written:
        create_topics(scene.servers[name], {scene.topic: PARTITIONS})
    with scene.mirrors():
        writers = [threading.Thread(target=scene.write, args=(name,)) for name in written]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        # Topics that came meanwhile would be copied on.
        for plan in scene.plans:
            scene.run("create", plan)
        expected = scene.expected(written)
        origins = {name: scene.rows(name, scene.topic) for name in written}

        def all_there() -> bool:
            return all(
                sum(map(len, scene.rows(name, topic))) >= sum(map(len, origins[origin]))
                for name, topics in expected.items()
                for topic, origin in topics.items()
            )

        wait_until(all_there, "everything is copied", deadline_seconds=120)
    assert {name: scene.there(name) for name in scene.servers} == {name: set(found) for name, found in expected.items()}
    for name, topics in expected.items():
        for topic, origin in topics.items():
            copied, original = scene.rows(name, topic), origins[origin]
            print(f"{topology}: {topic} on {name}: {sum(map(len, copied)):,} of {sum(map(len, original)):,}")
            assert [[row.without_offset() for row in rows] for rows in copied] == [
                [row.without_offset() for row in rows] for rows in original
            ], f"{topic} on {name}"
    counts = {name: sum(map(len, rows)) for name, rows in origins.items()}
    assert all(count > WRITING_SECONDS * PER_SECOND / 2 for count in counts.values()), counts
