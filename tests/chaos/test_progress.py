"""What counts as progress."""

from tests.chaos.progress import Progress, Stalls


class Target:
    def __init__(self) -> None:
        self.now = 100.0
        self.ends = {("t", 0): 10, ("t", 1): 10}

    def clock(self) -> float:
        return self.now


def test_growth_by_records_is_progress_and_ages():
    target = Target()
    progress = Progress(lambda: dict(target.ends), clock=target.clock)
    progress.look()
    assert progress.age == float("inf")
    target.now, target.ends["t", 0] = 101.0, 60
    progress.look()
    target.now = 103.5
    progress.look()
    assert (progress.age, progress.offsets) == (2.5, 70)


def test_markers_of_a_fence_are_none():
    target = Target()
    progress = Progress(lambda: dict(target.ends), clock=target.clock)
    progress.look()
    target.ends = {place: end + 1 for place, end in target.ends.items()}
    progress.look()
    assert progress.age == float("inf")


def test_partition_whose_broker_does_not_answer_neither_grows_nor_shrinks():
    target = Target()
    progress = Progress(lambda: dict(target.ends), clock=target.clock)
    progress.look()
    end = target.ends.pop(("t", 1))
    progress.look()
    target.ends["t", 1] = end
    progress.look()
    assert (progress.age, progress.offsets) == (float("inf"), 20)


def test_answer_that_comes_late_is_as_old_as_its_question():
    target = Target()

    def slowly() -> dict[tuple[str, int], int]:
        target.now += 2.0
        return dict(target.ends)

    progress = Progress(slowly, clock=target.clock)
    progress.look()
    target.ends["t", 0] = 1_000
    progress.look()
    assert progress.age == 2.0


def test_partition_stands_from_when_its_source_grew_and_its_target_did_not() -> None:
    target = Target()
    source = dict(target.ends)
    stalls = Stalls(lambda: dict(source), lambda: dict(target.ends), target.ends, clock=target.clock)
    stalls.look()
    target.now = 110.0
    stalls.look()
    assert stalls.longest == 0.0, "nothing was to be copied"
    source["t", 1] = 20
    stalls.look()
    target.now = 113.0
    stalls.look()
    assert (stalls.longest, stalls.place) == (3.0, ("t", 1))
    target.ends["t", 1] = 20
    stalls.look()
    target.now = 140.0
    stalls.look()
    assert stalls.longest == 3.0, "all is copied"


def test_partition_that_is_copied_slowly_does_not_stand() -> None:
    target = Target()
    source = dict.fromkeys(target.ends, 1000)
    stalls = Stalls(lambda: dict(source), lambda: dict(target.ends), target.ends, clock=target.clock)
    for _ in range(50):
        stalls.look()
        target.now += 0.2
        target.ends = {place: end + 1 for place, end in target.ends.items()}
        source["t", 0] += 10
    assert stalls.longest <= 0.2


def test_partitions_are_steady_once_each_was_seen_to_grow_and_none_stands() -> None:
    target = Target()
    source = dict.fromkeys(target.ends, 1000)
    stalls = Stalls(lambda: dict(source), lambda: dict(target.ends), target.ends, clock=target.clock)
    stalls.look()
    assert not stalls.is_steady(1.5), "one look shows no growth"
    target.ends["t", 0] += 1
    stalls.look()
    assert not stalls.is_steady(1.5), "the other one may stand"
    target.now, target.ends["t", 1] = target.now + 1, 20
    stalls.look()
    assert stalls.is_steady(1.5)
    source["t", 1] += 1
    stalls.look()
    target.now += 2
    stalls.look()
    assert not stalls.is_steady(1.5)
