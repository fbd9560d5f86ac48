"""The lag trigger on two real clusters, beside a mirror that really copies."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid

from kafka_migration.airflow.trigger import StepTrigger
from kafka_migration.migration.context import open_context
from kafka_migration.plans.load import load_plan
from kafka_migration.plans.snapshot import Snapshot
from kafka_migration.steps import mirror
from tests.copy.bench import ThreadRunner
from tests.copy.plans import small_plan
from tests.kafka_tools import ToSend, create_topics, produce
from tests.waiting import wait_until

RECORDS = 3_000


def test_trigger_waits_while_records_are_to_be_copied_and_fires_once_they_are(
    source_cluster, target_cluster, tmp_path, monkeypatch
):
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    topics = {f"lagging-{uuid.uuid4().hex[:8]}": 2}
    (topic,) = topics
    create_topics(source, topics)
    produce(source, topic, (ToSend(b"%d" % n, partition=n % 2) for n in range(RECORDS)))
    gate = {"threshold_records": 0, "samples": 2, "interval_seconds": 0.2, "deadline_seconds": 200}
    small = small_plan(tmp_path, source, target, topics, lag_gate=gate)
    for name, value in small.environment.items():
        monkeypatch.setenv(name, value)
    plan = load_plan(small.path)
    with open_context(plan, make_state=True):
        # As the create phase leaves it: the link's topics are there, and empty.
        pass
    packed = Snapshot.take(plan).pack()
    trigger = StepTrigger(
        step="watch_lag",
        packed=packed,
        digest=plan.digest,
        plan_file=str(small.path),
        gives_up_at=time.time() + 200,
    )
    heard: list[str] = []
    monkeypatch.setattr(trigger, "_log", FakeLog(heard), raising=False)

    def copy() -> None:
        with open_context(plan, make_state=True) as ctx:
            mirror.apply(ctx, ThreadRunner(), until_caught_up=True)

    async def events() -> list[dict[str, object]]:
        copying = threading.Thread(target=copy)
        waiting = asyncio.create_task(_all(trigger))
        await asyncio.to_thread(wait_until, lambda: heard, "the first look")
        assert heard[0].startswith(f"lag {RECORDS:,} "), "a partition without a position counts in full"
        assert not waiting.done()
        copying.start()
        found = await waiting
        copying.join()
        return found

    (event,) = asyncio.run(events())
    assert event == {"exit_code": 0, "message": "2 samples in a row at or under 0", "facts": {"lag": 0}}
    with open_context(plan) as ctx:
        noted = ctx.journal.read("phase", "watch_lag")
    assert noted is not None
    assert noted["evidence"]["history"][-1][1] == 0
    assert noted["outcome"] == "done"
    assert noted["seconds"] > 0


class FakeLog:
    """Keeps what is said."""

    def __init__(self, heard: list[str]) -> None:
        self._heard = heard

    def info(self, text: str, *values: object) -> None:
        self._heard.append(text % values)

    warning = info


async def _all(trigger: StepTrigger) -> list[dict[str, object]]:
    return [event.payload async for event in trigger.run()]
