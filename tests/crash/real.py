"""The crash matrix on real brokers: commands in processes of their own, killed at requests that the wire sees.

No mirror runs: what it has copied is written by hand, on both clusters alike, and the link's state says so. Clients are
commits. What is killed is the command, and all that it asks of brokers is real.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml
from confluent_kafka import Producer

from kafka_migration.domain import ledger
from kafka_migration.domain.ledger import Told
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Identity, Position, TopicPartition, TopicSpec
from kafka_migration.groups.record import GroupRecord
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.topic_log import TopicLog
from kafka_migration.kafka.types import CommittedOffset, ConfigValue
from kafka_migration.link import reverse
from kafka_migration.migration import context
from kafka_migration.migration.context import Context, open_context
from kafka_migration.plans.load import load_plan
from kafka_migration.steps import mirror
from kafka_migration.topics import create
from tests.cli.processes import ROOT, connection
from tests.crash import boundary, command
from tests.crash.ends import plain
from tests.crash.wire import Deadly, Wire, wired
from tests.steps import histories
from tests.steps.cuts import Clusters, Side, acl, plan
from tests.steps.hook_server import HookServer
from tests.waiting import wait_until

RECORDS, WRITTEN, COMMITTED, _READ = 100, 20, 40, 5
_SECONDS = 180.0
_HISTORY = re.compile(r"^[^/]+/(phase|group|group-record|group-alive|group-look(:reverse)?|inventory|[a-z]+-owner)/")


class Shop:
    """A migration of a topic of two partitions and a group, as far as a scenario has brought it."""

    def __init__(self, both: Clusters, wire: Wire, hooks: HookServer, folder: Path) -> None:
        self.clusters, self.wire, self.hooks = both, wire, hooks
        self.name = f"crash-{uuid.uuid4().hex[:8]}"
        self.folder = folder / self.name
        self.folder.mkdir()
        self.path, self.log = self.folder / "plan.yaml", self.folder / "log.txt"
        self.topic, self.group = f"{self.name}.orders", f"{self.name}.app"
        self.tps = [TopicPartition(self.topic, partition) for partition in (0, 1)]
        self.path.write_text(
            yaml.safe_dump(plan(self.name, hooks, {}, cutover={"rest_seconds": 0.3, "watch_seconds": 2}))
        )
        #: Where the group's consumers run, and where producers do; "" for nowhere.
        self.running: dict[str, str] = {self.group: "source", "": "source"}
        self.faults: list[str] = []
        for verb in ("stop", "start"):
            for side in ("source", "target"):
                hooks.on(verb, side, lambda group, verb=verb, side=side: self._hook(verb, side, group))  # type: ignore[misc]

    # -- what stands before a command ---------------------------------------------------------------------------------

    def create(self) -> None:
        """A topic with records and a group on the source, and its mirror topic, into which nothing is copied yet."""
        for side in self.clusters.both:
            self._grant(side)
        with self.clusters.admin("source") as admin:
            admin.create_topics([TopicSpec(name=self.topic, partitions=2, replication_factor=1)])
            wait_until(lambda: self.topic in admin.topics([self.topic]), "the topic is there")
            self._write("source", RECORDS)
            commits = {tp: CommittedOffset(offset=COMMITTED) for tp in self.tps}
            wait_until(lambda: self._committed("source", commits), "the group has committed")
        with self.directly(make_state=True) as ctx:
            create.apply(ctx)
            mirror.pin(ctx)

    def mirrored(self) -> None:
        """All is copied and compared: the same records stand on the target, and the mirror has ended."""
        self.create()
        self._write("target", RECORDS)
        with self.directly() as ctx:
            ctx.link.record_fence(0, Identity(7, 0), at=ctx.stamp())
            ctx.link.record_openings(
                (tp, RunOpening(fence=0, records=0, source=0, target=0, closes=0)) for tp in self.tps
            )
            self._report(ctx, Position(source=RECORDS, target=RECORDS, fence=0, records=RECORDS))
            ctx.link.record_run({"at": ctx.stamp(), "state": "ended", "reason": "drained"})
            histories.equal(ctx, self.tps)

    def back(self) -> None:
        """Moved, sealed, and mirrored back: what was written on the target since stands on the source again."""
        self.mirrored()
        self.finish(["cutover", str(self.path)])
        self._write("target", 1 + WRITTEN)
        self._write("source", 1 + WRITTEN)
        with self.directly() as ctx:
            ctx.link.record_seal(Seal(at=ctx.stamp(), identity=Identity(7, 1), ends=dict.fromkeys(self.tps, RECORDS)))
            back = reverse.arm(ctx)
            at = RECORDS + 1
            back.link.record_fence(1, Identity(8, 0), at=ctx.stamp())
            back.link.record_openings(
                (tp, RunOpening(fence=1, records=0, source=at, target=at, closes=RECORDS)) for tp in self.tps
            )
            end = at + WRITTEN
            self._report(back, Position(source=end, target=end, fence=1, records=WRITTEN))
            back.link.record_run({"at": ctx.stamp(), "state": "ended", "reason": "stopped"})

    def fenced(self) -> None:
        self.mirrored()
        self.finish(["fence", str(self.path)])

    def _grant(self, side: Side) -> None:
        rights = [
            *(acl(kind, "*", "mover", "ALL") for kind in ("TOPIC", "GROUP", "TRANSACTIONAL_ID")),
            acl("CLUSTER", "kafka-cluster", "mover", "ALL"),
            *(acl("TOPIC", self.name, user, "WRITE", pattern="PREFIXED") for user in ("web", "till", "probe")),
        ]
        with self.clusters.admin(side) as admin:
            admin.create_acls(rights)
            wait_until(lambda: set(rights) <= set(admin.acls()), "ACLs are known")

    def _write(self, side: Side, records: int) -> None:
        producer = Producer({"bootstrap.servers": self.clusters.both[side].internal_servers})
        for tp in self.tps:
            for _ in range(records):
                producer.produce(tp.topic, b"x", partition=tp.partition)
        if producer.flush(60):
            raise AssertionError(f"{self.topic} could not be filled on the {side}")

    def _report(self, ctx: Context, position: Position) -> None:
        told = {tp: Told(position, 0, "run", 1) for tp in self.tps}
        with TopicLog(self._inside("target"), ledger.PROGRESS_TOPIC) as log:
            log.append(ledger.progress_records(ctx.link.name, "0", told))

    def _inside(self, side: Side) -> dict[str, str]:
        return {"bootstrap.servers": self.clusters.both[side].internal_servers}

    @contextmanager
    def directly(self, *, make_state: bool = False) -> Iterator[Context]:
        """The migration as a super user has it, past the wire."""

        def find(conn_id: str) -> ClusterConnection:
            return ClusterConnection(conn_id, self._inside("source" if conn_id.endswith("source") else "target"))

        with (
            patch.object(context, "find_connection", find),
            open_context(load_plan(self.path), make_state=make_state) as ctx,
        ):
            yield ctx

    # -- clients ------------------------------------------------------------------------------------------------------

    def _hook(self, verb: str, side: Side, group: str) -> None:
        who = self.group if group else ""
        self.wire.change(f"hook: {verb} {'group' if group else 'producers'} {side}", lambda: self._act(verb, side, who))

    def _act(self, verb: str, side: Side, who: str) -> None:
        if verb == "stop":
            self.running[who] = "" if self.running[who] == side else self.running[who]
            return
        if self.running[who] == side:
            return
        if self.running[who]:
            self.faults.append(f"{who or 'producers'} on both sides")
        self.running[who] = side
        if who:
            # It goes on where it was put.
            with self.clusters.admin(side) as admin:
                found = admin.committed(self.group)
            self._committed(side, {tp: CommittedOffset(offset=it.offset + _READ) for tp, it in found.items()})

    def _committed(self, side: Side, commits: dict[TopicPartition, CommittedOffset]) -> bool:
        with self.clusters.admin(side) as admin:
            try:
                admin.commit(self.group, commits)
            except Exception:
                # The coordinator of a new cluster is only just elected.
                return False
        return True

    # -- commands -----------------------------------------------------------------------------------------------------

    def environ(self) -> dict[str, str]:
        found = {**os.environ, "PYTHONPATH": f"{ROOT / 'plugins'}:{ROOT}", "COLUMNS": "80", **self.hooks.environ}
        for user in ("mover", "probe"):
            for side in self.clusters.both:
                login = {name.replace(".", "_"): value for name, value in self.clusters.login(side, user).items()}
                servers = login.pop("bootstrap_servers")
                found[f"AIRFLOW_CONN_{user}_{side}".upper()] = connection(servers, **login)
        return found

    def run(self, words: list[str], deadly: Deadly | None = None) -> int:
        """A command, watched; how it ended."""
        self.wire.watch(deadly)
        process = command.begin(words, self.environ(), self.log)
        self.wire.names(process.pid or 0)
        process.join(_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
            raise AssertionError(f"{words} did not end: {self.log.read_text()[-2000:]}")
        self.wire.unwatch()
        return process.exitcode or 0

    def finish(self, words: list[str]) -> None:
        code = self.run(words)
        assert code == 0, f"{words} ended with {code}: {self.log.read_text()[-3000:]}"

    def close(self) -> None:
        """Leave nothing that another one would see: ACLs are a cluster's, and so are hooks."""
        for side in self.clusters.both:
            with self.clusters.admin(side) as admin:
                admin.delete_acls([it for it in admin.acls() if self.name in it.resource])
                wait_until(lambda: not any(self.name in it.resource for it in admin.acls()), "its ACLs are gone")

    # -- the end ------------------------------------------------------------------------------------------------------

    def end(self) -> Any:
        """As tests/crash/ends.py has it: topics, ACLs, groups, clients, and what journal and link hold."""
        sides: dict[str, Any] = {}
        for side in self.clusters.both:
            with self.clusters.admin(side) as admin:
                there = admin.topics([self.topic])
                configs = admin.topic_configs(there)
                sides[side] = {
                    "topics": {
                        t: {n: c.value for n, c in found.items() if c.is_explicit} for t, found in configs.items()
                    },
                    "acls": sorted(repr(it) for it in admin.acls() if self.name in it.resource),
                    "commits": {str(tp): it.offset for tp, it in sorted(admin.committed(self.group).items())},
                }
        with self.directly() as ctx:
            stored = ctx.journal._store.items()
            mine = {key: value for key, value in stored.items() if self.name in key and not _HISTORY.match(key)}
            record = GroupRecord.load(ctx.journal, self.group)
            legs = [
                (leg.direction, sorted(leg.steps), [(it.source, it.target) for it in leg.translations])
                for leg in record.legs
            ]
            link = {
                "sealed": ctx.link.seal() is not None,
                "topics": sorted(ctx.link.topics()),
                "wish": ctx.link.wished().desired,
            }
        found = {**sides, "running": self.running, "faults": self.faults, "legs": legs, "link": link}
        return json.loads(json.dumps(found | {"journal": plain(mine, {})}, default=str).replace(self.name, "SHOP"))


def _explicit(configs: Mapping[str, ConfigValue]) -> dict[str, str | None]:
    return {name: config.value for name, config in configs.items() if config.is_explicit}


@dataclass(frozen=True, slots=True)
class RealScenario:
    """A command, and what stands before it."""

    name: str
    words: tuple[str, ...]
    prepare: Callable[[Shop], None]

    def line(self, shop: Shop) -> list[str]:
        return [word.replace("PLAN", str(shop.path)) for word in self.words]


SCENARIOS = (
    RealScenario("cutover", ("cutover", "PLAN"), Shop.mirrored),
    RealScenario("fence", ("fence", "PLAN"), Shop.mirrored),
    RealScenario("fence --lift", ("fence", "PLAN", "--lift"), Shop.fenced),
    RealScenario("rollback", ("rollback", "PLAN"), Shop.back),
    RealScenario("cancel", ("cancel", "PLAN", "--yes"), Shop.create),
    RealScenario("release", ("release", "PLAN"), Shop.mirrored),
)


#: Requests that are made again until they are answered as wanted: how often, no two runs agree on.
_REPEATED = ("InitProducerId", "AddPartitionsToTxn", "EndTxn")


def places(changes: Sequence[str], most: int) -> list[Deadly]:
    """At most so many points, before and after in turn: the first change of each kind, rarest kinds first, then others,
    spread over the command."""
    counts = Counter(changes)
    firsts = [(name, 1) for name in sorted(counts, key=lambda name: (counts[name], name))]
    seen: Counter[str] = Counter()
    rest = []
    for name in changes:
        seen[name] += 1
        if seen[name] > 1 and not name.endswith(_REPEATED):
            rest.append((name, seen[name]))
    left = max(0, most - len(firsts))
    spread = [rest[at * len(rest) // left] for at in range(left)] if rest else []
    chosen = [*firsts, *dict.fromkeys(spread)][:most]
    return [Deadly(name, count, after=at % 2 == 1) for at, (name, count) in enumerate(chosen)]


@dataclass(frozen=True, slots=True)
class Result:
    """One point on brokers, and what was wrong; ``changes`` are those of the undisturbed run."""

    scenario: str
    deadly: Deadly
    problem: str
    changes: tuple[str, ...]

    @property
    def unrecorded(self) -> set[str]:
        """Of the requests, those that the matrix in memory does not record."""
        seen = {change.partition(": ")[2] for change in self.changes if not change.startswith("hook")}
        return seen - boundary.ON_WIRE.keys()


def results(each: int, folder: Path, scenarios: Iterable[RealScenario] = SCENARIOS) -> Iterator[Result]:
    """``each`` points of every scenario, on two clusters of their own."""
    with wired() as (both, wire), closing(HookServer()) as hooks:

        def opened() -> closing[Shop]:
            return closing(Shop(both, wire, hooks, folder))

        for scenario in scenarios:
            with opened() as shop:
                scenario.prepare(shop)
                shop.finish(scenario.line(shop))
                changes, wanted = tuple(wire.changes), shop.end()
            for deadly in places(changes, each):
                with opened() as shop:
                    yield Result(scenario.name, deadly, problem(scenario, shop, deadly, wanted), changes)


def problem(scenario: RealScenario, shop: Shop, deadly: Deadly, wanted: Any) -> str:
    """What is wrong when the command is killed there and run again; "" if the end is that of an undisturbed run."""
    scenario.prepare(shop)
    shop.run(scenario.line(shop), deadly)
    if not shop.wire.has_killed:
        return f"the command did not come there; it made {shop.wire.changes}"
    code = shop.run(scenario.line(shop))
    if code:
        return f"the command, run again, ends with {code}: {shop.log.read_text()[-1500:]}"
    found = shop.end()
    return "" if found == wanted else f"ended {_first_difference(wanted, found)}"


def _first_difference(wanted: Any, found: Any, place: str = "") -> str:
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in sorted({*wanted, *found}):
            if wanted.get(key) != found.get(key):
                return _first_difference(wanted.get(key), found.get(key), f"{place}/{key}")
    return f"{place}: {found}, and not {wanted}"
