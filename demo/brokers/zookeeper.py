"""The ZooKeeper beside brokers of a release that keeps its metadata there."""

from __future__ import annotations

import signal
from pathlib import Path

from demo import jars
from demo.brokers import config
from demo.brokers.ports import HOST
from demo.brokers.process import BrokerError, BrokerProcess, LeashedProcess, StandingProcess
from demo.brokers.releases import Release
from demo.java import require_java

_KILL_SECONDS = 10.0


class ZooKeeper:
    """One ZooKeeper process of a cluster; the brokers wait for it by themselves."""

    def __init__(self, directory: Path, port: int, release: Release) -> None:
        """Describe it; nothing is started. Its data and log are below ``directory``."""
        self.port = port
        self._directory, self._release = directory, release
        self._process: BrokerProcess | None = None

    def launch(self, *, standing: bool, temporary: bool) -> None:
        """Start it, without waiting: a broker tries to connect until it answers.

        Args:
            standing: let it outlive this process.
            temporary: let its directory go when this process dies.
        """
        directory = self._directory
        directory.mkdir(parents=True, exist_ok=True)
        settings, log4j = directory / "zookeeper.properties", directory / "log4j.properties"
        settings.write_text(config.render_properties(_settings(directory / "data", self.port)), encoding="utf-8")
        log4j.write_text(config.log4j_1_properties(directory / "zookeeper.log"), encoding="utf-8")
        command = [
            str(require_java()),
            *("-Xmx128m", "-XX:+UseSerialGC", "-Djava.awt.headless=true"),
            f"-Dlog4j.configuration={log4j.as_uri()}",
            *("-cp", jars.class_path(self._release.jar_set)),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(settings),
        ]
        console = directory / "console.log"
        if standing:
            self._process = StandingProcess(command, console=console)
        else:
            self._process = LeashedProcess(command, console=console, scratch=directory if temporary else None)

    def stop(self, *, grace_seconds: float) -> None:
        """End it, after its brokers: they tell it that they go. Raises BrokerError if it outlives SIGKILL."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send(signal.SIGTERM)
        if process.wait(max(0.0, grace_seconds)):
            return
        process.send(signal.SIGKILL)
        if not process.wait(_KILL_SECONDS):
            raise BrokerError(f"the ZooKeeper (pid {process.pid}) outlived SIGKILL.")


def _settings(data: Path, port: int) -> dict[str, str]:
    return {
        "dataDir": str(data),
        "clientPort": str(port),
        "clientPortAddress": HOST,
        # Bounds what sessions brokers may ask for: 2 to 20 ticks.
        "tickTime": "500",
        "maxClientCnxns": "0",
        # Listens on port 8080 of every address otherwise.
        "admin.enableServer": "false",
        "audit.enable": "false",
    }
