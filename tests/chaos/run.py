"""The run: rounds of a live workload, a mirror, and what is done to it; then both sides are read and compared."""

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from kafka_migration.domain.offset_map import OffsetMap
from kafka_migration.domain.types import TopicPartition
from tests.chaos import compare
from tests.chaos.compare import Found, Log
from tests.chaos.faults import Injector, Missed
from tests.chaos.mirrors import Mirrors
from tests.chaos.notes import Note, Notes, OtherRun
from tests.chaos.progress import Progress, ends_of
from tests.chaos.reader import read
from tests.chaos.scene import Scene, workload
from tests.chaos.schedule import KINDS as FAULTS
from tests.chaos.schedule import Fault, Round, rounds
from tests.chaos.stage import Stage, seconds_since, stage
from tests.chaos.topics import DEFAULT, KINDS
from tests.chaos.workload import Orders

#: What a copy can have wrong, in records.
WRONG = ("lost", "doubled", "reordered", "mistranslated")
TRANSLATED = 200
"""Offsets of each partition that are translated, each way."""
INNOCENT_SECONDS = 5.0
"""For no longer a partition may stand still while a fault lasts that concerns another topic, or another broker."""
_TRIES = 3
_DRAINED_SECONDS = 150.0
_PRODUCERS, _PREFILLED_SHARE, _RATE = 2, 0.95, 1_000.0


@dataclass
class Outcome:
    """How a round went. `problems` are what ended otherwise than it may, in words; `missed` the faults that could not
    be injected."""

    found: Found = field(default_factory=Found)
    injected: list[str] = field(default_factory=list)
    missed: list[Fault] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    innocent_stall: float = 0.0

    @property
    def is_good(self) -> bool:
        return self.found.is_exact and not self.problems


class Player:
    """Plays rounds on a stage."""

    def __init__(
        self, stage: Stage, folder: Path, *, kinds: Sequence[str], records: int, readers: Executor, seed: int
    ) -> None:
        self._stage, self._folder, self._kinds, self._records = stage, folder, tuple(kinds), records
        self._readers, self._name = readers, f"chaos-{seed:x}"

    def play(self, it: Round, carried: Sequence[Fault] = ()) -> Outcome:
        """Play one round, with faults that earlier rounds have missed besides its own."""
        folder = self._folder / f"round-{it.number}"
        folder.mkdir()
        scene = Scene(self._stage, f"{self._name}-{it.number}", self._kinds, it.replicas, folder)
        outcome, began = Outcome(), time.monotonic()

        def told(what: str) -> None:
            print(f"    {seconds_since(began):6.1f} s  {what}", flush=True)

        scene.create_source()
        scene.write_plan()
        told("the source has its topics")
        try:
            with workload(self._orders(scene, it.seed), folder) as producers:
                scene.create_target()
                told("the target has its topics, the mirror starts")
                with (
                    Mirrors(scene.plan, scene.environment, folder) as mirrors,
                    Progress(ends_of(self._stage.target.direct, scene.places)) as progress,
                ):
                    producers.await_prefilled()
                    told("the source is filled")
                    self._disturb(Injector(scene, mirrors, progress), [*it.faults, *carried], outcome, told)
                    written = producers.finish()
                    scene.await_decided()
                    told(f"{written:,} records are written")
                    self._drain(scene, mirrors, outcome)
                    told("the mirror has ended")
            self._compare(scene, random.Random(it.seed), outcome)
            told("both sides are compared")
        finally:
            scene.remove()
        if outcome.is_good:
            shutil.rmtree(folder)
        return outcome

    def _orders(self, scene: Scene, seed: int) -> list[Orders]:
        chance = random.Random(seed)
        return [
            Orders(
                servers=self._stage.source.direct,
                prefix=scene.name,
                kinds=self._kinds,
                seed=chance.getrandbits(32),
                name=f"w{number}",
                prefill=int(self._records * _PREFILLED_SHARE) // _PRODUCERS,
                rate=_RATE / _PRODUCERS,
                least=-(-self._records // _PRODUCERS),
            )
            for number in range(_PRODUCERS)
        ]

    def _disturb(
        self, injector: Injector, faults: Sequence[Fault], outcome: Outcome, told: Callable[[str], None]
    ) -> None:
        """Every fault in its turn, each tried some times."""
        try:
            for fault in faults:
                for number in range(1, _TRIES + 1):
                    try:
                        did = injector.inject(fault)
                    except Missed as missed:
                        told(f"{fault}: not injected: {missed} (try {number} of {_TRIES})")
                        continue
                    outcome.injected.append(fault.kind)
                    told(f"{fault}: {did}")
                    break
                else:
                    outcome.missed.append(fault)
                if injector.mirrors.findings:
                    return
            injector.settle()
        except Exception as error:
            outcome.problems.append(f"a fault went wrong: {type(error).__name__}: {error}")
        finally:
            injector.close()
            outcome.innocent_stall = injector.innocent_stall
            if injector.innocent_stall > INNOCENT_SECONDS:
                outcome.problems.append(f"no fault concerned it, and yet {injector.stalled}")

    def _drain(self, scene: Scene, mirrors: Mirrors, outcome: Outcome) -> None:
        """Have the mirror copy what is left, and see that it ends well."""
        mirrors.may_finish = True
        if not mirrors.findings:
            scene.wish_drain()
        until = time.monotonic() + _DRAINED_SECONDS
        while not (mirrors.is_finished.wait(0.1) or mirrors.findings):
            if time.monotonic() > until:
                run = mirrors.current
                said = run.said[-1500:] if run else "none runs"
                outcome.problems.append(f"the mirror did not end within {_DRAINED_SECONDS:g} s: {said}")
                break
        outcome.problems.extend(mirrors.findings)
        link = scene.link()
        outcome.problems.extend(f"{tp}: {halt.reason}: {halt.detail}" for tp, halt in sorted(link.halts().items()))
        link.close()

    def _compare(self, scene: Scene, chance: random.Random, outcome: Outcome) -> None:
        # Before the source is read: what all replicas hold now, they held all the time that the mirror read.
        held = scene.held_by_all()
        # Past the network, so that nothing that it does can be mistaken for what the mirror did.
        reads = [
            self._readers.submit(read, cluster.direct, scene.topics, scene.keyed)
            for cluster in (self._stage.source, self._stage.target)
        ]
        source, target = (reading.result() for reading in reads)
        link = scene.link()
        maps = link.offset_maps()
        link.close()
        for place in sorted(scene.places):
            found = compared(
                source[place], target[place], maps.get(TopicPartition(*place)), chance, held=held.get(place)
            )
            if not found.is_exact:
                outcome.problems.append(f"{place}: {found}")
                scene.write_headers(place)
            outcome.found.add(found)


def compared(
    source: Log, target: Log, offsets: OffsetMap | None, chance: random.Random, *, held: Container[int] | None = None
) -> Found:
    """What is wrong with one partition's copy, and with the translation of its offsets. `held`: see `compacted`."""
    found = compare.records(source, target) if source.keys is None else compare.compacted(source, target, held)
    nothing = OffsetMap((), source_end=0, target_end=0)
    translate = nothing if offsets is None else offsets
    found.add(compare.translations(source, target, translate.to_target, translate.to_source, chance, TRANSLATED))
    return found


@dataclass
class Total:
    """What a run found, over its rounds."""

    seed: int
    rounds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    missed: list[Fault] = field(default_factory=list)
    """What is left to the next round."""
    problems: int = 0
    found: Found = field(default_factory=Found)
    innocent_stall: float = 0.0

    def add(self, outcome: Outcome | Note) -> None:
        """Count a round."""
        self.rounds += 1
        self.faults.update(outcome.injected)
        self.missed = outcome.missed
        self.problems += len(outcome.problems)
        self.innocent_stall = max(self.innocent_stall, outcome.innocent_stall)
        self.found.add(outcome.found)

    @property
    def is_good(self) -> bool:
        return self.found.is_exact and not self.missed and not self.problems and self.rounds > 0

    def as_dict(self) -> dict[str, object]:
        """The last line. What is on the target and never was on the source counts as doubled: it is one too many."""
        found = self.found
        return {
            "seed": self.seed,
            "rounds": self.rounds,
            "faults": dict(sorted(self.faults.items())),
            "records": found.records,
            "lost": found.lost,
            "doubled": found.doubled + found.foreign,
            "reordered": found.reordered,
            "mistranslated": found.mistranslated,
            "innocent_stall_s_max": round(self.innocent_stall, 1),
        }


def run(
    *,
    seed: int,
    schedule: Sequence[Round],
    brokers: int,
    records: int,
    kinds: Sequence[str],
    folder: Path,
    notes: Notes,
    keep_going: bool = False,
) -> Total:
    """Play `schedule`, without the rounds that are noted. Ends with the first round that goes wrong, unless told
    otherwise. Raises OtherRun before anything is begun."""
    total, noted = Total(seed), notes.read()
    for note in noted:
        total.add(note)
    played = {note.round for note in noted}
    left = [it for it in schedule if it.number not in played]
    if not left:
        return total
    spawn = multiprocessing.get_context("spawn")
    began = time.monotonic()
    with stage(brokers=brokers) as scene, ProcessPoolExecutor(2, mp_context=spawn) as readers:
        print(f"{brokers} brokers a side are up after {seconds_since(began)} s", flush=True)
        player = Player(scene, folder, kinds=kinds, records=records, readers=readers, seed=seed)
        for it in left:
            began = time.monotonic()
            faults = ", ".join(map(str, [*it.faults, *total.missed]))
            print(f"round {it.number}: {faults}; {it.replicas} replicas", flush=True)
            outcome = player.play(it, total.missed)
            total.add(outcome)
            for problem in outcome.problems:
                print(f"    PROBLEM: {problem}", flush=True)
            print(f"  {_told(outcome.found)}; {seconds_since(began)} s", flush=True)
            if outcome.is_good:
                notes.write(Note(it.number, outcome.found, outcome.injected, outcome.missed, outcome.innocent_stall))
            elif not keep_going:
                break
    return total


def _told(found: Found) -> str:
    wrong = ", ".join(f"{getattr(found, name)} {name}" for name in (*WRONG, "foreign"))
    return f"{found.records:,} records: {wrong}; {found.translated:,} offsets translated"


def _listed(text: str, known: Mapping[str, object] | Sequence[str]) -> list[str]:
    found = [word for word in text.split(",") if word]
    unknown = [word for word in found if word not in known]
    if unknown or not found:
        raise argparse.ArgumentTypeError(f"{text!r}: there are {', '.join(known)}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="replays the schedule of an earlier run")
    parser.add_argument("--round", type=int, metavar="N", help="play only this one of the schedule")
    parser.add_argument(
        "--faults", type=lambda text: _listed(text, FAULTS), default=list(FAULTS), help=", ".join(FAULTS)
    )
    parser.add_argument(
        "--kinds", type=lambda text: _listed(text, KINDS), default=list(DEFAULT), help=f"topics: {', '.join(KINDS)}"
    )
    parser.add_argument("--records", type=int, default=215_000, help="at least so many are written a round")
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=3, help="a side")
    parser.add_argument("--keep-going", action="store_true", help="go on after a round that went wrong")
    parser.add_argument(
        "--notes", type=Path, metavar="FILE", help="rounds that went well are noted there, and not played again"
    )
    parser.add_argument("--folder", type=Path, help="where rounds that went wrong leave their logs")
    options = parser.parse_args(arguments)
    # Whoever ends it expects that brokers, mirrors and producers end with it, which `with` does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    schedule = rounds(options.seed, options.rounds, kinds=options.faults, brokers=options.brokers)
    chosen = [it for it in schedule if options.round in (None, it.number)]
    print(f"seed {options.seed}", flush=True)
    for it in chosen:
        print(json.dumps(it.as_dict()), flush=True)
    # A Spark that starts several times a round, and brokers that restart, never get back what they spend on optimizing.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="chaos-", dir=options.folder))
    settings = {name: getattr(options, name) for name in ("seed", "records", "brokers", "kinds", "faults")}
    try:
        total = run(
            seed=options.seed,
            schedule=chosen,
            brokers=options.brokers,
            records=options.records,
            kinds=options.kinds,
            folder=folder,
            keep_going=options.keep_going,
            notes=Notes(options.notes, settings),
        )
    except OtherRun as error:
        folder.rmdir()
        parser.error(str(error))
    if total.is_good:
        shutil.rmtree(folder)
    else:
        print(f"what the processes of the rounds that went wrong said: {folder}", file=sys.stderr)
        if total.missed:
            print(f"{len(total.missed)} faults could not be injected", file=sys.stderr)
    print(json.dumps(total.as_dict()), flush=True)
    return 0 if total.is_good else 1
