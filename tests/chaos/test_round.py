"""A short round of the real thing: real processes, real faults, read and compared."""

from pathlib import Path

import pytest

from tests.chaos.notes import Notes
from tests.chaos.run import WRONG, run
from tests.chaos.schedule import Fault, Round
from tests.chaos.topics import DEFAULT

OF_PROCESSES = Round(
    number=1,
    seed=20_263,
    replicas=1,
    faults=(
        Fault(kind="cut_response", side="target", after=0.3, seed=1),
        Fault(kind="kill_worker", side="", after=0.3, seed=2),
        Fault(kind="cut_request", side="source", after=0.3, seed=3),
        Fault(kind="freeze_mirror", side="", after=0.3, seed=4),
    ),
)
# Of brokers that die and leaders that move, `make chaos` plays rounds; tests/copy/test_three_brokers.py has both.


@pytest.mark.soak
@pytest.mark.timeout(1500)  # two clusters of its own, and two starts of Spark
def test_mirror_under_cut_connections_a_killed_worker_and_a_takeover_copies_everything_once_in_order(tmp_path: Path):
    unnoted, it = Notes(None, {}), OF_PROCESSES
    total = run(seed=1, schedule=[it], brokers=1, records=30_000, kinds=DEFAULT, folder=tmp_path, notes=unnoted)
    assert total.faults == {fault.kind: 1 for fault in it.faults}
    found = total.as_dict()
    assert {name: found[name] for name in WRONG} == dict.fromkeys(WRONG, 0)
    assert total.is_good
    assert total.found.records >= 30_000
    assert total.found.translated > 0
