"""A short form of ``make bench-board``: each page is there, and no cluster is opened for it.

The bench asks for milliseconds; this test, which shares its cores with others, does not.
"""

import json
import subprocess
import sys

import pytest

from demo.jars import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


def test_board_and_page_are_served_without_a_cluster() -> None:
    # A process of its own: it puts Airflow's login aside for good.
    command = [sys.executable, "-m", "bench.board", "--plans", "3", "--partitions", "100", "--groups", "5"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert (figures["plans"], figures["clusters_opened"]) == (3, 0)
    assert 0 < figures["page_first_byte_p95_ms"] <= figures["page_whole_p95_ms"]
