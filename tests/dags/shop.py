"""A shop between two clusters with authorizers, whose clients write and read throughout; an Airflow with its plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from demo import jars
from demo.airflow import EmbeddedAirflow
from tests.dags.patience import PATIENCE_SECONDS, QUICK
from tests.steps import cuts
from tests.steps.cuts import Client, Clusters, Cut, Reader, Side
from tests.steps.hook_server import HookServer


class Shop(Cut):
    """Each wave has a topic and a group that reads it."""

    def __init__(self, both: Clusters, hooks: HookServer, folder: Path) -> None:
        waves = [
            {"name": name, "topics": [rf".*\.{topic}"], "groups": [rf".*\.{group}"]}
            for name, topic, group in (("first", "payments", "ledger"), ("second", "orders", "billing"))
        ]
        probed = {"probe": "probe_target", "super_users": ["User:ANONYMOUS"]}
        super().__init__(
            both,
            hooks,
            folder,
            {"in_workflow": True, "target_fence": probed, "target_closed": True, "groups_stay": True},
            waves={"given": waves},
            approvals={"approvers": ["admin"]},
            lag_gate={"threshold_records": 2_000, "samples": 2, "interval_seconds": 1},
        )
        self.readers = {
            self.topic(name): Reader(self, self.topic(name), name, [self.topic(topic)])
            for name, topic in (("ledger", "payments"), ("billing", "orders"))
        }
        #: Done once, when producers are to stop on the source.
        self.befalls: Callable[[], None] | None = None
        for side in both.both:
            hooks.on("stop", side, self._stop)
            hooks.on("start", side, partial(self._start, side))

    @property
    def clients(self) -> tuple[Client, ...]:
        return *self.writers, *self.readers.values()

    def _stop(self, group: str) -> None:
        if group:
            self.readers[group].stop()
            return
        self._stop_politely()
        befalls, self.befalls = self.befalls, None
        if befalls is not None:
            befalls()

    def _start(self, side: Side, group: str) -> None:
        for client in (self.readers[group],) if group else self.writers:
            client.start(side)

    def begin(self) -> None:
        """Clients write and read on the source."""
        self._grant()
        for client in self.clients:
            client.start("source")

    def denials(self, side: Side) -> set[str]:
        with self.clusters.admin(side) as admin:
            return {one.principal for one in admin.acls() if one.permission == "DENY"}


@contextmanager
def opened(folder: Path) -> Iterator[Shop]:
    """The shop, with its clients at work on the source. What it writes goes below ``folder``."""
    with pytest.MonkeyPatch.context() as patch, cuts.clusters() as both, closing(HookServer()) as hooks:
        # A migration of minutes: enough of them are there to be judged.
        patch.setattr(cuts, "EVERY_SECONDS", 0.1)
        cuts.connect(patch, both, hooks)
        made = Shop(both, hooks, folder)
        try:
            made.begin()
            yield made
        finally:
            made.close()


def airflow_of(shop: Shop, home: Path, env: Mapping[str, str] | None = None) -> EmbeddedAirflow:
    """An Airflow with the plan of ``shop`` and its connections; not started yet."""
    plans = shop.folder / "plans"
    plans.mkdir()
    shop.path = shop.path.rename(plans / shop.path.name)
    connections: dict[str, dict[str, Any]] = {
        f"{user}_{side}": {"conn_type": "kafka", "extra": shop.clusters.login(side, user)}
        for user in ("mover", "probe")
        for side in shop.clusters.both
    }
    return EmbeddedAirflow(
        home=home,
        plans_dir=plans,
        connections={**connections, "spark_default": {"conn_type": "spark", "host": "local[2]"}},
        env={
            **QUICK,
            **shop.hooks.environ,
            "KAFKA_MIGRATION_REPORTS_DIR": str(shop.folder / "reports"),
            "KAFKA_MIGRATION_SPARK_JARS": ",".join(str(path) for path in jars.paths("spark")),
            **(env or {}),
        },
        start_timeout_seconds=PATIENCE_SECONDS,
    )
