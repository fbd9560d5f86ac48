"""MirrorMaker 2 as a process: a dedicated Connect worker, tuned as its users tune it."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench import processes
from demo import jars
from demo.brokers.process import LeashedProcess
from demo.java import java_executable

_LOG4J = """\
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
"""


def class_path() -> str:
    """Kafka's jars, and what Connect, MirrorMaker 2 and the tools add to them."""
    return f"{jars.class_path('kafka')}:{jars.class_path('mirrormaker')}"


def properties(
    source: str, target: str, topics: Sequence[str], *, codec: str = "none", tasks: int = 4
) -> dict[str, str]:
    """A dedicated worker's properties: topics keep their names, only records are copied.

    Tuned: large polls, batches of 256 KiB with a linger of 20 ms, and the source's codec, since it decompresses every
    record and compresses it again.
    """
    return {
        "clusters": "source, target",
        "source.bootstrap.servers": source,
        "target.bootstrap.servers": target,
        "source->target.enabled": "true",
        "target->source.enabled": "false",
        "source->target.topics": ",".join(topics),
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "tasks.max": str(tasks),
        # Nothing but the copy, so that nothing else costs CPU.
        "emit.heartbeats.enabled": "false",
        "emit.checkpoints.enabled": "false",
        "sync.topic.configs.enabled": "false",
        "sync.topic.acls.enabled": "false",
        "sync.group.offsets.enabled": "false",
        "refresh.groups.enabled": "false",
        "source.consumer.auto.offset.reset": "earliest",
        "source.consumer.max.poll.records": "5000",
        "target.producer.batch.size": str(256 * 1024),
        "target.producer.linger.ms": "20",
        "target.producer.compression.type": codec,
        "dedicated.mode.enable.internal.rest": "false",
    }


def is_its_own(topic: str) -> bool:
    """True if the worker keeps its state there."""
    return topic.startswith("mm2-") or topic == "heartbeats" or topic.endswith(".checkpoints.internal")


@contextmanager
def running(folder: Path, wanted: dict[str, str]) -> Iterator[tuple[LeashedProcess, Path]]:
    """The worker while the block runs, and the file that it logs to. Ended afterwards."""
    work = Path(tempfile.mkdtemp(prefix="mirrormaker-", dir=folder))
    (work / "log4j2.properties").write_text(_LOG4J)
    (work / "mm2.properties").write_text("".join(f"{key} = {value}\n" for key, value in wanted.items()))
    command = [
        str(java_executable()),
        *("-Xms1g", "-Xmx2g", "-XX:+UseG1GC", "-Djava.awt.headless=true"),
        f"-Dlog4j2.configurationFile={work / 'log4j2.properties'}",
        *("-cp", class_path()),
        "org.apache.kafka.connect.mirror.MirrorMaker",
        str(work / "mm2.properties"),
    ]
    log = work / "out.log"
    with processes.running(command, log, cwd=work, seconds=20) as process:
        yield process, log
