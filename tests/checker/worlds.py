"""Made-up histories: a small simulation of two clusters, their clients and a move, and its notes as lists of fields.

What it makes is correct: kills, retries, rebalances, unknown outcomes and aborted transactions included. Tests take
such notes and put one fault into them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SOURCE, TARGET = "source", "target"
TOPIC = "orders"
PARTITIONS = 2
Fields = dict[str, Any]


@dataclass
class File:
    """The notes of one client process, and what a kill left of its last line."""

    name: str
    notes: list[Fields] = field(default_factory=list)
    torn: str = ""

    @property
    def opened(self) -> Fields:
        return self.notes[0]

    def of(self, event: str) -> list[Fields]:
        return [note for note in self.notes if note["event"] == event]


@dataclass
class Notes:
    """A whole history."""

    files: list[File] = field(default_factory=list)
    now: int = 1_000_000_000

    def open(self, client: str, cluster: str, **fields: Any) -> Writer:
        """A new process of a client."""
        file = File(f"{client}.{len(self.files)}")
        self.files.append(file)
        writer = Writer(self, file)
        writer.note("open", version=1, client=client, cluster=cluster, clock="machine", **fields)
        return writer

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for file in self.files:
            lines = "".join(json.dumps(note) + "\n" for note in file.notes)
            (folder / f"{file.name}.jsonl").write_text(lines + file.torn)
        return folder

    def each(self, event: str, **like: Any) -> Iterator[tuple[File, Fields]]:
        """All notes of a kind whose fields are ``like`` these."""
        for file in self.files:
            for note in file.of(event):
                if all(note.get(name) == value for name, value in like.items()):
                    yield file, note

    def drop(self, unwanted: Callable[[File, Fields], bool]) -> None:
        for file in self.files:
            file.notes = [note for note in file.notes if not unwanted(file, note)]


class Writer:
    """Notes of one process, at the time of the history."""

    def __init__(self, notes: Notes, file: File) -> None:
        self.all, self.file = notes, file
        self._seq = self._commit = self._txn = 0

    def note(self, event: str, **fields: Any) -> Fields:
        self.all.now += 1_000_000
        made = {"event": event, "wall": self.all.now + 10**18, "mono": self.all.now, **fields}
        self.file.notes.append(made)
        return made

    def send(self, value: str, *, key: str | None = None, topic: str = TOPIC, **fields: Any) -> int:
        self._seq += 1
        self.note("send", seq=self._seq, value=value, topic=topic, key=key, **fields)
        return self._seq

    def sent(self, value: str, partition: int, offset: int, *, key: str | None = None, **fields: Any) -> None:
        """Sent and acknowledged."""
        self.note("ack", seq=self.send(value, key=key, **fields), partition=partition, offset=offset)

    def begin(self) -> int:
        self._txn += 1
        self.note("begin", txn=self._txn)
        return self._txn

    def end(self, txn: int, outcome: str) -> None:
        self.note("end", txn=txn, how="abort" if outcome == "aborted" else "commit")
        self.note("ended", txn=txn, outcome=outcome)

    def assign(self, *partitions: int, position: int | None = None) -> None:
        self.note("assign", partitions=[[TOPIC, partition, position] for partition in partitions])

    def got(self, value: str, partition: int, offset: int, **fields: Any) -> None:
        self.note("receipt", topic=TOPIC, partition=partition, offset=offset, value=value, **fields)

    def commit(self, partition: int, offset: int, outcome: str | None = "ok") -> None:
        self._commit += 1
        self.note("commit", commit=self._commit, positions=[[TOPIC, partition, offset]])
        if outcome is not None:
            self.note("committed", commit=self._commit, outcome=outcome)


# --- the simulation --------------------------------------------------------------------------------------------------


@dataclass
class Transaction:
    """OPEN, and then what it became."""

    state: str = "open"


@dataclass
class Entry:
    """What stands at one offset; a control record has no value."""

    offset: int
    value: str | None
    key: str | None = None
    txn: Transaction | None = None


class Log:
    """One partition of one cluster."""

    def __init__(self, start: int) -> None:
        self.entries: list[Entry] = []
        self.start = self.end = start

    def append(self, value: str | None, key: str | None = None, txn: Transaction | None = None) -> int:
        self.entries.append(Entry(self.end, value, key, txn))
        self.end += 1
        return self.end - 1

    def read(self, position: int, limit: int, *, committed: bool) -> tuple[list[Entry], int]:
        """Entries from a position on, and the position after them."""
        found: list[Entry] = []
        for entry in self.entries[max(position - self.start, 0) :]:
            if len(found) == limit or (committed and entry.txn is not None and entry.txn.state == "open"):
                break
            position = entry.offset + 1
            aborted = committed and entry.txn is not None and entry.txn.state == "aborted"
            if entry.value is not None and not aborted:
                found.append(entry)
        return found, position


Logs = dict[int, Log]


class Producer:
    """A client that is killed now and then."""

    def __init__(self, world: World, name: str, kind: str) -> None:
        self.world, self.name, self.kind = world, name, kind
        self.count = 0
        self.writer: Writer | None = None
        self.txn: tuple[int, Transaction] | None = None
        self.cluster = SOURCE

    def step(self) -> None:
        dice = self.world.dice
        if self.writer is None:
            self.writer = self.world.notes.open(self.name, self.cluster, kind=self.kind)
            self.writer.note("ready")
        if self.kind == "transactional" and self.txn is None:
            self.txn = self.writer.begin(), Transaction()
        for _ in range(dice.randint(1, 4)):
            self._send()
        if self.txn is not None and dice.random() < 0.4:
            self.end_transaction()
        if dice.random() < 0.05:
            self.kill()

    def _send(self) -> None:
        assert self.writer is not None
        dice, logs = self.world.dice, self.world.logs[self.cluster]
        self.count += 1
        value, number = f"{self.name}-{self.count}", dice.randrange(6)
        key, partition = f"k{number}", number % PARTITIONS
        number_of_txn, txn = self.txn or (None, None)
        named: Fields = {"partition": partition} if dice.random() < 0.5 else {}
        seq = self.writer.send(value, key=key, txn=number_of_txn, **named)
        fate = dice.random()
        if fate < 0.03:
            self.writer.note("failed", seq=seq, certain=True)
        elif fate < 0.08 and txn is None:
            # Without an answer: it may be there or not.
            if dice.random() < 0.5:
                logs[partition].append(value, key)
            if dice.random() < 0.5:
                self.writer.note("failed", seq=seq, certain=False)
        else:
            offset = logs[partition].append(value, key, txn)
            if self.kind == "acks=1" and dice.random() < 0.1:
                logs[partition].append(value, key)
            self.writer.note("ack", seq=seq, partition=partition, offset=offset)

    def end_transaction(self) -> None:
        assert self.txn is not None
        assert self.writer is not None
        (number, txn), self.txn = self.txn, None
        fate = self.world.dice.random()
        if fate < 0.25:
            self.writer.end(number, "aborted")
            txn.state = "aborted"
        elif fate < 0.4:
            self.writer.note("end", txn=number, how="commit")
            txn.state = self.world.dice.choice(["committed", "aborted"])
            self.writer.note("ended", txn=number, outcome="unknown")
        else:
            self.writer.note("end", txn=number, how="commit")
            txn.state = "committed"
            self.writer.note("ended", txn=number, outcome="committed")
        for log in self.world.logs[self.cluster].values():
            log.append(None)

    def kill(self) -> None:
        assert self.writer is not None
        self.writer.file.torn = self.world.dice.choice(["", '{"event":"ack","wal', '{"event":"send","wall":17,"mono"'])
        if self.txn is not None:
            self.txn[1].state = "aborted"
        self.writer = self.txn = None

    def move(self, cluster: str) -> None:
        if self.txn is not None:
            self.end_transaction()
        if self.writer is not None:
            self.writer.note("stop")
            self.writer.note("close")
        self.writer, self.cluster = None, cluster


class Group:
    """Members that share partitions, commit, and are killed; what a broker holds of them."""

    def __init__(self, world: World, name: str, members: int) -> None:
        self.world, self.name, self.size = world, name, members
        self.committed: dict[str, dict[int, int]] = {SOURCE: {}, TARGET: {}}
        self.cluster = SOURCE
        self.members: dict[int, Writer] = {}
        self.owner: dict[int, int] = {}
        self.position: dict[int, int] = {}

    def step(self) -> None:
        dice = self.world.dice
        if not self.members or dice.random() < 0.1:
            self.rebalance()
        for partition, member in self.owner.items():
            log = self.world.logs[self.cluster][partition]
            entries, self.position[partition] = log.read(self.position[partition], dice.randint(0, 6), committed=True)
            for entry in entries:
                assert entry.value is not None
                self.members[member].got(entry.value, partition, entry.offset, key=entry.key)
            if dice.random() < 0.3:
                self.commit(partition)
        if dice.random() < 0.05:
            self.kill(dice.choice(sorted(self.members)))

    def commit(self, partition: int) -> None:
        position, fate = self.position[partition], self.world.dice.random()
        outcome = "ok" if fate < 0.8 else self.world.dice.choice(["unknown", "failed", None])
        self.members[self.owner[partition]].commit(partition, position, outcome)
        if outcome == "ok" or (outcome != "failed" and self.world.dice.random() < 0.5):
            self.committed[self.cluster][partition] = position

    def rebalance(self) -> None:
        for partition, member in self.owner.items():
            if self.world.dice.random() < 0.7:
                self.commit(partition)
            self.members[member].note("revoke", partitions=[[TOPIC, partition]])
        self.owner = {}
        for member in range(self.size):
            if member not in self.members:
                name = f"{self.name}-m{member}"
                self.members[member] = self.world.notes.open(name, self.cluster, group=self.name)
        for partition in range(PARTITIONS):
            member = self.world.dice.randrange(self.size)
            log = self.world.logs[self.cluster][partition]
            self.position[partition] = self.committed[self.cluster].get(partition, log.start)
            known = self.position[partition] if self.world.dice.random() < 0.5 else None
            self.members[member].assign(partition, position=known)
            self.owner[partition] = member

    def kill(self, member: int) -> None:
        file = self.members.pop(member).file
        self.owner = {partition: owner for partition, owner in self.owner.items() if owner != member}
        if self.world.dice.random() < 0.5:
            # Receipts that were still in its buffer: the next owner gets these records again.
            while file.notes[-1]["event"] == "receipt":
                file.notes.pop()
            file.torn = '{"event":"receipt","wall":1'
        self.rebalance()

    def move(self, cluster: str) -> None:
        for partition in self.owner:
            self.commit(partition)
        for member in self.members.values():
            member.note("stop")
            member.note("close")
        for partition, position in self.committed[self.cluster].items():
            there = (target for source, target in self.world.mirrored[partition] if source >= position)
            self.committed[cluster][partition] = min(there, default=self.world.logs[cluster][partition].end)
        self.members, self.owner, self.cluster = {}, {}, cluster


class Reader:
    """A consumer without a group, which assigns all partitions to itself."""

    def __init__(self, world: World, name: str, cluster: str, **fields: Any) -> None:
        self.world, self.cluster = world, cluster
        self.committed = fields.get("isolation") != "read_uncommitted"
        self.writer = world.notes.open(name, cluster, **fields)
        self.writer.assign(*range(PARTITIONS), position=None)
        self.position = {partition: log.start for partition, log in world.logs[cluster].items()}

    def step(self, limit: int = 8) -> None:
        for partition, log in self.world.logs[self.cluster].items():
            entries, self.position[partition] = log.read(self.position[partition], limit, committed=self.committed)
            for entry in entries:
                assert entry.value is not None
                self.writer.got(entry.value, partition, entry.offset, key=entry.key)


class World:
    """Two clusters; ``run`` makes a history of a move from one to the other."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.notes = Notes()
        self.logs: dict[str, Logs] = {
            SOURCE: {partition: Log(0) for partition in range(PARTITIONS)},
            TARGET: {partition: Log(3 + partition) for partition in range(PARTITIONS)},
        }
        self.producers = [
            Producer(self, "shop", "idempotent"),
            Producer(self, "till", "transactional"),
            Producer(self, "web", "idempotent"),
            Producer(self, "sensor", "acks=1"),
        ]
        self.mirrored: dict[int, list[tuple[int, int]]] = {partition: [] for partition in range(PARTITIONS)}
        self.groups = [Group(self, "billing", 2), Group(self, "search", 1)]

    def run(self, steps: int, *, final: bool = True) -> Notes:
        readers = [
            Reader(self, "audit", SOURCE),
            Reader(self, "debug", SOURCE, isolation="read_uncommitted"),
        ]
        self._work(steps, readers)
        for producer in self.producers:
            producer.move(TARGET)
        self._mirror()
        for group in self.groups:
            group.move(TARGET)
        self._work(steps, [Reader(self, "audit-2", TARGET)])
        for producer in self.producers:
            producer.move(TARGET)
        if final:
            reader = Reader(self, "final", TARGET, final=True)
            reader.step(limit=10**9)
            reader.writer.note("close")
        return self.notes

    def _work(self, steps: int, readers: list[Reader]) -> None:
        actors: list[Producer | Group | Reader] = [*self.producers, *self.groups, *readers]
        for _ in range(steps):
            self.dice.choice(actors).step()

    def _mirror(self) -> None:
        for partition, log in self.logs[SOURCE].items():
            for entry in log.entries:
                if entry.value is not None and not (entry.txn and entry.txn.state != "committed"):
                    target = self.logs[TARGET][partition].append(entry.value, entry.key)
                    self.mirrored[partition].append((entry.offset, target))
