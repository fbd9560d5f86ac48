"""A run that never happened: notes written by hand, each fault of a migration at will."""

import json
from collections.abc import Iterable
from pathlib import Path

from demo.accounting import account
from demo.clients.settings import ClusterName, Settings
from demo.notes import NOT_ACKNOWLEDGED, Obligations, RunDirectory, status_path

TOPIC = "demo.made-up"
OTHER_TOPIC = "demo.other"
GROUP = "demo.readers"
LOG_START = 10
PARTITIONS = 2


class MadeUpRun:
    """One group that starts at the log's start in both partitions of one topic; another topic that it does not read."""

    def __init__(self, directory: Path) -> None:
        self.run = RunDirectory(directory)
        servers = {"bootstrap.servers": "127.0.0.1:1"}
        self.run.create(Settings(source=servers, target=servers))
        starts = [LOG_START] * PARTITIONS
        self.run.write_obligations(
            Obligations(log_starts={TOPIC: starts, OTHER_TOPIC: starts}, groups={GROUP: {TOPIC: starts}})
        )
        self.now_ns = 1_000_000_000_000
        self._sent: dict[str, int] = {}
        self._places: dict[str, tuple[str, int]] = {}

    def produce(
        self,
        partition: int,
        offsets: Iterable[int],
        *,
        producer: str = "producer-1",
        topic: str = TOPIC,
        step_ns: int = 1_000_000,
    ) -> list[str]:
        """Records that were acknowledged at these offsets (NOT_ACKNOWLEDGED: were not); their ids."""
        ids, lines = [], []
        for offset in offsets:
            number = self._sent.get(producer, 0)
            self._sent[producer] = number + 1
            record_id = f"{producer}-{number}"
            self._places[record_id] = (topic, partition)
            ids.append(record_id)
            lines.append(self._line(record_id, topic, partition, offset, step_ns))
        self._append(self.run.producer_notes(producer), lines)
        self.end_producer(producer)
        return ids

    def end_producer(self, producer: str, *, ended: bool = True) -> None:
        """What the producer says of itself."""
        status = {"sent": self._sent[producer], "ended": ended}
        status_path(self.run.producer_notes(producer)).write_text(json.dumps(status))

    def consume(
        self,
        ids: Iterable[str],
        *,
        cluster: ClusterName = "source",
        member: str = "member-1-1",
        partition: int | None = None,
        after_ns: int = 0,
    ) -> None:
        """Notes of a member, ``after_ns`` later than every note before; from the record's own partition by default."""
        self.now_ns += after_ns
        lines = []
        for record_id in ids:
            topic, own = self._places.get(record_id, (TOPIC, 0))
            lines.append(self._line(record_id, topic, own if partition is None else partition, 0, 1_000))
        self._append(self.run.member_notes(GROUP, cluster, member), lines)

    def live_through(
        self,
        member: str,
        *,
        cluster: ClusterName,
        begun: int,
        assigned: int,
        asked: int | None = None,
        left: int | None = None,
    ) -> None:
        """What a member notes of its own life, in nanoseconds."""
        moments = {"begun_ns": begun, "assigned_ns": assigned, "asked_ns": asked, "left_ns": left}
        status_path(self.run.member_notes(GROUP, cluster, member)).write_text(json.dumps({"moments": moments}))

    def pause_ms(self) -> float | None:
        """The group's pause."""
        pause: float | None = account(self.run.path)["groups"][GROUP]["pause_ms"]
        return pause

    def account(self) -> dict[str, int]:
        """The group's account."""
        whole = account(self.run.path)
        group: dict[str, int] = whole["groups"][GROUP]
        return group

    def _line(self, record_id: str, topic: str, partition: int, offset: int, step_ns: int) -> str:
        self.now_ns += step_ns
        return f"{record_id}\t{topic}\t{partition}\t{offset}\t{self.now_ns}\n"

    @staticmethod
    def _append(path: Path, lines: list[str]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as out:
            out.writelines(lines)


__all__ = ["GROUP", "LOG_START", "NOT_ACKNOWLEDGED", "OTHER_TOPIC", "TOPIC", "MadeUpRun"]
