"""A Python worker of Spark, which goes from task to task: what it does between them, made short."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar
from zipimport import zipimporter

T = TypeVar("T")

#: Parameters of glibc's mallopt, and the most that it takes for the second.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST_BUFFER = 32 << 20


def keep_imports() -> None:
    """Have what was imported cost nothing from now on: 120 ms of each task otherwise.

    Behind each task the worker looks through all objects for garbage; what stays anyway is left out of that. And each
    begins with `importlib.invalidate_caches`, by which every finder of modules in an archive reads its table of
    contents once more (before Python 3.13): one for each package of pyspark.zip, and for Spark's own jar. The next
    import makes those again that it needs.
    """
    for place, finder in [*sys.path_importer_cache.items()]:
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[place]
    gc.collect()
    gc.freeze()


def keep_memory() -> None:
    """Have what is freed stay with the process: by default each answer's buffers go back to the kernel, which clears
    every page of the next one's, for a third of all the time."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, 8 * _LARGEST_BUFFER)
        mallopt(_MMAP_THRESHOLD, _LARGEST_BUFFER)


def at_niceness(niceness: int, work: Callable[[], T]) -> T:
    """What ``work`` returns or raises, done in a thread that is so nice (0 to 19) to others on this machine's cores.

    Not the process: whoever is not root cannot take that back, and the worker's next task may be another one's. On
    Linux a thread has a niceness of its own, as have those that it starts."""

    def give_way() -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)

    if not niceness:
        return work()
    with ThreadPoolExecutor(1, initializer=give_way) as pool:
        return pool.submit(work).result()
