"""A short version of `make adopt-check`, and what it is judged by."""

import pytest

from tests.soak.adopt import Record, faults, is_good, run

GOOD = {
    "missing_seen": 3,
    "missing_found": 3,
    "doubled_seen": 2,
    "doubled_found": 2,
    "aborted_seen": 1,
    "aborted_found": 1,
    "agrees": True,
    "verdict": "EQUAL",
    "mistranslated": 0,
    "recopied": 0,
}


@pytest.mark.soak
@pytest.mark.timeout(1500)  # two starts of MirrorMaker 2, two of Spark
def test_copy_of_a_mirrormaker_that_was_killed_is_taken_over(source_cluster, target_cluster, tmp_path, monkeypatch):
    # MirrorMaker 2 names a garbage collector of its own.
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    result = run(source, target, records=10_000, commits=100, seed=20_263, folder=tmp_path, kills=1)
    assert is_good(result), result


@pytest.mark.parametrize(
    "wrong",
    [
        {"missing_found": 2},
        {"doubled_found": 3},
        {"missing_seen": 0, "missing_found": 0},
        {"doubled_seen": 0, "doubled_found": 0},
        {"aborted_seen": 0, "aborted_found": 0},
        {"aborted_found": 2},
        {"agrees": False},
        {"verdict": "DIFFERENT"},
        {"mistranslated": 1},
        {"recopied": 1},
    ],
)
def test_check_passes_only_if_both_found_the_same_and_nothing_was_copied_twice(wrong):
    assert is_good(GOOD)
    assert not is_good(GOOD | wrong)


def test_reader_finds_by_ids_what_is_missing_doubled_and_foreign():
    def records(ids: str) -> list[Record]:
        return [Record(at, unique.encode(), None, b"", 0, ()) for at, unique in enumerate(ids)]

    place = ("t", 0)
    found = faults({place: records("abcdefgh")}, {place: records("abdbxfax")})
    assert found.missing == {(place, 2), (place, 4)}
    assert found.doubled == {(place, 3), (place, 6)}
    assert found.foreign == {(place, 4), (place, 7)}
    assert found.copied == {"t": 4}
