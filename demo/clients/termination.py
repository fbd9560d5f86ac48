"""SIGTERM as a flag that a client's loop looks at."""

import signal
import time
from types import FrameType
from typing import Self


class Termination:
    """Whether this process was asked to end.

    Not a threading.Event: its lock is not reentrant, and a handler that calls `set` while the same thread is inside
    `wait` would wait for itself.
    """

    def __init__(self) -> None:
        self.asked = False
        self.asked_ns: int | None = None

    def install(self) -> Self:
        """From now on SIGTERM is an orderly request."""
        signal.signal(signal.SIGTERM, self.ask)
        return self

    def ask(self, _number: int = signal.SIGTERM, _frame: FrameType | None = None) -> None:
        """Ask for the end; `asked_ns` is when, on the machine's monotonic clock."""
        if not self.asked:
            self.asked_ns = time.monotonic_ns()
        self.asked = True
