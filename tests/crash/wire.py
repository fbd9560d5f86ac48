"""Real brokers behind a wire that sees every request: it records those that change something, and kills at one of them.

No command knows of it. A process dies by SIGKILL when its request has come and was not passed on (before), or when the
broker has answered and the answer was not passed on (after).
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from kafka.protocol.api_key import ApiKey

from demo.brokers import EmbeddedKafka
from demo.brokers.ports import HOST, PortReservation
from tests.proxy import Frame, Proxy
from tests.steps.cuts import AUTHORIZED, Clusters

#: Requests of clients that change nothing that lasts. All others count as changes, those of later versions, too.
READS: Final = frozenset(
    {
        ApiKey.Fetch,
        ApiKey.ListOffsets,
        ApiKey.Metadata,
        ApiKey.OffsetFetch,
        ApiKey.FindCoordinator,
        # Of members: a command is none, and only asks as one that does not exist.
        ApiKey.Heartbeat,
        ApiKey.DescribeGroups,
        ApiKey.ListGroups,
        ApiKey.SaslHandshake,
        ApiKey.ApiVersions,
        ApiKey.OffsetForLeaderEpoch,
        ApiKey.DescribeAcls,
        ApiKey.DescribeConfigs,
        ApiKey.DescribeLogDirs,
        ApiKey.SaslAuthenticate,
        ApiKey.DescribeClientQuotas,
        ApiKey.DescribeUserScramCredentials,
        ApiKey.DescribeCluster,
        ApiKey.DescribeProducers,
        ApiKey.DescribeTransactions,
        ApiKey.ListTransactions,
        ApiKey.ConsumerGroupDescribe,
        ApiKey.GetTelemetrySubscriptions,
        ApiKey.PushTelemetry,
        ApiKey.DescribeTopicPartitions,
        ApiKey.ShareGroupDescribe,
    }
)
_READ_KEYS = frozenset(key.value for key in READS)
_NAMES = {key.value: key.name for key in ApiKey}


@dataclass(frozen=True, slots=True)
class Deadly:
    """The change to die at: the ``count``-th of that name, before or ``after`` it."""

    name: str
    count: int
    after: bool

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} {self.name} {self.count}"


class Wire:
    """What it records while it watches a process, by name and in order; and whether it has killed it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deadly: Deadly | None = None
        self._pid = 0
        self._fatal: Frame | None = None
        self.changes: list[str] = []
        self._counts: Counter[str] = Counter()
        self.has_killed = False

    def watch(self, deadly: Deadly | None) -> None:
        """From now on, what changes is the process's that begins now; :meth:`names` it as soon as it has an id."""
        self._deadly, self._pid, self._fatal, self.has_killed = deadly, 0, None, False
        self.changes, self._counts = [], Counter()

    def names(self, pid: int) -> None:
        self._pid = pid

    def unwatch(self) -> None:
        self._pid, self._deadly = 0, None

    def change(self, name: str, act: Callable[[], object]) -> bool:
        """A change that is none of a broker: a hook. False if the process is dead by now."""
        is_time, after = self._is_time(name)
        if is_time and not after:
            self._kill()
            return False
        act()
        if is_time:
            self._kill()
        return not is_time

    def request(self, side: str, frame: Frame) -> bool | None:
        if not self._pid or frame.api in _READ_KEYS:
            return None
        is_time, after = self._is_time(f"{side}: {_NAMES.get(frame.api, frame.api)}")
        if is_time and not after:
            self._kill()
            return False
        if is_time:
            self._fatal = frame
        return None

    def response(self, frame: Frame) -> bool | None:
        if self._fatal is not None and frame.request is self._fatal:
            self._kill()
            return False
        return None

    def _is_time(self, name: str) -> tuple[bool, bool]:
        with self._lock:
            self.changes.append(name)
            self._counts[name] += 1
            it = self._deadly
            if it is None or self.has_killed or (name, self._counts[name]) != (it.name, it.count):
                return False, False
            return True, it.after

    def _kill(self) -> None:
        self.has_killed = True
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)


@contextmanager
def wired() -> Iterator[tuple[Clusters, Wire]]:
    """Source and target, each with an authorizer and behind the wire, and past it for super users."""
    wire, ports = Wire(), PortReservation(4)
    with ExitStack() as stack:
        stack.callback(ports.release)
        free = list(ports)
        both = []
        for side in ("source", "target"):
            real, advertised = free.pop(), free.pop()
            kafka = EmbeddedKafka(
                name=f"crash-{side}",
                client_ports=[real],
                advertised_ports=[advertised],
                properties=AUTHORIZED,
                heap_megabytes=384,
                start_timeout_seconds=300,
            )
            stack.callback(kafka.stop)
            stack.enter_context(
                Proxy(
                    on_request=partial(wire.request, side), on_response=wire.response, to=(HOST, real), port=advertised
                )
            )
            kafka.launch()
            both.append(kafka)
        for kafka in both:
            kafka.wait_ready()
        yield Clusters(*both), wire
