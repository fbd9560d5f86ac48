"""One node of an embedded cluster: prepare its directory, run it, wait until it serves, end it."""

import contextlib
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence, Set

import psutil

from demo import class_archives, jars
from demo.brokers import config, formatting
from demo.brokers.ports import HOST
from demo.brokers.process import BrokerError, BrokerProcess, LeashedProcess, StandingProcess, tail
from demo.java import require_java

KILL_TIMEOUT_SECONDS = 10.0
POLL_SECONDS = 0.1


class BrokerNode:
    """One node's process over its life: it may be ended and launched again on the same data and ports."""

    def __init__(
        self,
        layout: config.Layout,
        *,
        title: str,
        heap_megabytes: int,
        jvm_options: Sequence[str],
        standing: bool,
        temporary: bool,
    ) -> None:
        """Describe a node; nothing is started.

        Args:
            layout: its ports and files.
            title: what messages call it.
            heap_megabytes: its largest heap, MiB.
            jvm_options: of its JVM.
            standing: let it outlive this process.
            temporary: let its directory go when this process dies.
        """
        self.layout = layout
        self._title = title
        self._heap_megabytes = heap_megabytes
        self._jvm_options = jvm_options
        self._standing = standing
        self._temporary = temporary
        self._process: BrokerProcess | None = None
        self._killed_at: float | None = None

    @property
    def pid(self) -> int | None:
        """Process id, also of a paused one; None when it does not run."""
        return self._process.pid if self._process is not None and self._process.alive() else None

    def prepare(self, properties: Mapping[str, str], cluster_id: str) -> None:
        """Write its files, and format its data directory unless that holds a node already, or a ZooKeeper knows it.

        Raises:
            BrokerError: formatting failed.
        """
        layout = self.layout
        config.write_files(layout, properties)
        if not layout.release.has_zookeeper and not (layout.data / formatting.META).exists():
            formatting.format_data(layout, cluster_id)

    def launch(self) -> None:
        """Start the process, without waiting for it to serve.

        A ZooKeeper lets a killed node register again only once its session is over; until then this waits.
        """
        layout = self.layout
        if layout.release.has_zookeeper and self._killed_at is not None:
            time.sleep(max(0.0, self._killed_at + config.ZOOKEEPER_SESSION_OVER_SECONDS - time.monotonic()))
        self._killed_at = None
        command = config.broker_command(
            java=require_java(),
            class_path=jars.class_path(layout.release.jar_set),
            node=layout,
            heap_megabytes=self._heap_megabytes,
            jvm_options=[*class_archives.of_brokers(layout.release.jar_set).options(), *self._jvm_options],
        )
        if self._standing:
            self._process = StandingProcess(command, console=layout.console_log)
        else:
            scratch = layout.directory if self._temporary else None
            self._process = LeashedProcess(command, console=layout.console_log, scratch=scratch)

    def wait_ready(self, deadline: float, expected: Callable[[], Set[int]], admin: Mapping[str, str]) -> None:
        """Wait until this node, asked by a client, lists the `expected` node ids.

        Args:
            deadline: on the monotonic clock, seconds.
            expected: ids of the nodes that run; asked again each time, as one may end meanwhile.
            admin: librdkafka properties that the internal listener asks for.

        Raises:
            BrokerError: it ended, or time is up.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        client: AdminClient | None = None
        while time.monotonic() < deadline:
            if self.pid is None:
                raise BrokerError(f"{self._title} ended. Its log ends with:\n{self.log_tail()}")
            # Sockets first: librdkafka would print a line for each refused connection.
            if _listens(self.layout.client_port) and _listens(self.layout.internal_port):
                servers = f"{HOST}:{self.layout.internal_port}"
                client = client or AdminClient({**admin, "bootstrap.servers": servers, "log_level": 0})
                # A listening socket says nothing yet: a broker is listed once the controller lets it serve.
                with contextlib.suppress(KafkaException):
                    if client.list_topics(timeout=5.0).brokers.keys() >= expected():
                        return
            time.sleep(POLL_SECONDS)
        raise BrokerError(f"{self._title} did not answer in time. Its log ends with:\n{self.log_tail()}")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if the node runs."""
        if self._process is not None:
            self._process.send(number)

    def pause(self, deadline: float) -> None:
        """Stop it, and wait until it stands still: the signal is on its way for a while on a busy machine.

        Raises:
            BrokerError: it was still running at the deadline, or has ended.
        """
        self.signal(signal.SIGSTOP)
        while self.pid is not None and time.monotonic() < deadline:
            with contextlib.suppress(psutil.NoSuchProcess):
                if psutil.Process(self.pid).status() == psutil.STATUS_STOPPED:
                    return
            time.sleep(POLL_SECONDS / 10)
        raise BrokerError(f"{self._title} could not be paused.")

    def request_end(self) -> None:
        """Ask it to end, without waiting. A paused one is resumed, as it would not see the request."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)

    def await_end(self, grace_seconds: float) -> None:
        """Wait for its end, at most the grace; then kill it.

        Raises:
            BrokerError: it outlived that, too.
        """
        if self._process is None or self._process.wait(max(0.0, grace_seconds)):
            return
        self._process.send(signal.SIGKILL)
        self._killed_at = time.monotonic()
        if not self._process.wait(KILL_TIMEOUT_SECONDS):
            raise BrokerError(f"{self._title} (pid {self._process.pid}) outlived SIGKILL.")

    def log_tail(self, *, lines: int = 30) -> str:
        """The end of its log, and of what its JVM printed."""
        texts = [tail(path, lines=lines) for path in (self.layout.server_log, self.layout.console_log)]
        return "\n".join(text for text in texts if text)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1.0):
        return True
    return False
