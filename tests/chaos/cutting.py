"""Faults while producers are switched and groups are rolled back: ``python -m tests.chaos.cutting`` (make chaos-cut).

A round is a migration of its own, with three producers that write and a group that reads. It is cut over, and then
either `switch` runs, or (of one that was switched) `rollback`, as a process of its own; faults fall while that proves
that clients have stopped. It must end done, or given up with everything as before: producers write to the source, and
no fence stands. What its clients noted is judged by ``checker`` (docs/checker.md).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from confluent_kafka import KafkaException

from checker.findings import Fault as Found
from checker.logs import LeaderChange
from checker.recorder import Recorder
from checker.verdict import Verdict
from kafka_migration.domain.held_open import KEEPS_RECORDS
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.types import Acl
from kafka_migration.link import switched
from kafka_migration.link.switched import SwitchState
from tests.chaos.faults import ACTIONS, Missed
from tests.chaos.schedule import Fault
from tests.chaos.stage import Stage, seconds_since, stage
from tests.cli.processes import Ended, finish
from tests.steps.cuts import AUTHORIZED, Clusters, Cut, Reader, Side, Writer, connect
from tests.steps.hook_server import HookServer
from tests.waiting import wait_until

#: What may fall, each on either side: of each round one fault of brokers (with one broker a side none) and one of the
#: network, at once.
OF_BROKERS = ("leader_moves", "kill_broker", "rolling_restart")
OF_NETWORK = ("cut_request", "cut_response", "slow_network")
#: For how long a broker that was killed stays away: less than a fence may take to be proved, or more.
_AWAY_SECONDS = (0.0, 15.0)
_LATER_SECONDS = 0.4
#: How often the same command is run, once nothing more befalls it, before its round counts as stuck.
_TRIES = 4
_AGAIN_SECONDS, _SETTLE_SECONDS = 5.0, 240.0

What = Literal["switch", "rollback"]


# -- clients that live through faults ---------------------------------------------------------------------------------


class Persistent(Writer):
    """As an application that begins again with another producer when its own gives up."""

    def work(self, side: Side, recorder: Recorder, stopping: threading.Event) -> None:
        while not stopping.is_set():
            try:
                super().work(side, recorder, stopping)
            except KafkaException:
                stopping.wait(0.5)


class Patient(Reader):
    """Commits again later what could not be committed."""

    def _commit(self, consumer: Any, recorder: Recorder, stands: dict[tuple[str, int], int]) -> None:
        positions = [(topic, partition, offset) for (topic, partition), offset in stands.items()]
        number = recorder.commit(positions)
        try:
            self._commit_now(consumer, positions)
        except KafkaException:
            recorder.committed(number, "unknown")
            return
        recorder.committed(number, "ok")
        stands.clear()


# -- a round ----------------------------------------------------------------------------------------------------------


class Chaotic(Cut):
    """A migration on three brokers a side. ``proves`` is set once the command that is disturbed has stopped clients."""

    def __init__(self, both: Clusters, hooks: HookServer, folder: Path, replicas: int) -> None:
        super().__init__(both, hooks, folder)
        self.replicas = replicas
        self.web = Persistent(self, "web", "idempotent", "orders")
        self.till = Persistent(self, "till", "transactional", "payments")
        self.pay = Persistent(self, "pay", "acks=1", "orders")
        self.writers = (self.web, self.till, self.pay)
        self.reader = Patient(self, self.group)
        self.proves = threading.Event()
        self.before: tuple[Acl, ...] = ()
        hooks.on("stop", "source", self._stop_on_source)
        hooks.on("stop", "target", self._stop_on_target)

    def _stop_on_source(self, group: str) -> None:
        if group:
            self.reader.stop()
            return
        self.proves.set()
        self._stop_politely()

    def _stop_on_target(self, group: str) -> None:
        self.proves.set()
        self.reader.stop()

    def begin(self) -> None:
        super().begin()
        with self.clusters.admin("source") as admin:
            self.before = admin.acls()

    def command(self, what: What, told: Callable[[str], None]) -> Ended:
        ended = finish(self.begin_command(what), seconds=900)
        told(f"{what} ended with {ended.code}: {ended.err.strip().splitlines()[-2:]}")
        return ended

    def keep_what_comes_back(self) -> None:
        """Source configs for the reverse link (docs/rollback.md), and its mirror."""
        with self.clusters.admin("source") as admin:
            for topic in self.topics:
                admin.alter_configs(topic, set=dict(KEEPS_RECORDS))
        self.end_mirror()
        self.start_mirror("--reverse")

    def end_mirror(self) -> None:
        if self.mirror is not None and self.mirror.poll() is None:
            self.mirror.terminate()
            with suppress(Exception):
                self.mirror.wait(180)

    def fences(self) -> int:
        """ACLs of the source that were not there before, or are gone."""
        with self.clusters.admin("source") as admin:
            return len({*admin.acls()} ^ {*self.before})

    def ends(self, side: Side) -> dict[tuple[str, int], int]:
        """Where the logs of a side end now."""
        places = [TopicPartition(topic, p) for topic, n in self.topics.items() for p in range(n)]
        with self.clusters.admin(side) as admin:
            return {(tp.topic, tp.partition): log.end for tp, log in admin.ends(places).items()}

    def switch_state(self) -> SwitchState | None:
        with self.context() as ctx:
            found = switched.read(ctx)
        return None if found is None else found.state

    def await_copied(self, *, back: bool = False) -> None:
        """Until the mirror (or the reverse one) has copied all that stands there now."""
        with self.context() as ctx:
            seen = ctx.reverse() if back else ctx
            wait_until(seen.link.positions, "the link has begun", deadline_seconds=_SETTLE_SECONDS)
            ends = {tp: log.end for tp, log in seen.origin.ends(sorted(seen.link.positions())).items()}

            def is_copied() -> bool:
                stands = seen.link.positions()
                return all(stands[tp].source >= end for tp, end in ends.items())

            wait_until(is_copied, lambda: f"all is copied\n{self.mirror_log()}", deadline_seconds=_SETTLE_SECONDS)

    @contextmanager
    def mirror_kept(self) -> Iterator[None]:
        """Start the mirror again whenever it has ended: a switch that is given up may have had it drained, and it ends
        in its own time."""
        done = threading.Event()

        def keep() -> None:
            while not done.wait(0.2):
                if self.mirror is None or self.mirror.poll() is not None:
                    self.start_mirror()

        with ThreadPoolExecutor(1) as pool:
            kept = pool.submit(keep)
            try:
                yield
            finally:
                done.set()
        kept.result()


@dataclass
class Outcome:
    """How a round ended, the faults that fell, and what the judge found."""

    end: Literal["cut", "unfenced", "stuck"] = "stuck"
    faults: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    #: Sides whose brokers were hit, and since when.
    leaders: list[tuple[Side, int]] = field(default_factory=list)
    verdict: Verdict | None = None


class Injector:
    """Does faults of ``tests.chaos.faults`` to brokers and network, where a mirror's progress is nobody's matter."""

    def __init__(self, on: Stage, topics: Sequence[str]) -> None:
        self.scene = SimpleNamespace(stage=on, topics=topics)
        self._over = threading.Event()

    def last(self, seconds: float) -> None:
        self._over.wait(seconds)

    def inject(self, kind: str, side: Side, chance: random.Random) -> tuple[str, Callable[[], None] | None]:
        """Do it; what was done, in words, and what ends it. Raises Missed."""
        if kind == "kill_broker":
            return self._kill_broker(side, chance)
        did, rest = ACTIONS[kind](self, Fault(kind=kind, side=side, after=0, seed=0), chance)  # type: ignore[arg-type]
        return did, rest

    def _kill_broker(self, side: Side, chance: random.Random) -> tuple[str, Callable[[], None]]:
        cluster = self.scene.stage.clusters[side]
        node, away = chance.randint(1, cluster.nodes), chance.uniform(*_AWAY_SECONDS)
        cluster.kafka.kill(node)

        def come_back() -> None:
            self.last(away)
            cluster.kafka.restart(node)

        return f"killed broker {node} of the {side}, back after {away:.1f} s", come_back


def play(cut: Chaotic, what: What, on: Stage, faults: Sequence[tuple[str, Side]], seed: int, told: Any) -> Outcome:
    """One round, whose clusters are healthy."""
    outcome, chance = Outcome(), random.Random(seed)
    cut.begin()
    told("cut over: the group reads on the target, producers write to the source")
    if what == "rollback":
        cut.switch()
        cut.keep_what_comes_back()
        told("switched; the reverse mirror runs")
        cut.await_copied(back=True)
    cut.proves.clear()
    injector = Injector(on, list(cut.topics))
    with ThreadPoolExecutor() as pool:
        running = pool.submit(cut.command, what, told)
        wait_until(lambda: cut.proves.is_set() or running.done(), f"{what} stops clients", deadline_seconds=600)

        def fall(kind: str, side: Side, own: random.Random) -> None:
            injector.last(own.uniform(0.0, _LATER_SECONDS))
            if running.done():
                told(f"{kind} ({side}) did not fall: {what} had ended")
                return
            began = time.time_ns()
            try:
                did, rest = injector.inject(kind, side, own)
            except Missed as missed:
                told(f"{kind} ({side}) did not fall: {missed}")
                return
            told(f"{kind} ({side}): {did}")
            outcome.faults.append(kind)
            if kind in OF_BROKERS:
                outcome.leaders.append((side, began))
            if rest is not None:
                rest()

        falling = [pool.submit(fall, *fault, random.Random(chance.getrandbits(32))) for fault in faults]
        ended = running.result()
        for fault in falling:
            fault.result()
    for cluster in on.clusters.values():
        cluster.wait_healthy()
    healthy = time.time_ns()
    leaders = [
        LeaderChange(cluster=side, began=began, ended=healthy, ends=cut.ends(side)) for side, began in outcome.leaders
    ]
    outcome.end = _end(cut, what, ended, told)
    told(f"ended {outcome.end}")
    if outcome.end != "stuck":
        outcome.verdict = _judge(cut, what, outcome, leaders)
    return outcome


def _end(cut: Chaotic, what: What, ended: Ended, told: Any) -> Literal["cut", "unfenced", "stuck"]:
    """Whatever it ended with, the same command is run until nothing is half done: nothing befalls it any more."""
    for _ in range(_TRIES):
        if ended.code == 0:
            return "cut"
        if what == "switch" and cut.switch_state() in (None, SwitchState.GIVEN_UP):
            # Given up: that is an end, if nothing of it is left.
            return "unfenced" if cut.fences() == 0 else "stuck"
        time.sleep(_AGAIN_SECONDS)
        ended = cut.command(what, told)
    return "cut" if ended.code == 0 else "stuck"


def _judge(cut: Chaotic, what: What, outcome: Outcome, leaders: Sequence[LeaderChange]) -> Verdict:
    if what == "rollback":
        # What producers write on the target comes back to where the group reads.
        return cut.judged("source", "target", settle=lambda: cut.await_copied(back=True), leaders=leaders)
    if outcome.end == "cut":
        return cut.judged("target", leaders=leaders)
    with cut.mirror_kept():
        return cut.judged("target", settle=cut.await_copied, leaders=leaders)


# -- the run ----------------------------------------------------------------------------------------------------------


@contextmanager
def clusters(brokers: int) -> Iterator[tuple[Stage, Clusters]]:
    with stage(brokers=brokers, properties=dict.fromkeys(("source", "target"), AUTHORIZED)) as on:
        yield on, Clusters(on.source.kafka, on.target.kafka)


def deal(seed: int, number: int, brokers: int) -> tuple[What, list[tuple[str, Side]], int]:
    """What is done in a round: every third one rolls back. By the seed alone."""
    chance = random.Random(f"{seed}/{number}")
    kinds = [chance.choice(found) for found in ((OF_BROKERS, OF_NETWORK) if brokers >= 3 else (OF_NETWORK,))]
    # The source twice as often: there is the fence.
    sides: tuple[Side, ...] = ("source", "source", "target")
    faults = [(kind, chance.choice(sides)) for kind in kinds]
    return ("rollback" if number % 3 == 0 else "switch"), faults, chance.getrandbits(32)


def run(*, seed: int, numbers: Sequence[int], brokers: int, folder: Path) -> dict[str, Any]:
    """Play rounds, and count."""
    counts: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    bad: list[int] = []
    with clusters(brokers) as (on, both), closing(HookServer()) as hooks, pytest.MonkeyPatch.context() as patch:
        connect(patch, both, hooks)
        for number in numbers:
            what, dealt, chance = deal(seed, number, brokers)
            began = time.monotonic()
            print(f"round {number}: {what}; {', '.join(f'{kind} ({side})' for kind, side in dealt)}", flush=True)

            def told(text: str, began: float = began) -> None:
                print(f"    {seconds_since(began):6.1f} s  {text}", flush=True)

            own = folder / f"round-{number}"
            own.mkdir()
            cut = Chaotic(both, hooks, own, min(brokers, 3))
            try:
                outcome = play(cut, what, on, dealt, chance, told)
            except Exception:
                outcome = Outcome(problems=[traceback.format_exc(limit=-4)])
            finally:
                cut.close()
            counts["rounds"] += 1
            counts[outcome.end] += 1
            faults.update(outcome.faults)
            found = outcome.verdict.findings.counts if outcome.verdict else {}
            for fault in (Found.LOST, Found.DOUBLED, Found.REORDERED):
                counts[fault.value] += found.get(fault, 0)
            counts["truncated"] += outcome.verdict.truncated if outcome.verdict else 0
            others = {f.value: n for f, n in found.items() if n}
            if outcome.verdict is None or outcome.verdict.exit_code or outcome.problems:
                bad.append(number)
                said = outcome.verdict.findings.examples if outcome.verdict else outcome.problems
                print(f"    PROBLEM: {others} {said}"[:4000], flush=True)
            else:
                gone = f", {lost:,} of acks=1 truncated by brokers" if (lost := outcome.verdict.truncated) else ""
                print(f"    {outcome.verdict.acknowledged:,} records acknowledged, no fault{gone}", flush=True)
                shutil.rmtree(own)
            for cluster in on.clusters.values():
                cluster.delete(cut.topics)
    keys = ("rounds", "cut", "unfenced", "lost", "doubled", "reordered", "stuck", "truncated")
    return {"bad": bad, "faults": dict(sorted(faults.items())), "line": {key: counts[key] for key in keys}}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="make chaos-cut", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="replays what falls when of an earlier run")
    parser.add_argument("--round", type=int, metavar="N", help="play only this one")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=3, help="a side")
    parser.add_argument("--folder", type=Path, help="where rounds that went wrong leave notes and logs")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="chaos-cut-", dir=options.folder))
    print(f"seed {options.seed}", flush=True)
    numbers = [options.round] if options.round else list(range(1, options.rounds + 1))
    found = run(seed=options.seed, numbers=numbers, brokers=options.brokers, folder=folder)
    print(json.dumps(found["faults"]), file=sys.stderr)
    if found["bad"]:
        print(f"rounds that went wrong: {found['bad']}; their notes and logs: {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder)
    print(json.dumps(found["line"]), flush=True)
    return 1 if found["bad"] else 0


if __name__ == "__main__":
    sys.exit(main())
