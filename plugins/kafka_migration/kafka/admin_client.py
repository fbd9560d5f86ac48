"""confluent-kafka's admin client, safe to free from any thread.

Answers become Python objects in a background thread of librdkafka, and Python's garbage collector may run there. If it
frees the client that owns this thread, since nobody waits for the answer any more, librdkafka aborts the process:
"calling rd_kafka_destroy() from librdkafka owned thread is prohibited".
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from typing import Any

import confluent_kafka.admin

#: What `sys.getrefcount` says of a local variable's object that nobody else refers to.
_ALONE = 2
_POLL_SECONDS = 0.05


class AdminClient(confluent_kafka.admin.AdminClient):
    """As its base, but always freed in a thread of ours. Its callbacks must not hold a reference to it."""

    def __init__(self, conf: dict[str, Any]) -> None:
        self._dropped = _thread().dropped
        super().__init__(conf)

    def __del__(self) -> None:
        # The queue's reference keeps the client alive until the other thread has taken it. Python calls this only once.
        self._dropped.put(self)


class _Freeing(threading.Thread):
    """Frees the clients that were dropped."""

    def __init__(self) -> None:
        super().__init__(name="frees-admin-clients", daemon=True)
        self.dropped: queue.SimpleQueue[object] = queue.SimpleQueue()

    def run(self) -> None:
        while True:
            client = self.dropped.get()
            # The collector still holds what refers to it, and must not be the last to let go.
            while sys.getrefcount(client) > _ALONE:
                time.sleep(_POLL_SECONDS)
            del client


_threads: list[_Freeing] = []
"""The last one is in use. A forked process starts its own, and frees no client of its parent: the queue of that client
has no thread here, and librdkafka's threads are missing, too."""


def _thread() -> _Freeing:
    if not _threads or not _threads[-1].is_alive():
        _threads.append(_Freeing())
        _threads[-1].start()
    return _threads[-1]
