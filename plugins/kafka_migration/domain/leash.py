"""Processes that do not outlive whoever started them, however that one ended.

A leash is a shell that reads from a pipe whose other end only this process holds, and the kernel closes a dead
process's pipes: then the leash kills the process group that it holds. PR_SET_PDEATHSIG would not do: it reaches the
process itself and not what that one has started, and it fires when a *thread* ends.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

#: The first line is the group's number; end of file comes when whoever started this shell is gone.
_SCRIPT = 'read -r group || exit 0; read -r _; kill -s KILL -- "-$group"'


class Leash:
    """Kills the process group that it holds once this process is gone; leaves it alone when let go.

    with Leash() as leash:
        process = leash.start(...)
    """

    def __enter__(self) -> Self:
        # Out of reach of signals that are sent to this process's group.
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath},
            cwd="/",
            start_new_session=True,
        )
        return self

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start ``command`` in a group of its own, which is held before its first instruction. ``options`` and errors
        are those of :class:`subprocess.Popen`."""

        def join() -> None:
            self.hold(os.getpid())

        # By the new process itself: who starts it may be killed as soon as it is there. What runs between fork and exec
        # must take no lock, which another thread may have held: these are two system calls.
        return subprocess.Popen(command, start_new_session=True, preexec_fn=join, **options)  # noqa: PLW1509

    def hold(self, group: int) -> None:
        """From now on, process group ``group`` ends with this process."""
        if self._shell.stdin is not None:
            os.write(self._shell.stdin.fileno(), b"%d\n" % group)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The shell before the pipe: what a command leaves running on purpose is not killed when the command is done.
        self._shell.kill()
        self._shell.wait()
        if self._shell.stdin is not None:
            self._shell.stdin.close()
