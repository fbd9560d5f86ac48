"""A short version of `make translate-check`."""

import pytest

from tests.soak.translate import is_good, run


@pytest.mark.soak
@pytest.mark.timeout(1500)  # four starts of Spark
def test_random_commits_after_several_fences_translate_to_the_very_records(source_cluster, target_cluster, tmp_path):
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    result = run(source, target, offsets=200, records=30_000, runs=2, seed=20_262, folder=tmp_path, back=True)
    assert result["offsets"] == result["back"]["offsets"] == 200  # type: ignore[index]
    assert is_good(result), result


@pytest.mark.parametrize(("exact", "differ_share", "good"), [(10, 0.9, True), (9, 1.0, False), (10, 0.89, False)])
def test_check_passes_only_if_all_are_exact_and_enough_differ(exact, differ_share, good):
    assert is_good({"offsets": 10, "exact": exact, "differ_share": differ_share}) is good


def test_check_of_both_ways_needs_commits_on_both_sides_of_the_cut():
    way = {"offsets": 10, "exact": 10, "differ_share": 1.0}
    for above, good in ((4, True), (0, False)):
        assert is_good({**way, "back": {**way, "above_the_cut": above, "below_the_cut": 10 - above}}) is good
    assert not is_good({**way, "back": {**way, "exact": 9, "above_the_cut": 4, "below_the_cut": 6}})
