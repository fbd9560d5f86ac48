"""What is done to the mirror, its brokers and the network between them: each kind a function, all in one table.

A fault is injected while the target grows, or not at all: :class:`Missed` says that its moment was not met, or that
there was nobody to do it to. It is tried again then.
"""

import random
import signal
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from kafka_migration.state.link import LinkState
from tests.chaos.administration import deny_write, leaders, move_leaders, set_quota
from tests.chaos.mirrors import Mirrors, Run
from tests.chaos.progress import Progress, Stalls, ends_of
from tests.chaos.reader import Place
from tests.chaos.scene import Scene
from tests.chaos.schedule import NARROW, OF_BROKERS, Fault
from tests.chaos.short import LONGEST_SECONDS
from tests.chaos.stage import MIRROR_USER
from tests.chaos.topics import topic
from tests.kafka_tools import topic_ids
from tests.waiting import wait_until

WITHIN_SECONDS = 1.0
"""A fault counts if growth of the target was seen so shortly before."""
FROZEN_SECONDS = LONGEST_SECONDS + 3.0
LONG_SECONDS = 66.0
"""Longer than a fence's transaction may take, than an append is waited for, and than clients wait for a leader."""
_ADD_PARTITIONS_TO_TXN = 24
_READY_SECONDS = 0.5
_PATIENCE_SECONDS = 60.0
_CUT_SECONDS = 10.0
"""For so long is a request waited for: workers that were just started again send none for seconds on a busy machine."""
_DOWN_SECONDS = (0.0, 4.0)
_SLOW_SECONDS, _QUOTA_SECONDS, _LONG_QUOTA_SECONDS = (4.0, 8.0), (4.0, 8.0), (30.0, 30.0)
_NARROW_SECONDS, _STEADY_SECONDS = 15.0, 3.0
STEADY = ("plain", "small", "append_time")
"""Kinds of topics in which there is something to copy all the time, and nothing that waits by right: an open
transaction, or records so old that they are held after a fence."""


class Missed(Exception):
    """The fault was not injected; why not."""


@dataclass
class Injector:
    """Does a round's faults, one after the other, to its mirror."""

    scene: Scene
    mirrors: Mirrors
    progress: Progress
    _pool: ThreadPoolExecutor = field(default_factory=ThreadPoolExecutor)
    _lasting: list[tuple[Fault, Future[None]]] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    innocent_stall: float = 0.0
    """For how many seconds a partition stood still at most while a fault lasted that did not concern it."""
    stalled: str = ""
    """Which partition that was, and when."""

    def inject(self, fault: Fault) -> str:
        """Do it; what was done, in words. Raises Missed."""
        if fault.kind in OF_BROKERS:
            # Two brokers of a side at once are one too many for any cluster of three.
            self.settle(lambda it: it.kind in OF_BROKERS)
            for cluster in self.scene.stage.clusters.values():
                cluster.wait_healthy()
        if fault.kind in NARROW:
            # What is measured beside it is of this fault alone.
            self.settle()
            self._await_steady()
        self._await_progress(fault)
        age = self.progress.age
        if age > WITHIN_SECONDS:
            raise Missed(f"the target had not grown for {age:.1f} s")
        did, rest = ACTIONS[fault.kind](self, fault, random.Random(fault.seed))
        if rest is not None:
            self._lasting.append((fault, self._pool.submit(rest)))
            if not fault.overlaps:
                self.settle()
        return f"{did}; {age:.1f} s after progress"

    def settle(self, which: Callable[[Fault], bool] = lambda _: True) -> None:
        """Wait until what still lasts is over. Raises what went wrong in it."""
        for entry in [entry for entry in self._lasting if which(entry[0])]:
            self._lasting.remove(entry)
            entry[1].result()

    def close(self) -> None:
        """Leave nothing that is slow, frozen or throttled; raises nothing."""
        self._over.set()
        self._pool.shutdown(wait=True)

    def last(self, seconds: float) -> None:
        """Let something last so long, or until all is over."""
        self._over.wait(seconds)

    def lasts(self, seconds: float, concerns: Callable[[Place], bool]) -> None:
        """Let a narrow fault last, and measure what it does not concern."""
        seen = self._stalls(seconds, concerns)
        if seen.longest > self.innocent_stall:
            self.innocent_stall = seen.longest
            self.stalled = f"{seen.place} stood still for {seen.longest:.1f} s up to {seen.until}"

    def _await_steady(self) -> None:
        """Until all is copied that is written all the time, and what came before is over, also in its effects: records
        that waited for the copy are old, and held after a takeover; brokers make a client wait after a quota."""
        until, link = time.monotonic() + _PATIENCE_SECONDS, self.scene.link()
        try:
            while not self._is_steady(link):
                if time.monotonic() > until or self.mirrors.findings or self._over.is_set():
                    raise Missed("what is written all the time was not copied before it")
        finally:
            link.close()

    def _is_steady(self, link: LinkState) -> bool:
        """Whether the steady partitions are copied for some seconds without a stop, all that was there before."""
        source = ends_of(self.scene.stage.source.direct, self.scene.places)()
        seen = self._stalls(_STEADY_SECONDS, lambda _: False)
        positions = {tuple(tp): position.source for tp, position in link.positions().items()}
        caught_up = all(positions.get(place, 0) >= source.get(place, 2**63) for place in seen.places)
        return caught_up and seen.is_steady(_STEADY_SECONDS / 2)

    def _stalls(self, seconds: float, concerns: Callable[[Place], bool]) -> Stalls:
        """How the steady partitions that are not concerned were copied while this looked on."""
        stage, scene = self.scene.stage, self.scene
        steady = {topic(scene.name, kind) for kind in STEADY}
        innocent = [place for place in scene.places if place[0] in steady and not concerns(place)]
        source, target = (ends_of(it.direct, innocent) for it in (stage.source, stage.target))
        with Stalls(source, target, innocent) as stalls:
            self.last(seconds)
        return stalls

    def _await_progress(self, fault: Fault) -> None:
        until = time.monotonic() + _PATIENCE_SECONDS
        due: float | None = None
        while time.monotonic() < until:
            if self.mirrors.findings or self._over.is_set():
                raise Missed("the mirror has ended")
            if self.progress.age < _READY_SECONDS and self.mirrors.current is not None:
                due = due or time.monotonic() + fault.after
                if time.monotonic() >= due:
                    return
            self._over.wait(0.02)
        raise Missed(f"no progress was seen for {_PATIENCE_SECONDS:g} s")

    def running(self) -> Run:
        run = self.mirrors.current
        if run is None:
            raise Missed("no mirror runs just now")
        return run


Rest = Callable[[], None] | None
Done = tuple[str, Rest]


def _kill(what: str) -> Callable[[Injector, Fault, random.Random], Done]:
    def kill(it: Injector, _fault: Fault, chance: random.Random) -> Done:
        run = it.running()
        pids = run.pids(what)
        if not pids:
            raise Missed(f"there is no {what} just now")
        # Before: it may be dead, and judged, at once.
        run.harm.append(f"{what} killed")
        if not run.signal([chance.choice(pids)], signal.SIGKILL):
            raise Missed(f"the {what} had just ended")
        return f"killed 1 {what} of {len(pids)}", None

    return kill


def _kill_broker(it: Injector, fault: Fault, chance: random.Random) -> Done:
    cluster = it.scene.stage.clusters[fault.side]
    node, down = chance.randint(1, cluster.nodes), chance.uniform(*_DOWN_SECONDS)
    cluster.kafka.kill(node)

    def come_back() -> None:
        it.last(down)
        cluster.kafka.restart(node)
        cluster.wait_healthy()

    return f"killed broker {node} of the {fault.side}, back after {down:.1f} s", come_back


def _rolling_restart(it: Injector, fault: Fault, chance: random.Random) -> Done:
    cluster = it.scene.stage.clusters[fault.side]
    nodes = chance.sample(range(1, cluster.nodes + 1), cluster.nodes)

    def go_on() -> None:
        for node in nodes:
            cluster.kafka.restart(node)
            cluster.wait_healthy()

    return f"restarting the brokers of the {fault.side}, {', '.join(map(str, nodes))}", go_on


def _leader_moves(it: Injector, fault: Fault, chance: random.Random) -> Done:
    cluster = it.scene.stage.clusters[fault.side]
    moved = move_leaders(cluster.direct, it.scene.topics, chance)
    return f"{moved} partitions of the {fault.side} have other leaders", None


def _freeze(what: str) -> Callable[[Injector, Fault, random.Random], Done]:
    def freeze(it: Injector, _fault: Fault, chance: random.Random) -> Done:
        run = it.running()
        pids = run.pids(what)
        if what == "worker" and len(pids) > 1:
            # One or several, and the daemon that forks them perhaps among them.
            pids = chance.sample(pids, chance.randint(1, len(pids)))
        run.harm.append(f"{what} frozen")
        if not pids or not run.signal(pids, signal.SIGSTOP):
            raise Missed(f"there is no {what} just now")

        def wake() -> None:
            it.last(FROZEN_SECONDS)
            run.signal(pids, signal.SIGCONT)

        return f"{len(pids)} {what} stopped for {FROZEN_SECONDS:g} s", wake

    return freeze


def _freeze_mirror(it: Injector, _fault: Fault, _chance: random.Random) -> Done:
    """All of it stops, as with its machine; another one takes over, and then it wakes."""
    run = it.running()
    pids = run.pids("all")
    run.harm.append("all frozen")
    run.is_frozen = True
    if not run.signal(pids, signal.SIGSTOP):
        run.is_frozen = False
        raise Missed("the mirror had just ended")
    it.mirrors.start()

    def wake() -> None:
        try:
            it.last(FROZEN_SECONDS)
            # Until the other one copies: then the one that wakes has lost its link.
            began = it.progress.offsets
            until = time.monotonic() + _PATIENCE_SECONDS
            while it.progress.offsets <= began and time.monotonic() < until and not it.mirrors.findings:
                it.last(0.1)
        finally:
            run.signal(pids, signal.SIGCONT)
        it.mirrors.gives_way(run)

    return f"{len(pids)} processes stopped for {FROZEN_SECONDS:g} s at least, another mirror started", wake


def _freeze_long(it: Injector, _fault: Fault, _chance: random.Random) -> Done:
    """Another mirror takes over and stops in the middle of its fence, until the coordinator gives that up by itself:
    meanwhile nobody else comes."""
    it.running()
    run, network = it.mirrors.start(), it.scene.stage.network
    try:
        if not network.keep_answer("target", _ADD_PARTITIONS_TO_TXN, seconds=_PATIENCE_SECONDS):
            raise Missed("the second mirror did not fence")
        run.harm.append("all frozen")
        pids = run.pids("all")
        if not run.signal(pids, signal.SIGSTOP):
            raise Missed("the second mirror had just ended")
    finally:
        network.release_answer("target")

    def wake() -> None:
        try:
            it.last(LONG_SECONDS)
        finally:
            run.signal(pids, signal.SIGCONT)
        began = it.progress.offsets
        wait_until(
            lambda: it.progress.offsets > began + len(it.scene.places) or it.mirrors.findings,
            "a mirror copies again",
            deadline_seconds=2 * _PATIENCE_SECONDS,
        )

    return f"{len(pids)} processes of a second mirror stopped in mid-fence for {LONG_SECONDS:g} s", wake


def _rivals(it: Injector, _fault: Fault, _chance: random.Random) -> Done:
    """A second mirror of the same link: one of them gives way."""
    first, second = it.running(), it.mirrors.start()

    def one_gives_way() -> None:
        wait_until(
            lambda: first.process.poll() is not None or second.process.poll() is not None or it.mirrors.findings,
            "one of two mirrors gives way",
            deadline_seconds=2 * _PATIENCE_SECONDS,
        )

    return "a second mirror was started", one_gives_way


def _cut(*wheres: str) -> Callable[[Injector, Fault, random.Random], Done]:
    def cut(it: Injector, fault: Fault, chance: random.Random) -> Done:
        where, count = chance.choice(wheres), chance.randint(1, 3)
        done = it.scene.stage.network.cut(
            fault.side, where=where, count=count, seconds=_CUT_SECONDS, seed=chance.getrandbits(32)
        )
        if not done:
            raise Missed(f"nothing was on its way to the {fault.side} within {_CUT_SECONDS:g} s")
        return f"cut {len(done)} connections to the {fault.side} ({where})", None

    return cut


def _slow_network(it: Injector, fault: Fault, chance: random.Random) -> Done:
    network, delay = it.scene.stage.network, chance.uniform(0.05, 0.5)
    rate = chance.choice((300_000, 1_000_000, 5_000_000))
    network.slow(fault.side, delay=delay, bytes_per_second=rate)
    seconds = chance.uniform(*_SLOW_SECONDS)

    def recover() -> None:
        it.last(seconds)
        network.slow(fault.side, delay=0, bytes_per_second=0)

    return f"up to {delay:.2f} s a frame, {rate:,} bytes/s to the {fault.side} for {seconds:.0f} s", recover


def _quota(bounds: tuple[float, float]) -> Callable[[Injector, Fault, random.Random], Done]:
    def limit(it: Injector, _fault: Fault, chance: random.Random) -> Done:
        servers, client = it.scene.stage.target.direct, it.scene.client_id
        rate, seconds = chance.choice((50_000, 100_000)), chance.uniform(*bounds)
        set_quota(servers, client, "producer_byte_rate", rate)

        def lift() -> None:
            it.last(seconds)
            set_quota(servers, client, "producer_byte_rate", None)

        return f"{rate:,} bytes/s and broker may be written for {seconds:.0f} s", lift

    return limit


def _revoke_topic(it: Injector, _fault: Fault, chance: random.Random) -> Done:
    """The mirror may not write to one topic any more, and then it may again."""
    victim, servers = chance.choice(sorted(it.scene.topics)), it.scene.stage.target.direct
    deny_write(servers, MIRROR_USER, victim, denied=True)

    def grant() -> None:
        try:
            it.lasts(_NARROW_SECONDS, lambda place: place[0] == victim)
        finally:
            deny_write(servers, MIRROR_USER, victim, denied=False)

    return f"nothing may be written to {victim} for {_NARROW_SECONDS:g} s", grant


def _sever_topic(it: Injector, fault: Fault, chance: random.Random) -> Done:
    """Each request for one topic loses its connection."""
    victim, network = chance.choice(sorted(it.scene.topics)), it.scene.stage.network
    network.sever(fault.side, ids=_ids(it, fault.side, [victim]))

    def mend() -> None:
        try:
            it.lasts(_NARROW_SECONDS, lambda place: place[0] == victim)
        finally:
            network.sever(fault.side, ids=[])

    return f"every request for {victim} to the {fault.side} is cut for {_NARROW_SECONDS:g} s", mend


def _wrong_answers(it: Injector, fault: Fault, chance: random.Random) -> Done:
    """One broker knows none of the topics any more, so it says, while its metadata say that it does."""
    cluster, network = it.scene.stage.clusters[fault.side], it.scene.stage.network
    node = chance.randint(1, cluster.nodes)
    led = {place for place, (leader, _) in leaders(cluster.direct, it.scene.topics).items() if leader == node}
    network.spoil(fault.side, ids=_ids(it, fault.side, it.scene.topics), port=cluster.ports[node - 1])

    def mend() -> None:
        try:
            it.lasts(_NARROW_SECONDS, lambda place: place in led)
        finally:
            network.spoil(fault.side, ids=[], port=0)

    return f"broker {node} of the {fault.side} answers wrongly for {_NARROW_SECONDS:g} s", mend


def _ids(it: Injector, side: str, topics: Iterable[str]) -> list[str]:
    return [found.hex for found in topic_ids(it.scene.stage.clusters[side].direct, topics).values()]


ACTIONS: dict[str, Callable[[Injector, Fault, random.Random], Done]] = {
    "kill_driver": _kill("driver"),
    "kill_jvm": _kill("jvm"),
    "kill_worker": _kill("worker"),
    "kill_source_broker": _kill_broker,
    "kill_target_broker": _kill_broker,
    "freeze_driver": _freeze("driver"),
    "freeze_worker": _freeze("worker"),
    "freeze_mirror": _freeze_mirror,
    "freeze_long": _freeze_long,
    "rivals": _rivals,
    "cut_request": _cut("request", "late"),
    "cut_response": _cut("response"),
    "slow_network": _slow_network,
    "rolling_restart": _rolling_restart,
    "leader_moves": _leader_moves,
    "quota": _quota(_QUOTA_SECONDS),
    "long_quota": _quota(_LONG_QUOTA_SECONDS),
    "revoke_topic": _revoke_topic,
    "sever_topic": _sever_topic,
    "wrong_answers": _wrong_answers,
}
