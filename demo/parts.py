"""Parts of a run that are started together, and ended together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Self


class Parts(ABC):
    """What :meth:`_start` starts and enters into ``_stack``; ``log`` takes what people should read of it."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self.log = log
        self._stack = ExitStack()

    @abstractmethod
    def _start(self) -> None:
        """Start everything. Raises DemoError for a part that does not start."""

    def __enter__(self) -> Self:
        """Start everything.

        Raises:
            DemoError: a part did not start; everything that had is ended.
        """
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End everything."""
        self.log("ending everything that this run started")
        self._stack.close()
