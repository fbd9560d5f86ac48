"""The loop under the connections: order, waits, cancelling, and sockets that come and go."""

import socket
import time
from collections.abc import Iterator
from typing import Any

import kafka.errors as kafka_errors
import pytest
from kafka.future import Future

from kafka_migration.wire.selector import READ, WRITE, Selector


@pytest.fixture
def loop() -> Iterator[Selector]:
    loop = Selector()
    yield loop
    loop.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    for it in (ours, theirs):
        it.setblocking(False)
    with ours, theirs:
        yield ours, theirs


async def _nothing() -> None: ...


def test_timers_come_in_their_order_and_cancelled_ones_not_at_all(loop: Selector) -> None:
    seen: list[int] = []
    now = time.monotonic()
    timers = [loop.call_at(now + 0.001 * n, lambda n=n: seen.append(n)) for n in reversed(range(200))]
    for n, timer in zip(reversed(range(200)), timers, strict=True):
        if n % 4:
            loop.cancel(timer)
    loop.run(lambda: loop.sleep(0.3))
    assert seen == list(range(0, 200, 4))


def test_many_cancelled_timers_are_not_kept(loop: Selector) -> None:
    kept = [loop.call_later(3600, _nothing) for _ in range(10)]
    for _ in range(10_000):
        loop.cancel(loop.call_later(3600, _nothing))
    assert len(loop._due) < 200
    assert {it[2] for it in loop._due} >= set(kept)


def test_result_and_error_of_what_is_run(loop: Selector) -> None:
    async def adds(a: int, b: int) -> int:
        await loop.sleep(0)
        return a + b

    async def fails() -> None:
        await loop.sleep(0)
        raise KeyError("x")

    assert loop.run(adds, 1, 2) == 3
    assert loop.run(lambda: Future().success(7)) == 7
    with pytest.raises(KeyError):
        loop.run(fails)

    async def within() -> None:
        loop.run(_nothing)

    with pytest.raises(RuntimeError, match="runs already"):
        loop.run(within)


def test_coroutines_wait_for_each_other_through_futures(loop: Selector) -> None:
    asked, seen = Future(), []

    async def waits() -> None:
        seen.append(await asked)

    other = loop.call_soon_with_future(waits)

    async def answers() -> None:
        await loop.sleep(0.01)
        assert not seen
        asked.success("now")
        await other

    loop.run(answers)
    assert seen == ["now"]


def test_a_socket_that_gets_nothing_is_waited_for_no_longer_than_said(
    loop: Selector, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair

    async def reads(seconds: float) -> bytes:
        await loop.wait_read(ours, timeout_at=time.monotonic() + seconds)
        return ours.recv(10)

    with pytest.raises(kafka_errors.KafkaTimeoutError):
        loop.run(reads, 0.02)
    loop.call_later(0.01, lambda: theirs.send(b"x"))
    assert loop.run(reads, 30) == b"x"
    # Nothing is left registered.
    assert [key.fileobj for key in loop._selector.get_map().values()] == []


def test_a_watched_socket_is_told_until_it_is_watched_no_longer(
    loop: Selector, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    seen: list[bytes] = []

    def told() -> None:
        seen.append(ours.recv(1))
        if seen[-1] == b".":
            loop.unregister_event(ours, READ)

    loop.watch(ours, READ, told)
    with pytest.raises(RuntimeError, match="already"):
        loop.watch(ours, READ, told)
    theirs.send(b"ab.cd")

    async def writes_meanwhile() -> None:
        await loop.wait_write(ours)
        await loop.sleep(0.02)

    loop.run(writes_meanwhile)
    assert b"".join(seen) == b"ab."
    loop.unregister_event(ours, READ | WRITE)


def test_who_is_told_first_may_close_the_other(loop: Selector, pair: tuple[socket.socket, socket.socket]) -> None:
    told: list[socket.socket] = []

    def close(mine: socket.socket, other: socket.socket) -> None:
        told.append(mine)
        for it in (mine, other):
            loop.unregister_event(it, READ)
            it.close()

    first, second = pair
    first.send(b"x")
    second.send(b"x")
    loop.watch(first, READ, lambda: close(first, second))
    loop.watch(second, READ, lambda: close(second, first))
    loop.run(lambda: loop.sleep(0.01))
    assert len(told) == 1


def test_a_reader_that_fails_does_not_end_the_loop(loop: Selector, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair

    def told() -> None:
        ours.recv(10)
        raise KeyError("x")

    loop.watch(ours, READ, told)
    theirs.send(b"x")
    loop.run(lambda: loop.sleep(0.01))
    loop.unregister_event(ours, READ)


def test_what_is_cancelled_cleans_up_and_does_not_go_on(
    loop: Selector, pair: tuple[socket.socket, socket.socket]
) -> None:
    seen: list[str] = []

    async def work(wait: Any) -> None:
        try:
            await wait
            seen.append("went on")
        finally:
            seen.append("cleaned")

    tasks = [loop.call_soon(work(wait)) for wait in (loop.sleep(0.01), loop.wait_read(pair[0]), Future())]
    loop.run(_nothing)
    for task in tasks:
        loop.cancel(task)
        loop.cancel(task)
    pair[1].send(b"x")
    loop.run(lambda: loop.sleep(0.03))
    assert seen == ["cleaned"] * 3
    assert [key.fileobj for key in loop._selector.get_map().values()] == []


def test_closing_drops_what_still_waits(pair: tuple[socket.socket, socket.socket]) -> None:
    loop, seen = Selector(), list[str]()

    async def waits() -> None:
        try:
            await loop.wait_read(pair[0])
        finally:
            seen.append("cleaned")

    future = loop.call_soon_with_future(waits)
    loop.run(_nothing)
    loop.close()
    loop.close()
    assert seen == ["cleaned"]
    assert isinstance(future.exception, GeneratorExit)
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_later(1, _nothing)
