"""Find a Java that can run Kafka and Spark."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from demo.errors import DemoError, run_or_explain

MINIMUM_JAVA = 17
"""Kafka 4 brokers and Spark 4 both ask for 17 or later."""


class JavaError(DemoError):
    """No usable Java on this machine; the message names the remedy."""


def java_executable() -> Path:
    """The `java` of JAVA_HOME if that is set, else of PATH, as Spark's own scripts choose it.

    Raises:
        JavaError: there is none, or JAVA_HOME points to a directory without one.
    """
    home = os.environ.get("JAVA_HOME")
    if home:
        candidate = Path(home) / "bin" / "java"
        if not candidate.is_file():
            raise JavaError(f"JAVA_HOME is {home}, which holds no bin/java. Correct it, or unset it to use PATH.")
        return candidate
    found = shutil.which("java")
    if found is None:
        raise JavaError(f"no java on PATH. Install a JDK {MINIMUM_JAVA} or later, or set JAVA_HOME.")
    return Path(found)


def java_major_version(executable: Path) -> int:
    """Major version, 17 for 17.0.15, of the given `java`.

    Raises:
        JavaError: it does not run, or says nothing that looks like a version.
    """
    try:
        # `-version` writes to stderr on every JDK.
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, check=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaError(f"{executable} -version failed: {error}. Install a JDK {MINIMUM_JAVA} or later.") from error
    match = re.search(r'version "(\d+)(?:\.(\d+))?', answer)
    if match is None:
        raise JavaError(f"{executable} -version names no version: {answer.strip()!r}. Install a JDK {MINIMUM_JAVA}.")
    major = int(match.group(1))
    # Java 8 still called itself 1.8.
    return int(match.group(2)) if major == 1 and match.group(2) else major


def require_java() -> Path:
    """The `java` to use, checked to be new enough.

    Raises:
        JavaError: there is none, or it is too old.
    """
    executable = java_executable()
    version = java_major_version(executable)
    if version < MINIMUM_JAVA:
        raise JavaError(f"{executable} is Java {version}; {MINIMUM_JAVA} or later is needed. Set JAVA_HOME to one.")
    return executable


def java_since(major: int) -> Path:
    """A `java` of this major version or a later one: the one to use, or another of this machine.

    Raises:
        JavaError: there is none.
    """
    others = (path for root in ("/usr/lib/jvm", "/opt") for path in sorted(Path(root).glob("*/bin/java")))
    for executable in (java_executable(), *others):
        if executable.is_file() and java_major_version(executable) >= major:
            return executable
    raise JavaError(f"no Java {major} or later on this machine. Install one, or set JAVA_HOME to one.")


if __name__ == "__main__":
    # Before anything is installed: standard library only.
    run_or_explain(lambda: print(f"Java: {require_java()}"))
