"""The cluster in memory has the face of the real one; that it behaves alike is shown by the contract suite."""

from __future__ import annotations

import inspect

from kafka_migration.kafka.cluster import Cluster
from tests.fakes.cluster import FakeCluster


def test_fake_has_every_method_with_the_same_parameters() -> None:
    for name, method in inspect.getmembers(Cluster, inspect.isfunction):
        if not name.startswith("_"):
            theirs = inspect.signature(method).parameters
            ours = inspect.signature(getattr(FakeCluster, name)).parameters
            assert list(ours.values()) == list(theirs.values()), name
