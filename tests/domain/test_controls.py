"""Rates as people write them, and what holds a mirror back as people read it."""

import pytest

from kafka_migration.domain.controls import Controls, Pause, Throttle, parse_rate, rate_text
from kafka_migration.domain.errors import BadInput

AT = "2026-01-02T03:04:05.678+00:00"


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("50MB", 50_000_000),
        ("50 mb/s", 50_000_000),
        ("50M", 50_000_000),
        ("50Mi", 52_428_800),
        ("1.5MiB", 1_572_864),
        ("2GB", 2_000_000_000),
        ("64k", 64_000),
        ("64KiB", 65_536),
        ("4096", 4096),
        ("4096B", 4096),
        ("off", None),
        ("OFF", None),
    ],
)
def test_rate_is_read_with_its_unit(text, rate):
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "-1", "0", "0MB", "50TB", "50X", "1,000", "MB", "0.4", "inf"])
def test_what_is_no_rate_is_refused_with_what_to_write(text):
    with pytest.raises(BadInput) as caught:
        parse_rate(text)
    assert (caught.value.field, caught.value.value) == ("throttle", text)
    assert "50MB" in caught.value.remedy


@pytest.mark.parametrize("text", ["50 MB/s", "1.5 MB/s", "999 B/s", "2 GB/s", "64 kB/s"])
def test_rate_is_told_as_it_may_be_written(text):
    rate = parse_rate(text)
    assert rate is not None
    assert rate_text(rate) == text


def test_controls_tell_who_and_when_and_a_throttle_taken_off_is_none():
    pause, throttle = Pause(by="ada", at=AT, reason="backup"), Throttle(bytes_per_second=5_000, by="bob", at=AT)
    assert Controls(pause=pause, throttle=throttle).describe() == (
        "paused by ada at 2026-01-02 03:04:05 UTC (backup), throttled to 5 kB/s by bob at 2026-01-02 03:04:05 UTC"
    )
    off = Controls(throttle=Throttle(bytes_per_second=None, by="bob", at=AT))
    assert (off.describe(), off.rate(otherwise=7)) == ("", None)
    assert Controls().rate(otherwise=7) == 7
    with pytest.raises(ValueError, match="would be a pause"):
        Throttle(bytes_per_second=0, by="ada", at=AT)
