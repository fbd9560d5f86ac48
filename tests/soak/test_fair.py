"""A short form of ``make bench-fair``: both loads are measured, and the heavy topic does not stop the small ones.

The bench asks for more than this test, which shares its cores with others.
"""

import json

import pytest

from bench import fair

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]


def test_small_topics_go_on_beside_a_heavy_one_that_is_copied_as_fast(capsys: pytest.CaptureFixture[str]) -> None:
    loads = ["--topics", "20", "--per-second", "200", "--backlog-mb", "3000", "--live-mb-s", "10", "--ratio", "20"]
    times = ["--warm-up", "8", "--heavy-warm-up", "4", "--seconds", "5"]
    assert fair.main([*loads, *times]) == 0
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    for load in ("alone", "backlog", "live", "unmoved"):
        assert figures[f"small_records_{load}"] == pytest.approx(1_000, rel=0.02)
    assert figures["backlog_mb_s"] > 3
    assert figures["live_mb_s"] > 3
    assert 0 < figures["small_p99_ms_alone"] < 5_000
