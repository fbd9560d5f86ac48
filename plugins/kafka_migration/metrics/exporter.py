"""Migrations read in turn and served to Prometheus: a scrape gets what was read last, and waits for no cluster."""

from __future__ import annotations

import ipaddress
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from kafka_migration.domain.errors import BadInput, MigrationError
from kafka_migration.domain.printable import in_one_line
from kafka_migration.metrics.table import METRICS, MIGRATION, PREFIX, Sample
from kafka_migration.migration import context
from kafka_migration.overview import status
from kafka_migration.plans.load import load_plan

if TYPE_CHECKING:
    from kafka_migration.overview.status import Status

#: Migrations that are read at once: each has connections of its own, and its state in memory.
_AT_ONCE = 4
_MOST_PORT = 65_535
_MOST_CHARACTERS = 300

#: Of the exporter itself, by migration.
UP = ("up", "1 if the last reading of the migration succeeded; 0 if not, or before the first: others are missing then.")
READ_AT = ("read_timestamp_seconds", "When the migration was read successfully last.")
READ_FOR = ("read_duration_seconds", "How long the last successful reading took.")


def read_page(path: Path) -> Status:
    """The status page of the plan at ``path``, as of now. Raises BadInput, and what the target raises."""
    with context.open_context(load_plan(path)) as ctx:
        return status.read(ctx)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A migration as it was read last. ``samples`` of each metric are None after a reading that failed, ``error`` says
    why, ``kind`` in a word."""

    samples: tuple[tuple[Sample, ...], ...] | None = None
    error: str = ""
    kind: str = ""
    at: float | None = None
    seconds: float | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Exporter(Collector):
    """The metrics of the migrations of ``plans``, as they were read last. ``log`` hears of readings that fail, and that
    succeed again.

    Raises BadInput for a plan that cannot be loaded, and for two plans of one name.
    """

    plans: Sequence[Path]
    log: Callable[[str], None]
    page_of: Callable[[Path], Status] = read_page
    _seen: dict[str, _Seen] = field(default_factory=dict, init=False)
    _paths: dict[str, Path] = field(default_factory=dict, init=False)
    _slots: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_AT_ONCE), init=False)

    def __post_init__(self) -> None:
        for path in self.plans:
            name = load_plan(path).name
            if name in self._paths:
                raise BadInput(
                    f"{self._paths[name]} is a plan of this name, too",
                    file=str(path),
                    field="name",
                    value=name,
                    remedy="rename one of the two plans: their metrics would be the same",
                )
            self._paths[name], self._seen[name] = path, _Seen()

    @property
    def errors(self) -> dict[str, str]:
        """Why the last reading of a migration failed, by its name."""
        return {name: seen.error for name, seen in self._seen.items() if seen.error}

    def read(self) -> None:
        """Read every migration once, some at a time; what goes wrong is in :attr:`errors`."""
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="metrics") as pool:
            list(pool.map(self._read, self._paths))

    def read_every(self, seconds: float, ended: threading.Event) -> None:
        """Read until it has ``ended``, or the process has: each migration for itself, so that one that takes long holds
        up no other, ``seconds`` from one beginning to the next."""
        for name in self._paths:
            threading.Thread(
                target=self._watch, args=(name, seconds, ended), name=f"metrics {name}", daemon=True
            ).start()

    def _watch(self, name: str, seconds: float, ended: threading.Event) -> None:
        while not ended.is_set():
            began = time.monotonic()
            with self._slots:
                self._read(name)
            ended.wait(max(0.0, began + seconds - time.monotonic()))

    def _read(self, name: str) -> None:
        before, began = self._seen[name], time.monotonic()
        try:
            page = self.page_of(self._paths[name])
            if page.migration != name:
                raise BadInput(
                    f"the plan is called {page.migration} now",
                    field="name",
                    value=page.migration,
                    remedy="start `metrics` again",
                )
            samples = tuple(tuple(metric.read(page)) for metric in METRICS)
        except Exception as error:
            # Whatever it is, it must not end the reading. What nobody expected may quote anything.
            is_ours = isinstance(error, MigrationError)
            why = str(error) if is_ours else f"{type(error).__name__}; `status` shows more"
            short = in_one_line(why)[:_MOST_CHARACTERS]
            now = _Seen(error=short, kind=type(error).__name__, at=before.at, seconds=before.seconds)
        else:
            now = _Seen(samples, at=time.time(), seconds=time.monotonic() - began)
        # By kind: brokers and seconds in a message change with every reading.
        if now.kind != before.kind:
            self.log(f"{name} cannot be read: {now.error}" if now.error else f"{name} is read again")
        self._seen[name] = now

    def collect(self) -> Iterable[Family]:
        """One family for each metric, with the samples of all migrations."""
        seen = dict(self._seen)
        yield _own(UP, {name: float(one.samples is not None) for name, one in seen.items()})
        yield _own(READ_AT, {name: one.at for name, one in seen.items() if one.at is not None})
        yield _own(READ_FOR, {name: one.seconds for name, one in seen.items() if one.seconds is not None})
        for at, metric in enumerate(METRICS):
            family = GaugeMetricFamily(PREFIX + metric.name, metric.help, labels=(MIGRATION, *metric.labels))
            for name, one in seen.items():
                for labels, value in () if one.samples is None else one.samples[at]:
                    family.add_metric((name, *labels), value)
            yield family


def _own(metric: tuple[str, str], values: dict[str, float]) -> Family:
    name, text = metric
    family = GaugeMetricFamily(PREFIX + name, text, labels=(MIGRATION,))
    for migration, value in values.items():
        family.add_metric((migration,), value)
    return family


def registry_of(exporter: Exporter) -> CollectorRegistry:
    """What prometheus-client's servers and writers take."""
    registry = CollectorRegistry()
    registry.register(exporter)
    return registry


def serve(exporter: Exporter, place: str, *, field: str) -> str:
    """Serve the metrics at ``place``, HOST:PORT, from a thread that ends with the process; the URL.

    Raises BadInput, for the option ``field``, for a place that is none, or that is taken.
    """
    host, _, port = place.rpartition(":")
    # An IPv6 address as it stands in URLs.
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > _MOST_PORT:
        raise BadInput("is not HOST:PORT", field=field, value=place, remedy="write it like 127.0.0.1:9404")
    try:
        server, _ = start_http_server(int(port), host, registry_of(exporter))
    except OSError as error:
        raise BadInput(
            f"cannot be listened on: {error.strerror or error}",
            field=field,
            value=place,
            remedy="choose an address of this machine, and a port that nobody listens on",
        ) from None
    if not _is_loopback(server.server_address[0]):
        exporter.log("whoever reaches this address can read the metrics: there is neither login nor TLS")
    return f"http://{place.removesuffix(port)}{server.server_port}/metrics"


def _is_loopback(address: object) -> bool:
    return ipaddress.ip_address(str(address).partition("%")[0]).is_loopback
