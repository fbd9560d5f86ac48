"""docs/conformance.md: every scenario that it names is shown by tests that exist, are collected and never skipped."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.test_behaviours import NAMED, shown_by, skipping
from tests.waiting import HANGS_SECONDS

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "conformance.md"
SUITE = ROOT / "tests" / "conformance"
#: What must stand in each section at least: the scenarios that the peers are known for.
WANTED = {
    "MirrorMaker 2": {
        "testReplication",
        "testReplicationWithEmptyPartition",
        "testOneWayReplicationWithAutoOffsetSync",
        "testOneWayReplicationWithFrequentOffsetSyncs",
        "testNoCheckpointsIfNoRecordsAreMirrored",
        "testRestartReplication",
        "testOffsetTranslationBehindReplicationFlow",
        "testSyncTopicConfigs",
        "testReplicateFromLatest",
        "MirrorConnectorsIntegrationTransactionsTest",
        "OffsetSyncStoreTest.testPastOffsetTranslation",
    },
    "Redpanda's cluster linking": {
        "ShadowLinkingReplicationTests.test_replication_with_failures",
        "ShadowLinkingReplicationTests.test_with_restart",
        "ShadowLinkingReplicationTests.test_replication_with_transactions",
        "ShadowLinkingReplicationTests.test_replication_with_truncated_topic",
        "ShadowLinkingReplicationTests.test_replication_timestamps_match",
        "ShadowLinkingReplicationTests.test_replication_with_compaction",
        "ShadowLinkingReplicationTests.test_replication_with_large_msgs",
        "ShadowLinkCustomStartOffsetSelectionTests.test_starting_offset",
        "ShadowLinkConsumeGroupsMirroringTest.test_continuous_group_sync",
    },
    "Redpanda Migrator": {
        "TestIntegrationGroupsOffsetSync/monotonic",
        "TestIntegrationGroupsOffsetSync/monotonic sub millisecond timestamp",
        "TestIntegrationGroupsOffsetSync/non-monotonic",
        "TestIntegrationGroupsOffsetSync/monotonic truncated",
        "TestIntegrationGroupsOffsetSync/monotonic/6",
        "TestIntegrationGroupsOffsetSync/no rewind dst",
    },
    "Brooklin": {
        "testConfigPauseAndResumePartitions",
        "testAutoPauseOnSendFailure",
        "testDeleteSourceTopic",
    },
}
#: What would keep a test from being run, in a mark or in its body.


def rows_of(text: str) -> dict[str, list[tuple[list[str], str, list[str]]]]:
    """By section, what each row of its table says: the scenarios, the demand, the ids of tests."""
    found: dict[str, list[tuple[list[str], str, list[str]]]] = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        lines = [line for line in body.splitlines() if line.startswith("|")][2:]
        for line in lines:
            scenarios, demand, tests = (cell.strip() for cell in line.strip("|").split("|"))
            ids = [f"{file}::{test}" for file, test in NAMED.findall(tests)]
            found.setdefault(title, []).append((re.findall(r"`([^`]+)`", scenarios), demand, ids))
    return found


ROWS = rows_of(DOCUMENT.read_text(encoding="utf-8"))
IDS = sorted({id_ for rows in ROWS.values() for _, _, ids in rows for id_ in ids})


@cache
def collected() -> frozenset[str]:
    """The ids of all tests, as pytest finds them in the files that the document names; without parameters."""
    files = sorted({id_.partition("::")[0] for id_ in IDS} | {str(SUITE.relative_to(ROOT))})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANGS_SECONDS, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return frozenset(line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line)


@pytest.mark.parametrize("peer", sorted(WANTED))
def test_every_known_scenario_of_a_peer_stands_in_its_table(peer):
    assert WANTED[peer] <= {scenario for scenarios, _, _ in ROWS[peer] for scenario in scenarios}


@pytest.mark.parametrize("peer", sorted(ROWS))
def test_every_row_says_what_is_demanded_and_names_tests_that_exist(peer):
    for scenarios, demand, ids in ROWS[peer]:
        assert scenarios
        assert len(demand) > 10, scenarios
        assert ids, f"{scenarios}: a scenario that no test shows is a wish"
        assert len(set(ids)) == len(ids), f"{scenarios}: a test is named twice"
        missing = [it for it in ids if it.partition("::")[2] not in shown_by(ROOT / it.partition("::")[0])]
        assert not missing


@pytest.mark.timeout(300)
def test_every_test_that_is_named_is_collected_and_none_can_be_skipped():
    assert not set(IDS) - collected()
    found = {file: skipping(ROOT / file) for file in {it.partition("::")[0] for it in IDS}}
    assert {file: names for file, names in found.items() if names} == {}


@pytest.mark.parametrize("file", sorted(SUITE.glob("test_*.py")), ids=lambda file: file.stem)
def test_every_test_of_the_suite_is_named_and_names_its_origin(file):
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in tree.body:
        if not (isinstance(node, ast.FunctionDef) and node.name.startswith("test_")):
            continue
        id_ = f"{file.relative_to(ROOT)}::{node.name}"
        told = " ".join((ast.get_docstring(node) or "").split())
        scenarios = [it for rows in ROWS.values() for names, _, ids in rows if id_ in ids for it in names]
        assert scenarios, f"{id_} stands in no row"
        # A scenario by its own name, without the class or file before it, and without the case after it.
        named = [it for it in scenarios if re.split(r"[.: ]+", it.partition("/")[0])[-1] in told]
        assert named, f"{id_} names none of {scenarios}"


def test_reader_finds_scenarios_demands_and_tests_by_section():
    text = (
        "# Title\n## A peer\nwords\n\n| scenario | demanded | shown |\n|---|---|---|\n"
        "| `one`<br>`two` | all of it | `tests/a.py::test_b`<br>`tests/a.py::TestC::test_d` |\n## Another\n\nnothing\n"
    )
    assert rows_of(text) == {
        "A peer": [(["one", "two"], "all of it", ["tests/a.py::test_b", "tests/a.py::TestC::test_d"])]
    }


def test_reader_of_skips_sees_marks_and_calls(tmp_path):
    file = tmp_path / "test_x.py"
    file.write_text("@pytest.mark.skipif(True, reason='')\ndef test_a():\n    pytest.importorskip('b')\n")
    assert sorted(skipping(file)) == ["importorskip", "skipif"]
