"""Operators read the words of Kafka and Airflow: docs/glossary.md lists the ones that were ours alone."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
TEXTS = [
    path.relative_to(ROOT)
    for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("migration_plans/*")))
    if path.is_file() and path != GLOSSARY
]
MODULES = sorted(path.relative_to(ROOT) for path in (ROOT / "plugins").rglob("*.py"))


def unused() -> re.Pattern[str]:
    """Each word that the glossary's second table lists on the left."""
    table = GLOSSARY.read_text(encoding="utf-8").partition("| not | but |")[2]
    words = [word for left in re.findall(r"^\| ([^|-][^|]*?) \|", table, re.MULTILINE) for word in left.split(", ")]
    assert len(words) > 10
    return re.compile(r"\b(" + "|".join(re.escape(word).replace(r"\ ", r"\s+") + "s?" for word in words) + r")\b", re.I)


def messages(module: Path) -> Iterator[str]:
    """Every text in ``module`` but its docstrings."""
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


@pytest.mark.parametrize("document", TEXTS, ids=str)
def test_documents_use_the_words_of_the_field(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    # Names in code keep what they are called.
    prose = re.sub(r"`[^`\n]*`", "", text)
    assert [match.group() for match in unused().finditer(prose)] == []


def test_messages_use_the_words_of_the_field():
    found = {(str(module), text) for module in MODULES for text in messages(module) if unused().search(text)}
    assert found == set()


def test_a_word_of_the_list_is_found_in_whatever_case_and_over_a_line_break():
    assert unused().search("Retention is Held\nopen.")
    assert not unused().search("the shareholder opens")
