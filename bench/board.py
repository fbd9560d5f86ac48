"""The board of 300 plans, and the page of one with 10,000 partitions and 1,000 groups: `make bench-board`.

Our application, served by uvicorn on loopback as Airflow serves it, without Airflow's login. The last line is JSON:
milliseconds to the first byte and to the end of each page, the 95th of 100 of 50 loads, and how many clusters were
opened. See docs/performance.md.
"""

import argparse
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import uvicorn
import yaml

from kafka_migration.airflow import pages
from kafka_migration.groups.record import Step
from kafka_migration.migration import context
from kafka_migration.migration.reports import board_files, made, place_of, write_text
from kafka_migration.overview import board
from kafka_migration.overview.attention import Attention, Kind
from kafka_migration.overview.status import GroupStatus, LagSummary, MirrorStatus, PhaseStatus, Status
from kafka_migration.plans.load import restore_plan
from kafka_migration.plans.model import Plan
from kafka_migration.plans.places import PLANS_DIRECTORY, REPORTS_DIRECTORY

_LOADS = 50
_NEED = Attention(
    Kind.MIRROR,
    "the forward mirror is silent: nothing is copied",
    "check whether its process is still running",
    ("forward",),
)


def main() -> int:
    """Exit 0 if no cluster was opened, 1 if one was."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--plans", type=int, default=300)
    options.add_argument("--partitions", type=int, default=10_000)
    options.add_argument("--groups", type=int, default=1_000)
    asked = options.parse_args()
    opened = list[object]()
    # The rest is Airflow's own: who is logged in, and what that user may see.
    for place, name, value in (
        (context, "open_context", opened.append),
        (pages, "requires_access_dag", lambda **_: lambda: None),
        (pages, "_visible", lambda _user: list(pages._plans())),
        (pages, "_may_start", lambda _user, _dag: True),
    ):
        setattr(place, name, value)
    found: dict[str, Any] = {"plans": asked.plans, "partitions": asked.partitions}
    with tempfile.TemporaryDirectory(prefix="kafka-migration-bench-") as work:
        _fill(Path(work), asked)
        with _served() as url, httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
            for name, path in (("board", "/"), ("page", "/migrate_plan0/")):
                loads = [_load(client, path) for _ in range(_LOADS)]
                for part, times in zip(("first_byte", "whole"), zip(*loads, strict=True), strict=True):
                    found[f"{name}_{part}_p95_ms"] = round(sorted(times)[int(0.95 * _LOADS)] * 1000, 1)
    print(json.dumps(found | {"clusters_opened": len(opened)}))
    return 1 if opened else 0


def _load(client: httpx.Client, path: str) -> tuple[float, float]:
    """Seconds to the first byte of the page, and to its end."""
    began = time.perf_counter()
    with client.stream("GET", path) as answer:
        answer.raise_for_status()
        parts = answer.iter_raw()
        next(parts)
        first = time.perf_counter() - began
        for _ in parts:
            pass
    return first, time.perf_counter() - began


@contextmanager
def _served() -> Iterator[str]:
    app = pages.application()
    for route in app.routes:
        for dependency in getattr(getattr(route, "dependant", None), "dependencies", ()):
            app.dependency_overrides[dependency.call] = lambda: None
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def _fill(work: Path, asked: argparse.Namespace) -> None:
    """Plans, and what was written down of each; the first one is the large one."""
    os.environ |= {PLANS_DIRECTORY: str(work / "plans"), REPORTS_DIRECTORY: str(work / "reports")}
    (work / "plans").mkdir()
    for number in range(asked.plans):
        plan = _plan(f"plan{number}")
        is_large = number == 0
        page = _page(plan, asked.partitions if is_large else 50, asked.groups if is_large else 10)
        needs = [] if number % 10 else [_NEED]
        history = [(page.at.timestamp() - 30.0 * (240 - at), 1000.0 * (240 - at)) for at in range(240)]
        (work / "plans" / f"{plan.name}.yaml").write_text(yaml.safe_dump(plan.snapshot()))
        whole, short = board_files(place_of(str(work / "reports")), plan.name)
        for file in (whole, short):
            made(file.parent)
        write_text(whole, json.dumps(board.document(page, needs, history)))
        write_text(short, json.dumps(board.summary(page, needs, plan)))


def _plan(name: str) -> Plan:
    names = {"name": name, "source": "bench_source", "target": "bench_target"}
    return restore_plan({"version": 1, **names, "topics": {"include": [r"shop\..*"]}})


def _page(plan: Plan, partitions: int, groups: int) -> Status:
    now = datetime.now(UTC)
    topics = {f"shop.topic-{at}": 10 * at for at in range(max(1, partitions // 20))}
    mirror = MirrorStatus(
        state="running",
        desired="run",
        reason="",
        last_word=now.isoformat(),
        age_seconds=1.0,
        partitions=partitions,
        fences=3,
        records=123_456_789,
        ended_as="",
    )
    steps = ("create_targets", "mirror", "watch_lag", "validate", "cut_over")
    return Status(
        migration=plan.name,
        plan_digest=plan.digest,
        at=now,
        phases=tuple(
            PhaseStatus(
                name=name,
                outcome="done",
                started=(now - timedelta(minutes=10 - at)).isoformat(),
                ended=now.isoformat(),
                seconds=60.0,
                detail="",
                runs=1,
            )
            for at, name in enumerate(steps)
        ),
        mirror=mirror,
        lag=LagSummary(
            total=sum(topics.values()), partitions=partitions, worst=(("shop.topic-1-0", 9),), topics=topics
        ),
        halts=(),
        losses=(),
        drift=(),
        groups=tuple(
            GroupStatus(group=f"shop.group-{at}", step=str(Step.ALIVE), at=now.isoformat(), pause_seconds=1.0)
            for at in range(groups)
        ),
        approvals=(),
        validation=None,
        topics=len(topics),
        states=dict.fromkeys(topics, "mirroring"),
        locks=dict.fromkeys(topics, plan.name),
        unknown={},
    )


if __name__ == "__main__":
    sys.exit(main())
