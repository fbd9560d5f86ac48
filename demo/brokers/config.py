"""What a broker node is told: where its files are, its properties, its log configuration, its command line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.brokers.ports import HOST
from demo.brokers.releases import NEWEST, Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Ports and files of one node, which is broker and controller in one process (beside a ZooKeeper a broker only).

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
    release: Release = NEWEST
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
        return self.directory / ("log4j.properties" if self.release.has_log4j_1 else "log4j2.properties")


_ZOOKEEPER_SESSION_MS = 3_000
ZOOKEEPER_SESSION_OVER_SECONDS = _ZOOKEEPER_SESSION_MS / 1000 + 1.0
"""So long after its end a killed broker is certainly forgotten: a ZooKeeper looks for dead sessions twice a second."""
_STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_ZOOKEEPER_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


def server_properties(
    node: Layout, nodes: Sequence[Layout], overrides: Mapping[str, str | None], *, zookeeper_port: int = 0
) -> dict[str, str]:
    """Properties of one node of `nodes`: defaults for a small machine, then `overrides` (None removes one)."""
    replication = str(min(3, len(nodes)))
    control = _by_zookeeper(node, zookeeper_port) if node.release.has_zookeeper else _by_itself(node, nodes)
    defaults = {
        **control,
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
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
    if node.release.has_zookeeper and merged.get("authorizer.class.name") == _STANDARD_AUTHORIZER:
        merged["authorizer.class.name"] = _ZOOKEEPER_AUTHORIZER
    return {name: value for name, value in merged.items() if value is not None}


def _by_itself(node: Layout, nodes: Sequence[Layout]) -> dict[str, str]:
    ports = {"CLIENT": node.client_port, "INTERNAL": node.internal_port, "CONTROLLER": node.controller_port}
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": ",".join(f"{n.node_id}@{HOST}:{n.controller_port}" for n in nodes),
        "controller.listener.names": "CONTROLLER",
        # An idle controller writes a record of nothing twice a second by default: half of what an idle broker costs.
        "metadata.max.idle.interval.ms": "10000",
        "listeners": _listeners(ports),
    }


def _by_zookeeper(node: Layout, zookeeper_port: int) -> dict[str, str]:
    return {
        "broker.id": str(node.node_id),
        "zookeeper.connect": f"{HOST}:{zookeeper_port}",
        # The ZooKeeper is a JVM that starts at the same time.
        "zookeeper.connection.timeout.ms": "60000",
        # A killed broker stays registered that long; 18 s by default.
        "zookeeper.session.timeout.ms": str(_ZOOKEEPER_SESSION_MS),
        "listeners": _listeners({"CLIENT": node.client_port, "INTERNAL": node.internal_port}),
    }


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())


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


def write_files(node: Layout, properties: Mapping[str, str]) -> None:
    """Write what a node reads: its properties and its log configuration."""
    node.directory.mkdir(parents=True, exist_ok=True)
    # Properties may hold a listener's credentials: never readable by others, not even for a moment.
    node.properties_file.touch(mode=0o600)
    node.properties_file.write_text(render_properties(properties), encoding="utf-8")
    node.log4j_file.write_text(log4j_properties(node), encoding="utf-8")


def log4j_properties(node: Layout) -> str:
    """Log to one file in the node's directory, bounded."""
    if node.release.has_log4j_1:
        return log4j_1_properties(node.server_log)
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


def log4j_1_properties(log: Path) -> str:
    """The same for log4j's first version, into `log`."""
    return f"""\
log4j.rootLogger=INFO, file
log4j.appender.file=org.apache.log4j.RollingFileAppender
log4j.appender.file.File={log}
log4j.appender.file.MaxFileSize=20MB
log4j.appender.file.MaxBackupIndex=2
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=%d{{ISO8601}} %p %m (%c)%n
"""


def _logging(node: Layout) -> str:
    if node.release.has_log4j_1:
        return f"-Dlog4j.configuration={node.log4j_file.as_uri()}"
    return f"-Dlog4j2.configurationFile={node.log4j_file}"


def broker_command(
    *, java: Path, class_path: str, node: Layout, heap_megabytes: int, jvm_options: Sequence[str]
) -> list[str]:
    """Command line of one node. Nothing secret is on it: properties are in a file."""
    return [
        str(java),
        f"-Xmx{heap_megabytes}m",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        *jvm_options,
        _logging(node),
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
        _logging(node),
        *("-cp", class_path),
        "kafka.tools.StorageTool",
        "format",
        *("--cluster-id", cluster_id),
        *("--config", str(node.properties_file)),
    ]
