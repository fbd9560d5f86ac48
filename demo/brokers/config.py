"""What a broker node is told: where its files are, its properties, its log configuration, its command line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.brokers.ports import HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Ports and files of one node, which is broker and controller in one process.

    The `client_port` is what the outside uses, and the only listener that security settings need to touch. Nodes
    talk among themselves on `internal_port`, which stays plaintext: a cluster can be started and administered
    without credentials, however its client listener is guarded. Clients are told `advertised_port` instead of
    `client_port`, where something stands in between.
    """

    node_id: int
    client_port: int
    internal_port: int
    controller_port: int
    directory: Path
    advertised_port: int | None = None

    @property
    def data(self) -> Path:
        """Where the broker keeps its logs, in Kafka's sense."""
        return self.directory / "data"

    @property
    def server_log(self) -> Path:
        """Where the broker writes its log, in everyone else's sense."""
        return self.directory / "server.log"

    @property
    def console_log(self) -> Path:
        """What the JVM itself prints."""
        return self.directory / "console.log"

    @property
    def properties_file(self) -> Path:
        """The server properties as the broker reads them."""
        return self.directory / "server.properties"

    @property
    def log4j_file(self) -> Path:
        """The log configuration as the broker reads it."""
        return self.directory / "log4j2.properties"


def server_properties(node: Layout, nodes: Sequence[Layout], overrides: Mapping[str, str | None]) -> dict[str, str]:
    """Properties of one node of `nodes`: defaults for a small machine, then `overrides` (None removes one)."""
    ports = {"CLIENT": node.client_port, "INTERNAL": node.internal_port, "CONTROLLER": node.controller_port}
    replication = str(min(3, len(nodes)))
    defaults = {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": ",".join(f"{n.node_id}@{HOST}:{n.controller_port}" for n in nodes),
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in ports),
        "inter.broker.listener.name": "INTERNAL",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(node.data),
        "auto.create.topics.enable": "false",
        "default.replication.factor": replication,
        # A newly joined member waits 3 s for others otherwise, in every test.
        "group.initial.rebalance.delay.ms": "0",
        # Fifty partitions of each would cost seconds of start-up and hundreds of open files.
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": replication,
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": replication,
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": replication,
        "share.coordinator.state.topic.min.isr": "1",
        "log.cleaner.enable": "true",
        # A quarter of the heap by default.
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        "num.network.threads": "2",
        "num.io.threads": "4",
    }
    if node.advertised_port is not None:
        defaults["advertised.listeners"] = (
            f"CLIENT://{HOST}:{node.advertised_port},INTERNAL://{HOST}:{node.internal_port}"
        )
    merged = {**defaults, **overrides}
    return {name: value for name, value in merged.items() if value is not None}


def render_properties(properties: Mapping[str, str]) -> str:
    """The Java properties file, one line each.

    Raises:
        ValueError: a name or value holds a line break, which would smuggle in another property.
    """
    for name, value in properties.items():
        if "\n" in name + value or "\r" in name + value:
            raise ValueError(f"server property {name!r} holds a line break. Give one line per property.")
    # Java reads a backslash in a value as an escape.
    return "".join(f"{name}={value.replace(chr(92), chr(92) * 2)}\n" for name, value in properties.items())


def log4j_properties(node: Layout) -> str:
    """Log to one file in the node's directory, bounded."""
    return f"""\
status=error
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName={node.server_log}
appender.file.filePattern={node.server_log}.%i
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d{{ISO8601}} %p %m (%c)%n
appender.file.policies.type=Policies
appender.file.policies.size.type=SizeBasedTriggeringPolicy
appender.file.policies.size.size=20MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=2
rootLogger.level=info
rootLogger.appenderRef.file.ref=file
"""


def broker_command(*, java: Path, class_path: str, node: Layout, heap_megabytes: int) -> list[str]:
    """Command line of one node. Nothing secret is on it: properties are in a file."""
    return [
        str(java),
        f"-Xmx{heap_megabytes}m",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={node.log4j_file}",
        *("-cp", class_path),
        "kafka.Kafka",
        str(node.properties_file),
    ]


def format_command(*, java: Path, class_path: str, node: Layout, cluster_id: str) -> list[str]:
    """Command line that prepares a node's data directory."""
    return [
        str(java),
        # It lives two seconds: nothing it runs is worth the optimizing compiler.
        *("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        f"-Dlog4j2.configurationFile={node.log4j_file}",
        *("-cp", class_path),
        "kafka.tools.StorageTool",
        "format",
        *("--cluster-id", cluster_id),
        *("--config", str(node.properties_file)),
    ]
