"""Labs for the contract, and a cluster that lets nobody in without credentials."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka.guarded import Guarded, guarded_cluster
from tests.kafka.labs import FakeLab, Lab, RealLab, RenamedLab
from tests.kerberized import NEEDS_KERBEROS, Kerberized, kdc_for, kerberized_cluster

_BY_KERBEROS = pytest.param("by Kerberos", marks=[NEEDS_KERBEROS, pytest.mark.xdist_group("kerberized")])


@pytest.fixture(params=["fake", "real", "fake, renamed", "real, renamed", _BY_KERBEROS])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A cluster with its users, in memory and real, which the product reaches by Kerberos, too; and on which topics
    have other names."""
    kind = str(request.param).split(", ")
    lab: Lab
    if "fake" in kind:
        lab = FakeLab()
    elif "by Kerberos" in kind:
        cluster: Kerberized = request.getfixturevalue("kerberized")
        lab = RealLab(cluster.kafka.internal_servers, connection=cluster.connection())
    else:
        lab = RealLab(request.getfixturevalue("source_cluster").bootstrap_servers)
    if "renamed" in kind:
        lab = RenamedLab(lab)
    yield lab
    lab.close()


@pytest.fixture
def real_lab(source_cluster: object) -> Iterator[RealLab]:
    """A real cluster with its users."""
    real = RealLab(source_cluster.bootstrap_servers)  # type: ignore[attr-defined]
    yield real
    real.close()


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A cluster behind TLS, credentials and access rules."""
    with (
        pytest.MonkeyPatch.context() as patch,
        guarded_cluster(tmp_path_factory.mktemp("guarded"), patch) as it,
    ):
        yield it


@pytest.fixture(scope="session")
def kerberized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kerberized]:
    """A cluster that asks for tickets."""
    with kdc_for(tmp_path_factory.mktemp("kdc")) as kdc, kerberized_cluster(kdc) as cluster:
        yield cluster
