"""The documentation as a site: docs/ as it is, README.md as its first page, and reference pages made from the code.

    python -m demo.site     (`make docs`; .cache/site/index.html)

Sphinx refuses a link or a heading that does not exist. The pages need no other host.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from demo.errors import DemoError, run_or_explain

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
_SITE = ROOT / ".cache" / "site"
#: By part of the site, its pages in order.
PARTS: Mapping[str, tuple[str, ...]] = {
    "Concepts": ("mirror", "validation", "state", "architecture", "glossary", "comparison"),
    "How to": (
        *(
            "plan",
            "commands",
            "airflow",
            "kubernetes",
            "producers",
            "rollback",
            "security",
            "schemas",
            "handlers",
            "mirrormaker",
            "metrics",
        ),
        "demo",
    ),
    "When something is wrong": ("runbook", "reference/halts", "reference/errors"),
    "Reference": ("reference/plan", "reference/commands", "behaviours", "conformance"),
    "How good it is": ("performance", "chaos", "checker"),
}
_CONFIGURATION = """
project = "Kafka migration"
copyright = author = ""
html_title = "Kafka migration"
extensions = ["myst_parser"]
myst_heading_anchors = 4
html_theme = "furo"
html_show_copyright = html_show_sphinx = html_copy_source = False
html_last_updated_fmt = None
# Plain blocks are commands and what they print.
highlight_language = "none"
# Two hyphens are an option, and no dash.
smartquotes = False
suppress_warnings = ["misc.highlighting_failure"]
"""
_LINK = re.compile(r"\[([^]\n]*(?:\n[^]\n]*)?)\]\(([^)\s]+)\)")


def build() -> Path:
    """Build the site in place of what stands there; its first page. Raises DemoError."""
    with tempfile.TemporaryDirectory() as work:
        write_sources(Path(work))
        made = Path(work, "made")
        options = ["-W", "--keep-going", "-q", "-j", "auto", "-b", "html"]
        command = [sys.executable, "-m", "sphinx", *options, work, str(made)]
        if subprocess.run(command, check=False).returncode != 0:
            raise DemoError("the documentation has the faults that stand above. Correct them, then run this again.")
        shutil.rmtree(_SITE, ignore_errors=True)
        _SITE.parent.mkdir(parents=True, exist_ok=True)
        left_out = shutil.ignore_patterns(".doctrees", ".buildinfo*", "_sources", "objects.inv")
        shutil.copytree(made, _SITE, ignore=left_out)
    return _SITE / "index.html"


def write_sources(folder: Path) -> None:
    """What the site is made from: each page of docs/, the reference, README.md as the first page."""
    for path in (*DOCS.rglob("*.png"), *DOCS.rglob("*.svg")):
        picture = folder / path.relative_to(DOCS)
        picture.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, picture)
    for path in DOCS.rglob("*.md"):
        page = folder / path.relative_to(DOCS)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(_within(path.read_text(encoding="utf-8"), path.parent, page.parent, folder), encoding="utf-8")
    (folder / "reference").mkdir()
    for name, text in (("plan", plan()), ("commands", commands()), ("halts", halts()), ("errors", errors())):
        _page(folder / "reference", name).write_text(text, encoding="utf-8")
    decisions = sorted(path.stem for path in (DOCS / "adr").glob("*.md"))
    listing = "\n".join(decisions)
    _page(folder, "adr/index").write_text(
        f"# Decisions\n\nWhy it is built as it is.\n\n```{{toctree}}\n{listing}\n```\n", encoding="utf-8"
    )
    readme = _within((ROOT / "README.md").read_text(encoding="utf-8"), ROOT, folder, folder)
    trees = "".join(
        f"```{{toctree}}\n:caption: {part}\n:hidden:\n:maxdepth: 1\n{chr(10).join(pages)}\n```\n\n"
        for part, pages in {**PARTS, "Why": ("adr/index",)}.items()
    )
    _page(folder, "index").write_text(f"{readme}\n{trees}", encoding="utf-8")
    (folder / "conf.py").write_text(_CONFIGURATION, encoding="utf-8")


def _within(text: str, origin: Path, place: Path, top: Path) -> str:
    """``text`` of a file in ``origin``, to stand in ``place``: links to documents lead there, other files are named."""

    def linked(match: re.Match[str]) -> str:
        label, target = match[1], match[2]
        path, _, anchor = target.partition("#")
        if "://" in target or not path:
            return match[0]
        file = (origin / path).resolve()
        if file == ROOT / "README.md":
            file = _page(DOCS, "index")
        elif file == DOCS / "adr":
            file = _page(DOCS, "adr/index")
        elif not file.is_relative_to(DOCS):
            return label
        up = "../" * len(place.relative_to(top).parts)
        return f"[{label}]({up}{file.relative_to(DOCS)}{'#' if anchor else ''}{anchor})"

    return _LINK.sub(linked, text)


def _page(folder: Path, name: str) -> Path:
    return folder / f"{name}.md"


def plan() -> str:
    """Every field of a plan, from its schema."""
    from kafka_migration.plans.load import plan_schema

    schema = plan_schema()
    rows = ["# Every field of a plan", "", "As an example with all of them: `migration_plans/reference.yaml`.", ""]
    for name, field in schema["properties"].items():
        inner = _resolved(field, schema)
        if inner.get("properties"):
            rows += [f"## {name}", "", _text(field.get("description") or inner.get("description", "")), ""]
            rows += _table(_fields(inner, schema, f"{name}."))
    top = {
        name: field for name, field in schema["properties"].items() if not _resolved(field, schema).get("properties")
    }
    head = _table(_fields({**schema, "properties": top}, schema, ""))
    return "\n".join([*rows[:4], *head, *rows[4:]])


def _fields(model: Mapping[str, Any], schema: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    for name, field in model["properties"].items():
        inner = _resolved(field, schema)
        required = "required" if name in model.get("required", ()) else _default(field)
        yield f"`{prefix}{name}`", _kind(field, schema), required, _text(field.get("description", ""))
        if inner.get("properties"):
            mark = "[]" if field.get("type") == "array" else ""
            yield from _fields(inner, schema, f"{prefix}{name}{mark}.")


def _resolved(field: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The model that a field holds, or a list of; itself if it holds none."""
    for one in (field, *_choices(field), *field.get("allOf", ())):
        for place in (one, one.get("items", {})):
            if "$ref" in place:
                found: Mapping[str, Any] = schema["$defs"][place["$ref"].rpartition("/")[2]]
                return found
    return field


def _choices(field: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (*field.get("anyOf", ()), *field.get("oneOf", ()))


def _kind(field: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if choices := _choices(field):
        return " or ".join(dict.fromkeys(_kind(one, schema) for one in choices))
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if "$ref" in field:
        target = schema["$defs"][field["$ref"].rpartition("/")[2]]
        return _kind(target, schema) if "enum" in target else "fields below"
    kind = field.get("type", "any")
    if kind == "array":
        return f"list of {_kind(field.get('items', {}), schema)}"
    return ", ".join(kind) if isinstance(kind, list) else str(kind)


def _default(field: Mapping[str, Any]) -> str:
    return f"`{json.dumps(field['default'])}`" if "default" in field else ""


def commands() -> str:
    """Every command with its arguments and options."""
    import click
    import typer.main

    from kafka_migration.cli.app import PANELS, app

    group: Any = typer.main.get_command(app)
    rows = ["# Every command", "", "How they work together: *Migrate by command*.", ""]
    for panel, functions in PANELS.items():
        rows += [f"## {panel}", ""]
        for name in (function.__name__.rstrip("_") for function in functions):
            command = group.commands[name]
            rows += [f"### {name}", "", _help(command.help or ""), ""]
            with click.Context(command) as context:
                records = [param.get_help_record(context) for param in command.params]
                usage = " ".join(command.collect_usage_pieces(context))
            rows += [f"    {name} {usage}", ""]
            rows += _table((f"`{option}`", _help(text)) for option, text in filter(None, records))
    return "\n".join(rows)


def _help(text: str) -> str:
    """Without the marks that a terminal shows as colours."""
    return _text(re.sub(r"\[/?(?:bold|dim|cyan|green|red|yellow|italic)\]", "", text.replace("\b", "")))


def halts() -> str:
    """Every reason of a halt, and what to do."""
    from kafka_migration.link.halts import MEANINGS

    intro = (
        "A halted partition is not copied any more; its neighbours go on. `status` names it, with the offset, and what"
        " to do. On the way back (`--reverse`), and behind an earlier cut, the remedy differs: `status` has that one."
    )
    rows = ["# Halts", "", intro, ""]
    for reason, known in MEANINGS.items():
        rows += [f"## {reason}", "", f"{_sentence(known.meaning)}", "", f"**Remedy:** {_sentence(known.remedy)}", ""]
    return "\n".join(rows)


def errors() -> str:
    """The kinds of errors, by exit code."""
    from kafka_migration.domain import errors as module

    kinds = [
        kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, module.MigrationError)
    ]
    intro = (
        "Every error names what was found, and a remedy. Of a command it decides the exit code; of a task, whether"
        " Airflow tries it again by itself."
    )
    rows = ["# Exit codes and errors", "", intro, ""]
    codes = {
        0: "done",
        1: "a check or a gate refuses",
        2: "bad input",
        3: "could not find out, or taken over; an error that nobody foresaw",
    }
    rows += _table(
        (str(code), meaning) for code, meaning in {**codes, 130: "interrupted: Ctrl-C, SIGTERM or SIGHUP"}.items()
    )
    rows += ["## Kinds", ""]
    rows += _table(
        (f"`{kind.__name__}`", str(kind.exit_code), "yes" if issubclass(kind, module.Retryable) else "no", _first(kind))
        for kind in kinds
        if kind is not module.MigrationError
    )
    return "\n".join(rows)


def _first(kind: type) -> str:
    return _text((kind.__doc__ or "").partition("\n\n")[0])


def _table(rows: Iterator[tuple[str, ...]]) -> list[str]:
    found = list(rows)
    if not found:
        return []
    heads = {
        2: ("", "what it is"),
        4: ("field", "kind", "default", "what it is")
        if "." in found[0][0] or found[0][0].islower()
        else ("error", "exit code", "tried again", "what it is"),
    }
    head = heads[len(found[0])]
    lines = [head, tuple("---" for _ in head), *found]
    return [*(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines), ""]


def _text(text: str) -> str:
    """On one line; of Python's marks for code, Markdown's."""
    return re.sub(r":\w+:", "", " ".join(text.split())).replace("``", "`").replace("<", "&lt;")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


if __name__ == "__main__":
    run_or_explain(lambda: print(build()))
