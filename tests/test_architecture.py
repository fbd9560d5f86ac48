"""Who may import whom, and what executors may load: read from the source, so it stays so."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = ROOT / "plugins"
PACKAGE = PLUGINS / "kafka_migration"

#: Which rooms of the library each room may import. Its own it may always; what is not here, it may not.
MAY_IMPORT: dict[str, frozenset[str]] = {
    "domain": frozenset(),
    # Adapters: each knows one thing outside.
    "plans": frozenset({"domain"}),
    "wire": frozenset({"domain"}),
    "kafka": frozenset({"domain"}),
    "state": frozenset({"domain", "kafka"}),
    # What runs on executors.
    "copy": frozenset({"domain", "wire"}),
    "compare": frozenset({"domain"}),
    # What steps are made of, from the inside out.
    "migration": frozenset({"domain", "plans", "kafka", "state"}),
    "topics": frozenset({"domain", "kafka", "state", "migration"}),
    "link": frozenset({"domain", "kafka", "state", "migration", "topics", "copy", "wire"}),
    "fence": frozenset({"domain", "plans", "kafka", "state", "migration", "topics", "link"}),
    "groups": frozenset({"domain", "plans", "kafka", "state", "migration", "topics", "link", "access"}),
    "mirrormaker": frozenset({"domain", "plans", "kafka"}),
    "access": frozenset({"domain", "plans", "kafka", "state", "migration", "fence"}),
    "schemas": frozenset({"domain", "plans", "kafka", "state", "migration"}),
    "positions": frozenset({"domain", "kafka", "migration", "link"}),
    "validation": frozenset({"domain", "kafka", "migration", "topics", "link", "groups", "copy", "compare"}),
    "waves": frozenset({"domain", "plans", "kafka", "migration", "topics", "link"}),
    "inventory": frozenset({"domain", "plans", "kafka", "migration", "topics", "groups", "waves", "fence", "schemas"}),
    "approvals": frozenset(
        {"domain", "plans", "kafka", "state", "migration", "topics", "link", "groups", "validation", "inventory"}
        | {"waves", "fence", "schemas"}
    ),
    "overview": frozenset(
        {"domain", "plans", "migration", "topics", "link", "groups", "validation", "approvals", "fence"}
    ),
    "steps": frozenset(
        {"domain", "plans", "state", "migration", "topics", "link", "groups", "validation", "approvals"}
        | {"copy", "compare", "kafka", "inventory", "waves", "fence", "access", "overview", "schemas"}
    ),
    "metrics": frozenset({"domain", "plans", "migration", "overview"}),
    # Faces of the steps.
    "airflow": frozenset(
        {"domain", "plans", "kafka", "migration", "topics", "link", "groups", "validation", "inventory", "approvals"}
        | {"copy", "overview", "steps", "schemas"}
    ),
    "cli": frozenset(
        {"domain", "plans", "kafka", "migration", "topics", "link", "groups", "validation", "inventory", "approvals"}
        | {"overview", "steps", "positions", "waves", "fence", "mirrormaker", "access", "metrics", "schemas"}
    ),
}
#: Files outside the rooms, and the rooms that they may import.
ENTRANCES: dict[str, frozenset[str]] = {
    "dags": frozenset({"airflow", "plans"}),
    "spark_jobs": frozenset({"steps", "validation", "copy", "compare"}),
    "plugins/kafka_migration/__main__.py": frozenset({"cli"}),
    "plugins/kafka_migration_plugin.py": frozenset({"airflow"}),
}
ON_EXECUTORS = ("domain", "wire", "copy", "compare")
NOT_ON_EXECUTORS = ("airflow", "great_expectations", "confluent_kafka")


def imported(tree: ast.AST, *, only_at_import: bool = False) -> Iterator[str]:
    """Every module that `tree` imports, dotted. `only_at_import` leaves out what functions and type checkers load."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import hides which room it reaches"
            # The name may be a module as well: `from kafka_migration import wire`.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif only_at_import and (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _is_type_checking(node)):
            continue
        else:
            yield from imported(node, only_at_import=only_at_import)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def python_files(*places: Path) -> Iterator[Path]:
    for place in places:
        yield from sorted(place.rglob("*.py")) if place.is_dir() else (place,)


def parsed(files: Iterable[Path]) -> Mapping[Path, ast.AST]:
    return {path: ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in files}


def rooms_of(tree: ast.AST) -> set[str]:
    """The rooms of the library that `tree` imports."""
    parts = [name.split(".") for name in imported(tree)]
    return {it[1] for it in parts if it[0] == "kafka_migration" and len(it) > 1} & set(MAY_IMPORT)


def test_every_room_of_the_library_has_a_rule():
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert rooms == set(MAY_IMPORT)


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_room_imports_only_what_lies_further_in(room):
    allowed = MAY_IMPORT[room] | {room}
    strays = {
        str(path.relative_to(ROOT)): sorted(rooms_of(tree) - allowed)
        for path, tree in parsed(python_files(PACKAGE / room)).items()
    }
    assert not {path: rooms for path, rooms in strays.items() if rooms}


def test_rules_have_no_circle():
    left = dict(MAY_IMPORT)
    while left:
        free = {room for room, needs in left.items() if not needs & set(left)}
        assert free, f"these rooms import each other: {sorted(left)}"
        for room in free:
            del left[room]


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_entrance_imports_only_what_it_stands_before(entrance):
    for path, tree in parsed(python_files(ROOT / entrance)).items():
        assert rooms_of(tree) <= ENTRANCES[entrance], path


@pytest.mark.parametrize("room", ON_EXECUTORS)
def test_room_on_executors_names_no_library_that_they_lack(room):
    for path, tree in parsed(python_files(PACKAGE / room)).items():
        heads = {name.split(".")[0] for name in imported(tree, only_at_import=True)}
        assert not heads & set(NOT_ON_EXECUTORS), path


def test_rooms_on_executors_load_without_the_libraries_that_they_lack():
    modules = [
        ".".join(path.relative_to(PLUGINS).with_suffix("").parts).removesuffix(".__init__")
        for room in ON_EXECUTORS
        for path in python_files(PACKAGE / room)
    ]
    assert len(modules) > len(ON_EXECUTORS)
    load = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", load, *modules],
        env={**os.environ, "PYTHONPATH": str(PLUGINS)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not set(done.stdout.split()) & set(NOT_ON_EXECUTORS)


def test_demo_clients_know_nothing_of_the_library():
    for path, tree in parsed(python_files(ROOT / "demo" / "clients")).items():
        assert not [name for name in imported(tree) if name.split(".")[0] == "kafka_migration"], path


def test_judge_knows_nothing_of_what_it_judges():
    for path, tree in parsed(python_files(ROOT / "checker")).items():
        heads = {name.split(".")[0] for name in imported(tree)}
        assert not heads & {"kafka_migration", "demo", "bench", "tests", "confluent_kafka", "kafka", "airflow"}, path


def test_library_knows_nothing_of_demo_and_tests():
    for path, tree in parsed(python_files(PLUGINS, ROOT / "dags", ROOT / "spark_jobs")).items():
        assert not {name.split(".")[0] for name in imported(tree)} & {"demo", "tests", "checker"}, path


SAMPLE = """
from typing import TYPE_CHECKING
import kafka_migration.state.link
from kafka_migration import wire
if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
def late():
    import confluent_kafka
    from kafka_migration.kafka.cluster import Cluster
class Early:
    import airflow.sdk
"""


def test_reader_of_imports_sees_those_in_functions_classes_and_for_type_checkers():
    assert rooms_of(ast.parse(SAMPLE)) == {"state", "wire", "migration", "kafka"}


def test_reader_of_imports_tells_what_an_import_of_the_module_itself_loads():
    heads = {name.split(".")[0] for name in imported(ast.parse(SAMPLE), only_at_import=True)}
    assert heads == {"typing", "kafka_migration", "airflow"}
