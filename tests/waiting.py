"""Wait for something to become so, instead of sleeping for as long as it might take."""

import time
from collections.abc import Callable

POLL_SECONDS = 0.05
PATIENCE_SECONDS = 180.0
"""Enough for a Spark session that begins beside seven other workers: a deadline ends what hangs, it claims nothing."""
HANGS_SECONDS = 540.0
"""A process of a test that takes longer hangs. Shorter than a test may take, so that what it printed is shown."""
UNDER_LOAD = 10
"""So many times what is documented for a machine with time to spare may be taken on one without."""


def wait_until(
    condition: Callable[..., object], what: str | Callable[[], str], *, deadline_seconds: float = PATIENCE_SECONDS
) -> None:
    """Return once `condition()` is true; fail with `what` at the deadline."""
    deadline = time.monotonic() + deadline_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {deadline_seconds} s: {what if isinstance(what, str) else what()}")
        time.sleep(POLL_SECONDS)
