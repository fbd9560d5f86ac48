"""How many cores a mirror asks a standalone master for, which gives an application all that it has."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pyspark
import pytest
from pyspark.sql import SparkSession

from kafka_migration.copy import session


@pytest.fixture
def stated() -> dict[str, str]:
    """What spark-submit, or spark-defaults.conf, has set."""
    return {}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, stated: dict[str, str]) -> dict[str, str]:
    """What the session is built with."""
    found: dict[str, str] = {}

    class Builder:
        def config(self, key: str, value: str) -> "Builder":
            found[key] = value
            return self

        def __getattr__(self, _name: str) -> Any:
            return lambda *_: self

        def getOrCreate(self) -> Any:  # noqa: N802
            return MagicMock()

    monkeypatch.setattr(SparkSession, "builder", Builder())
    monkeypatch.setattr(pyspark.SparkContext, "_ensure_initialized", lambda: None)
    monkeypatch.setattr(
        pyspark, "SparkConf", lambda: SimpleNamespace(get=lambda key, other=None: stated.get(key, other))
    )
    monkeypatch.setattr(session, "ship", lambda _context: None)
    return found


def test_mirror_takes_no_more_cores_of_a_standalone_master_than_it_has_streams(asked: dict[str, str]) -> None:
    session.open_session("mirror", master="spark://master:7077", cores=3, log=lambda _: None)
    assert asked["spark.cores.max"] == "3"


def test_what_was_set_for_the_application_goes_before(asked: dict[str, str], stated: dict[str, str]) -> None:
    stated["spark.cores.max"] = "8"
    session.open_session("mirror", master="spark://master:7077", cores=3, log=lambda _: None)
    assert asked["spark.cores.max"] == "8"


@pytest.mark.parametrize("master", ["local[2]", "yarn", "k8s://https://cluster"])
def test_other_masters_are_not_asked_so(asked: dict[str, str], master: str) -> None:
    session.open_session("mirror", master=master, cores=3, log=lambda _: None)
    assert "spark.cores.max" not in asked
