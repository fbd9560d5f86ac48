"""Real clusters for the whole run, started when the first test asks for them."""

import gc
import json
import os
import signal
from collections import deque
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from demo import class_archives
from demo.brokers import EmbeddedKafka
from kafka_migration.kafka.lookup import variable_of
from kafka_migration.plans.places import APPROVALS_CONNECTION
from tests import bytecode
from tests.losing import put_back
from tests.shared import Run, SharedCluster, shared_cluster

_FOLDER = "folder_of_shared_clusters"
#: Fixtures of the whole run, those of one worker, and the files that take a minute or more.
_SHARED = frozenset({"source_cluster", "target_cluster", "compacting"})
_OWN = frozenset({"spark", "three", "forgetful", "remembering", "guarded"})
_LONGEST = (
    "dags/test_migration",
    "modes/test_modes",
    "compare/test_reruns",
    "cli/test_run",
    "cli/test_migration",
    "steps/test_switch_on_brokers",
    "copy/test_spark",
    "compare/test_differences",
    "kafka/test_guarded_spark",
    "cli/test_old_clusters",
    "cli/test_renamed",
    "soak/test_adopt",
    "cli/test_topologies",
    "steps/test_permissions",
    "chaos/test_round",
    "mutation/test_short",
    "soak/test_kill",
)
_ALONE_TURN = len(_LONGEST) + 3
"""Of tests without brokers. In between are those that wait most of the time."""
_BESIDE_LONG = 12
_RUN = pytest.StashKey[Run]()
#: Every test that was collected, and whether `make test` leaves it out.
COLLECTED = pytest.StashKey[list[tuple[str, bool]]]()


def pytest_configure(config: pytest.Config) -> None:
    """A shell starts background jobs with SIGINT ignored, and processes inherit that: tests of Ctrl-C would wait.

    JVMs live for seconds or idle in tests: to optimize their code takes longer than it saves, and a second collector's
    threads have nothing to do.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if gone := [name for name in _LONGEST if not (Path(__file__).parent / f"{name}.py").exists()]:
        raise pytest.UsageError(f"tests/conftest.py begins with the longest files; these have other names now: {gone}")
    # Answers are signed, in this process and in those that tests start.
    os.environ[variable_of(APPROVALS_CONNECTION)] = json.dumps(
        {"conn_type": "generic", "password": "a key of the tests: " * 2}
    )
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(class_archives.of_spark().options()))
    if not hasattr(config, "workerinput"):
        config.stash[_RUN] = Run()
        if config.getoption("numprocesses", None):
            bytecode.write(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    """The shared clusters end with the process that hands out the tests."""
    if _RUN in config.stash:
        config.stash[_RUN].end()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker is shown where the clusters are."""
    node.workerinput[_FOLDER] = str(node.config.stash[_RUN].folder)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays until the end: to look through hundreds of thousands of objects for garbage, again and
    again, takes a third of the time of collecting and a tenth of that of tests in memory. To look after every 700 new
    ones takes another eighth."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What workers get, in this order.

    What cannot be shared starts once: its tests go to one worker, as do those of a file with a fixture for all of
    them. Tests on the shared clusters alone go to whoever is free.

    Longest first; and beside each of the longest, which keep a core busy, many of those that wait most of the time, for
    leases, elections and ends.
    """
    # Before any is deselected.
    config.stash[COLLECTED] = [(item.nodeid, any(map(item.get_closest_marker, ("long", "soak")))) for item in items]
    together: dict[str, list[pytest.Item]] = {}
    turns: dict[str, int] = {}
    for item in items:
        group, turn = _place(item)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
        scope = group or item.nodeid
        together.setdefault(scope, []).append(item)
        turns[scope] = min(turns.get(scope, turn), turn)
    order = sorted(together, key=turns.__getitem__)
    waiting = deque(scope for scope in order if len(_LONGEST) <= turns[scope] < _ALONE_TURN)
    mixed: list[str] = []
    for scope in order:
        beside = _BESIDE_LONG if turns[scope] < len(_LONGEST) else 1
        if not len(_LONGEST) <= turns[scope] < _ALONE_TURN:
            mixed += [scope, *(waiting.popleft() for _ in range(beside) if waiting)]
    items[:] = [item for scope in (*mixed, *waiting) for item in together[scope]]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """What only some tests need ends with the last of them, and not with the run: three idle brokers take a tenth of a
    core."""
    yield
    if isinstance(item, pytest.Function):
        kept = _own(nextitem) if nextitem is not None else []
        for name in _own(item):
            if name not in kept:
                item._fixtureinfo.name2fixturedefs[name][-1].finish(item._request)  # type: ignore[arg-type]


def _own(item: pytest.Item) -> list[str]:
    """Fixtures of one worker that a test needs."""
    found = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    return sorted(name for name in _OWN & found.keys() if found[name][-1].scope == "session")


def _place(item: pytest.Item) -> tuple[str | None, int]:
    """The group of tests with which one has to be together, and when its turn is."""
    file = item.nodeid.partition("::")[0].removeprefix("tests/").removesuffix(".py")
    found = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    scopes = {name: definitions[-1].scope for name, definitions in found.items()}
    params, indices = (item.callspec.params, item.callspec.indices) if hasattr(item, "callspec") else ({}, {})
    own = _own(item)
    of_file = sorted(name for name, scope in scopes.items() if scope in ("module", "class"))
    # Worlds that are tried in memory, too, ask for their clusters when they are made.
    on_shared = bool(_SHARED & scopes.keys()) or "real" in params.values()
    if own:
        group: str | None = own[0]
    elif of_file or not on_shared:
        # Of a fixture with parameters there is one for each: another release of Kafka, another level of validation.
        group = "-".join([file, *(str(indices[name]) for name in of_file if name in indices)])
    else:
        group = None
    if file in _LONGEST:
        return group, _LONGEST.index(file)
    if own:
        return group, len(_LONGEST)
    return group, _ALONE_TURN if not on_shared else _ALONE_TURN - (2 if file.startswith("copy/") else 1)


def _shared(config: pytest.Config, name: str) -> SharedCluster:
    folder = config.workerinput[_FOLDER] if hasattr(config, "workerinput") else config.stash[_RUN].folder
    return shared_cluster(Path(folder), name)


@pytest.fixture(scope="session")
def source_cluster(pytestconfig: pytest.Config) -> SharedCluster:
    """A running single-node cluster to migrate from; tests share it, so each names topics and groups of its own."""
    return _shared(pytestconfig, "source")


@pytest.fixture(scope="session")
def target_cluster(pytestconfig: pytest.Config) -> SharedCluster:
    """A running single-node cluster to migrate to; tests share it, so each names topics and groups of its own."""
    return _shared(pytestconfig, "target")


@pytest.fixture(scope="session")
def compacting(pytestconfig: pytest.Config) -> SharedCluster:
    """A cluster whose cleaner looks for work five times a second."""
    return _shared(pytestconfig, "compacting")


@pytest.fixture(scope="session")
def three() -> Iterator[EmbeddedKafka]:
    """Three brokers, which forget producers of old records soon, and notice a dead broker soon."""
    properties = {
        "producer.id.expiration.ms": "30000",
        "producer.id.expiration.check.interval.ms": "200",
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }
    with EmbeddedKafka(name="three", nodes=3, properties=properties, heap_megabytes=384) as cluster:
        yield cluster


@pytest.fixture
def lossy(three: EmbeddedKafka) -> Iterator[EmbeddedKafka]:
    """The three brokers, all of which are there again after the test."""
    yield three
    put_back(three)
