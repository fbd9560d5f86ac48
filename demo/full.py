"""`make demo-full`: producers and consumer groups move in two waves, and one wave back, by commands alone.

A run is a list of acts. The first that fails ends them; what the clients noted up to there is judged all the same.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from demo.access import MovingAccess
from demo.brokers.process import LeashedProcess, tail
from demo.clients.scenarios import FULL, WAVES
from demo.clients.topics import create_health
from demo.errors import DemoError
from demo.judging import Judgement
from demo.parts import Parts
from demo.stage import SPARK_MASTER, hook_environment
from demo.workload import Workload

ROOT = Path(__file__).resolve().parent.parent
PLAN = Path(__file__).with_name("full.yaml")
LONGEST_PAUSE_MS = 1_500
#: In the plan: the port is known once the run's own server listens.
_HOOKS = "http://127.0.0.1:1"
_COMMAND_SECONDS = 600.0
_MIRROR_END_SECONDS = 120.0
_WARM_UP_SECONDS = 300.0
_SOAK_RECORDS = 30
_SOAK_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a run ended. ``acts`` are those that were done, ``left`` the others, with why."""

    judgement: Judgement
    acts: tuple[str, ...]
    left: Mapping[str, str]
    failure: str
    fence: Mapping[str, list[float | None]]
    seconds: float

    @property
    def good(self) -> bool:
        """Whether every act of this version was done, and the judge found nothing."""
        return not self.failure and self.judgement.verdict.exit_code == 0

    def as_dict(self) -> dict[str, Any]:
        """The last line of the output."""
        account = self.judgement.account
        return {
            "demo": account,
            "pauses_ms": account["pauses_ms"],
            "fence_ms": self.fence,
            "acts": list(self.acts),
            "not_run": dict(self.left),
            "failure": self.failure,
            "seconds": round(self.seconds, 1),
        }


class Theatre(Parts):
    """Two locked clusters, the workload on the source, and the commands of the library."""

    def __init__(self, directory: Path, *, log: Callable[[str], None], per_second: int | None = None) -> None:
        """Describe it; nothing is started yet. ``per_second``: records of all producers together."""
        super().__init__(log)
        self.directory = directory
        self.fence: dict[str, list[float | None]] = {"proved": [], "until_started": []}
        self.home: set[str] = set()
        self._access = MovingAccess(directory / "certificates")
        if per_second is not None:
            self._access.produced_per_second = per_second
        self._plan = directory / PLAN.name
        self._mirrors: dict[str, LeashedProcess] = {}
        self._environment: dict[str, str] = {}
        self.workload: Workload

    def _start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log("starting two Kafka clusters, locked: passwords over TLS on the source, certificates on the target")
        clusters = (self._access.source, self._access.target)
        for cluster in clusters:
            self._stack.callback(cluster.stop)
            cluster.launch()
        for cluster in clusters:
            cluster.wait_ready()
            create_health(AdminClient({**cluster.admin_properties, "log_level": 3}))
        self._access.open_up(PLAN)
        self.workload = self._stack.enter_context(Workload(self.directory / "workload", self._access.settings()))
        self.workload.prepare()
        # Its own: whoever edits the checkout's while a run goes on changes nothing of it.
        plan = PLAN.read_text(encoding="utf-8").replace(_HOOKS, self.workload.hook_url)
        self._plan.write_text(plan, encoding="utf-8")
        self._environment = self._environ()
        self.workload.start()
        self.log(f"{len(FULL.producers)} producers and {len(FULL.groups)} groups are at work on the source")
        self.wait_at_work("source")

    def _environ(self) -> dict[str, str]:
        key = self.directory / "approval.key"
        with os.fdopen(os.open(key, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32) + "\n")
        connections = {f"AIRFLOW_CONN_{name.upper()}": json.dumps(c) for name, c in self._access.connections().items()}
        return {
            **os.environ,
            **connections,
            **hook_environment(self.workload),
            "KAFKA_MIGRATION_ALLOWED_URLS": self.workload.hook_url,
            "KAFKA_MIGRATION_HOOK_DEMO": f"Bearer {self.workload.hook_token}",
            # As under Airflow: else a hook's python3 may be a script that looks for one, and clients wait meanwhile.
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
            "KAFKA_MIGRATION_APPROVAL_KEYS_FILE": str(key),
            "KAFKA_MIGRATION_REPORTS_DIR": str(self.directory / "reports"),
            "PYTHONPATH": f"{ROOT / 'plugins'}:{ROOT}",
        }

    # --- what acts are made of ----------------------------------------------------------------------------------------

    def km(self, *words: str) -> dict[str, Any]:
        """Run a command of the library to its end; its JSON.

        Raises:
            DemoError: its exit code is not 0.
        """
        command, plan, options = words[0], str(self._plan), list(words[1:])
        arguments = [command, *([options.pop(0)] if command == "approve" else []), plan, *options, "--json"]
        log = self.directory / "commands.log"
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%H:%M:%S')} {' '.join(arguments)}\n")
            file.flush()
            done = subprocess.run(
                [sys.executable, "-m", "kafka_migration", *arguments],
                env=self._environment, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=file, text=True, check=False, timeout=_COMMAND_SECONDS,
            )  # fmt: skip
            file.write(done.stdout)
        if done.returncode != 0:
            said = f"{tail(log, lines=15)}"
            raise DemoError(f"`{' '.join(words)}` ended with {done.returncode}; {log} ends with:\n{said}")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def approve(self, *words: str) -> None:
        """Answer a gate, as a person would who has seen its evidence."""
        receipt = self.km("approve", *words, "--show")["receipt"]
        self.km("approve", *words, "--receipt", receipt, "--yes")

    def noted_fence(self, answer: Mapping[str, Any]) -> None:
        """Keep how long producers were kept from writing, in milliseconds since the first denial."""
        done = answer["switch"]
        self.fence["proved"].append(done["proof"]["proved_ms"])
        self.fence["until_started"].append(done["fence_ms"])
        for part in ("drained", "sealed", "armed", "compared", "asked", "opened"):
            self.fence.setdefault(part, []).append(done["after_ms"].get(part))

    def start_mirror(self, *options: str) -> None:
        """In the background, until its step ends it, or this run."""
        name = "mirror" + "".join(options)
        command = [
            sys.executable,
            "-m",
            "kafka_migration",
            "mirror",
            str(self._plan),
            "--master",
            SPARK_MASTER,
            *options,
        ]
        mirror = LeashedProcess(
            command, console=self.directory / f"{name}.log", scratch=None, cwd=self.directory, env=self._environment
        )
        self._mirrors[name] = mirror
        self._stack.callback(self.end_mirror, *options)
        if not options:
            # While it is not there yet, little lag says nothing.
            while self.km("lag")["mirror"] != "running":
                if not mirror.alive():
                    raise DemoError(f"the mirror ended:\n{tail(self.directory / f'{name}.log', lines=10)}")

    def end_mirror(self, *options: str) -> None:
        """SIGTERM, if it still runs."""
        mirror = self._mirrors["mirror" + "".join(options)]
        for number in (signal.SIGTERM, signal.SIGKILL):
            mirror.send(number)
            if mirror.wait(_MIRROR_END_SECONDS):
                return

    def wait_at_work(self, cluster: str, groups: set[str] | None = None) -> None:
        """Until every group, or ``groups``, has received some more records on the cluster."""
        wanted = set(groups or (group.name for group in FULL.groups))

        def received() -> dict[str, int]:
            now = self.workload.progress().groups
            return {name: getattr(now[name], f"on_{cluster}") for name in wanted}

        before = received()
        self.workload.wait_until(
            lambda progress: all(
                getattr(progress.groups[name], f"on_{cluster}") >= before[name] + _SOAK_RECORDS for name in wanted
            ),
            timeout_seconds=_WARM_UP_SECONDS,
            what=f"{len(wanted)} groups receive records on the {cluster}",
        )

    def finish(self) -> Judgement:
        """Producers end, every group reads to the end where it stands, and the judge decides.

        Raises:
            DemoError: clients could not read to the end, so nothing can be judged.
        """
        self.log("producers end, and every group reads to the end")
        self.workload.stop_producers()
        mirror = self._mirrors.get("mirror--reverse")
        if self.home and mirror is not None and mirror.alive():
            # What was written on the target last is copied back before anybody calls it the end.
            self.end_mirror("--reverse")
            self.km("mirror", "--reverse", "--until-caught-up", "--master", SPARK_MASTER)
        groups = self.workload.progress().groups
        self.workload.finish(at_home={name for name, group in groups.items() if group.cluster != "target"})
        return self.workload.judge()


# --- acts -------------------------------------------------------------------------------------------------------------


def create(stage: Theatre) -> None:
    """Topics on the target."""
    stage.km("check")
    stage.approve("plan")
    stage.km("create")


def mirror(stage: Theatre) -> None:
    """The forward mirror, caught up and compared; the second time it is the next generation of its link."""
    stage.start_mirror()
    stage.km("lag", "--gate")
    stage.km("validate", "--master", SPARK_MASTER)


def cut_over(stage: Theatre, wave: str) -> None:
    """The groups of a wave."""
    stage.approve("cutover", "--wave", wave)
    stage.km("cutover", "--wave", wave)
    stage.km("watch", *_groups_of(wave))
    stage.home -= _named(wave)


def switch(stage: Theatre) -> None:
    """Producers, behind the proved fence."""
    stage.approve("producers")
    stage.noted_fence(stage.km("switch"))
    # Once everybody is at work: a driver that starts takes both cores, and pauses would be of this machine.
    stage.wait_at_work("target")
    stage.start_mirror("--reverse")


def soak(stage: Theatre) -> None:
    """Everybody works on the target for a while."""
    time.sleep(_SOAK_SECONDS)
    stage.wait_at_work("target")


def roll_back(stage: Theatre, wave: str) -> None:
    """The groups of a wave, at their very next records, above the cut."""
    stage.approve("rollback", "--wave", wave)
    stage.km("rollback", "--wave", wave)
    stage.home |= _named(wave)
    stage.wait_at_work("source", _named(wave))


def switch_back(stage: Theatre) -> None:
    """Producers to the source, behind a fence on the target."""
    stage.approve("rollback")
    stage.noted_fence(stage.km("switch", "--back"))


def complete(stage: Theatre) -> None:
    """The way back is given up."""
    stage.km("validate", "--master", SPARK_MASTER)
    stage.km("complete", "--yes")


def _named(wave: str) -> set[str]:
    return {group.name for group in FULL.groups if group.name.startswith(f"demo.{wave}-")}


def _groups_of(wave: str) -> list[str]:
    return [word for name in sorted(_named(wave)) for word in ("--group", name)]


_FORWARD: tuple[tuple[str, Callable[[Theatre], None]], ...] = (
    ("mirror", mirror),
    *((f"cut over wave {wave}", partial(cut_over, wave=wave)) for wave in WAVES),
    ("switch producers to the target", switch),
    ("soak on the target", soak),
)


#: In their order. To add one: a function of the theatre, and its line here.
ACTS: tuple[tuple[str, Callable[[Theatre], None]], ...] = (
    ("create", create),
    *_FORWARD,
    *((f"roll back wave {wave}", partial(roll_back, wave=wave)) for wave in WAVES),
    ("switch producers back to the source", switch_back),
    *((f"{name} again", act) for name, act in _FORWARD),
    ("complete", complete),
)


def play(stage: Theatre) -> Result:
    """The acts, the last reads, and the judgement.

    Raises:
        DemoError: see `Theatre.finish`.
    """
    began = time.monotonic()
    done: list[str] = []
    failure = ""
    for name, act in ACTS:
        at = time.monotonic()
        stage.log(f"act: {name}")
        try:
            act(stage)
        except DemoError as error:
            failure = f"{name}: {error}"
            stage.log(f"FAILED {failure}")
            break
        stage.log(f"done in {time.monotonic() - at:.0f} s: {name}")
        done.append(name)
    left = {name: "an act before it failed" for name, _ in ACTS if name not in done}
    for name, why in left.items():
        stage.log(f"not run: {name} ({why})")
    judgement = stage.finish()
    return Result(
        judgement=judgement,
        acts=tuple(done),
        left=left,
        failure=failure,
        fence=stage.fence,
        seconds=time.monotonic() - began,
    )
