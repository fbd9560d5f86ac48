"""Every mutating request of the product is a point of the matrix, or named with what shows it: nothing is left out."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka.protocol.api_key import ApiKey

import kafka_migration
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.topic_log import TopicLog
from kafka_migration.state.store import Store
from tests.crash import boundary
from tests.crash.matrix import undisturbed
from tests.crash.scenarios import SCENARIOS
from tests.crash.wire import READS

PACKAGE = Path(kafka_migration.__file__).parent
#: The libraries through which brokers are reached.
_CLIENTS = ("confluent_kafka", "kafka")


def _methods(of: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(of, callable) if not name.startswith("_")}


def test_every_method_of_a_cluster_a_store_and_a_log_is_known_as_a_read_or_a_write() -> None:
    assert _methods(Cluster) == boundary.CLUSTER_READS | boundary.CLUSTER_WRITES | boundary.CLUSTER_OTHERS
    assert _methods(Store) == boundary.STORE_READS | boundary.STORE_WRITES
    assert _methods(TopicLog) == boundary.LOG_READS | boundary.LOG_WRITES


def _imports(tree: ast.AST) -> set[str]:
    """The top packages that a module imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
    return found


def _requests(tree: ast.AST) -> set[str]:
    """Requests of kafka-python that a module imports or declares."""
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kafka.")
        for alias in node.names
    }
    declared = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(getattr(base, "id", "") == "ApiMessage" for base in node.bases)
    }
    return {name for name in imported | declared if name.endswith("Request")}


def _calls(tree: ast.AST, names: set[str]) -> set[str]:
    return {
        node.func.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in names
    }


def test_every_request_that_changes_something_is_recorded_or_named_with_what_shows_it() -> None:
    writes = set().union(*map(_methods, (AdminClient, Producer, Consumer))) - boundary.CLIENT_READS
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(PACKAGE.rglob("*.py")):
        tree, module = ast.parse(path.read_text(encoding="utf-8")), path.relative_to(PACKAGE).as_posix()
        if not _imports(tree) & {*_CLIENTS}:
            continue
        found[module] |= _requests(tree) - boundary.REQUEST_READS
        if "confluent_kafka" in _imports(tree):
            found[module] |= _calls(tree, writes)
    assert {module: names for module, names in found.items() if names} == {
        module: {*names} for module, names in boundary.CLIENT_WRITES.items()
    }


def test_every_hook_is_run_by_the_function_that_is_recorded() -> None:
    for name, modules in boundary.HOOKS.items():
        found = set()
        for path in PACKAGE.rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if any(isinstance(n, ast.Call) and getattr(n.func, "id", "") == name for n in ast.walk(tree)):
                found.add(path.relative_to(PACKAGE).as_posix())
        assert found == modules


def test_every_write_of_the_boundary_is_a_point_of_some_scenario() -> None:
    changes = [change for scenario in SCENARIOS for change in undisturbed(scenario).changes]
    made = {change.partition(": ")[2].split(" ")[0] for change in changes}
    # By the mirror alone, which is no command here: what dies there is tests/steps/test_growth.py's. By `access` alone,
    # which is beside the migration: tests/steps/test_access.py's.
    assert boundary.CLUSTER_WRITES - made == {"create_partitions", "alter_quotas", "alter_scram_users"}
    named = {as_what for names in boundary.CLIENT_WRITES.values() for as_what in names.values()}
    on_wire = {as_what for as_what in named if "." not in as_what and not as_what.startswith("not here")}
    assert on_wire == {"InitProducerId", "AddPartitionsToTxn", "EndTxn"}
    assert on_wire <= made


def test_what_counts_as_a_change_on_the_wire_is_recorded_in_memory() -> None:
    names = {key.name for key in ApiKey}
    assert boundary.ON_WIRE.keys() <= names - {key.name for key in READS}
    recorded = {as_what for names in boundary.CLIENT_WRITES.values() for as_what in names.values()}
    assert {*boundary.ON_WIRE.values()} <= recorded
