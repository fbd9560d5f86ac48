"""What can go wrong in the embedded default, as one family: each message says what, where, and the remedy."""

import sys
from collections.abc import Callable


class DemoError(RuntimeError):
    """Shown in the terminal as its message, without a traceback."""


def run_or_explain(command: Callable[[], object]) -> None:
    """Run a command; a DemoError ends the process with its message and exit code 1."""
    try:
        command()
    except DemoError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
