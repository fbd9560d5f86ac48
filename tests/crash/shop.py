"""A migration in memory with all that it moves: a mirror, two groups with consumers, producers, and their hooks.

The mirror and the clients are no part of the process that dies: they stay as they are, and obey its successor.
"""

from __future__ import annotations

import os
import uuid
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

from kafka_migration.approvals.cutover import CutoverGate
from kafka_migration.approvals.rollback import RollbackGate
from kafka_migration.copy.driver import fencing
from kafka_migration.domain import ledger
from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.types import Desired, Identity, Position, TopicPartition
from kafka_migration.groups import move
from kafka_migration.groups.hooks import ALLOWED_COMMANDS, HookCall, HookRun
from kafka_migration.link import reverse, seal
from kafka_migration.migration.context import Context
from kafka_migration.plans.model import Plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.link import LinkState, LinkTopic, Wish
from kafka_migration.steps import fence as fence_step
from kafka_migration.steps import switch
from kafka_migration.topics import keeping
from kafka_migration.validation import pins
from tests.crash.process import ClusterOf, LogOf, Process, StoreOf
from tests.fence.worlds import OWN, PROBE, SHOP_ACLS, acl
from tests.steps import histories
from tests.steps.gates import Migration

PARTITIONS = (*histories.ORDERS, histories.PAYMENTS)
#: What the source holds when a mirror has copied all of it, and what is written on the target after a switch.
RECORDS, WRITTEN = 100, 20
#: How many records a group reads as soon as it is started somewhere.
_READ = 5
_COMMAND = "/bin/true"
_ALLOWED = patch.dict(os.environ, {ALLOWED_COMMANDS: _COMMAND})
#: Whose boundary it is.
_NEWEST: deque[Shop] = deque(maxlen=1)


class MirroredLink(LinkState):
    """A link whose mirror has copied what ``shop`` says, and ends within a second once that is wished for."""

    def __init__(self, shop: Shop, name: str, links: Any, logs: list[Any], **options: Any) -> None:
        super().__init__(name, links, *logs, **options)
        self._shop = shop

    def positions(self, of: Collection[TopicPartition] | None = None) -> dict[TopicPartition, Position]:
        maps = self.offset_maps(of)
        return {tp: Position(source=it.source_end, target=it.target_end, fence=0, records=0) for tp, it in maps.items()}

    def offset_maps(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, OffsetMap]:
        if self.name == "shop":
            copied, pinned = OffsetMap([Run(0, 0, RECORDS)], source_end=RECORDS, target_end=RECORDS), self.topics()
            return {tp: copied for tp in PARTITIONS if tp.topic in pinned}
        wanted = None if partitions is None else [*partitions]
        return {tp: self._from(it.first_of_newest()) for tp, it in self.openings(wanted).items()}

    def _from(self, cut: Any) -> OffsetMap:
        """From the cut on what was written on the target, behind a marker on the source; forward again nothing yet."""
        written = self._shop.mirrored_back if self.name == "shop:reverse" else 0
        if not written:
            return OffsetMap([], source_end=cut.source, target_end=cut.target)
        run = Run(cut.source, cut.target + 1, written)
        return OffsetMap([run], source_end=cut.source + written, target_end=run.target + written)

    def run(self) -> dict[str, Any] | None:
        """One that runs reported so just now."""
        found = super().run()
        is_running = found is not None and found["state"] == "running"
        return {**found, "at": self._shop.ctx().stamp()} if found and is_running else found

    def wish(self, wish: Wish) -> None:
        super().wish(wish)
        if wish.desired in (Desired.DRAIN, Desired.STOP) and (self.run() or {}).get("state") == "running":
            reason = "drained" if wish.desired is Desired.DRAIN else "stopped"
            self._shop.clock.at(0.3, lambda: self._shop.mirror("ended", reason, link=self.name))


class Consumers:
    """One group's: where they run, how far they have read, and what must never be."""

    def __init__(self, shop: Shop, group: str, topic: str) -> None:
        self._shop, self.group, self._topic = shop, group, topic
        self.members: dict[str, str] = {}
        self.faults: list[str] = []

    def start(self, side: str) -> None:
        if side in self.members:
            return
        if self.members:
            self.faults.append(f"{self.group} runs on both clusters")
        cluster = self._shop.cluster(side)
        for tp, commit in cluster.committed(self.group).items():
            if self._shop.reads:
                cluster.consumer_commits(self.group, tp, commit.offset + _READ)
        self.members[side] = cluster.join(self.group, [self._topic])

    def stop(self, side: str) -> None:
        member = self.members.pop(side, None)
        if member is not None:
            self._shop.cluster(side).leave(self.group, member)


class Shop(Migration):
    """The migration, created and mirrored, with two groups on the source and three principals that may write there.

    ``process`` is who runs what comes next. ``producers`` is where producers write.
    """

    GROUPS: ClassVar = {"shop.app": "shop.orders", "shop.pay": "shop.payments"}

    def __init__(self, *, is_created: bool = True) -> None:
        super().__init__()
        _NEWEST.append(self)
        self.process = Process()
        #: Whether each read of the process is proved to change nothing.
        self.proves_reads = False
        self.reads = True
        self.mirrored_back = 0
        self.producers = "source"
        #: Of the plan's section producers.
        self.guards: dict[str, Any] = {}
        self.epochs = 0
        self.markers = {side: dict.fromkeys(PARTITIONS, 0) for side in ("source", "target")}
        self.entries: dict[str, list[Any]] = {topic: [] for topic in (ledger.OFFSET_MAP_TOPIC, ledger.PROGRESS_TOPIC)}
        self.source._id, self.target._id = "s", "t"
        self.source._acls, self.source._brokers = [], (1, 2, 3)
        self.source.create_acls(SHOP_ACLS)
        self.source.consumer_commits("shop.pay", histories.PAYMENTS, 60)
        self.groups = {group: Consumers(self, group, topic) for group, topic in self.GROUPS.items()}
        for consumers in self.groups.values():
            consumers.members["source"] = self.source.join(consumers.group, [self.GROUPS[consumers.group]])
        if is_created:
            self._create()

    def _create(self) -> None:
        with _ALLOWED:
            histories.created(self)
        self._pin()
        for tp in PARTITIONS:
            self.target.append(tp, RECORDS)
        self.mirror("running")

    def _pin(self) -> None:
        ctx = self.ctx()
        here, there = self.source.topics(), self.target.topics()
        pins = [
            LinkTopic(name=name, source_id=uuid.UUID(here[name].topic_id), target_id=uuid.UUID(it.topic_id))
            for name, it in sorted(there.items())
        ]
        ctx.link.pin(source_cluster="s", target_cluster="t", topics=pins, at=ctx.stamp())

    def cluster(self, side: str) -> Any:
        return self.source if side == "source" else self.target

    def mirror(self, state: str, reason: str = "", *, link: str = "shop") -> None:
        """What the mirror of a link reports of itself."""
        run = {"at": self.clock.now().isoformat(timespec="milliseconds"), "state": state}
        self.links.put(ledger.link_key(link, "run").decode(), run | ({"reason": reason} if reason else {}))

    def guard(self) -> None:
        """The plan keeps producers off the target until they are switched, and groups off the source after that."""
        self.guards = {"target_fence": {"probe": "probe"}, "target_closed": True, "groups_stay": True}
        self.target._acls, self.target._brokers = [], (1, 2, 3)
        rights = [acl(who, "WRITE", "shop.", "PREFIXED") for who in ("User:web", OWN, PROBE)]
        self.target.create_acls([*rights, acl(OWN, "READ", "shop.", "PREFIXED")])
        groups = [replace(acl(who, "READ", "shop.", "PREFIXED"), resource_type="GROUP") for who in ("User:app", PROBE)]
        self.source.create_acls(groups)

    def serve(self) -> None:
        """Producers write on the target, and the reverse link's mirror copies that to the source."""
        back = self.ctx().reverse()
        keeping.apply(back)
        self.mirror("running", link=back.link.name)
        for tp in PARTITIONS:
            self.target.append(tp, WRITTEN)
            self.source.append(tp, 1 + WRITTEN)
        self.mirrored_back = WRITTEN

    def plan(self, **fields: Any) -> Plan:
        def hooks(who: str) -> dict[str, Any]:
            return {verb: [{"command": [_COMMAND, verb, who]}] for verb in ("stop", "start")}

        producers = {"fence": {"probe": "probe"}, **hooks("producers"), **self.guards}
        own = {"producers": producers, "consumers": hooks("{group}"), "approvals": {"signed": False}}
        return super().plan(**{**own, **fields})

    def ctx(self, *, dry_run: Any = False, **fields: Any) -> Context:
        """A context as a new process would have it: ``process``."""
        process, state = self.process, self._state if self.proves_reads else None
        ctx = super().ctx(dry_run=dry_run, **fields)
        links, selects = StoreOf(self.links, process, "links"), ctx.plan.topics.matches

        def link(name: str) -> LinkState:
            logs = [LogOf(topic, found, process, ledger.PARTITIONS[topic]) for topic, found in self.entries.items()]
            return MirroredLink(self, name, links, logs, selects=selects)

        ctx.source = ClusterOf(self.source, process, state)  # type: ignore[assignment]
        ctx.target = ClusterOf(self.target, process, state)  # type: ignore[assignment]
        ctx.journal = Journal(StoreOf(self.store, process, "journal"), "shop")
        ctx.link = link("shop")
        ctx.on_open_link = lambda direction, generation: link(direction.own("shop", generation))
        ctx.connect = lambda role, conn_id, _seconds: ClusterOf(  # type: ignore[assignment,return-value]
            self.cluster(role).as_principal(PROBE if conn_id == "probe" else OWN), process, state
        )
        return ctx

    def _state(self) -> object:
        """Whatever a request could change."""
        clusters = (self.source, self.target)
        return [repr((it._topics, it._groups, it._acls, it.changes)) for it in clusters]

    # -- what stands at the boundary besides clusters and topics ------------------------------------------------------

    def run_hook(self, call: HookCall) -> HookRun:
        verb = (call.hook.command or ("", ""))[1]

        def act() -> None:
            if not call.group:
                self.producers = call.cluster if verb == "start" else ""
            elif verb == "start":
                self.groups[call.group].start(call.cluster)
            else:
                self.groups[call.group].stop(call.cluster)

        self.process.change(f"hook: {verb} {call.group or 'producers'} on the {call.cluster} ({call.phase})", act)
        return HookRun(what=str(call), seconds=0.0, said="")

    async def _transaction(self, side: str, partitions: Iterable[TopicPartition]) -> Identity:
        """What the coordinator is asked for, for an empty transaction of a new epoch."""
        self.process.change(f"{side}: InitProducerId", self._next_epoch)
        self.process.change(f"{side}: AddPartitionsToTxn", lambda: None)
        self.process.change(f"{side}: EndTxn", lambda: self._mark(side, partitions))
        return Identity(7, self.epochs)

    def _next_epoch(self) -> None:
        self.epochs += 1

    def _mark(self, side: str, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self.cluster(side).append(tp, 1)
            self.markers[side][tp] += 1

    async def take_over(self, side: str, *, known: Any, fences: Any, **_: Any) -> Any:
        """As copy/driver/takeover.py: a marker in each partition, behind which nobody else writes."""
        identity = await self._transaction(side, known)
        self.process.look()
        ends = {tp: log.end for tp, log in self.cluster(side).ends(known).items()}
        return SimpleNamespace(
            fence=max(fences, default=0) + 1,
            identity=identity,
            markers={tp: end - 1 for tp, end in ends.items()},
            tails={
                tp: SimpleNamespace(stopped=None, data_end=end - self.markers[side][tp]) for tp, end in ends.items()
            },
            stopped={},
            unread={},
        )

    async def keep_alive(self, side: str) -> None:
        """As wire/markers.py: an empty transaction of the same epoch, on a topic of the link's own."""
        self.process.change(f"{side}: AddPartitionsToTxn", lambda: None)
        self.process.change(f"{side}: EndTxn", lambda: None)

    @classmethod
    @contextmanager
    def at_the_boundary(cls) -> Iterator[None]:
        """What is no method of a cluster or a topic goes to the newest shop meanwhile; the cutover gate is open: it
        only reads, and tests/steps/test_cutover_gate.py has it."""

        class Wire:
            """Leaders and logs of the cluster that a link writes to."""

            def __init__(self, net: Any, _properties: Any, side: str) -> None:
                self.net, self.side = net, side
                self.pinned: dict[str, Any] = {}
                self.leaders: dict[TopicPartition, Any] = {}
                self.close = lambda: None

            async def ensure_connected(self) -> None:
                _NEWEST[-1].process.look()

            async def refresh(self, topics: Iterable[str]) -> None:
                self.leaders = {tp: None for tp in PARTITIONS if tp.topic in topics}

            async def offsets_in_reach(self, *asked: Any, **how: Any) -> dict[TopicPartition, int]:
                return await self.list_offsets(*asked, **how)

            async def list_offsets(
                self, tps: Iterable[TopicPartition], *_: Any, **__: Any
            ) -> dict[TopicPartition, int]:
                shop = _NEWEST[-1]
                shop.process.look()
                return {tp: log.end for tp, log in shop.cluster(self.side).ends(tps).items()}

        class Net:
            """Runs what does not wait for anybody."""

            def run(self, ask: Any) -> Any:
                coroutine = ask()
                try:
                    coroutine.send(None)
                except StopIteration as done:
                    return done.value
                raise AssertionError("waits for the network")

            def close(self) -> None:
                pass

        async def take_over(wire: Wire, **wanted: Any) -> Any:
            return await _NEWEST[-1].take_over(wire.side, **wanted)

        async def keep_alive(wire: Wire, *_: Any, **__: Any) -> None:
            await _NEWEST[-1].keep_alive(wire.side)

        async def await_markers(_cluster: Any, _identity: Any, ends: Any, *_: Any, **__: Any) -> Any:
            return ends

        def run_hook(call: HookCall, **_: Any) -> HookRun:
            return _NEWEST[-1].run_hook(call)

        def log(_properties: Any, topic: str) -> LogOf:
            return LogOf(topic, [], _NEWEST[-1].process, 1)

        with (
            _ALLOWED,
            patch.multiple(seal, WireCluster=Wire, Selector=Net),
            patch.object(fencing, "take_over", take_over),
            patch.object(fencing, "keep_alive", keep_alive),
            patch.object(fencing, "await_markers", await_markers),
            patch.object(reverse, "TopicLog", log),
            patch.object(pins, "read_both", lambda _ctx, ranges: [histories.read_alike(range_) for range_ in ranges]),
            patch.object(CutoverGate, "ask", lambda _gate: "open"),
            patch.object(RollbackGate, "ask", lambda _gate: "open"),
            patch.multiple(move, run_hook=run_hook, require_runnable=lambda *_, **__: None),
            patch.multiple(fence_step, run_hook=run_hook, require_runnable=lambda *_, **__: None),
            patch.multiple(switch, run_hook=run_hook, require_runnable=lambda *_, **__: None),
        ):
            yield
