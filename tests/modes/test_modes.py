"""Each way in, on one side or the other (Kerberos on both, too), through a whole migration by commands; every pair of
them is `make security-matrix`: see __main__.py."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.kafka.guarded import TokenEndpoint
from tests.kerberized import KERBEROS_IS_SET_UP, NEEDS_KERBEROS, kdc_for
from tests.modes.clusters import KERBEROS, MODES, Secured, authority_in, secured
from tests.modes.migration import Migration


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Secured, Secured]]:
    endpoint, authority = TokenEndpoint(), authority_in(tmp_path_factory.mktemp("modes"))
    kdc_folder = tmp_path_factory.mktemp("kdc")
    try:
        with (
            kdc_for(kdc_folder) if KERBEROS_IS_SET_UP else nullcontext() as kdc,
            secured("source", authority, endpoint, kdc) as source,
            secured("target", authority, endpoint, kdc) as target,
        ):
            yield source, target
    finally:
        endpoint.close()


# What stays in `make test`: each client with each mechanism (tests/kafka/test_guarded.py), a mirror behind locks
# (test_guarded_mirror.py).
@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("source", "target"),
    [
        pytest.param(*pair, marks=NEEDS_KERBEROS if KERBEROS in pair else ())
        for pair in (*zip(MODES[::2], MODES[1::2], strict=True), (KERBEROS, KERBEROS))
    ],
)
def test_migration_by_two_ways_in_copies_compares_and_moves(
    clusters: tuple[Secured, Secured], source: str, target: str, tmp_path: Path
) -> None:
    assert Migration(*clusters, (source, target), tmp_path).problem() == ""
