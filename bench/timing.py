"""How long each part of a measurement takes."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


def timer(seconds: dict[str, float]) -> Callable[[str], AbstractContextManager[None]]:
    """Times what is done within, prints it, and puts it into ``seconds`` by name, in the order in which it ended."""

    @contextmanager
    def timed(what: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        seconds[what] = round(time.monotonic() - began, 1)
        print(f"{what}: {seconds[what]} s", flush=True)

    return timed
