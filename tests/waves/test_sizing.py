"""Waves in numbers, and how long their copy takes against what the source keeps."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from kafka_migration.domain.lag import LagSample
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.facts import Inventory
from kafka_migration.waves import sizing
from kafka_migration.waves.order import Wave, waves_of
from kafka_migration.waves.sizing import ASSUMED_BYTES_PER_SECOND, Eta, WaveSize
from tests.waves.made import given, inventory, plan, topic

GIB = 2**30


def sizes(
    taken: Inventory, monkeypatch: pytest.MonkeyPatch, lag: Iterable[LagSample] = (), **waves: Any
) -> list[WaveSize]:
    """``lag``: two samples of a mirror that runs."""
    samples = tuple(lag)
    monkeypatch.setattr(sizing, "_samples", lambda _ctx: samples or None)
    made = plan(given=given(**waves))

    class Ctx:
        plan = made

    return list(sizing.sizes(Ctx(), waves_of(made, taken), taken))  # type: ignore[arg-type]


def test_wave_is_the_sum_of_its_topics_and_keeps_as_long_as_the_one_that_keeps_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = inventory(
        [
            topic("a", partitions=2, records=50, bytes=1000, records_per_second=3.0),
            topic("b", retention_ms=3_600_000, bytes=500),
            topic("c", retention_ms=-1),
        ],
        {"g": ["a"]},
    )
    first, second = sizes(taken, monkeypatch, first=["a", "b"], second="c")
    assert (first.partitions, first.records, first.bytes, first.records_per_second) == (3, 200, 1500, 3.0)
    assert (first.kept_seconds, first.kept_topic, second.kept_topic) == (3600, "b", "")
    assert (second.is_kept, second.as_dict()["shortest_retention_seconds"]) == (True, None)
    assert sizing.row(first) == ("first", "2", "1", "200", "1.5 KiB", "3", "0 s", "60 min")
    assert sizing.row(second)[-1] == "no end"


def test_assumed_eta_is_between_this_wave_alone_and_everything_and_has_to_be_outlasted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    speed = 2 * ASSUMED_BYTES_PER_SECOND
    # With a margin of a half and ten minutes, 300 s need 1050 s.
    small = topic("small", bytes=100 * speed, retention_ms=1_050_000)
    taken = inventory([small, topic("large", bytes=200 * speed)])
    first, second = sizes(taken, monkeypatch, first="small", second="large")
    assert first.eta == Eta(least=100, most=300, measured=False)
    assert second.eta == Eta(least=200, most=300, measured=False)
    assert (str(first.eta), first.is_kept) == ("100 s - 5 min", True)
    taken = inventory([replace(small, retention_ms=1_049_000), topic("large", bytes=200 * speed)])
    first, _ = sizes(taken, monkeypatch, first="small", second="large")
    assert first.is_kept is False
    assert sizing.row(first)[-1] == "17 min, too short"


def test_topics_that_grow_faster_than_copies_are_never_done(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = topic("fast", records=1000, bytes=GIB, records_per_second=1e6)
    first, second = sizes(inventory([fast, topic("slow", bytes=0)]), monkeypatch, first="fast", second="slow")
    assert (str(first.eta), first.is_kept) == ("never", False)
    assert str(second.eta) == "0 s - never"
    assert second.as_dict()["eta"]["most_seconds"] is None


def test_unknown_bytes_leave_the_eta_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = sizes(inventory([topic("a", bytes=None), "b"]), monkeypatch, first="a", second="b")
    assert (first.bytes, first.eta, first.is_kept, second.eta) == (None, None, None, None)
    assert sizing.row(first)[4:7] == ("unknown", "0", "unknown")


def test_mirror_that_runs_has_an_eta_for_each_wave_by_what_it_copies_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c = (TopicPartition(name, 0) for name in "abc")
    before = LagSample(at=0.0, lag={a: 1000, b: 10, c: 0}, source_ends={a: 1000, b: 1000, c: 5})
    after = LagSample(at=2.0, lag={a: 800, b: 10, c: 0}, source_ends={a: 1000, b: 1000, c: 5})
    found = sizes(inventory("abcd"), monkeypatch, [before, after], one="a", two="b", three="c", four="d")
    assert [None if one.eta is None else str(one.eta) for one in found] == ["8 s", "never", "0 s", None]
    assert all(one.eta.measured for one in found if one.eta)
    assert "as the mirror copies now" in sizing.note(found)


def test_canary_is_marked_by_its_name() -> None:
    wave = Wave(name="first", topics=frozenset())
    assert [sizing.title(w) for w in (wave, replace(wave, canary=True), replace(wave, name=""))] == [
        "first",
        "first (canary)",
        "(all)",
    ]
    assert math.isinf(sizing.copy_seconds(1, 2.0, 2.0))
