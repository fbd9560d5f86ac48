"""A clock that stands until a test moves it."""


class Clock:
    """Monotonic seconds, in a test's hands."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
