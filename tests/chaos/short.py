"""The real command with leases of seconds: ``python -m tests.chaos.short COMMAND PLAN ...``.

Its lines begin with the time. Nothing else differs from ``python -m kafka_migration``. With the limits that it ships
with, a process would have to be stopped for most of a minute to outlive them all.
"""

from datetime import datetime
from functools import partial
from unittest.mock import patch

from rich.text import Text

from kafka_migration.cli.app import main
from kafka_migration.cli.output import Output
from kafka_migration.copy.driver.mirror import Settings
from kafka_migration.copy.orders import Limits
from kafka_migration.steps import mirror
from tests.copy.bench import scaled

LIMITS = Limits(**scaled(0.3))
REQUEST_SECONDS = 8.0
"""How long clients wait for an answer."""
PRODUCER_MEMORY_SECONDS = 120.0
"""For how long the target remembers a producer: not for long, and yet so long that a mirror with these limits appends
records of now in spite of a hold, as it does with the limits and the memory that ship."""
LONGEST_SECONDS = max(LIMITS.lease_seconds + LIMITS.late_seconds, REQUEST_SECONDS)


def _with_time(output: Output, text: str) -> None:
    output.err.print(Text(f"{datetime.now():%H:%M:%S.%f} {text}"), soft_wrap=True)


if __name__ == "__main__":
    with patch.object(mirror, "Settings", partial(Settings, limits=LIMITS)), patch.object(Output, "log", _with_time):
        main()
