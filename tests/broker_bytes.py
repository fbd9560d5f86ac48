"""What brokers say that they have sent, by their own metrics."""

import subprocess
from pathlib import Path

from demo.brokers import EmbeddedKafka
from demo.java import java_executable
from tests.shared import SharedCluster

_PROGRAM = Path(__file__).with_name("BrokerBytes.java")


def bytes_sent(cluster: EmbeddedKafka | SharedCluster, topic: str) -> int:
    """Bytes of ``topic`` that all brokers of ``cluster`` have sent to clients since they began."""
    total = 0
    for pid in cluster.pids.values():
        command = [str(java_executable()), "-Djava.net.preferIPv4Stack=true", str(_PROGRAM), str(pid), topic]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr[-3000:]
        total += int(done.stdout)
    return total
