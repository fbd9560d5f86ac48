"""Archives of classes that a JVM has loaded and verified once, for the next ones of the same jars to map into memory.

A broker then starts with half of the CPU time, and so does a Spark session. `python -m demo setup` makes the archives
below .cache. None is needed, and none can do harm: the JVM looks whether an archive is of its own build and of these
very jars, and loads the classes from the jars otherwise.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

from demo import jars
from demo.java import java_executable

CACHE_DIRECTORY = jars.CACHE_DIRECTORY.parent / "classes"
_OPTIONS = frozenset({"JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassArchive:
    """The archive of one class path and one build of Java; its name changes with both."""

    name: str
    path: Path

    @classmethod
    def of(cls, name: str, class_path: Iterable[Path], *, cache: Path = CACHE_DIRECTORY) -> ClassArchive:
        """The archive of a JVM with these jars. Raises JavaError if there is no Java."""
        # Options of the environment would show in what the JVM says of its build.
        env = {name: value for name, value in os.environ.items() if name not in _OPTIONS}
        seen = hashlib.sha256(subprocess.run([java_executable(), "-version"], env=env, stderr=PIPE, check=False).stderr)
        for jar in class_path:
            # What the JVM compares, too.
            stat = jar.stat()
            seen.update(f"{jar} {stat.st_size} {stat.st_mtime_ns}\n".encode())
        return cls(name=name, path=cache / f"{name}-{seen.hexdigest()[:16]}.jsa")

    def options(self) -> list[str]:
        """Options of a JVM that uses the archive; none while there is no archive."""
        # A JVM that cannot use the archive would print why, into output that others parse.
        return [f"-XX:SharedArchiveFile={self.path}", "-Xlog:cds*=off"] if self.path.is_file() else []

    def make(self, record: Callable[[list[str]], None]) -> bool:
        """Make the archive, unless it is there: ``record`` runs a JVM with the options to its end. Whether it is there
        now; archives of other jars under the same name are removed."""
        if self.path.is_file():
            return True
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # On the cache's own file system, so that the archive appears in one step; whoever comes at once makes the same.
        with tempfile.TemporaryDirectory(prefix=f".{self.name}-", dir=self.path.parent) as work:
            made = Path(work) / self.path.name
            # To optimize the JVM's own code would take longer than all else it does.
            record(["-XX:TieredStopAtLevel=1", f"-XX:ArchiveClassesAtExit={made}", "-Xlog:cds*=off"])
            if not made.is_file():
                return False
            os.replace(made, self.path)
        for other in self.path.parent.glob(f"{self.name}-????????????????.jsa"):
            if other != self.path:
                other.unlink(missing_ok=True)
        return True


def of_brokers(jar_set: str) -> ClassArchive:
    """That of brokers with the jars of this set of jars.lock, which are in the cache."""
    return ClassArchive.of(jar_set, [jars.CACHE_DIRECTORY / jar_set / jar.file_name for jar in jars.locked(jar_set)])


def of_spark() -> ClassArchive:
    """That of Spark sessions. Raises JarError if pyspark is not installed."""
    return ClassArchive.of("spark", jars.of_pyspark())
