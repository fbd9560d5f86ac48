"""`make security-matrix`: every way in on the source with every way in on the target. A whole migration by commands for
each pair: check, create, mirror, validate record by record with Spark's own reader, cutover; then both are compared.

The last line of standard output is JSON; exit code 1 if a pair did not come through.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.kafka.guarded import TokenEndpoint
from tests.kerberized import kdc_for
from tests.modes.clusters import MODES, authority_in, secured
from tests.modes.migration import Migration


def main() -> int:
    parser = argparse.ArgumentParser(prog="make security-matrix ARGS=...", description=__doc__)
    parser.add_argument("--source", action="append", choices=MODES, help="only this way in; may be repeated")
    parser.add_argument("--target", action="append", choices=MODES, help="only this way in; may be repeated")
    asked = parser.parse_args()
    console, sources, targets = Console(soft_wrap=True), asked.source or MODES, asked.target or MODES
    table = Table("source \\ target", *targets)
    found: dict[tuple[str, str], str] = {}
    endpoint = TokenEndpoint()
    try:
        with tempfile.TemporaryDirectory(prefix="security-matrix-") as folder:
            authority = authority_in(Path(folder))
            with (
                kdc_for(Path(folder) / "kdc") as kdc,
                secured("source", authority, endpoint, kdc) as source,
                secured("target", authority, endpoint, kdc) as target,
            ):
                for pair in product(sources, targets):
                    began = time.monotonic()
                    found[pair] = Migration(source, target, pair, Path(folder)).problem()
                    how = found[pair] or f"green, {time.monotonic() - began:.0f} s"
                    console.print(f"{pair[0]} to {pair[1]}: {how}", highlight=False, markup=False)
    finally:
        endpoint.close()
    for row in sources:
        table.add_row(row, *("RED" if found[row, column] else "green" for column in targets))
    console.print(table)
    green = sum(1 for problem in found.values() if not problem)
    print(json.dumps({"pairs": len(found), "green": green}))
    return 0 if green == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
