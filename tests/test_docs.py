"""README.md and docs/ speak of things that exist: files, headings, commands, options, targets of make, variables."""

import re
import subprocess
from pathlib import Path

import pytest
import typer.main

from kafka_migration.cli.app import app
from kafka_migration.steps.table import STEPS

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(path.relative_to(ROOT) for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")))
COMMANDS = dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=str)


def text_of(document: Path) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_document
def test_links_lead_to_files_and_headings_that_exist(document):
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(document)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / document).parent / path if path else ROOT / document
        assert file.exists(), target
        assert not anchor or anchor in anchors(file.read_text(encoding="utf-8")), target


@every_document
def test_files_in_backticks_exist(document):
    pattern = r"`((?:plugins|checker|tests|docs|demo|dags|migration_plans|spark_jobs)/[\w./-]*?[\w/])`"
    assert not [path for path in re.findall(pattern, text_of(document)) if not (ROOT / path).exists()]


def test_code_cites_documents_that_exist():
    """What a reader of the repository cannot open is no reason."""
    cited = {
        (str(file.relative_to(ROOT)), name)
        for folder in ("bench", "checker", "dags", "demo", "plugins", "spark_jobs", "tests")
        for file in (ROOT / folder).rglob("*.py")
        for name in re.findall(r"[\w/.-]*\w\.md\b|\bBEHAVIOURS\b", file.read_text(encoding="utf-8"))
        if file != Path(__file__)
    }
    assert {name for _, name in cited} >= {"docs/mirror.md", "docs/behaviours.md"}
    assert not [it for it in cited if not ((ROOT / it[1]).exists() or (ROOT / "docs" / it[1]).exists())]


@every_document
def test_commands_and_their_options_exist(document):
    # Up to where another command of the same line begins.
    shown = re.findall(r"(?:\bkm|python -m kafka_migration) ([a-z]+)((?:(?!&&|;|\bkm\b).)*)", text_of(document))
    tabled = re.findall(r"^\| `([a-z]+) [^`]*PLAN(.*)$", text_of(document), re.MULTILINE)
    for name, rest in shown + tabled:
        assert name in COMMANDS, name
        known = {option for it in COMMANDS[name].params for option in it.opts}
        assert set(re.findall(r"--[a-z](?:[a-z.-]*[a-z])?", rest)) <= known, f"{name}{rest}"


def test_every_command_is_in_the_table_of_commands():
    tabled = set(re.findall(r"^\| `([a-z]+)(?: [^`]*PLAN|`)", text_of(Path("docs/commands.md")), re.MULTILINE))
    assert tabled == set(COMMANDS) - {"schema"}


@every_document
def test_targets_of_make_exist(document):
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    targets = set(re.findall(r"^  make (\S+)", done.stdout, re.MULTILINE))
    named = re.findall(r"(?:`|^    )make ([a-z][a-z-]*)", text_of(document), re.MULTILINE)
    assert set(named) <= targets


def test_readme_draws_the_phases_of_the_table_in_their_order():
    drawn = re.findall(r"^ {4}[ │]*(?:[└├]─ )?([a-z_]{4,})\b", text_of(Path("README.md")), re.MULTILINE)
    names = [row.name for row in STEPS]
    assert [name for name in drawn if name in names] == names


@every_document
def test_environment_variables_are_read_somewhere(document):
    source = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("plugins/**/*.py"))
    source += "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("demo/**/*.py"))
    named = set(re.findall(r"\bKAFKA_MIGRATION_[A-Z_]+[A-Z]", text_of(document)))
    assert not {name for name in named if name not in source}
