"""`make races`: every interleaving of two movers of one group, in memory and some on real brokers.

The last line of standard output is JSON; exit code 1 if a group ran on both sides, on neither in the end, went on at a
wrong offset, or was left with another record than that of a moved group.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable

from demo.brokers import EmbeddedKafka
from tests.races.run import FAULTS, Interleaving, Outcome, Races, on_brokers
from tests.steps.worlds import FakeWorld, RealWorld


def main() -> int:
    parser = argparse.ArgumentParser(prog="make races ARGS=...", description=__doc__)
    parser.add_argument("--second-every", type=int, default=6, help="how densely the second mover is stopped, too")
    parser.add_argument("--real", type=int, default=24, help="interleavings on real brokers (0: no brokers)")
    asked = parser.parse_args()
    found: Counter[str] = Counter()

    def note(it: Interleaving, outcome: Outcome) -> None:
        found.update(outcome.faults)
        if outcome.faults:
            print(f"{it}: {', '.join(outcome.faults)}: {'; '.join(outcome.history)}", file=sys.stderr)

    fake = FakeWorld()
    for it, outcome in Races(fake, lambda: fake.store).every(second_every=asked.second_every):
        found["interleavings"] += 1
        note(it, outcome)
    print(f"in memory: {found['interleavings']} interleavings", file=sys.stderr)
    if asked.real:
        _on_brokers(asked.real, found, note)
    keys = ("interleavings", "real", "both_sides", "neither_side", "wrong_offset")
    print(json.dumps({key: found[key] for key in keys}))
    return 1 if any(found[fault] for fault in FAULTS) else 0


def _on_brokers(count: int, found: Counter[str], note: Callable[[Interleaving, Outcome], None]) -> None:
    with EmbeddedKafka(name="source") as source, EmbeddedKafka(name="target") as target:
        world = RealWorld(source.bootstrap_servers, target.bootstrap_servers)
        try:
            with on_brokers(world) as races:
                for it, outcome in races.some(count):
                    found["real"] += 1
                    note(it, outcome)
                    print(f"on brokers, {found['real']} of {count}: {it}", file=sys.stderr)
        finally:
            world.close()


if __name__ == "__main__":
    sys.exit(main())
