"""EmbeddedKafka: one real Kafka cluster on 127.0.0.1, as a context manager."""

import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from demo.brokers import config
from demo.brokers.formatting import new_id
from demo.brokers.node import BrokerNode
from demo.brokers.ports import HOST, PortError, PortReservation, is_free
from demo.brokers.process import BrokerError
from demo.brokers.releases import NEWEST, release
from demo.brokers.security import Security, add_scram_users
from demo.brokers.zookeeper import ZooKeeper


class EmbeddedKafka:
    """A cluster of `nodes` brokers (1 or 3 make sense) on 127.0.0.1, each also a controller (KRaft).

    With an old `version` brokers of that release: 3.9, or 2.8, whose metadata a ZooKeeper holds that comes and goes
    with them. All else is the same.

    The brokers end with this process, however it ends, unless `standing`. Data lives in a temporary directory,
    removed by `stop`, unless `data_dir` names one: that is kept and, when it holds a cluster already, continued.

    Clients use `bootstrap_servers`, tests and set-up `admin_properties`. With a `security` all listeners are guarded;
    without, all are plaintext. A single listener (it is named CLIENT) is a matter of properties:
    `{"listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "listener.name.client.…": …}`.

        with EmbeddedKafka(properties={"message.max.bytes": "8388608"}) as cluster:
            AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    """

    def __init__(
        self,
        *,
        name: str = "kafka",
        version: str = NEWEST.name,
        nodes: int = 1,
        client_ports: Sequence[int] | None = None,
        advertised_ports: Sequence[int] | None = None,
        data_dir: Path | None = None,
        heap_megabytes: int = 512,
        jvm_options: Sequence[str] = (),
        properties: Mapping[str, str | None] | None = None,
        security: Security | None = None,
        standing: bool = False,
        start_timeout_seconds: float = 90.0,
    ) -> None:
        """Describe a cluster; nothing is started and no port is taken yet.

        Args:
            name: for messages and the directory's name.
            version: of Kafka: 4.3, 3.9 or 2.8; jars of an old one are fetched when it is first launched.
            nodes: how many; they are numbered from 1.
            client_ports: one port a node; free ones when absent.
            advertised_ports: one port a node, where clients reach it instead: through a proxy of the caller's.
            data_dir: where to keep data; a temporary directory when absent.
            heap_megabytes: largest heap of each node, MiB.
            jvm_options: of each node's JVM.
            properties: server properties over the defaults of config.py; None removes a default.
            security: who is let in, and how; everybody when absent.
            standing: leave the brokers running when this process ends.
            start_timeout_seconds: from launch until every node answers.

        Raises:
            ValueError: the arguments contradict each other.
            BrokerError: there is no such version.
        """
        if nodes < 1:
            raise ValueError(f"nodes is {nodes}; a cluster has at least 1.")
        if client_ports is not None and not nodes == len(client_ports) == len(set(client_ports)):
            raise ValueError(f"client_ports is {list(client_ports)}; give {nodes} different ones, one a node.")
        if advertised_ports is not None and not nodes == len(advertised_ports) == len(set(advertised_ports)):
            raise ValueError(f"advertised_ports is {list(advertised_ports)}; give {nodes} different ones, one a node.")
        if standing and data_dir is None:
            raise ValueError("a standing cluster outlives any temporary directory; give data_dir.")
        self.name = name
        self._release = release(version)
        self._count = nodes
        self._given_ports = list(client_ports or ())
        self._advertised_ports = list(advertised_ports or ())
        self._given_directory = data_dir
        self._heap_megabytes = heap_megabytes
        self._jvm_options = tuple(jvm_options)
        self._security = security
        self._properties: dict[str, str | None] = {**(security.properties if security else {}), **(properties or {})}
        self._standing = standing
        self._start_timeout_seconds = start_timeout_seconds
        self._directory: Path | None = None
        self._reservation: PortReservation | None = None
        self._nodes: dict[int, BrokerNode] = {}
        self._zookeeper: ZooKeeper | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` where clients reach each node, comma-separated."""
        layouts = [node.layout for node in self._started().values()]
        return ",".join(f"{HOST}:{it.advertised_port or it.client_port}" for it in layouts)

    @property
    def internal_servers(self) -> str:
        """`host:port` of every node's internal listener; without a `security` plaintext, principal ANONYMOUS."""
        return ",".join(f"{HOST}:{node.layout.internal_port}" for node in self._started().values())

    @property
    def admin_properties(self) -> dict[str, str]:
        """librdkafka properties of a client that may do everything."""
        return {**self._admin, "bootstrap.servers": self.internal_servers}

    @property
    def _admin(self) -> Mapping[str, str]:
        return self._security.admin if self._security is not None else {}

    @property
    def data_dir(self) -> Path:
        """The cluster's directory, with one `node-<id>` below it for each node."""
        self._started()
        if self._directory is None:
            raise BrokerError(f"cluster {self.name} has no directory.")
        return self._directory

    @property
    def pids(self) -> dict[int, int]:
        """Process id of each node that runs (a paused one does), by node id."""
        return {node_id: pid for node_id, node in self._nodes.items() if (pid := node.pid) is not None}

    def log_tail(self, node_id: int = 1, *, lines: int = 30) -> str:
        """The end of a node's log, and of what its JVM printed."""
        return self._node(node_id).log_tail(lines=lines)

    def start(self) -> Self:
        """Start every node and wait until each answers a client's request.

        Raises:
            BrokerError: a node ended or did not answer in time; nothing is left running.
            PortError: a given port is taken.
            JarError, JavaError: what a broker runs on is missing.
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
        if self._nodes:
            raise BrokerError(f"cluster {self.name} is started already.")
        layouts = self._allocate()
        temporary, zookeeper_port = self._given_directory is None, 0
        if self._zookeeper is not None:
            zookeeper_port = self._zookeeper.port
            self._zookeeper.launch(standing=self._standing, temporary=temporary)
        cluster_id = new_id()
        for layout in layouts:
            node = BrokerNode(
                layout,
                title=f"node {layout.node_id} of cluster {self.name}",
                heap_megabytes=self._heap_megabytes,
                jvm_options=self._jvm_options,
                standing=self._standing,
                temporary=temporary,
            )
            properties = config.server_properties(layout, layouts, self._properties, zookeeper_port=zookeeper_port)
            node.prepare(properties, cluster_id)
            self._nodes[layout.node_id] = node
        for node in self._nodes.values():
            node.launch()

    def wait_ready(self) -> None:
        """Wait until each node, asked on its own, lists every node of the cluster; then make its SCRAM users.

        Raises:
            BrokerError: one ended, or time is up.
        """
        deadline = time.monotonic() + self._start_timeout_seconds
        for node in self._started().values():
            node.wait_ready(deadline, self._nodes.keys, self._admin)
        if self._security is not None and self._security.passwords:
            add_scram_users(self.admin_properties, self._security.passwords)

    def stop(self, *, grace_seconds: float = 20.0) -> None:
        """End every node (SIGTERM, after the grace SIGKILL), remove a temporary directory. Twice is a no-op."""
        if grace_seconds > 0:
            for node in self._nodes.values():
                node.request_end()
        deadline = time.monotonic() + grace_seconds
        for node in self._nodes.values():
            node.await_end(deadline - time.monotonic())
        self._nodes = {}
        if self._zookeeper is not None:
            self._zookeeper.stop(grace_seconds=grace_seconds)
            self._zookeeper = None
        if self._reservation is not None:
            self._reservation.release()
            self._reservation = None
        if self._directory is not None and self._given_directory is None:
            shutil.rmtree(self._directory)
        self._directory = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def kill(self, node_id: int = 1) -> None:
        """SIGKILL one node and wait for its end; its data stay, for `restart`."""
        self._node(node_id).await_end(0)

    def restart(self, node_id: int = 1, *, grace_seconds: float = 20.0) -> None:
        """End one node if it runs, start it again on its data and ports, and wait until it answers.

        After a kill the controller takes the old registration for alive for `broker.session.timeout.ms` (9 s by
        default), and the node serves only then.

        Raises:
            BrokerError: it ended again or did not answer in time.
        """
        node = self._node(node_id)
        if node.pid is not None:
            node.request_end()
            node.await_end(grace_seconds)
        node.launch()
        node.wait_ready(time.monotonic() + self._start_timeout_seconds, self.pids.keys, self._admin)

    def pause(self, node_id: int = 1) -> None:
        """SIGSTOP one node: its connections stay open and nothing answers from then on."""
        self._node(node_id).pause(time.monotonic() + self._start_timeout_seconds)

    def resume(self, node_id: int = 1) -> None:
        """SIGCONT a paused node."""
        self._node(node_id).signal(signal.SIGCONT)

    def _allocate(self) -> list[config.Layout]:
        for port in self._given_ports:
            if not is_free(port):
                raise PortError(
                    f"port {port} on {HOST}, for cluster {self.name}, is taken. End what listens there"
                    " (`make brokers-down` if it is an earlier `make brokers`), or choose another port."
                )
        # A node's own, and the controller's: one for each, or one ZooKeeper.
        controllers = 1 if self._release.has_zookeeper else self._count
        self._reservation = PortReservation(2 * self._count + controllers - len(self._given_ports))
        free = iter(self._reservation)
        if self._given_directory is not None:
            self._directory = self._given_directory.resolve()
        else:
            self._directory = Path(tempfile.mkdtemp(prefix=f"kafka-migration-{self.name}-"))
        if self._release.has_zookeeper:
            self._zookeeper = ZooKeeper(self._directory / "zookeeper", next(free), self._release)
        return [
            config.Layout(
                node_id=node_id,
                client_port=self._given_ports[node_id - 1] if self._given_ports else next(free),
                internal_port=next(free),
                controller_port=0 if self._release.has_zookeeper else next(free),
                advertised_port=self._advertised_ports[node_id - 1] if self._advertised_ports else None,
                directory=self._directory / f"node-{node_id}",
                release=self._release,
            )
            for node_id in range(1, self._count + 1)
        ]

    def _started(self) -> dict[int, BrokerNode]:
        if not self._nodes:
            raise BrokerError(f"cluster {self.name} is not started. Call start(), or use it in a with statement.")
        return self._nodes

    def _node(self, node_id: int) -> BrokerNode:
        nodes = self._started()
        if node_id not in nodes:
            raise BrokerError(f"cluster {self.name} has no node {node_id}, only {', '.join(map(str, nodes))}.")
        return nodes[node_id]
