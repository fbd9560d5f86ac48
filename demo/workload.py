"""The live workload of the demo: clients that a migration must not disturb, and the proof of whether it did.

    with Workload(directory, Settings(source=..., target=...)) as workload:
        workload.prepare()           # topics, their first million records, deletions, starting commits
        workload.start()             # producers and groups on the source; from here on the migration may begin
        ...                          # its hooks run `demo-consumers stop|start GROUP`
        workload.stop_producers()    # then the mirror drains
        workload.finish()            # every group reads to the end on the target
        workload.judge()             # what was lost, doubled or reordered, from the clients' notes alone

The clients belong to a supervisor process, which ends with this one, however this one ends.
"""

import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka.admin import AdminClient

from demo import judging
from demo.brokers.process import LeashedProcess, tail
from demo.clients import groups, topics
from demo.clients.control import (
    CONTROL_FILE,
    HOOK_TOKEN_VARIABLE,
    RUN_DIRECTORY_VARIABLE,
    ControlError,
    NoWorkloadError,
    ask,
)
from demo.clients.groups import STOPPED
from demo.clients.scenarios import SCENARIOS
from demo.clients.settings import ClusterName, Settings
from demo.errors import DemoError
from demo.notes import RunDirectory

ROOT = Path(__file__).resolve().parents[1]
CONTROL_COMMAND = ROOT / "demo" / "bin" / "demo-consumers"
"""The executable for the plan's hooks: `[CONTROL_COMMAND, "stop", "{group}"]`."""

START_SECONDS = 60.0
PRELOAD_SECONDS = 300.0
STOPPED_GROUP_SECONDS = 120.0
POLL_SECONDS = 0.2
AT_END_SECONDS = 2.0
"""How long all groups must stay at the end to have finished."""


class WorkloadError(DemoError):
    """The workload did not do as told; the message says which client, and where its log is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProgress:
    """One group now. `at_end` counts partitions that its members have read to the end."""

    on_source: int
    on_target: int
    cluster: ClusterName | None
    members: int
    partitions: int
    at_end: int

    @property
    def has_read_all(self) -> bool:
        """Whether its members are at the end of every partition at this moment."""
        return self.at_end == self.partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The workload now. Counts are the clients' own and at most half a second old.

    Attributes:
        produced: records acknowledged, the preload included.
        groups: by name.
        failures: clients that ended badly, with the end of their logs.
    """

    produced: int
    groups: Mapping[str, GroupProgress]
    failures: tuple[str, ...]

    def fewest(self, cluster: ClusterName) -> int:
        """Of the live groups, what the slowest has processed on one cluster."""
        live = [group for name, group in self.groups.items() if name not in STOPPED]
        return min(group.on_source if cluster == "source" else group.on_target for group in live)


class Workload:
    """One run: its directory holds everything that clients note, and only one run."""

    def __init__(self, directory: Path, settings: Settings) -> None:
        """Describe a run; nothing is written or started yet. `log_starts` is known once it is prepared."""
        self.run = RunDirectory(directory)
        self.settings = settings
        self.scenario = SCENARIOS[settings.scenario]
        self._supervisor: LeashedProcess | None = None
        self._scratch: Path | None = None
        self.log_starts: Mapping[str, list[int]] = {}
        #: What a hook of producers has to bring.
        self.hook_token = secrets.token_urlsafe(24)

    @property
    def environment(self) -> dict[str, str]:
        """What the consumers' control needs in the environment of whoever runs the plan's hooks."""
        return {RUN_DIRECTORY_VARIABLE: str(self.run.path)}

    @property
    def hook_url(self) -> str:
        """Where hooks of producers call, once it is prepared."""
        return str(json.loads((self.run.path / CONTROL_FILE).read_text())["hooks"])

    def prepare(self) -> None:
        """Create the topics on the source, fill them, delete their beginnings, commit every group's start.

        Afterwards the stopped group has processed a part, and is stopped.

        Raises:
            WorkloadError: a client failed.
            KafkaException: the source refused; most likely a `demo.` topic exists.
        """
        self.run.create(self.settings)
        admin = AdminClient({**self.settings.admin_properties(), "log_level": 3})
        topics.create(admin, self.scenario.topics)
        self._start_supervisor()
        self._ask({"do": "preload"}, timeout_seconds=PRELOAD_SECONDS)
        self.log_starts = topics.delete_beginnings(admin, self.scenario.topics)
        topics.make_compacted(admin, self.scenario.topics)
        starts = groups.commit_starts(admin, self.scenario.groups, self.log_starts)
        self.run.write_owed(starts)
        self._process_a_part_and_stop()

    def start(self) -> None:
        """Start the producers and the live groups on the source."""
        for group in self.scenario.groups:
            if not group.stopped:
                self._ask({"do": "start-group", "group": group.name, "cluster": "source"})
        self._ask({"do": "start-producers"})

    def progress(self) -> Progress:
        """How far everybody is."""
        status = self._ask({"do": "status"})["status"]
        return Progress(
            produced=sum(client["status"].get("acknowledged", 0) for client in status["producers"]),
            groups={name: _group_progress(group) for name, group in status["groups"].items()},
            failures=tuple(status["failures"]),
        )

    def wait_until(
        self, reached: Callable[[Progress], bool], *, timeout_seconds: float, what: str, settle_seconds: float = 0.0
    ) -> Progress:
        """Wait until the progress is as wanted, and stays so for `settle_seconds`.

        Raises:
            WorkloadError: a client failed, or time is up; the message names `what`.
        """
        deadline = time.monotonic() + timeout_seconds
        since: float | None = None
        while True:
            progress, now = self.progress(), time.monotonic()
            if progress.failures:
                raise WorkloadError("\n".join(progress.failures))
            since = (since or now) if reached(progress) else None
            if since is not None and now - since >= settle_seconds:
                return progress
            if now > deadline:
                raise WorkloadError(f"not within {timeout_seconds} s: {what}. Now: {progress}")
            time.sleep(POLL_SECONDS)

    def stop_producers(self) -> None:
        """End the producers: each flushes, and notes what was acknowledged and what was not.

        Raises:
            WorkloadError: a producer failed, or did not end.
        """
        self._ask({"do": "stop-producers"})

    def finish(self, *, deadline_seconds: float = 180.0, at_home: Collection[str] = ()) -> None:
        """Let every group, the stopped one too, read to the end on the target; then end all consumers.

        Call it when the producers have ended and the mirror has drained. Groups `at_home` read on the source.

        Raises:
            WorkloadError: a group runs on the other cluster, a member failed, or not all read to the end in time.
        """
        places = {group.name: "source" if group.name in at_home else "target" for group in self.scenario.groups}
        for group, cluster in places.items():
            self._ask({"do": "start-group", "group": group, "cluster": cluster, "revive": True})
        try:
            self.wait_until(
                lambda progress: all(group.has_read_all for group in progress.groups.values()),
                timeout_seconds=deadline_seconds,
                what="every group reads to the end",
                # The end is where the log ended when the broker was asked: it must still be there a little later.
                settle_seconds=AT_END_SECONDS,
            )
        finally:
            for group, cluster in places.items():
                self._ask({"do": "stop-group", "group": group, "cluster": cluster})

    def judge(self) -> judging.Judgement:
        """What became of every record, and whether enough happened."""
        return judging.judge(self.run.notes)

    def close(self) -> None:
        """End every client and the supervisor. Twice is a no-op; the notes stay."""
        if self._supervisor is not None:
            self._supervisor.send(signal.SIGTERM)
            if not self._supervisor.wait(START_SECONDS):
                self._supervisor.send(signal.SIGKILL)
                self._supervisor.wait(START_SECONDS)
            self._supervisor = None
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    def __enter__(self) -> Self:
        """Nothing starts before `prepare`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _process_a_part_and_stop(self) -> None:
        for group in self.scenario.groups:
            if group.stopped:
                self._ask({"do": "start-group", "group": group.name, "cluster": "source"})
                self._wait_processed(group.name, self.settings.stopped_after_records)
                self._ask({"do": "stop-group", "group": group.name, "cluster": "source", "for_good": True})

    def _wait_processed(self, group: str, records: int) -> None:
        self.wait_until(
            lambda progress: progress.groups[group].on_source >= records,
            timeout_seconds=STOPPED_GROUP_SECONDS,
            what=f"{group} processes {records} records",
        )

    def _start_supervisor(self) -> None:
        # A directory of its own: a Unix socket's path is short, the run directory's perhaps not. Named as scratch, it
        # is removed even when this process is killed.
        self._scratch = Path(tempfile.mkdtemp(prefix="demo-control-"))
        address = self._scratch / "run" / "socket"
        address.parent.mkdir()
        log = self.run.logs / "supervisor.log"
        self._supervisor = LeashedProcess(
            [sys.executable, "-P", "-m", "demo.clients.supervisor", str(self.run.path), str(address)],
            console=log,
            scratch=address.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT), HOOK_TOKEN_VARIABLE: self.hook_token},
        )
        deadline = time.monotonic() + START_SECONDS
        while not (self.run.path / CONTROL_FILE).exists():
            if not self._supervisor.alive() or time.monotonic() > deadline:
                raise WorkloadError(f"the supervisor did not start:\n{tail(log)}")
            time.sleep(POLL_SECONDS)

    def _ask(self, request: dict[str, Any], **options: float) -> dict[str, Any]:
        try:
            return ask(self.run.path, request, **options)
        except NoWorkloadError as error:
            raise WorkloadError(f"{error}\n{tail(self.run.logs / 'supervisor.log')}") from error
        except ControlError as error:
            raise WorkloadError(str(error)) from error


def _group_progress(status: Mapping[str, Any]) -> GroupProgress:
    return GroupProgress(
        on_source=status["processed"]["source"],
        on_target=status["processed"]["target"],
        cluster=status["cluster"],
        members=len(status["members"]),
        partitions=status["partitions"],
        at_end=status["at_end"],
    )
