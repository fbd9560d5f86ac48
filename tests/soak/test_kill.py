"""A short version of `make kill-test`: one kill of each kind."""

import pytest

from tests.soak.kill import VICTIMS, run


@pytest.mark.timeout(600)  # two clusters of its own, and three starts of Spark
def test_mirror_killed_as_driver_worker_and_jvm_copies_every_record_once_in_order(tmp_path):
    result = run(records=200_000, kills=len(VICTIMS), seed=20_261, throttle=2_500_000, folder=tmp_path)
    assert result["killed"] == dict.fromkeys(VICTIMS, 1)
    assert result["records"] == 200_000 - (10 + 11 + 12 + 13), "all but those deleted before the copy"
