"""What can go wrong in the embedded default, as one family: each message says what, where, and the remedy."""


class DemoError(RuntimeError):
    """Printed to the terminal without a traceback."""
