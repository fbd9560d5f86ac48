"""The command schemas: what the target's registry lacks, made and deleted again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.conftest import Terminal
from tests.schemas.worlds import Registries, record

VALUES = "shop.orders-value"


@pytest.fixture
def registries(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registries]:
    """A schema that the target lacks, and one that refers to it."""
    found = Registries(monkeypatch)
    terminal.write_plan(schemas=found.section, approvals={"plan": False})
    found.source.register("Money", record("Money", "cents"))
    found.source.register(VALUES, record("Order", price="Money"), ("Money", "Money", 1))
    yield found
    found.close()


def words(text: str) -> str:
    return " ".join(text.split())


def test_what_the_target_lacks_is_shown_and_is_exit_code_one(terminal: Terminal, registries: Registries) -> None:
    seen = terminal.run("schemas")
    assert seen.exit_code == 1
    assert "shop.orders-value 1 2 AVRO Money 1" in words(seen.stdout)
    assert "0 versions there; missing: 2 versions. `--apply` makes them" in words(seen.stdout)
    found = terminal.json("schemas")
    assert [(one["subject"], one["id"]) for one in found["missing"]] == [("Money", 1), (VALUES, 2)]
    assert not registries.target.subjects


def test_missing_schemas_are_made_and_deleted_and_a_person_is_asked(terminal: Terminal, registries: Registries) -> None:
    refused = terminal.run("schemas", "--apply")
    assert refused.exit_code == 1
    assert "nobody can be asked here: Make 2 versions on the target's schema registry?" in words(refused.output)
    shown = terminal.run("schemas", "--apply", "--dry-run")
    assert (shown.exit_code, words(shown.stdout)) == (0, "2 versions would be made")
    assert not registries.target.subjects
    made = terminal.json("schemas", "--apply", "--yes")
    assert (len(made["missing"]), made["dry_run"]) == (2, False)
    seen = terminal.run("schemas")
    assert seen.exit_code == 0
    assert words(seen.stdout).endswith("2 versions there, none missing")
    asked = terminal.run("schemas", "--undo")
    assert "Delete 2 versions for good, which migration shop has made?" in words(asked.output)
    undone = terminal.run("schemas", "--undo", "--yes")
    assert undone.exit_code == 0
    assert words(undone.stdout).endswith("2 versions deleted")
    assert not registries.target.subjects


def test_collisions_and_what_is_not_copied_are_shown(terminal: Terminal, registries: Registries) -> None:
    registries.target.register("theirs", '"int"')
    registries.source.register(":.eu:shop.orders-value", '"int"')
    seen = terminal.run("schemas")
    assert seen.exit_code == 1
    page = words(seen.stdout)
    assert "Money version 1 (id 1): the id is another schema's there" in page
    assert ":.eu:shop.orders-value: of another context" in page
    assert "1 collisions: nothing is copied before they are gone" in page
    refused = terminal.run("schemas", "--apply", "--yes")
    assert refused.exit_code == 1
    assert "ids or versions are taken" in refused.output


def test_plan_without_registries_is_bad_input(terminal: Terminal) -> None:
    found = terminal.run("schemas")
    assert found.exit_code == 2
    assert "the plan names no schema registries" in words(found.output)


def test_making_and_deleting_exclude_each_other(terminal: Terminal, registries: Registries) -> None:
    found = terminal.run("schemas", "--apply", "--undo")
    assert found.exit_code == 2
    assert "exclude each other" in words(found.output)
