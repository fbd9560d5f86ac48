"""`make crash-matrix`: every mutating request and hook of each command, killed before and after, and run again: all of
them in memory, and some on real brokers, by SIGKILL.

The last line of standard output is JSON; exit code 1 if a point did not come to the end of an undisturbed run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.crash.matrix import points, problem, undisturbed
from tests.crash.real import results
from tests.crash.scenarios import SCENARIOS


def main() -> int:
    parser = argparse.ArgumentParser(prog="make crash-matrix ARGS=...", description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="a scenario; several times for several")
    parser.add_argument("--real", type=int, default=3, help="points of each command on real brokers (0: no brokers)")
    asked = parser.parse_args()
    count = green = 0
    for scenario in SCENARIOS:
        if asked.only and scenario.name not in asked.only:
            continue
        run = undisturbed(scenario)
        failed = 0
        for point in points(scenario, run):
            count += 1
            found = problem(point, run)
            if found:
                failed += 1
                print(f"{point}: {found}", file=sys.stderr)
            else:
                green += 1
        print(f"{scenario.name}: {len(run.changes)} changes, {2 * len(run.changes)} points, {failed} not green")
    if asked.real and not asked.only:
        with tempfile.TemporaryDirectory(prefix="crash-") as folder:
            for result in results(asked.real, Path(folder)):
                count += 1
                # What is seen on the wire is what the matrix in memory records.
                missed = f"not recorded in memory: {sorted(result.unrecorded)}" if result.unrecorded else ""
                how = result.problem or missed or "green"
                green += how == "green"
                print(f"on brokers, {result.scenario}, killed {result.deadly}: {how}", flush=True)
    print(json.dumps({"points": count, "green": green}))
    return 0 if count == green else 1


if __name__ == "__main__":
    sys.exit(main())
