"""The network before each broker, in a process of its own: ``python -m tests.chaos.network PORTS`` (JSON).

A proxy stands before each broker, which advertises it. On command (a line of JSON) it cuts connections in the middle of
a request or of a response, or makes everything slow; each command is answered by a line. Ends with its input.
"""

import contextlib
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from tests.proxy import FETCH, PRODUCE, Frame, Proxy

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
LATE_SECONDS = 0.8
"""How much later a request may land than its connection was cut. The mirror's limits (short.py) allow for more."""
_OTHERS_SECONDS = 0.4
"""For so long after the first connection are others cut."""
_MOST_SECONDS = 2.0
"""No frame is held up for longer: requests must land within the time that the mirror reckons with."""
_HELD_SECONDS = 5.0
"""What is kept back goes on after so long at the latest."""


@dataclass
class _Cuts:
    """Connections to be cut: how many more, where, and when the last one was."""

    left: int = 0
    where: str = ""
    apis: frozenset[int] = frozenset()
    skip: int = 0
    done: list[str] = field(default_factory=list)


@dataclass
class _Kept:
    """An answer to be kept back: to a request of which api, whether there was one, and whether it may go on."""

    api: int = -1
    came: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)


class Side:
    """What befalls the connections to one cluster."""

    def __init__(self, seed: int) -> None:
        self._chance, self._lock = random.Random(seed), threading.Lock()
        self._cuts, self._late, self._kept = _Cuts(), list[Frame](), _Kept()
        self._delay = self._bytes_per_second = 0.0
        self._spoilt: tuple[frozenset[bytes], int] = (frozenset(), 0)
        self._severed: frozenset[bytes] = frozenset()

    # -- commands ---------------------------------------------------------------------------------------------

    def cut(self, *, where: str, count: int, apis: Sequence[int], seconds: float, seed: int) -> list[str]:
        """Cut the next `count` connections on which there is such a request, in the middle of the "request" or of the
        "response", or "late": the client's side at once, and the request is delivered afterwards. Those that were cut:
        the first within `seconds`, the others soon after it."""
        with self._lock:
            self._chance = random.Random(seed)
            cuts = self._cuts = _Cuts(count, where, frozenset(apis), self._chance.randrange(3))
        until = time.monotonic() + seconds
        while not cuts.done and time.monotonic() < until:
            time.sleep(0.005)
        until = time.monotonic() + _OTHERS_SECONDS
        while cuts.done and cuts.left and time.monotonic() < until:
            time.sleep(0.005)
        with self._lock:
            cuts.left = 0
        return cuts.done

    def slow(self, *, delay: float, bytes_per_second: float) -> list[str]:
        """Hold up every frame, by up to `delay` seconds and by its size; 0 and 0 end that."""
        self._delay, self._bytes_per_second = delay, bytes_per_second
        return []

    def spoil(self, *, ids: Sequence[str], port: int) -> list[str]:
        """The broker behind `port` answers requests for topics of these ids (hexadecimal) as if it knew no such
        topic: it is asked for another one. No ids end that."""
        self._spoilt = (frozenset(bytes.fromhex(it) for it in ids), port)
        return []

    def sever(self, *, ids: Sequence[str]) -> list[str]:
        """Cut every connection on which topics of these ids are asked for, or written to; no ids end that."""
        self._severed = frozenset(bytes.fromhex(it) for it in ids)
        return []

    def keep(self, *, api: int, seconds: float) -> list[str]:
        """Keep back the next answer to such a request, until `release`, or for some seconds. Whether there was one
        within `seconds`, as a text or none."""
        kept = self._kept = _Kept(api)
        if kept.came.wait(seconds):
            return [f"{api}"]
        kept.api = -1
        return []

    def release(self) -> list[str]:
        """Let go what `keep` keeps."""
        self._kept.goes_on.set()
        return []

    # -- what the proxies ask ---------------------------------------------------------------------------------

    def on_request(self, frame: Frame) -> bool | bytes | None:
        self._hold_up(frame)
        if frame.api in (PRODUCE, FETCH):
            if frame.mentions(*self._severed):
                frame.connection.cut_in(frame, self._chance.random())
                return False
            ids, port = self._spoilt
            if frame.connection.proxy.to == (HOST, port) and frame.mentions(*ids):
                return _swapped(frame.data, ids, is_answer=False)
        if self._is_due(frame, "request"):
            frame.connection.cut_in(frame, self._chance.random())
            return False
        if self._is_due(frame, "late"):
            frame.connection.outlives_client = True
            frame.connection.cut_client()
            time.sleep(self._chance.uniform(0, LATE_SECONDS))
            self._late.append(frame)
            frame.connection.deliver(frame)
            return False
        return None

    def on_response(self, frame: Frame) -> bool | bytes | None:
        self._hold_up(frame)
        if (frame.request or frame).api in (PRODUCE, FETCH) and self._spoilt[0]:
            frame = replace(frame, data=_swapped(frame.data, self._spoilt[0], is_answer=True))
        kept = self._kept
        if (frame.request or frame).api == kept.api:
            kept.api = -1
            kept.came.set()
            kept.goes_on.wait(_HELD_SECONDS)
        if frame.request in self._late:
            # Nobody waits for it, and nothing else will be asked there.
            self._late.remove(frame.request)
            frame.connection.cut()
            return False
        if self._is_due(frame, "response"):
            frame.connection.cut_in(frame, self._chance.random())
            return False
        return frame.data

    def _is_due(self, frame: Frame, where: str) -> bool:
        cuts = self._cuts
        if cuts.where != where or not cuts.left or (frame.request or frame).api not in cuts.apis:
            return False
        with self._lock:
            if not cuts.left:
                return False
            if cuts.skip:
                cuts.skip -= 1
                return False
            cuts.left -= 1
            cuts.skip = self._chance.randrange(3)
            cuts.done.append(f"{(frame.request or frame).api}: {len(frame.data)} bytes")
        return True

    def _hold_up(self, frame: Frame) -> None:
        if self._delay or self._bytes_per_second:
            seconds = self._chance.uniform(0, self._delay)
            if self._bytes_per_second:
                seconds += len(frame.data) / self._bytes_per_second
            time.sleep(min(seconds, _MOST_SECONDS))


def _swapped(data: bytes, ids: Collection[bytes], *, is_answer: bool) -> bytes:
    """What asks for topics of `ids` asks for others instead, and the answer is about those of `ids` again."""
    for known in ids:
        other = bytes(255 - byte for byte in known)
        data = data.replace(other, known) if is_answer else data.replace(known, other)
    return data


def main() -> int:
    orders = json.loads(sys.argv[1])
    sides = {name: Side(at) for at, name in enumerate(orders)}
    with contextlib.ExitStack() as stack:
        for name, ports in orders.items():
            for port, broker in ports:
                stack.enter_context(
                    Proxy(
                        on_request=sides[name].on_request,
                        on_response=sides[name].on_response,
                        to=(HOST, broker),
                        port=port,
                    )
                )
        print("ready", flush=True)
        for line in sys.stdin:
            told = json.loads(line)
            done = getattr(sides[told.pop("side")], told.pop("do"))(**told)
            print(json.dumps(done), flush=True)
    return 0


class Network:
    """That process, as seen from the run. `ports`: for each side pairs of the port to listen on and the broker's."""

    def __init__(self, ports: Mapping[str, Sequence[tuple[int, int]]]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.network", json.dumps(ports)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        self._lock = threading.Lock()
        if _piped(self._process.stdout).readline() != "ready\n":
            raise RuntimeError("the network could not be set up")

    def cut(self, side: str, *, where: str, count: int, seconds: float, seed: int) -> list[str]:
        """See :meth:`Side.cut`: requests to produce on the target, to fetch on the source."""
        apis = [PRODUCE] if side == "target" else [FETCH]
        return self._log(do="cut", side=side, where=where, count=count, apis=apis, seconds=seconds, seed=seed)

    def slow(self, side: str, *, delay: float, bytes_per_second: float) -> None:
        """See :meth:`Side.slow`."""
        self._log(do="slow", side=side, delay=delay, bytes_per_second=bytes_per_second)

    def spoil(self, side: str, *, ids: Sequence[str], port: int) -> None:
        """See :meth:`Side.spoil`."""
        self._log(do="spoil", side=side, ids=list(ids), port=port)

    def sever(self, side: str, *, ids: Sequence[str]) -> None:
        """See :meth:`Side.sever`."""
        self._log(do="sever", side=side, ids=list(ids))

    def keep_answer(self, side: str, api: int, *, seconds: float) -> bool:
        """See :meth:`Side.keep`."""
        return bool(self._log(do="keep", side=side, api=api, seconds=seconds))

    def release_answer(self, side: str) -> None:
        """See :meth:`Side.release`."""
        self._log(do="release", side=side)

    def _log(self, **told: Any) -> list[str]:
        with self._lock:
            asked = _piped(self._process.stdin)
            asked.write(json.dumps(told) + "\n")
            asked.flush()
            answer: list[str] = json.loads(_piped(self._process.stdout).readline())
            return answer

    def __enter__(self) -> "Network":
        return self

    def __exit__(self, *_: object) -> None:
        _piped(self._process.stdin).close()
        try:
            self._process.wait(180)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(180)


def _piped(pipe: IO[str] | None) -> IO[str]:
    if pipe is None:
        raise RuntimeError("the network has no pipes")
    return pipe


if __name__ == "__main__":
    sys.exit(main())
