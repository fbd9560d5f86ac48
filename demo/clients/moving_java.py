"""MovingProducer.java as a command: compiled once for a run, its properties in a file that this user alone reads."""

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

from checker.recorder import clock_name
from demo import jars
from demo.class_archives import ClassArchive
from demo.clients.moving import client_properties
from demo.clients.scenarios import FULL, ProducerSpec
from demo.clients.settings import ClusterName
from demo.clients.topics import HEALTH
from demo.java import java_executable
from demo.notes import RunDirectory

_PROGRAM = Path(__file__).with_name("MovingProducer.java")
_SECONDS, _POLL_SECONDS = 120.0, 0.1
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
        program, library = self._folder / "producers.jar", [str(path) for path in jars.paths("kafka")]
        compiler = [str(java_executable()), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        options = ["-cp", os.pathsep.join(library), "-d", str(self._folder)]
        subprocess.run([*compiler, *options, str(_PROGRAM)], check=True, timeout=_SECONDS)
        with ZipFile(program, "w") as jar:
            for file in self._folder.glob("*.class"):
                jar.write(file, file.name)
        self._class_path = os.pathsep.join([*library, str(program)])
        # Producers that move begin all at once: the longer that takes, the longer each waits for the machine.
        self._archive = ClassArchive(name="producers", path=self._folder / "producers.jsa")
        self._archive.make(self._record)

    def _record(self, options: list[str]) -> None:
        """Run a producer with these options of its JVM until it has tried itself out."""
        spec = ProducerSpec(name="archive", kind="idempotent", topics=(HEALTH,), java=True)
        notes = self._folder / "archive.jsonl"
        command = self._line(spec, "source", "0", time.monotonic_ns(), notes, options)
        with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
            try:
                until = time.monotonic() + _SECONDS
                while process.poll() is None and time.monotonic() < until and not _is_ready(notes):
                    time.sleep(_POLL_SECONDS)
                process.terminate()
                process.wait(_SECONDS)
            finally:
                process.kill()

    def command(self, spec: ProducerSpec, cluster: ClusterName, turn: str, begun_ns: int) -> list[str]:
        """What starts one of them on a cluster."""
        notes = self._run.producer_notes(f"{spec.name}-{turn}")
        return self._line(spec, cluster, turn, begun_ns, notes, self._archive.options())

    def _line(
        self, spec: ProducerSpec, cluster: ClusterName, turn: str, begun_ns: int, notes: Path, options: list[str]
    ) -> list[str]:
        settings = self._run.settings()
        file = self._folder / f"{spec.name}-{turn}.properties"
        properties = java_properties(client_properties(settings, spec, cluster))
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as out:
            out.writelines(f"{name}={value}\n" for name, value in properties.items())
        jvm = ["-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true", *options]
        # Else it refuses to begin while the JVM ends, and a producer that is stopped early dies of that.
        jvm.append("-Dlog4j.shutdownHookEnabled=false")
        who = [spec.name, cluster, spec.kind, clock_name(), str(begun_ns)]
        who.append(str(settings.produced_per_second / len(FULL.producers)))
        what = [f"{spec.name}.{turn}", ",".join(spec.topics), HEALTH]
        program = [*jvm, "-cp", self._class_path, _PROGRAM.stem, str(file), str(notes)]
        return [str(java_executable()), *program, *who, *what]


def _is_ready(notes: Path) -> bool:
    return notes.is_file() and '"ready"' in notes.read_text(encoding="utf-8")


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
