"""EmbeddedKafka: one real Kafka cluster on 127.0.0.1, as a context manager."""

import base64
import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from demo import jars
from demo.brokers import config
from demo.brokers.ports import HOST, PortError, PortReservation, is_free
from demo.brokers.process import BrokerError, BrokerProcess, LeashedProcess, StandingProcess, tail
from demo.java import require_java

FORMAT_TIMEOUT_SECONDS = 60.0
POLL_SECONDS = 0.1


class EmbeddedKafka:
    """A KRaft cluster of `nodes` brokers (1 or 3 make sense), each also a controller, on 127.0.0.1.

    The brokers end with this process, however it ends, unless `standing`. Data lives in a temporary directory, removed
    by `stop`, unless `data_dir` names one, which is kept and, when it holds a cluster already, continued.

    Clients use `bootstrap_servers`. The listener behind it is named CLIENT, so securing it is a matter of properties:
    `{"listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT", ...}`;
    `internal_servers` stays plaintext, for administration by tests.

        with EmbeddedKafka(properties={"message.max.bytes": "8388608"}) as cluster:
            AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    """

    def __init__(
        self,
        *,
        name: str = "kafka",
        nodes: int = 1,
        client_ports: Sequence[int] | None = None,
        data_dir: Path | None = None,
        heap_megabytes: int = 512,
        properties: Mapping[str, str | None] | None = None,
        standing: bool = False,
        start_timeout_seconds: float = 90.0,
    ) -> None:
        """Describe a cluster; nothing is started and no port is taken yet.

        Args:
            name: for messages and the directory's name.
            nodes: brokers, numbered from 1.
            client_ports: one port a node; free ones when absent.
            data_dir: where to keep data; a temporary directory when absent.
            heap_megabytes: largest heap of each node, MiB.
            properties: server properties over the defaults of config.py; None removes a default.
            standing: leave the brokers running when this process ends.
            start_timeout_seconds: from launch until every node answers.

        Raises:
            ValueError: the arguments contradict each other.
        """
        if nodes < 1:
            raise ValueError(f"nodes is {nodes}; a cluster has at least 1.")
        if client_ports is not None and len(set(client_ports)) != nodes:
            raise ValueError(f"client_ports names {len(set(client_ports))} ports for {nodes} nodes; give one for each.")
        if standing and data_dir is None:
            raise ValueError("a standing cluster outlives the temporary directory; give data_dir.")
        self.name = name
        self._count = nodes
        self._client_ports = client_ports
        self._given_directory = data_dir
        self._heap_megabytes = heap_megabytes
        self._properties = dict(properties or {})
        self._standing = standing
        self._start_timeout_seconds = start_timeout_seconds
        self._directory: Path | None = None
        self._reservation: PortReservation | None = None
        self._nodes: list[config.Node] = []
        self._processes: dict[int, BrokerProcess] = {}

    # --- where it is ---------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every node's client listener, comma-separated."""
        return ",".join(f"{HOST}:{node.client_port}" for node in self._started_nodes())

    @property
    def internal_servers(self) -> str:
        """`host:port` of every node's internal listener: plaintext, principal ANONYMOUS."""
        return ",".join(f"{HOST}:{node.internal_port}" for node in self._started_nodes())

    @property
    def data_dir(self) -> Path:
        """The cluster's directory, with one `node-<id>` below it for each node."""
        if self._directory is None:
            raise BrokerError(f"cluster {self.name} is not started. Call start(), or use it in a with statement.")
        return self._directory

    @property
    def pids(self) -> dict[int, int]:
        """Process id of each node that runs (a paused one does), by node id."""
        return {node_id: process.pid for node_id, process in self._processes.items() if process.alive()}

    @property
    def client_ports(self) -> list[int]:
        """Port of each node's client listener, in order of node id."""
        return [node.client_port for node in self._started_nodes()]

    def log_tail(self, node_id: int = 1, *, lines: int = 30) -> str:
        """The end of a node's log, and of what its JVM printed."""
        node = self._node(node_id)
        return f"{tail(node.server_log, lines=lines)}\n{tail(node.console_log, lines=lines)}".strip()

    # --- the whole cluster ---------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start every node and wait until each answers a client's request.

        Raises:
            BrokerError: a node ended or did not answer in time; nothing is left running.
            PortError: a given port is taken.
            JarError, JavaError: what it runs on is missing.
        """
        try:
            self.launch()
            self.wait_ready()
        except BaseException:
            self.stop(grace_seconds=0)
            raise
        return self

    def launch(self) -> None:
        """Prepare directories and start the processes, without waiting. Most callers want `start`."""
        if self._processes:
            raise BrokerError(f"cluster {self.name} is started already.")
        java, class_path = require_java(), jars.class_path("kafka")
        self._allocate()
        replication = min(3, self._count)
        identity = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode("ascii")
        for node in self._nodes:
            node.directory.mkdir(parents=True, exist_ok=True)
            properties = config.server_properties(
                node, self._nodes, replication=replication, overrides=self._properties
            )
            # Properties may hold credentials of a listener.
            node.properties_file.touch(mode=0o600)
            node.properties_file.write_text(config.render_properties(properties), encoding="utf-8")
            node.log4j_file.write_text(config.log4j_properties(node), encoding="utf-8")
            if not (node.data / "meta.properties").exists():
                self._format(config.format_command(java=java, class_path=class_path, node=node, cluster_id=identity))
        for node in self._nodes:
            self._launch_node(node)

    def wait_ready(self) -> None:
        """Wait until each running node, asked on its own, lists every running node of the cluster.

        Raises:
            BrokerError: one ended, or time is up.
        """
        deadline = time.monotonic() + self._start_timeout_seconds
        for node_id in sorted(self.pids):
            self._wait_node(self._node(node_id), deadline)

    def stop(self, *, grace_seconds: float = 20.0) -> None:
        """End every node (SIGTERM, after the grace SIGKILL) and remove a temporary directory. Twice is a no-op."""
        for process in self._processes.values():
            if grace_seconds > 0:
                # A paused process would not see the request to end.
                process.send(signal.SIGCONT)
                process.send(signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        for process in self._processes.values():
            if not process.wait(max(0.0, deadline - time.monotonic())):
                process.send(signal.SIGKILL)
                process.wait(10.0)
        self._processes.clear()
        self._nodes = []
        if self._reservation is not None:
            self._reservation.release()
            self._reservation = None
        if self._directory is not None and self._given_directory is None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._directory = None

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    # --- one node: the accidents of a test -------------------------------------------------------------------------

    def kill(self, node_id: int = 1) -> None:
        """SIGKILL one node and wait for its end; its data stay, for `restart`."""
        process = self._process(node_id)
        process.send(signal.SIGKILL)
        if not process.wait(10.0):
            raise BrokerError(f"node {node_id} of {self.name} (pid {process.pid}) outlived SIGKILL.")

    def restart(self, node_id: int = 1, *, grace_seconds: float = 20.0) -> None:
        """End one node if it runs, start it again on the same data and ports, and wait until it answers.

        Raises:
            BrokerError: it ended again or did not answer in time.
        """
        process = self._process(node_id)
        if process.alive():
            process.send(signal.SIGCONT)
            process.send(signal.SIGTERM)
            if not process.wait(grace_seconds):
                self.kill(node_id)
        node = self._node(node_id)
        self._launch_node(node)
        self._wait_node(node, time.monotonic() + self._start_timeout_seconds)

    def pause(self, node_id: int = 1) -> None:
        """SIGSTOP one node: its connections stay open and nothing answers."""
        self._process(node_id).send(signal.SIGSTOP)

    def resume(self, node_id: int = 1) -> None:
        """SIGCONT a paused node."""
        self._process(node_id).send(signal.SIGCONT)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _allocate(self) -> None:
        for port in self._client_ports or ():
            if not is_free(port):
                raise PortError(
                    f"port {port} on {HOST}, wanted by cluster {self.name}, is taken. End what listens there"
                    " (`make brokers-down` if it is an earlier `make brokers`), or choose another port."
                )
        given = list(self._client_ports or ())
        self._reservation = PortReservation(2 * self._count + (0 if given else self._count))
        free = iter(self._reservation)
        client_ports = given or [next(free) for _ in range(self._count)]
        if self._given_directory is not None:
            self._given_directory.mkdir(parents=True, exist_ok=True)
            self._directory = self._given_directory.resolve()
        else:
            self._directory = Path(tempfile.mkdtemp(prefix=f"kafka-migration-{self.name}-"))
        self._nodes = [
            config.Node(
                node_id=node_id,
                client_port=client_port,
                internal_port=next(free),
                controller_port=next(free),
                directory=self._directory / f"node-{node_id}",
            )
            for node_id, client_port in enumerate(client_ports, start=1)
        ]

    def _launch_node(self, node: config.Node) -> None:
        command = config.broker_command(
            java=require_java(),
            class_path=jars.class_path("kafka"),
            node=node,
            heap_megabytes=self._heap_megabytes,
        )
        scratch = node.directory if self._given_directory is None else None
        self._processes[node.node_id] = (
            StandingProcess(command, console=node.console_log)
            if self._standing
            else LeashedProcess(command, console=node.console_log, scratch=scratch)
        )

    def _format(self, command: list[str]) -> None:
        try:
            run = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=FORMAT_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise BrokerError(f"formatting {self.name} took longer than {FORMAT_TIMEOUT_SECONDS} s.") from error
        if run.returncode != 0:
            raise BrokerError(f"formatting {self.name} failed:\n{run.stdout}{run.stderr}".strip())

    def _wait_node(self, node: config.Node, deadline: float) -> None:
        # Only librdkafka is a real client here; a listening socket says nothing about the broker behind it.
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        process = self._processes[node.node_id]
        client: AdminClient | None = None
        while time.monotonic() < deadline:
            if not process.alive():
                raise BrokerError(f"node {node.node_id} of {self.name} ended:\n{self.log_tail(node.node_id)}")
            # Sockets first: librdkafka would print a line for each refused connection.
            if _listens(node.client_port) and _listens(node.internal_port):
                client = client or AdminClient({"bootstrap.servers": f"{HOST}:{node.internal_port}", "log_level": 0})
                with contextlib.suppress(KafkaException):
                    known = client.list_topics(timeout=min(5.0, max(0.1, deadline - time.monotonic()))).brokers
                    # A broker is listed once the controller lets it serve.
                    if known.keys() >= self.pids.keys():
                        return
            time.sleep(POLL_SECONDS)
        raise BrokerError(
            f"node {node.node_id} of {self.name} did not answer within {self._start_timeout_seconds} s."
            f" It still runs; its log ends with:\n{self.log_tail(node.node_id)}"
        )

    def _started_nodes(self) -> list[config.Node]:
        if not self._nodes:
            raise BrokerError(f"cluster {self.name} is not started. Call start(), or use it in a with statement.")
        return self._nodes

    def _node(self, node_id: int) -> config.Node:
        for node in self._started_nodes():
            if node.node_id == node_id:
                return node
        raise BrokerError(f"cluster {self.name} has nodes 1 to {self._count}, no node {node_id}.")

    def _process(self, node_id: int) -> BrokerProcess:
        self._node(node_id)
        return self._processes[node_id]


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1.0):
        return True
    return False
