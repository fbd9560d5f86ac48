"""One whole migration by commands, each side by one way in."""

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_migration.domain.types import TopicPartition
from tests.cli.processes import finish, start
from tests.kafka_tools import Row, ToSend, commit_with, committed_with, produce_with, read_all_with
from tests.modes.clusters import Secured

RECORDS, PARTITIONS = 1_000, 2
_MASTER = "local[1]"
_SECONDS = 300.0
COMMANDS = (
    ("check",),
    ("create",),
    ("mirror", "--until-caught-up", "--master", _MASTER),
    ("validate", "--master", _MASTER),
    ("cutover",),
)


@dataclass
class Migration:
    """From ``source`` to ``target``, in ``folder``; ``modes`` are the ways in."""

    source: Secured
    target: Secured
    modes: tuple[str, str]
    folder: Path
    name: str = field(default_factory=lambda: f"modes-{uuid.uuid4().hex[:8]}")

    def problem(self) -> str:
        """Migrate; what was not as it should be, or nothing."""
        self._fill()
        plan, connections = str(self._plan()), self._connections()
        for words in COMMANDS:
            command = start(words[0], plan, *words[1:], connections=connections, directory=self.folder)
            done = finish(command, seconds=_SECONDS)
            if done.code:
                return f"{words[0]} ended with {done.code}: {(done.out + done.err).strip()[-1500:]}"
        return self._compared()

    def _fill(self) -> None:
        topic = NewTopic(self.name, num_partitions=PARTITIONS, replication_factor=1)
        # Held until it has answered: a client that is gone answers nothing.
        admin = AdminClient({**self.source.admin, "log_level": 0})
        admin.create_topics([topic])[self.name].result(30)
        records = (ToSend(b"%d" % n, b"k%d" % n, n % PARTITIONS) for n in range(RECORDS))
        produce_with(self.source.admin, self.name, records)
        commit_with(self.source.admin, self.name, {(self.name, 0): 123, (self.name, 1): 321})

    def _plan(self) -> Path:
        path = self.folder / f"{self.name}.yaml"
        document = {
            "version": 1,
            "name": self.name,
            "source": f"{self.name}_source",
            "target": f"{self.name}_target",
            "topics": {"include": [self.name]},
            "groups": {"include": [self.name]},
            "approvals": {"plan": False, "cutover": False},
            # So that each side is read by every client there is: ours, librdkafka's, and Spark's JVM.
            "validation": {"level": "record"},
            "cutover": {"rest_seconds": 1, "stopped_groups": [self.name]},
        }
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path

    def _connections(self) -> Mapping[str, str]:
        sides = zip(("source", "target"), (self.source, self.target), self.modes, strict=True)
        return {
            f"{self.name}_{side}": json.dumps({"conn_type": "kafka", "extra": cluster.properties(mode)})
            for side, cluster, mode in sides
        }

    def _compared(self) -> str:
        topics = {self.name: PARTITIONS}
        there, here = (read_all_with(cluster.admin, topics) for cluster in (self.source, self.target))
        for tp, rows in there.items():
            if [row.without_offset() for row in rows] != [row.without_offset() for row in here[tp]]:
                return f"{tp}: the records differ"
        before, after = (committed_with(cluster.admin, self.name) for cluster in (self.source, self.target))
        if before.keys() != after.keys():
            return f"the group has positions in {sorted(after)}, and had them in {sorted(before)}"
        for tp, offset in before.items():
            if _read(here, tp, after[tp]) != _read(there, tp, offset):
                return f"{tp}: position {offset} became {after[tp]}"
        return ""


def _read(rows: Mapping[TopicPartition, list[Row]], tp: TopicPartition, offset: int) -> int:
    """How many records a group has read that stands there."""
    return sum(1 for row in rows[tp] if row.offset < offset)
