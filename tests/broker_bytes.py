"""What brokers say that they have sent, by their own metrics."""

import atexit
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from demo.brokers import EmbeddedKafka
from demo.java import java_executable
from tests.shared import SharedCluster
from tests.waiting import HANGS_SECONDS

_PROGRAM = Path(__file__).with_name("BrokerBytes.java")


def bytes_sent(cluster: EmbeddedKafka | SharedCluster, topic: str) -> int:
    """Bytes of ``topic`` that all brokers of ``cluster`` have sent to clients since they began."""
    total = 0
    for pid in cluster.pids.values():
        java = [str(java_executable()), "-Djava.net.preferIPv4Stack=true", "-cp", str(_compiled())]
        command = [*java, _PROGRAM.stem, str(pid), topic]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANGS_SECONDS)
        assert done.returncode == 0, done.stderr[-3000:]
        total += int(done.stdout)
    return total


@cache
def _compiled() -> Path:
    """The folder of the program's class: to compile it costs three times what it costs to run it."""
    folder = Path(tempfile.mkdtemp(prefix="broker-bytes-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    compiler = [str(java_executable()), "-m", "jdk.compiler/com.sun.tools.javac.Main"]
    subprocess.run([*compiler, "-d", str(folder), str(_PROGRAM)], check=True, timeout=HANGS_SECONDS)
    return folder
