"""Scale, on real brokers: ``make bench-scale``. The last line is JSON.

Inventory, preflight, create, mirror and lag of a migration of 1,000 topics, 5,000 partitions and 2,000 groups; status
and lag after 2,000,000 records of progress; an offset map of 10,000,000 runs, and what 1,000,000 of them cost a
validation's driver: each with its time and the peak memory of the process that ran it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.processes import end_with_parent
from bench.scale_phases import PHASES, measured
from bench.scale_validation import MOST_MB, MOST_SECONDS
from bench.scale_world import Size, cluster, fill


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and compare with what is promised. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=5_000)
    parser.add_argument("--groups", type=int, default=2_000)
    parser.add_argument("--runs", type=int, default=10_000_000, help="runs of the offset map")
    parser.add_argument("--only", choices=list(PHASES), action="append", help="these phases only")
    options = parser.parse_args(arguments)
    size = Size(topics=options.topics, partitions=options.partitions, groups=options.groups)
    phases = options.only or list(PHASES)
    found: dict[str, Any] = {"topics": size.topics, "partitions": size.partitions, "groups": size.groups}
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        alone = [it for it in phases if it in ("offset_map", "validation_runs")]
        on_clusters = [it for it in phases if it not in alone]
        if on_clusters:
            with cluster("source") as source, cluster("target") as target:
                began = time.perf_counter()
                world = fill(source.bootstrap_servers, target.bootstrap_servers, size, Path(folder))
                _say(f"source filled in {time.perf_counter() - began:.1f} s")
                for phase in on_clusters:
                    found[phase] = _alone(phase, world.plan, options.runs)
        for phase in alone:
            found[phase] = _alone(phase, Path(folder), options.runs)
    wrong = _broken(found)
    for text in wrong:
        print(f"not as promised: {text}", file=sys.stderr)
    print(json.dumps(found))
    return 1 if wrong else 0


def _alone(phase: str, plan: Path, runs: int) -> dict[str, Any]:
    """``phase`` in a new process."""
    with multiprocessing.get_context("spawn").Pool(1, initializer=end_with_parent) as pool:
        found = pool.apply(measured, (phase, plan, runs))
    _say(f"{phase}: {json.dumps(found)}")
    return found


def _broken(found: dict[str, Any]) -> list[str]:
    wrong = []
    if "inventory" in found:
        seen = {name: found["inventory"][name] for name in ("topics", "partitions", "groups")}
        if seen != {name: found[name] for name in seen}:
            wrong.append(f"the inventory shows {seen}")
    if "create" in found and (found["create"]["created"] != found["topics"] or found["create"]["drift"]):
        wrong.append(f"created {found['create']}")
    if "mirror" in found and (found["mirror"]["halted"] or found["mirror"]["records"] != 2 * found["partitions"]):
        wrong.append(f"mirrored {found['mirror']}")
    if "lag" in found and "mirror" in found and found["lag"]["lag"]:
        wrong.append(f"lag {found['lag']['lag']} after the mirror")
    if "progress" in found and max(found["progress"]["status_seconds"], found["progress"]["lag_seconds"]) > 3:
        wrong.append(f"after {found['progress']['records']:,} records of progress: {found['progress']}")
    if "offset_map" in found and found["offset_map"]["translate_longest_ms"] >= 50:
        wrong.append(f"a translation took {found['offset_map']['translate_longest_ms']} ms")
    cost = found.get("validation_runs")
    if cost and (cost["cpu_seconds"] > MOST_SECONDS or cost["grown_mb"] > MOST_MB):
        wrong.append(f"the runs of a partition cost the validation's driver {cost}")
    return wrong


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
