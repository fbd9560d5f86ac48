"""This project's mirror as a process: the commands that a person types, on Spark's local master with two cores."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from bench.processes import running
from demo import jars
from demo.brokers.process import LeashedProcess
from demo.jars import ROOT
from kafka_migration.kafka.lookup import variable_of

MASTER = "local[2]"


class Migration:
    """A plan between two clusters, and its commands."""

    def __init__(self, folder: Path, source: str, target: str, topics: Sequence[str], **sections: object) -> None:
        """Writes the plan into ``folder``; ``sections`` are sections of it, ``mirror`` for instance."""
        self.name = f"bench-{uuid.uuid4().hex[:8]}"
        self.path = folder / f"{self.name}.yaml"
        self._folder = folder
        document = {
            "version": 1,
            "name": self.name,
            "source": f"{self.name}_source",
            "target": f"{self.name}_target",
            "topics": {"include": list(topics)},
            "approvals": {"plan": False},
            "mirror": {"num_streams": 2},
            **sections,
        }
        self.path.write_text(yaml.safe_dump(document))
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT / "plugins"), str(ROOT))),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "KAFKA_MIGRATION_SPARK_JARS": ",".join(str(path) for path in jars.paths("spark")),
            **_connections(self.name, {"source": source, "target": target}),
        }

    def command(self, *words: str) -> list[str]:
        """The command line of one command on this plan."""
        return [sys.executable, "-m", "kafka_migration", words[0], str(self.path), *words[1:]]

    def run(self, *words: str) -> str:
        """Run a command to its end; what it printed. Raises RuntimeError, with that, unless it exits with 0."""
        done = subprocess.run(
            self.command(*words),
            env=self.environment,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)} exits with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    @contextmanager
    def mirroring(self, *words: str) -> Iterator[tuple[LeashedProcess, Path]]:
        """The mirror while the block runs, and the file that it logs to. Ended afterwards, if it has not by itself."""
        log = self._folder / f"{self.name}.log"
        command = self.command("mirror", "--master", MASTER, *words)
        with running(command, log, cwd=self._folder, env=self.environment, seconds=60) as process:
            yield process, log


def _connections(name: str, servers: Mapping[str, str]) -> dict[str, str]:
    return {
        variable_of(f"{name}_{side}"): json.dumps(
            {"conn_type": "kafka", "extra": json.dumps({"bootstrap.servers": address})}
        )
        for side, address in servers.items()
    }
