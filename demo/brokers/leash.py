"""Run one command, and end it when whoever asked for it is gone. Started as a script; standard library only.

    python -I leash.py ASKER SCRATCH COMMAND...

The asker, whose process id is ASKER, holds the other end of this process's standard input. Each line read there is
the name of a signal to send to the command (`SIGTERM`, `SIGSTOP`, ...). End of file before the command has ended
means that the asker died, however it died, and so does a parent that is no longer ASKER: the command is killed, and
the directory SCRATCH (unless its name is empty) is removed, with its parent if nothing else is in there.

Why not the alternatives: PR_SET_PDEATHSIG fires when the *thread* that started the process ends, so a broker
started from a worker thread would die early, and a hook between fork and exec is unsafe in a process with
threads; an atexit handler does not run after SIGKILL; looking up the asker's pid meets recycled pids. The
kernel closes a dead process's pipes in every case, unless a fork of it holds them open, and for that there is
the parent's id: a process whose parent died gets another one. As only this process reaps the command, no signal
can reach a recycled pid. PR_SET_PDEATHSIG is used one level down, where there is a single thread: the command
dies with its leash.
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PARENT_CHECK_SECONDS = 1.0


def _die_with_leash() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _serve(command: subprocess.Popen[bytes], child_ended: int, asker: int) -> bool:
    """Relay signals until the command ends (True) or the asker is gone (False)."""
    pending = b""
    while command.poll() is None:
        readable, _, _ = select.select([0, child_ended], [], [], _PARENT_CHECK_SECONDS)
        if os.getppid() != asker:
            return False
        if child_ended in readable:
            os.read(child_ended, 4096)
        if 0 in readable:
            received = os.read(0, 4096)
            if not received:
                return False
            *lines, pending = (pending + received).split(b"\n")
            for line in lines:
                command.send_signal(signal.Signals[line.decode("ascii")])
    return True


def main() -> int:
    """Exit with the command's status, a signal as 128 plus its number."""
    asker, scratch, *arguments = sys.argv[1:]
    # SIGCHLD must wake the select below, also when the command ends between poll and select.
    child_ended, wake_up = os.pipe()
    os.set_blocking(wake_up, False)
    signal.set_wakeup_fd(wake_up)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    # Whoever signals the whole group means the asker, which then closes the pipe or asks for an orderly end.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    restored = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def before_exec() -> None:
        for number in restored:
            signal.signal(number, signal.SIG_DFL)
        _die_with_leash()

    # The hook is safe here: this process has one thread.
    command = subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=2,
        preexec_fn=before_exec,  # noqa: PLW1509
    )
    # The asker waits for this line; the command itself writes to standard error only.
    os.write(1, f"{command.pid}\n".encode("ascii"))
    os.close(1)
    if not _serve(command, child_ended, int(asker)):
        command.kill()
        command.wait()
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)
            with contextlib.suppress(OSError):
                Path(scratch).parent.rmdir()
    status = command.wait()
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main())
