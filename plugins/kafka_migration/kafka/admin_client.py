"""confluent-kafka's admin client, which may be dropped by whoever held it last.

Answers become Python objects in a thread of librdkafka's own, and Python may look for garbage there. If it then finds
the client whose thread that is, since its caller gave up waiting, librdkafka ends the whole process: "calling
rd_kafka_destroy() from librdkafka owned thread is prohibited".
"""

from __future__ import annotations

import queue
import threading
from typing import Any

import confluent_kafka.admin


class AdminClient(confluent_kafka.admin.AdminClient):
    """As its base, but ends in a thread of ours, wherever it is dropped. Its callbacks must not refer to it."""

    def __init__(self, conf: dict[str, Any]) -> None:
        self._dropped = _ending().dropped
        super().__init__(conf)

    def __del__(self) -> None:
        # Python calls this once: the client lives again, until the other thread has dropped it, too.
        self._dropped.put(self)


class _Ending(threading.Thread):
    """Drops for good what others dropped."""

    def __init__(self) -> None:
        super().__init__(name="ends-admin-clients", daemon=True)
        self.dropped: queue.SimpleQueue[object] = queue.SimpleQueue()

    def run(self) -> None:
        while True:
            self.dropped.get()


_endings: list[_Ending] = []
"""A process that was forked has no threads of its parent. The parent's clients are none of its business, either: those
that it drops stay in the queue of the thread that it lacks."""


def _ending() -> _Ending:
    if not _endings or not _endings[-1].is_alive():
        _endings.append(_Ending())
        _endings[-1].start()
    return _endings[-1]
