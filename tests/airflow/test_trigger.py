"""The loop under the triggers: it looks until it knows, bears an outage, and ends clean however it ends."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.serde import deserialize, serialize

from kafka_migration.airflow import trigger as triggers
from kafka_migration.airflow.trigger import StepTrigger
from kafka_migration.domain import waiting
from kafka_migration.domain.digest import digest_of
from kafka_migration.domain.errors import AuthenticationFailed, ClusterUnreachable, Refused
from kafka_migration.migration import context
from kafka_migration.plans.load import restore_plan
from kafka_migration.plans.snapshot import Snapshot, write_plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.store import MemoryStore
from kafka_migration.steps.step import Decision
from tests.waiting import wait_until

PASSED = Decision(exit_code=0, message="it is so", facts={"n": 1})


class Looks:
    """A watch that sees what it is given, one after the other, and then nothing for ever."""

    interval_seconds = 0.01

    def __init__(self, *seen):
        self.left = list(seen)
        self.threads = set()

    def look(self):
        self.threads.add(threading.get_ident())
        now = self.left.pop(0) if self.left else None
        if isinstance(now, Exception):
            raise now
        return now

    def too_late(self, overdue):
        return Decision(exit_code=1, message=f"{overdue}: not yet")


class Played(StepTrigger):
    """A trigger of the step ``played``, which is what its own looks see."""

    looks = Looks()


@pytest.fixture
def world(monkeypatch, tmp_path):
    """A plan, the journal that contexts are opened on, and how many are open."""
    plan = restore_plan({"version": 1, "name": "p", "source": "a", "target": "b", "topics": {"include": ["t"]}})
    file = str(write_plan(plan, tmp_path))
    found = SimpleNamespace(plan=plan, file=file, made=[], journal=Journal(MemoryStore(), "p"), open=0, opened=0)

    @contextmanager
    def open_context(plan, *, log=None, dry_run=False, make_state=False):
        side: Any = SimpleNamespace(connection=SimpleNamespace(secrets=frozenset))
        found.made.append(make_state)
        found.open += 1
        found.opened += 1
        try:
            link: Any = None
            yield context.Context(plan=plan, source=side, target=side, journal=found.journal, link=link, log=log)
        finally:
            found.open -= 1

    monkeypatch.setattr(context, "open_context", open_context)
    wait = SimpleNamespace(Wait=lambda ctx: found.trigger.looks)
    row = {"verbs": wait, "writes": False, "seen": lambda ctx: ctx}
    monkeypatch.setattr(triggers, "step_named", lambda name: SimpleNamespace(name=name, **row))
    return found


def trigger(world, *seen, seconds=60.0, kind=Played):
    packed, digest = Snapshot.take(world.plan).pack(), world.plan.digest
    world.trigger = it = kind(
        step="played",
        packed=packed,
        digest=digest,
        run_of_plan="d/r",
        plan_file=world.file,
        gives_up_at=time.time() + seconds,
    )
    it.looks = Looks(*seen)
    return it


async def events(it):
    return [event.payload async for event in it.run()]


@pytest.mark.parametrize("gives_up_at", [1_900_000_000.5, None])
def test_trigger_survives_being_stored_and_holds_the_plan_and_no_secret(gives_up_at):
    it = StepTrigger(step="watch_lag", packed="eA", digest="sha256:1", run_of_plan="d/r", gives_up_at=gives_up_at)
    path, values = it.serialize()
    assert path == f"{StepTrigger.__module__}.{StepTrigger.__name__}"
    stored: Any = deserialize(json.loads(json.dumps(serialize(values))))
    assert StepTrigger(**stored).serialize() == (path, values)
    assert set(values) == {"step", "packed", "digest", "run_of_plan", "plan_file", "path", "gives_up_at"}


def test_plan_of_thousands_of_names_fits_into_what_databases_keep_of_a_trigger():
    # Of words, as names are, each with some characters of its own.
    names = [f"shop-{n % 97}.orders.{digest_of(n)[7:13]}.of.a.department" for n in range(4_500)]
    plan = restore_plan({"version": 1, "name": "p", "source": "a", "target": "b", "topics": {"include": names}})
    snapshot = Snapshot.take(plan)
    assert len(snapshot.text) > 180_000
    packed = snapshot.pack()
    # Airflow encrypts it, which makes four characters of three; MySQL's TEXT takes 65,535.
    assert len(packed) * 4 / 3 < 60_000
    assert Snapshot.unpack(packed, plan.digest).load() == plan


def test_trigger_that_the_version_before_stored_goes_on_by_its_file(world, tmp_path):
    values = {"step": "played", "path": str(write_plan(world.plan, tmp_path)), "digest": world.plan.digest}
    world.trigger = it = Played(**values, gives_up_at=time.time() + 60)
    it.looks = Looks(PASSED)
    (event,) = asyncio.run(events(it))
    assert event["exit_code"] == 0


def test_other_plan_than_the_one_recorded_for_the_run_ends_it(world):
    world.journal.record("run", "d/r", {"digest": "sha256:another"})
    (event,) = asyncio.run(events(trigger(world, PASSED)))
    assert "this run created its targets by sha256:another" in event["message"]
    assert "start a new run" in event["message"]


def test_corrected_plan_that_joined_is_one_that_the_run_goes_on_with(world):
    world.journal.record("run", "d/r", {"digest": "sha256:another"})
    world.journal.record("plan", "plan", {"digest": world.plan.digest, "snapshot": world.plan.snapshot(), "at": "now"})
    (event,) = asyncio.run(events(trigger(world, PASSED)))
    assert event["exit_code"] == 0


@pytest.mark.parametrize("is_there", [True, False])
def test_plan_that_neither_journal_nor_file_vouches_for_is_refused_before_anything_is_made(world, is_there):
    # As of an XCom that was edited to name another target, where no journal knows the run.
    file = Path(world.file)
    if is_there:
        write_plan(world.plan.model_copy(update={"target": "c"}), file.parent)
    else:
        file.unlink()
    (event,) = asyncio.run(events(trigger(world, PASSED)))
    assert event["exit_code"] == (1 if is_there else 2)
    assert ("was edited since" if is_there else "cannot be read") in event["message"]
    assert world.made == [False], "no internal topics"


def test_plan_that_the_journal_vouches_for_needs_no_file(world):
    world.journal.record("run", "d/r", {"digest": world.plan.digest})
    Path(world.file).unlink()
    (event,) = asyncio.run(events(trigger(world, PASSED)))
    assert event["exit_code"] == 0
    assert world.made == [False, True]


def test_verdict_ends_the_wait_with_one_event_and_is_noted_with_its_facts(world):
    it = trigger(world, None, None, PASSED)
    assert asyncio.run(events(it)) == [{"exit_code": 0, "message": "it is so", "facts": {"n": 1}}]
    noted = world.journal.read("phase", "played")
    assert (noted["outcome"], noted["evidence"]) == ("done", {"n": 1})
    assert (world.open, world.opened) == (0, 1), "one context from the first look to the last"
    assert len(it.looks.threads) == 1, "clients belong to the thread that opened them"
    assert threading.get_ident() not in it.looks.threads


def test_outage_is_borne_as_long_as_there_is_time(world):
    outage = ClusterUnreachable("target", "h:1", "gone")
    (event,) = asyncio.run(events(trigger(world, outage, None, outage, PASSED)))
    assert event["exit_code"] == 0


def test_credentials_that_stay_rejected_end_it_and_a_change_of_them_does_not(world, monkeypatch):
    rejected = AuthenticationFailed("target", "h:1", "bad password")
    (event,) = asyncio.run(events(trigger(world, rejected, None, rejected, PASSED)))
    assert event["exit_code"] == 0
    monkeypatch.setattr(waiting, "REJECTED_SECONDS", 0.0)
    (event,) = asyncio.run(events(trigger(world, rejected, PASSED)))
    assert (event["exit_code"], "authentication failed" in event["message"]) == (1, True)


def test_error_that_waiting_does_not_heal_ends_it_at_once(world):
    it = trigger(world, Refused("no topics", remedy="run create"), PASSED)
    (event,) = asyncio.run(events(it))
    assert event == {"exit_code": 1, "message": "no topics\n  remedy: run create", "facts": {}}
    assert it.looks.left == [PASSED]
    assert world.journal.read("phase", "played")["outcome"] == "refused"


def test_time_that_is_over_ends_it_with_what_was_seen_last(world):
    (event,) = asyncio.run(events(trigger(world, seconds=0.1)))
    assert event["exit_code"] == 1
    assert event["message"].endswith("not yet")


def test_triggerer_that_restarts_gives_no_more_time(world):
    it = trigger(world, seconds=-1)
    (event,) = asyncio.run(events(it))
    assert event["exit_code"] == 1


def test_cluster_that_never_answered_is_unknown_when_time_is_over(world, monkeypatch):
    @contextmanager
    def unreachable(plan, **_options):
        raise ClusterUnreachable("target", "h:1", "gone")
        yield

    monkeypatch.setattr(context, "open_context", unreachable)
    (event,) = asyncio.run(events(trigger(world, seconds=0.05)))
    assert event["exit_code"] == 3


def test_edited_snapshot_ends_it(world):
    packed = Snapshot.take(world.plan).pack()
    it = Played(step="played", packed=packed, digest="sha256:another", gives_up_at=time.time() + 60)
    (event,) = asyncio.run(events(it))
    assert "a run does not follow edits" in event["message"]
    assert event["exit_code"] == 1, "no other look heals it, as the code of the error alone would claim"


def test_wait_that_is_cancelled_closes_its_context_and_is_noted_as_interrupted(world):
    async def cancelled():
        it = trigger(world)
        running = asyncio.create_task(events(it))
        await asyncio.to_thread(wait_until, lambda: it.looks.threads, "the first look")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelled())
    assert world.open == 0
    assert world.journal.read("phase", "played")["outcome"] == "interrupted"


def test_looks_that_block_do_not_hold_up_other_triggers(world):
    class Slow(Looks):
        def look(self):
            time.sleep(0.3)
            return super().look()

    async def beside():
        it = trigger(world)
        it.looks = Slow(PASSED)
        running = asyncio.create_task(events(it))
        beats = 0
        while not running.done():
            await asyncio.sleep(0.01)
            beats += 1
        return beats

    assert asyncio.run(beside()) > 5
