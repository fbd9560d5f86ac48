"""Each way in, once on each side, through a whole migration by commands; `make security-matrix` has all pairs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.guarded import TokenEndpoint
from tests.modes.clusters import MODES, Secured, authority_in, secured
from tests.modes.migration import Migration


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Secured, Secured]]:
    endpoint, authority = TokenEndpoint(), authority_in(tmp_path_factory.mktemp("modes"))
    try:
        with (
            secured("source", authority, endpoint) as source,
            secured("target", authority, endpoint) as target,
        ):
            yield source, target
    finally:
        endpoint.close()


# What stays in `make test`: each client with each mechanism (tests/kafka/test_guarded.py), a mirror behind locks
# (test_guarded_mirror.py).
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("source", "target"), list(zip(MODES, (*MODES[1:], MODES[0]), strict=True)))
def test_migration_by_two_ways_in_copies_compares_and_moves(
    clusters: tuple[Secured, Secured], source: str, target: str, tmp_path: Path
) -> None:
    assert Migration(*clusters, (source, target), tmp_path).problem() == ""
