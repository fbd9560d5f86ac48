"""A demo in which too little happened says so, and one in which records went missing which."""

from pathlib import Path

import pytest

from checker.reading import read
from checker.recorder import Recorder
from demo.clients.groups import GROUPS
from demo.judging import judge, lowest_rate, shortfalls
from demo.notes import RunDirectory

MILLISECOND_NS = 1_000_000


class MadeUpRun:
    """Notes of a run that never happened, on a clock that the test sets."""

    def __init__(self, directory: Path) -> None:
        self.run = RunDirectory(directory)
        self.now_ns = 1_000_000_000_000

    def _recorder(self, path: Path, client: str, **options: object) -> Recorder:
        now = lambda: self.now_ns  # noqa: E731
        return Recorder(path, client=client, clock="c", wall=now, mono=now, **options)  # type: ignore[arg-type]

    def produce(self, *steps: tuple[int, int], producer: str = "producer-1") -> None:
        """So many records, each so many milliseconds after the one before, at offsets from 0 on."""
        path = self.run.producer_notes(producer)
        recorder = self._recorder(path, producer, cluster="source", kind="idempotent")
        offset = 0
        for count, milliseconds in steps:
            for _ in range(count):
                self.now_ns += milliseconds * MILLISECOND_NS
                seq = recorder.send(f"{producer}-{offset}", "demo.made-up", partition=0)
                recorder.ack(seq, 0, offset)
                offset += 1
        recorder.close()

    def consume(self, offsets: range, *, cluster: str, group: str = "demo.behind") -> None:
        """Receipts of producer-1's records, in order."""
        path = self.run.notes / f"{group}-{cluster}.jsonl"
        recorder = self._recorder(path, f"{group} {cluster}", cluster=cluster, group=group)
        for offset in offsets:
            recorder.receipt("demo.made-up", 0, offset, f"producer-1-{offset}")
        recorder.close()

    def lowest(self) -> float | None:
        return lowest_rate(read(self.run.notes), window_seconds=1)


@pytest.fixture
def run(tmp_path: Path) -> MadeUpRun:
    return MadeUpRun(tmp_path / "run")


def test_steady_producers_have_their_rate(run: MadeUpRun) -> None:
    run.produce((4002, 1))
    assert run.lowest() == pytest.approx(1000, abs=1)


def test_pause_of_a_producer_shows_as_the_lowest_rate(run: MadeUpRun) -> None:
    run.produce((3000, 1), (10, 200), (2000, 1))
    lowest = run.lowest()
    assert lowest is not None
    assert lowest < 10


def test_preload_does_not_count_as_live_production(run: MadeUpRun) -> None:
    run.produce((5000, 1), producer="preload-1")
    assert run.lowest() is None


def test_account_counts_receipts_by_group_and_cluster_and_has_the_verdict(run: MadeUpRun) -> None:
    run.produce((10, 1))
    run.consume(range(4), cluster="source")
    run.consume(range(5, 10), cluster="target")
    found = judge(run.run.notes)
    assert found.account["groups"] == {"demo.behind": {"records_processed": 9, "on_source": 4, "on_target": 5}}
    sums = {name: found.account[name] for name in ("records_produced", "records_processed", "records_lost")}
    assert sums == {"records_produced": 10, "records_processed": 9, "records_lost": 1}
    assert found.account["records_processed_twice"] == found.account["order_violations"] == 0
    assert found.account["judge"]["lost"] == 1
    assert found.found.startswith("1 lost; 'producer-1-4'")
    # 5 is the next record on the target: the group moved within no time of this clock.
    assert found.account["pauses_ms"]["consumers"]["max"] == 0.0


def test_demo_in_which_little_happened_names_each_shortfall(run: MadeUpRun) -> None:
    run.produce((2990, 20))
    run.consume(range(2990), cluster="source")
    counts = {"groups": {group.name: {"on_source": 9_999, "on_target": 5_000} for group in GROUPS}}
    found = "\n".join(shortfalls(read(run.run.notes), counts))
    for part in ("fewer than 8 topics", "no topic holds 1000000", "below 1000", "demo.behind processed 9999"):
        assert part in found
    assert "on_target" not in found
    assert "demo.stopped" not in found


def test_production_too_short_for_a_rate_and_a_group_that_never_moved_are_shortfalls(run: MadeUpRun) -> None:
    run.produce((2990, 1))
    run.consume(range(2990), cluster="source")
    run.run.write_owed({"demo.behind": {"demo.made-up": [0]}})
    found = "\n".join(judge(run.run.notes).shortfalls)
    assert "less than 10 s" in found
    assert "log starts at offset 0" in found
    assert "demo.behind processed 0 records on_target" in found
