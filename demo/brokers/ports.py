"""TCP ports of 127.0.0.1 that stay ours, across restarts of what listens there and beside other runs."""

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from demo.errors import DemoError

HOST = "127.0.0.1"
CANDIDATES = range(20_000, 28_000)
"""Below what kernels hand out for outgoing connections: a broker's port stays free while it restarts."""


class PortError(DemoError):
    """A port is taken, or none is free."""


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` now."""
    with socket.socket() as probe:
        # As servers do: a connection that still times out does not count as taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return True
    return False


class PortReservation:
    """Free ports that no other run picks until `release`, even while nothing listens on them.

    Binding to port 0 and closing again leaves a gap of seconds until a JVM listens. Each reserved port is therefore
    also a locked file; the kernel drops such a lock when its holder ends, however it ends.
    """

    def __init__(self, count: int) -> None:
        """Reserve `count` ports.

        Raises:
            PortError: after many tries, fewer were free.
        """
        self._locks: dict[int, int] = {}
        directory = Path(tempfile.gettempdir()) / f"kafka-migration-ports-{os.getuid()}"
        directory.mkdir(mode=0o700, exist_ok=True)
        for port in random.sample(CANDIDATES, k=1000):
            if len(self._locks) == count:
                return
            self._try(directory, port)
        self.release()
        raise PortError(f"no {count} free ports between {CANDIDATES.start} and {CANDIDATES.stop} on {HOST}.")

    def _try(self, directory: Path, port: int) -> None:
        lock = os.open(directory / str(port), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return
        if is_free(port):
            self._locks[port] = lock
        else:
            os.close(lock)

    def __iter__(self) -> Iterator[int]:
        """The reserved ports, in no particular order."""
        return iter(self._locks)

    def release(self) -> None:
        """Let other runs have the ports. Twice is a no-op."""
        while self._locks:
            # The files stay: removing one would let two holders lock two files of one name.
            os.close(self._locks.popitem()[1])
