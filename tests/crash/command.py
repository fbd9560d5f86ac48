"""Real commands in processes that may be killed: forked off a server that has their modules loaded, to save seconds."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.crash.real"])


def _run(words: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(log.parent)
    with log.open("a", buffering=1) as output, contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        sys.argv = ["kafka_migration", *words]
        from kafka_migration.cli.app import main

        main()


def begin(words: Sequence[str], environ: Mapping[str, str], log: Path) -> BaseProcess:
    """A command, which begins now; what it says is added to ``log``, in whose folder it runs."""
    process = _CONTEXT.Process(target=_run, args=(list(words), dict(environ), log))
    process.start()
    return process
