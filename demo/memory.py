"""How much memory a run takes at most: this process and all that descends from it."""

import threading
from types import TracebackType
from typing import Self

import psutil

_POLL_SECONDS = 3.0


class PeakMemory:
    """Sums up the proportional set size (what is shared counts once) of all processes, every few seconds.

    with PeakMemory() as memory:
        ...
    print(memory.peak_bytes)
    """

    def __init__(self) -> None:
        """Nothing is measured yet."""
        self.peak_bytes = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="peak memory", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End; ``peak_bytes`` stays."""
        self._stopping.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stopping.is_set():
            self.peak_bytes = max(self.peak_bytes, _now())
            self._stopping.wait(_POLL_SECONDS)


def _now() -> int:
    own = psutil.Process()
    total = 0
    for process in (own, *own.children(recursive=True)):
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total
