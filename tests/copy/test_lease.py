"""A task's lease and the hold behind a fence, by a clock that the test moves."""

import uuid

import pytest

from kafka_migration.copy.driver.attempts import Attempts
from kafka_migration.copy.lease import Hold, Lease
from kafka_migration.copy.orders import Limits
from kafka_migration.domain import ledger
from kafka_migration.domain.errors import Refused, TakenOver
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import TopicPartition
from kafka_migration.state.link import LinkState
from kafka_migration.state.store import MemoryStore
from tests.copy.clock import Clock

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
LIMITS = Limits(lease_seconds=10, answer_seconds=30, closed_seconds=5)
UNSEEN = LIMITS.lease_seconds + LIMITS.late_seconds
DAY_MS = 86_400_000


class Tail:
    """What the links topic shows at each look; None: it cannot be read."""

    def __init__(self, clock: Clock, takes: float = 0.0) -> None:
        self.looks: list[list[tuple[bytes, bytes]] | None] = []
        self.is_current = False
        self._clock, self._takes = clock, takes

    async def poll(self) -> list[tuple[bytes, bytes]]:
        self._clock.now += self._takes
        found = self.looks.pop(0) if self.looks else []
        self.is_current = found is not None
        return found or []


def _run(coroutine):
    with pytest.raises(StopIteration) as done:
        coroutine.send(None)
    return done.value.value


def _lease(clock: Clock, tail: Tail) -> Lease:
    return Lease(tail, "shop", 10, clock=clock)  # type: ignore[arg-type]


def _entry(*parts: str, **value: object) -> tuple[bytes, bytes]:
    return ledger.link_key("shop", *parts), ledger.encode(value)


def test_nothing_is_sent_before_the_links_state_was_read():
    clock = Clock()
    lease = _lease(clock, Tail(clock))
    assert not lease.holds
    _run(lease.renew())
    assert lease.holds


def test_lease_counts_from_before_the_look_and_ends_by_time():
    clock = Clock()
    lease = _lease(clock, Tail(clock, takes=4.0))
    _run(lease.renew())
    clock.now += 5.9
    assert lease.holds
    clock.now += 0.2
    assert not lease.holds


def test_look_that_sees_the_recall_renews_nothing_and_none_after_it_does():
    """Who recalls a task that does not answer counts a lease from the recall, and then takes it for dead."""
    clock = Clock()
    lease = _lease(clock, Tail(clock))
    _run(lease.renew())
    clock.now += 9.0
    _run(lease.renew())
    lease.let_lapse()
    assert lease.holds, "until then it may send what it has"
    clock.now += 1.1
    assert not lease.holds
    _run(lease.renew())
    lease.let_lapse()
    assert not lease.holds


def test_look_that_could_not_see_everything_renews_nothing():
    clock = Clock()
    tail = Tail(clock)
    lease = _lease(clock, tail)
    _run(lease.renew())
    tail.looks = [None, None]
    clock.now += 9
    _run(lease.renew())
    assert lease.holds
    clock.now += 2
    _run(lease.renew())
    assert not lease.holds


@pytest.mark.parametrize(
    ("entry", "lost"),
    [
        (_entry("attempt", "b", state="running", at="now"), "claimed"),
        (_entry("attempt", "a", state="ended", at="now"), ""),
        (_entry("seal", **Seal(at="now", ends={}).as_dict()), "sealed"),
        (_entry("desired", desired="run"), ""),
        ((b"shop2/seal", ledger.encode({})), ""),
    ],
)
def test_claim_or_seal_ends_the_lease_for_good(entry, lost):
    clock = Clock()
    tail = Tail(clock)
    tail.looks = [[entry], []]
    lease = _lease(clock, tail)
    assert _run(lease.renew()) == [entry]
    _run(lease.renew())
    assert (lost in lease.lost, lease.holds) == (True, not lost)


def test_held_partition_takes_young_records_only_until_the_hold_is_over():
    clock = Clock()
    hold = Hold({TP: 40.0, OTHER: 0.0}, 1_000, clock=clock, wall_ms=lambda: 50_000)
    assert [hold.forbids(TP, at) for at in (48_999, 49_000, 60_000, -1)] == [True, False, False, True]
    assert not hold.forbids(OTHER, -1)
    clock.now += 39.9
    assert hold.forbids(TP, -1)
    clock.now += 0.1
    assert not hold.forbids(TP, -1)


def test_nobody_knows_how_long_brokers_remember_so_nothing_is_taken():
    assert Hold({TP: 1.0}, None, clock=Clock()).forbids(TP, 2**62)


# -- the driver's side ----------------------------------------------------------------------------------------


class Run:
    """One run's claims, on state that all runs share."""

    def __init__(self, store: MemoryStore, clock: Clock, memory_ms: int | None = DAY_MS) -> None:
        self.link = LinkState("shop", store, None, None)
        self.told: list[str] = []
        self.attempts = Attempts(self.link, None, LIMITS, self.told.append, clock=clock)  # type: ignore[arg-type]
        self.attempts._memory_ms, self.attempts._memory_known = memory_ms, True
        self.attempts.claim()
        self.attempts.hold([TP])


def test_first_run_and_one_after_a_clean_end_hold_nothing():
    store, clock = MemoryStore(), Clock()
    first = Run(store, clock)
    assert (first.attempts.hold_seconds(TP), first.attempts.young_ms()) == (0.0, None)
    first.attempts.ended()
    assert Run(store, clock).attempts.hold_seconds(TP) == 0.0


def test_run_after_one_that_died_holds_for_its_lease_and_what_it_sent_last():
    store, clock = MemoryStore(), Clock()
    Run(store, clock)
    second = Run(store, clock)
    assert second.attempts.hold_seconds(TP) == UNSEEN
    assert second.attempts.young_ms() == DAY_MS // 2 - 1000 * UNSEEN
    assert f"{UNSEEN:g} s" in second.told[0]
    clock.now += UNSEEN - 1
    second.attempts.ended()  # but the one before may still be alive
    assert Run(store, clock).attempts.hold_seconds(TP) == UNSEEN


def test_earlier_run_that_says_it_has_ended_only_after_the_claim_is_held_no_longer():
    store, clock = MemoryStore(), Clock()
    first = Run(store, clock)
    second = Run(store, clock)
    with pytest.raises(TakenOver):
        first.attempts.check()
    first.attempts.ended()
    second.attempts.check()
    assert second.attempts.hold_seconds(TP) == 0.0


def test_dead_attempts_are_forgotten_once_they_are_certainly_dead():
    store, clock = MemoryStore(), Clock()
    Run(store, clock)
    second = Run(store, clock)
    clock.now += UNSEEN + 1
    second.attempts.ended()
    assert second.link.attempts() == {second.attempts.name: False}


def test_lost_epoch_is_held_like_a_dead_run_and_closed_connections_for_less():
    store, clock = MemoryStore(), Clock()
    run = Run(store, clock)
    run.attempts.closed({OTHER: 0.0})
    run.attempts.hold([OTHER])
    assert (run.attempts.hold_seconds(OTHER), run.attempts.hold_seconds(TP)) == (5.0, 0.0)
    run.attempts.lost(7, [TP, OTHER])
    run.attempts.hold([TP, OTHER])
    assert run.attempts.hold_seconds(OTHER) == UNSEEN
    run.attempts.ended()  # its own tasks may be alive: it cannot know
    assert run.link.attempts() == {run.attempts.name: True}


@pytest.mark.parametrize("memory", [None, 60_000])
def test_memory_that_is_unknown_or_short_lets_no_record_through(memory):
    store, clock = MemoryStore(), Clock()
    Run(store, clock)
    assert Run(store, clock, memory).attempts.young_ms() is None


def test_of_two_that_claim_at_the_same_time_one_goes_on():
    store, clock = MemoryStore(), Clock()
    slow = LinkState("shop", store, None, None)
    attempts = Attempts(slow, None, LIMITS, lambda _text: None, clock=clock)  # type: ignore[arg-type]
    real = slow.claim

    def claim(attempt: str, *, at: str) -> None:
        real(attempt, at=at)
        Run(store, clock)

    slow.claim = claim  # type: ignore[method-assign]
    with pytest.raises(TakenOver):
        attempts.claim()


def test_sealed_link_is_neither_claimed_nor_gone_on_with():
    store, clock = MemoryStore(), Clock()
    run = Run(store, clock)
    run.link.record_seal(Seal(at="noon", ends={}))
    with pytest.raises(Refused, match="sealed at noon"):
        run.attempts.check()
    with pytest.raises(Refused, match="--unseal"):
        Run(store, clock)
    run.link.unseal()
    run.attempts.check()


def test_halt_of_an_earlier_target_topic_is_void_once_another_is_pinned():
    from kafka_migration.state.link import LinkTopic

    link = LinkState("shop", MemoryStore(), None, None)
    ids = [uuid.UUID(int=n) for n in (1, 2, 3)]
    link.pin(
        source_cluster="s", target_cluster="t", topics=[LinkTopic(name="t", source_id=ids[0], target_id=ids[1])], at=""
    )
    link.halt(TP, "REFUSED", "", 1, 2, "")
    assert link.halted() == {TP}
    link.pin_again([LinkTopic(name="t", source_id=ids[0], target_id=ids[2])], at="")
    assert link.halted() == set()
    link.halt(TP, "REFUSED", "", 1, 2, "")
    assert link.halted() == {TP}


def test_lease_says_for_how_long_it_has_lapsed():
    clock = Clock()
    tail = Tail(clock)
    lease = _lease(clock, tail)
    clock.now += 12
    assert lease.lapsed_seconds == 2, "it could have been there after the first look"
    _run(lease.renew())
    clock.now += 9
    assert lease.lapsed_seconds == 0
    tail.looks = [None]
    _run(lease.renew())
    clock.now += 4
    assert lease.lapsed_seconds == 3
