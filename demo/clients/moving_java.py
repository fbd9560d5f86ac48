"""MovingProducer.java as a command: compiled once for a run, its properties in a file that this user alone reads."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from checker.recorder import clock_name
from demo import class_archives, jars
from demo.clients.moving import client_properties
from demo.clients.scenarios import FULL, ProducerSpec
from demo.clients.settings import ClusterName
from demo.clients.topics import HEALTH
from demo.java import java_executable
from demo.notes import RunDirectory

_PROGRAM = Path(__file__).with_name("MovingProducer.java")
_COMPILE_SECONDS = 120.0
_SAME = (
    "bootstrap.servers",
    "client.id",
    "linger.ms",
    "compression.type",
    "acks",
    "transactional.id",
    "sasl.mechanism",
)


class JavaProducers:
    """Commands for the producers of one run that are Java's."""

    def __init__(self, run: RunDirectory) -> None:
        """Compile the program.

        Raises:
            CalledProcessError: Java has no compiler: a JDK is needed.
        """
        self._run = run
        self._folder = run.path / "java"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        # The program behind the jars: so an archive of their classes serves it.
        self._class_path = os.pathsep.join([*(str(path) for path in jars.paths("kafka")), str(self._folder)])
        self._archive = class_archives.of_brokers("kafka").options()
        compiler = [str(java_executable()), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        options = ["-cp", self._class_path, "-d", str(self._folder)]
        subprocess.run([*compiler, *options, str(_PROGRAM)], check=True, timeout=_COMPILE_SECONDS)

    def command(self, spec: ProducerSpec, cluster: ClusterName, turn: str, begun_ns: int) -> list[str]:
        """What starts one of them on a cluster."""
        settings = self._run.settings()
        file = self._folder / f"{spec.name}-{turn}.properties"
        properties = java_properties(client_properties(settings, spec, cluster))
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as out:
            out.writelines(f"{name}={value}\n" for name, value in properties.items())
        jvm = ["-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true"]
        jvm += self._archive
        # Else it refuses to begin while the JVM ends, and a producer that is stopped early dies of that.
        jvm.append("-Dlog4j.shutdownHookEnabled=false")
        notes = str(self._run.producer_notes(f"{spec.name}-{turn}"))
        who = [spec.name, cluster, spec.kind, clock_name(), str(begun_ns)]
        who.append(str(settings.produced_per_second / len(FULL.producers)))
        what = [f"{spec.name}.{turn}", ",".join(spec.topics), HEALTH]
        return [str(java_executable()), *jvm, "-cp", self._class_path, _PROGRAM.stem, str(file), notes, *who, *what]


def java_properties(librdkafka: Mapping[str, str | int | bool]) -> dict[str, str]:
    """The same properties as Java's client names them."""
    found = {name: str(librdkafka[name]) for name in _SAME if name in librdkafka}
    if "security.protocol" in librdkafka:
        found["security.protocol"] = str(librdkafka["security.protocol"])
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(librdkafka["ssl.ca.location"])}
    if "ssl.key.location" in librdkafka:
        # Beside key and certificate the authority writes both in one file, as the JVM takes them.
        both = Path(str(librdkafka["ssl.key.location"])).with_suffix(".pem")
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(both)}
    if "sasl.username" in librdkafka:
        user, password = librdkafka["sasl.username"], librdkafka["sasl.password"]
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        found["sasl.jaas.config"] = f'{module} required username="{user}" password="{password}";'
    return found
