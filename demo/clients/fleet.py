"""Client processes as the supervisor sees them: single ones, and those of a group."""

import signal
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from demo.brokers.process import LeashedProcess, tail
from demo.clients.control import ControlError
from demo.clients.groups import GroupSpec
from demo.clients.scenarios import BY_TOPIC
from demo.clients.settings import ClusterName
from demo.notes import RunDirectory, read_status

MEMBER_END_SECONDS = 45.0
"""Below the time that a plan gives its hooks: the answer should reach whoever waits for it."""

KILL_SECONDS = 10.0

# -P: whatever lies in the working directory is not imported. The demo is found by PYTHONPATH.
MODULE = (sys.executable, "-P", "-m")
"""What runs a module of the demo; arguments follow."""


class Client:
    """One process that notes. It is on a leash: it ends with the supervisor, however that ends."""

    def __init__(self, *, name: str, command: Sequence[str], notes: Path, log: Path) -> None:
        """Start it."""
        self.name = name
        self.notes = notes
        self.log = log
        self.started_at = time.time()
        self._process = LeashedProcess(list(command), console=log, scratch=None)
        self._asked_to_end = False

    def alive(self) -> bool:
        """Whether it runs."""
        return self._process.alive()

    def ask_to_end(self) -> None:
        """SIGTERM; once, since a second one tells it nothing new."""
        if not self._asked_to_end:
            self._asked_to_end = True
            self._process.send(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self._process.send(signal.SIGKILL)

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the end; False when the time is up first."""
        return self._process.wait(timeout_seconds)

    def failure(self) -> str:
        """Why it did not end well; empty while it runs, and if it did."""
        # Asked to end before it could listen, it has not noted anything either.
        if self.alive() or (self._asked_to_end and not self.notes.exists()):
            return ""
        status = read_status(self.notes)
        if status.get("ended") and not status.get("error"):
            return ""
        return f"{self.name} ended badly; {self.log} says:\n{tail(self.log, lines=5)}"

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "name": self.name,
            "pid": self._process.pid,
            "started_at": self.started_at,
            "alive": self.alive(),
            "notes": str(self.notes),
            "failure": self.failure(),
            "status": read_status(self.notes),
        }


class Group:
    """The members of one group: on the source, on the target, or nowhere."""

    def __init__(self, run: RunDirectory, spec: GroupSpec) -> None:
        """No member runs yet."""
        self.clients: list[Client] = []
        self._run = run
        self._spec = spec
        self._lock = threading.Lock()
        self._cluster: ClusterName | None = None
        self._members: dict[int, Client] = {}
        self._stopped_for_good = False

    def start(self, cluster: ClusterName, *, revive: bool) -> str:
        """Start the members that don't run yet.

        Args:
            revive: start it even if its operator stopped it for good. A plan's start hook does not: it restores
                what was, and this group was stopped.

        Raises:
            ControlError: the group runs on the other cluster.
        """
        with self._lock:
            name = self._spec.name
            if self._stopped_for_good and not revive:
                return f"{name} was stopped before by its operator and stays stopped"
            running = self._running()
            if running and self._cluster != cluster:
                raise ControlError(f"{name} runs on the {self._cluster}: stop it before it starts on the {cluster}.")
            self._stopped_for_good = False
            self._cluster = cluster
            missing = [number for number in range(1, self._spec.members + 1) if number not in running]
            for number in missing:
                self._members[number] = self._member(number, cluster)
            return f"{name}: {len(running)} members ran on the {cluster}, {len(missing)} started"

    def stop(self, cluster: ClusterName, *, for_good: bool) -> str:
        """End the members on one cluster and wait until they are gone; those on the other one are left alone.

        Raises:
            ControlError: a member did not end in time, or ended without having committed all that it noted.
        """
        with self._lock:
            name = self._spec.name
            self._stopped_for_good |= for_good
            running = self._running()
            if not running or self._cluster != cluster:
                return f"{name} does not run on the {cluster}"
            late = end_all(running.values(), grace_seconds=MEMBER_END_SECONDS, kill=False)
            if late:
                raise ControlError(f"{late} did not end within {MEMBER_END_SECONDS} s of SIGTERM; see their logs.")
            self._members.clear()
            self._cluster = None
            failures = [failure for client in running.values() if (failure := client.failure())]
            if failures:
                raise ControlError("\n".join(failures))
            return f"{name}: {len(running)} members on the {cluster} ended"

    def status(self) -> dict[str, Any]:
        """As JSON: where it runs, its members, and what each ever processed on either cluster.

        Does not wait for a start or stop in flight, so that progress is shown while they take their time.
        """
        running = [client.describe() for client in list(self._members.values()) if client.alive()]
        processed = {
            cluster: sum(
                int(read_status(notes).get("processed", 0)) for notes in self._run.group_notes(self._spec.name, cluster)
            )
            for cluster in ("source", "target")
        }
        return {
            "cluster": self._cluster if running else None,
            "stopped_for_good": self._stopped_for_good,
            "members": running,
            "processed": processed,
            "partitions": sum(BY_TOPIC[topic].partitions for topic in self._spec.topics),
            "at_end": sum(client["status"].get("at_end", 0) for client in running),
            "failures": [failure for client in list(self.clients) if (failure := client.failure())],
        }

    def _running(self) -> dict[int, Client]:
        return {number: client for number, client in self._members.items() if client.alive()}

    def _member(self, number: int, cluster: ClusterName) -> Client:
        # Each process notes in a file of its own: "member-2-1" is the first process of member 2 in this run.
        turn = 1 + sum(client.name.split(" ")[1].startswith(f"member-{number}-") for client in self.clients)
        member = f"member-{number}-{turn}"
        client = Client(
            name=f"{self._spec.name} {member}",
            command=[
                *MODULE,
                "demo.clients.consumers",
                str(self._run.path),
                self._spec.name,
                cluster,
                member,
                str(time.monotonic_ns()),
            ],
            notes=self._run.member_notes(self._spec.name, cluster, member),
            log=self._run.logs / f"{self._spec.name}-{member}.log",
        )
        self.clients.append(client)
        return client


def end_all(clients: Iterable[Client], *, grace_seconds: float, kill: bool) -> str:
    """Ask all to end at once, wait, and if `kill` end the rest by force.

    Returns:
        The names of those that still ran after the grace.
    """
    asked = [client for client in clients if client.alive()]
    for client in asked:
        client.ask_to_end()
    deadline = time.monotonic() + grace_seconds
    late = [client for client in asked if not client.wait(max(0.0, deadline - time.monotonic()))]
    for client in late if kill else ():
        client.kill()
        client.wait(KILL_SECONDS)
    return ", ".join(client.name for client in late)
