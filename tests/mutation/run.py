"""The validator under test: ``python -m tests.mutation`` (make mutation).

Topics of every codec are written, and copied by the mirror. Then faults, one in each of hundreds of copies of what the
mirror made of them: each must be detected, called by its class, and placed at its offsets, by a validation that is not
told where to look. And clean runs, under compaction, retention and transactions, must say nothing. The seed replays it.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from demo.brokers import EmbeddedKafka
from tests.mutation import clean, faulty
from tests.mutation.clean import Clean
from tests.mutation.copies import CODECS, originals
from tests.mutation.faults import CONTROLS, KINDS
from tests.mutation.faulty import Faults
from tests.mutation.validator import validator

QUICK = {
    # Soon is seconds here: that segments can be compacted, that they are, and that records expire.
    "log.cleaner.backoff.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
}
#: Of each log, at least so many segments.
_SEGMENTS = 3


@dataclass(frozen=True)
class Found:
    """What the run found."""

    seed: int
    faulty: Faults
    clean: Clean
    #: Kinds of faults times codecs: as many of them as there are faults must have been tried.
    pairs: int

    @property
    def is_good(self) -> bool:
        is_crossed = len(self.faulty.pairs) == min(self.pairs, self.faulty.faults)
        return self.faulty.is_good and is_crossed and not self.clean.alarms

    def as_dict(self) -> dict[str, object]:
        """The last line."""
        return {
            "seed": self.seed,
            "faults": self.faulty.faults,
            "pairs": len(self.faulty.pairs),
            "detected": self.faulty.detected,
            "levels": dict(self.faulty.levels),
            "contradictions": self.faulty.contradictions,
            "controls": self.faulty.controls,
            "control_alarms": self.faulty.control_alarms,
            "class_right": self.faulty.class_right,
            "offset_right": self.faulty.offset_right,
            "clean_runs": self.clean.runs,
            "false_alarms": self.clean.alarms,
        }


def run(
    *,
    seed: int,
    faults: int,
    controls: int,
    records: int,
    clean_runs: int,
    kinds: Sequence[str],
    at_once: int,
    a_scene: int,
    verbose: bool = False,
) -> Found:
    """Faults and clean runs on clusters of its own. Whatever is not as it should be is told as it is found."""
    began = time.monotonic()

    def log(text: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {text}", flush=True)

    with ExitStack() as stack:
        clusters = [
            stack.enter_context(EmbeddedKafka(name=f"mutation-{side}", properties=QUICK))
            for side in ("source", "target")
        ]
        source, target = (one.bootstrap_servers for one in clusters)
        it = stack.enter_context(validator(source, target, log=log if verbose else lambda _text: None))
        log("clusters and Spark are up")
        found = Faults()
        if faults:
            size = max(1_000, -(-records // _SEGMENTS))
            made = originals(source, target, count=records, seed=seed)
            log(f"{len(made)} topics of {records:,} records and more are mirrored")
            wanted = [
                *faulty.faults(faults, seed, kinds, CODECS),
                *faulty.faults(controls, seed + 1, list(CONTROLS), CODECS),
            ]
            found = faulty.run(
                it,
                source,
                target,
                made,
                wanted,
                segment_records=size,
                at_once=at_once,
                log=log,
            )
            if controls:
                faulty.after_kept(it, source, target, made, found, seed=seed, segment_records=size)
            for problem in found.wrong:
                log(f"WRONG: {problem}")
        runs = clean.run(it, source, target, runs=clean_runs, a_scene=a_scene, seed=seed, log=log)
        for problem in runs.wrong:
            log(f"FALSE ALARM: {problem}")
    log("over")
    return Found(seed, found, runs, (len(kinds) + bool(controls)) * len(CODECS))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="replays an earlier run")
    parser.add_argument("--faults", type=int, default=414, help="how many, each in a copy of its own")
    parser.add_argument("--controls", type=int, default=20, help="copies of which only batches are others")
    parser.add_argument("--records", type=int, default=30_000, help="of each log that gets a fault, at least")
    parser.add_argument("--clean-runs", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=28, help="how many faulty topics are validated together")
    parser.add_argument("--kind", choices=KINDS, action="append", help="only these faults")
    parser.add_argument("--verbose", action="store_true", help="print what the validations say")
    options = parser.parse_args(arguments)
    # Whoever ends it expects that brokers and Spark end with it, which `with` does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Nothing of a session on this machine is for the network.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    print(f"seed {options.seed}", flush=True)
    found = run(
        seed=options.seed,
        faults=options.faults,
        controls=options.controls,
        records=options.records,
        clean_runs=options.clean_runs,
        kinds=options.kind or list(KINDS),
        at_once=options.at_once,
        a_scene=20,
        verbose=options.verbose,
    )
    print(json.dumps(found.as_dict()), flush=True)
    return 0 if found.is_good else 1
