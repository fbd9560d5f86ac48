"""What a task may send now: nothing while paused, its share of the throttle otherwise."""

from kafka_migration.copy.rate_limit import RateDebt, RateLimit


class Seconds:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_closed_valve_lets_nothing_through_and_an_open_one_without_a_rate_all():
    assert RateLimit(is_paused=True, bytes_per_second=None).room(8_000) == 0
    assert RateLimit(is_paused=False, bytes_per_second=None).room(8_000) == 8_000


def test_bytes_over_time_are_the_rate_though_batches_are_larger_than_the_burst():
    clock = Seconds()
    rate_limit = RateLimit(is_paused=False, bytes_per_second=1_000, clock=clock)
    sent = 0
    for _ in range(1_000):
        clock.now += 0.1
        if rate_limit.room(10_000):
            rate_limit.spend(700)
            sent += 700
    assert 98_000 <= sent <= 101_000


def test_what_was_not_used_is_kept_for_a_moment_only():
    clock = Seconds()
    rate_limit = RateLimit(is_paused=False, bytes_per_second=1_000, clock=clock)
    clock.now += 3_600
    assert rate_limit.room(10_000) == 250


def test_new_rate_forgets_the_debt_of_the_old_one_and_gives_nothing_in_advance():
    clock = Seconds()
    rate_limit = RateLimit(is_paused=False, bytes_per_second=10, clock=clock)
    rate_limit.spend(1_000_000)
    rate_limit.set_rate(1_000)
    assert rate_limit.room(10_000) == 0
    clock.now += 0.125
    assert rate_limit.room(10_000) == 125
    rate_limit.set_rate(None)
    assert rate_limit.room(10_000) == 10_000


def test_bytes_that_came_back_may_be_sent_again():
    clock = Seconds()
    rate_limit = RateLimit(is_paused=False, bytes_per_second=1_000, clock=clock)
    clock.now += 0.2
    rate_limit.spend(200)
    assert rate_limit.room(10_000) == 0
    rate_limit.spend(-200)
    assert rate_limit.room(10_000) == 200


def test_epochs_one_after_the_other_keep_the_rate_though_a_batch_takes_longer_than_one():
    clock = Seconds()
    debt, sent = RateDebt(clock), 0
    for _ in range(100):
        rate_limit = RateLimit(is_paused=False, bytes_per_second=1_000, owed=debt.now(1_000), clock=clock)
        for _ in range(150):
            clock.now += 0.1
            if rate_limit.room(1_000_000):
                rate_limit.spend(262_144)
                debt.add(262_144)
                sent += 262_144
    assert sent <= 1_500 * 1_000 + 262_144


def test_debt_is_forgiven_with_the_throttle():
    clock = Seconds()
    debt = RateDebt(clock)
    assert debt.now(1_000) == 0
    debt.add(100_000)
    clock.now += 40
    assert debt.now(1_000) == 60_000
    assert debt.now(2_000) == 0
    debt.add(100_000)
    assert debt.now(None) == 0
