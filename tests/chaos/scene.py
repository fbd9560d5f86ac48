"""One round's own: topics on the source, a plan and its link, the workload's processes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import confluent_kafka
import yaml
from confluent_kafka.admin import OffsetSpec

from kafka_migration.domain import ledger
from kafka_migration.domain.types import Desired, TopicPartition
from kafka_migration.kafka.lookup import variable_of
from kafka_migration.state.link import LinkState, Wish
from kafka_migration.wire import fetch
from tests.chaos.reader import Place, bounds
from tests.chaos.replicas import data_folders, held_by_all
from tests.chaos.short import REQUEST_SECONDS
from tests.chaos.stage import AS_MIRROR, Stage
from tests.chaos.topics import COMPACTED, KEPT, KINDS, topic
from tests.chaos.workload import Orders
from tests.kafka_tools import create_topics
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
_EPOCH_SECONDS = 15
_COMMAND_SECONDS = 120.0
_END_SECONDS = 240.0
_DECIDED_SECONDS = 60.0


@dataclass
class Scene:
    """Names and places of a round. `folder` holds its plan and what its processes say."""

    stage: Stage
    name: str
    kinds: tuple[str, ...]
    replicas: int
    folder: Path

    @property
    def topics(self) -> dict[str, int]:
        return {topic(self.name, kind): KINDS[kind].partitions for kind in self.kinds}

    @property
    def keyed(self) -> set[str]:
        return {topic(self.name, kind) for kind in self.kinds if kind in COMPACTED}

    @property
    def places(self) -> list[Place]:
        return [(name, partition) for name, count in self.topics.items() for partition in range(count)]

    @property
    def plan(self) -> Path:
        return self.folder / "plan.yaml"

    @property
    def client_id(self) -> str:
        """Of the mirror's clients on the target."""
        return f"kafka-migration.{self.name}.target"

    @property
    def environment(self) -> dict[str, str]:
        """In which a command finds the clusters: through the network."""
        extra = {"socket.timeout.ms": int(REQUEST_SECONDS * 1000)}
        connections = {
            variable_of(f"{self.name}_{side}"): json.dumps(
                {
                    "conn_type": "kafka",
                    "extra": {
                        "bootstrap.servers": cluster.servers,
                        **extra,
                        **(AS_MIRROR if side == "target" else {}),
                    },
                }
            )
            for side, cluster in self.stage.clusters.items()
        }
        return {**os.environ, **connections, "PYTHONPATH": f"{ROOT / 'plugins'}{os.pathsep}{ROOT}"}

    def create_source(self) -> None:
        """Create the topics on the source, each as its kind says."""
        safe = {"min.insync.replicas": "2"} if self.replicas > 1 else {}
        for kind in self.kinds:
            create_topics(
                self.stage.source.direct,
                {topic(self.name, kind): KINDS[kind].partitions},
                {**KEPT, **safe, **KINDS[kind].configs},
                replicas=self.replicas,
            )

    def write_plan(self) -> None:
        """Write the plan for them."""
        document = {
            "version": 1,
            "name": self.name,
            "source": f"{self.name}_source",
            "target": f"{self.name}_target",
            "topics": {"include": list(self.topics)},
            "mirror": {"num_streams": 2, "epoch_seconds": _EPOCH_SECONDS},
            "approvals": {"plan": False, "cutover": False},
        }
        self.plan.write_text(yaml.safe_dump(document))

    def create_target(self) -> None:
        """Have the product make the topics on the target: ``create``. Raises RuntimeError if it refuses."""
        done = subprocess.run(
            [sys.executable, "-m", "kafka_migration", "create", str(self.plan)],
            env=self.environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"create ended with {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")

    def link(self) -> LinkState:
        """The link's state, as it is now."""
        return LinkState.on_target(self.name, {"bootstrap.servers": self.stage.target.direct})

    def await_decided(self) -> None:
        """Wait until no transaction is open on the source any more: those of producers that died time out."""
        wait_until(self._is_decided, "every transaction is decided", deadline_seconds=_DECIDED_SECONDS)

    def _is_decided(self) -> bool:
        try:
            bounds(self.stage.source.direct, self.places)
        except ValueError:
            return False
        return True

    def wish_drain(self) -> None:
        """Have the mirror end once it has copied what is on the source now."""
        wanted = {confluent_kafka.TopicPartition(*place): OffsetSpec.latest() for place in self.places}
        # Kept: an admin client that nobody holds any more answers nothing.
        admin = self.stage.source.admin()
        answers = admin.list_offsets(wanted)
        ends = {TopicPartition(tp.topic, tp.partition): it.result(30).offset for tp, it in answers.items()}
        link = self.link()
        try:
            link.wish(
                Wish(desired=Desired.DRAIN, ends=ends, reason="the round is over", at="2026-01-01T00:00:00+00:00")
            )
        finally:
            link.close()

    def write_headers(self, place: Place) -> None:
        """Who wrote each batch of the target's log, and where, into a file of the folder."""
        tp, properties = TopicPartition(*place), {"bootstrap_servers": self.stage.target.direct}
        start, end = bounds(self.stage.target.direct, [place])[place]
        found = fetch.read_headers(properties, "target", {tp: start}, {tp: end})[tp]
        names = ("base_offset", "records", "producer_id", "producer_epoch", "base_sequence", "max_timestamp")
        lines = (" ".join(str(getattr(header, name)) for name in (*names, "is_control")) for header in found)
        (self.folder / f"{tp}.batches").write_text("\n".join([" ".join(names), *lines]) + "\n", encoding="utf-8")

    def held_by_all(self) -> dict[Place, frozenset[int]]:
        """The offsets that every replica of the source holds, of what is compacted; nothing where replicas are one."""
        if self.replicas == 1:
            return {}
        source = self.stage.source
        folders = data_folders(source.kafka.data_dir, source.nodes)
        return held_by_all(folders, {name: self.topics[name] for name in self.keyed})

    def remove(self) -> None:
        """Delete the round's topics, and all state: it would grow from round to round."""
        self.stage.source.delete(self.topics)
        self.stage.target.delete([*self.topics, *ledger.PARTITIONS])


class Workload:
    """The producers' processes."""

    def __init__(self, orders: Sequence[Orders], folder: Path) -> None:
        self._errors = [(folder / f"workload-{at + 1}.log").open("w+") for at in range(len(orders))]
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.workload", it.as_json()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
            )
            for it, errors in zip(orders, self._errors, strict=True)
        ]

    def await_prefilled(self) -> None:
        """Wait until all have written what they write at once."""
        for process in self._processes:
            if _out(process).readline() != "prefilled\n":
                raise RuntimeError(self._said())

    def finish(self) -> int:
        """Have them end, and wait until all is acknowledged; how many records they wrote."""
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        records = 0
        for process in self._processes:
            if process.wait(_END_SECONDS):
                raise RuntimeError(self._said())
            records += json.loads(_out(process).readline())["records"]
        return records

    def _said(self) -> str:
        said = []
        for errors in self._errors:
            errors.seek(0)
            said.append(errors.read()[-2000:])
        return "the workload failed: " + "\n".join(said)

    def end(self) -> None:
        """Kill what still runs."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait(180)
        for errors in self._errors:
            errors.close()


def _out(process: "subprocess.Popen[str]") -> IO[str]:
    if process.stdout is None:
        raise RuntimeError("a workload has no output")
    return process.stdout


@contextmanager
def workload(orders: Sequence[Orders], folder: Path) -> Iterator[Workload]:
    """Start it; whatever happens, it ends."""
    with ExitStack() as stack:
        found = Workload(orders, folder)
        stack.callback(found.end)
        yield found
