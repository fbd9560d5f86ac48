"""The documentation's reference pages: all that there is stands in them, from the code itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer.main

from demo import site
from kafka_migration.cli.app import app
from kafka_migration.domain import errors
from kafka_migration.domain.errors import MigrationError
from kafka_migration.domain.types import Halt
from kafka_migration.plans.load import plan_schema


def test_every_field_of_a_plan_is_in_the_reference() -> None:
    found = set(re.findall(r"^\| `([\w.\[\]]+)` \|", site.plan(), re.MULTILINE))
    schema = plan_schema()
    names = {name for model in schema["$defs"].values() for name in model.get("properties", {})}
    assert {field.rpartition(".")[2].removesuffix("[]") for field in found} >= names | set(schema["required"])
    assert {"name", "topics.include", "waves.given[].topics", "producers.fence.kind"} <= found


def test_every_command_and_option_is_in_the_reference() -> None:
    text = site.commands()
    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        assert f"### {name}\n" in text
        for option in (option for param in command.params for option in param.opts if option.startswith("--")):
            assert option in text, f"{name} {option}"
    assert "[bold]" not in text


def test_every_halt_has_its_meaning_and_remedy() -> None:
    assert set(re.findall(r"^## (\w+)$", site.halts(), re.MULTILINE)) == {str(halt) for halt in Halt}
    assert site.halts().count("**Remedy:** ") == len(Halt)


def test_every_kind_of_error_is_explained_with_its_exit_code() -> None:
    text = site.errors()
    codes = set(re.findall(r"^\| (\d+) \|", text, re.MULTILINE))
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MigrationError)}
    assert codes >= {str(kind.exit_code) for kind in kinds}
    for kind in kinds - {MigrationError}:
        assert re.search(rf"^\| `{kind.__name__}` \| {kind.exit_code} \|", text, re.MULTILINE), kind


def test_every_document_has_a_place_in_the_site(tmp_path: Path) -> None:
    site.write_sources(tmp_path)
    index = (tmp_path / "index").with_suffix(".md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^[\w/-]+$", index, re.MULTILINE))
    pages = {path.relative_to(tmp_path).with_suffix("").as_posix() for path in tmp_path.rglob("*.md")}
    assert {page for page in pages if not page.startswith("adr/")} - {"index"} <= listed


def test_links_that_leave_the_documents_are_names_and_all_others_lead_to_pages(tmp_path: Path) -> None:
    site.write_sources(tmp_path)
    for page in tmp_path.rglob("*.md"):
        for target in re.findall(r"\]\(([^)\s#]+)[^)\s]*\)", page.read_text(encoding="utf-8")):
            assert "://" in target or (page.parent / target).is_file(), f"{page.name}: {target}"
