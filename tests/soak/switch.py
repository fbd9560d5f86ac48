"""How long producers are kept out while they are switched over: ``make bench-switch``, docs/performance.md.

So many cuts between two real clusters with authorizers, under live producers and a group, each judged by the clients'
own notes. ``fence_ms`` is from the first denial to the point of no return, ``pause_ms`` the median pause of a producer
without its own restart. The last line is JSON; exit code 1 if the judge finds a fault.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafka_migration.link.switched import Switch
from tests.steps import cuts
from tests.steps.cuts import Clusters, Cut
from tests.steps.hook_server import HookServer


def main() -> int:
    """Make the cuts, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuts", type=int, default=10)
    arguments = parser.parse_args()
    fences: list[float] = []
    parts: list[Mapping[str, float]] = []
    pauses: list[float] = []
    faults = 0
    with tempfile.TemporaryDirectory() as folder, cuts.clusters() as both, pytest.MonkeyPatch.context() as patch:
        hooks = HookServer()
        try:
            for name, value in hooks.environ.items():
                patch.setenv(name, value)
            cuts.connect(patch, both, hooks)
            for number in range(arguments.cuts):
                done, pause, found = _cut(both, hooks, Path(folder) / str(number), patch)
                fence = cuts.milliseconds(done.fenced_at, done.served_at)
                parts.append(done.after_ms)
                print(f"cut {number + 1}: fence {fence:,.0f} ms, pause {pause:,.0f} ms, {found} faults", flush=True)
                fences.append(fence)
                pauses.append(pause)
                faults += found
        finally:
            hooks.close()
    figures = {
        "cuts": arguments.cuts,
        "fence_ms": {"median": round(statistics.median(fences)), "max": round(max(fences))},
        "after_ms": {
            part: round(statistics.median(one[part] for one in parts))
            for part in sorted(parts[0], key=parts[0].__getitem__)
        },
        "pause_ms": {"median": round(statistics.median(pauses)), "max": round(max(pauses))},
        "faults": faults,
    }
    print(json.dumps(figures))
    return 1 if faults else 0


def _cut(both: Clusters, hooks: HookServer, folder: Path, patch: pytest.MonkeyPatch) -> tuple[Switch, float, int]:
    folder.mkdir()
    patch.chdir(folder)
    shop = Cut(both, hooks, folder)
    try:
        shop.begin()
        shop.switch()
        done = shop.record()
        verdict = shop.judged()
    finally:
        shop.close()
    pause = verdict.pauses_ms["producers"]["p50"] or 0.0
    return done, pause, verdict.faults


if __name__ == "__main__":
    sys.exit(main())
