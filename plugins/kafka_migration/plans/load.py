"""Reading a plan file. Either a whole, valid plan comes back, or one error that lists everything wrong with it.

What pydantic found is put in the words of the plan: the field in the file, what it must be, and what it is for.

YAML is read strictly: plain JSON types only, every key once, and the line of every field. PyYAML alone lets the last of
two equal keys win, turns an unquoted date into an object and keeps no line numbers. Aliases are refused: a plan is read
by people who approve it, and each field must stand where it takes effect.

For editors there is the plan's JSON schema: ``python -m kafka_migration.plans.load`` writes it beside the plans.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from kafka_migration.domain.errors import BadInput
from kafka_migration.plans.base import OURS
from kafka_migration.plans.model import Plan
from kafka_migration.plans.problems import InvalidPlan, Problem, shown

Place: TypeAlias = tuple[str | int, ...]

#: A plan is a page of text; more is a wrong file, and is not read into memory.
LARGEST_PLAN_BYTES = 1_000_000

_MUST_BE = {
    "string_type": "must be text",
    "int_type": "must be a whole number, without quotes",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number, without quotes",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false, without quotes",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a mapping of fields",
    "model_type": "must be a mapping of fields",
    "model_attributes_type": "must be a mapping of fields",
    "too_short": "must not be empty",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less",
    "string_pattern_mismatch": "must match {pattern}",
    "literal_error": "must be {expected}",
}
_SCALARS = ("null", "bool", "int", "float", "str")
_DEEPEST = 32
SCHEMA_FILE = "plan.schema.json"


def load_plan(path: str | Path) -> Plan:
    """The plan in the YAML file at ``path``. Raises BadInput: file, line, field, value and remedy of every problem."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_PLAN_BYTES + 1)
    except OSError as error:
        raise BadInput(
            f"cannot be read: {error.strerror or error}",
            file=str(path),
            remedy="give the path of a plan file; migration_plans/reference.yaml is a commented example",
        ) from error
    if len(raw) > LARGEST_PLAN_BYTES:
        raise BadInput(
            f"larger than {LARGEST_PLAN_BYTES} bytes", file=str(path), remedy="this is no plan; give another file"
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"not UTF-8 text (byte {error.start})", file=str(path), remedy="save the plan as UTF-8"
        ) from error
    return parse_plan(text, file=str(path))


def parse_plan(text: str, *, file: str = "") -> Plan:
    """The plan in ``text`` (YAML). ``file`` is for messages. Raises InvalidPlan with every problem."""
    document = read_yaml(text)
    if document.data is None or not isinstance(document.data, dict):
        if not document.problems:
            what = "is empty" if document.data is None else "is not a mapping of fields"
            document.problems.append(
                Problem(field="", message=f"the plan {what}", remedy="start from migration_plans/reference.yaml")
            )
        raise InvalidPlan(file, document.problems)
    plan, problems = _validated(document)
    if plan is None or document.problems or problems:
        raise InvalidPlan(file, [*document.problems, *problems])
    return plan


def restore_plan(snapshot: Mapping[str, Any]) -> Plan:
    """The plan that ``plan.snapshot()`` gave, validated again. Raises InvalidPlan, as a later version may refuse it."""
    plan, problems = _validated(Document(data=dict(snapshot)))
    if plan is None:
        raise InvalidPlan("the stored snapshot of the plan", problems)
    return plan


def _validated(document: Document) -> tuple[Plan | None, list[Problem]]:
    # Through JSON: there, a list is the strict form of a tuple, while 1 is still no string and "1" no number.
    try:
        return Plan.model_validate_json(json.dumps(document.data)), []
    except ValidationError as error:
        return None, explain(document, error)


def explain(document: Document, error: ValidationError) -> list[Problem]:
    """The problems behind ``error``, one for each field and fault, with the lines of ``document``."""
    problems: list[Problem] = []
    for details in error.errors(include_url=False):
        path = _path_in_file(document.data, details["loc"])
        problem = _problem(document, details, path)
        last = problems[-1] if problems else None
        if last and last.field == problem.field and len(details["loc"]) > len(path):
            # One value, refused by each type of a union in turn: one problem.
            problems[-1] = replace(last, message=f"{last.message}, or {problem.message}", remedy=problem.remedy)
        else:
            problems.append(problem)
    return problems


def _problem(document: Document, details: ErrorDetails, path: Place) -> Problem:
    field, kind, context = dotted(path), details["type"], details.get("ctx", {})
    value = shown(details["input"], field=field)
    if kind == OURS:
        message, remedy = str(context["message"]), str(context["remedy"])
    elif kind == "extra_forbidden":
        message, remedy = "unknown field", _did_you_mean(str(path[-1]), _known_fields(path[:-1]))
    elif kind == "missing":
        message, remedy, value = "required, but not given", _meaning(path), ""
    elif kind in _MUST_BE:
        message, remedy = _MUST_BE[kind].format(**context).replace("True", "true"), _meaning(path)
        if kind == "string_type" and isinstance(details["input"], int | float):
            remedy = "put it in quotes: YAML reads it as a number, or as true or false"
    else:
        message, remedy = details["msg"], _meaning(path)
    return Problem(field=field, message=message, remedy=remedy, value=value, line=document.line_of(path))


def _path_in_file(data: Any, location: Place) -> Place:
    """``location`` without pydantic's own steps, such as the name of a union's type: the file has no such field."""
    path: list[str | int] = []
    for at, part in enumerate(location):
        last = at == len(location) - 1
        if isinstance(data, Mapping):
            if part in data:
                data = data[part]
            elif not last:
                continue
            path.append(part)
        elif isinstance(data, list) and isinstance(part, int):
            data = data[part] if part < len(data) else None
            path.append(part)
        elif isinstance(data, str) and isinstance(part, int):
            path.append(part)
    return tuple(path)


def _model_at(path: Place) -> type[BaseModel] | None:
    """The model that describes the mapping at ``path``; None where the plan has no model."""
    model: type[BaseModel] | None = Plan
    for part in path:
        if isinstance(part, int) or model is None:
            continue
        known = model.model_fields.get(part)
        model = _model_in(known.annotation) if known else None
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation if issubclass(annotation, BaseModel) else None
    if get_origin(annotation) is Annotated:
        return _model_in(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType, tuple):
        return next((model for arg in get_args(annotation) if (model := _model_in(arg))), None)
    return None


def _known_fields(path: Place) -> list[str]:
    model = _model_at(path)
    return list(model.model_fields) if model else []


def _did_you_mean(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]}?"
    return f"remove it; known here: {', '.join(known)}" if known else "remove it"


def _meaning(path: Place) -> str:
    """What the field is for, from the model's own documentation."""
    fields = [part for part in path if isinstance(part, str)]
    for depth in range(len(fields), 0, -1):
        model = _model_at(tuple(fields[: depth - 1]))
        known = model.model_fields.get(fields[depth - 1]) if model else None
        if known and known.description:
            return f"{fields[depth - 1]}: " + " ".join(known.description.split())
    return "see migration_plans/reference.yaml"


class _Loader(yaml.SafeLoader):
    """Resolves to JSON types only: without the timestamp rule, ``2024-01-01`` stays the text that it is."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag.rpartition(":")[2] in _SCALARS]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(slots=True)
class Document:
    """A YAML document as JSON types, with the line (from 1) of each path, and what is wrong with its form."""

    data: Any = None
    lines: dict[Place, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line_of(self, path: Place) -> int:
        """The line of ``path``, or of the nearest enclosing field that the file has."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 0)


def dotted(path: Place) -> str:
    """``("topics", "include", 1)`` as ``topics.include[1]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def read_yaml(text: str) -> Document:
    """The one document in ``text``. Never raises for bad YAML: what is wrong stands in ``problems``."""
    document = Document()
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is not None:
            document.data = _Walk(loader, document).value(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        document.problems.append(
            Problem(
                field="",
                message=f"not valid YAML: {what}",
                remedy="correct the line named; check indentation, quotes and colons just above it too",
                line=mark.line + 1 if mark else 0,
            )
        )
    except (yaml.YAMLError, RecursionError) as error:
        document.problems.append(
            Problem(field="", message=f"not valid YAML: {error}", remedy="save the plan as plain YAML text in UTF-8")
        )
    finally:
        if loader is not None:
            loader.dispose()
    return document


class _Walk:
    """Builds plain values from nodes. A node met twice is an alias."""

    def __init__(self, loader: _Loader, document: Document) -> None:
        self._loader, self._document = loader, document
        self._met: set[int] = set()

    def value(self, node: yaml.Node, path: Place) -> Any:
        if id(node) in self._met:
            message = "an alias (*name) repeats another part of the plan"
            return self._refuse(node, path, message, "write it out", value="")
        self._met.add(id(node))
        self._document.lines.setdefault(path, node.start_mark.line + 1)
        kind = node.tag.rpartition(":")[2]
        if len(path) > _DEEPEST:
            return self._refuse(node, path, "nested too deeply", "a plan is at most a few levels deep")
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            return [self.value(item, (*path, at)) for at, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and kind in _SCALARS:
            try:
                return self._loader.construct_object(node)
            except ValueError as error:
                return self._refuse(node, path, f"not a {kind}: {error}", "put it in quotes if text is meant")
        return self._refuse(node, path, f"the YAML tag {node.tag} is not used in plans", "write a plain value")

    def _mapping(self, node: yaml.MappingNode, path: Place) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag.rpartition(":")[2] != "str":
                text = key_node.value if isinstance(key_node, yaml.ScalarNode) else "a collection"
                self._refuse(key_node, path, f"the key {text} is not text", "put the key in quotes, or rename it")
                continue
            key = str(key_node.value)
            here = (*path, key)
            if key in found:
                first = self._document.lines[here]
                remedy = "keep one of the two; YAML would silently take the last"
                self._refuse(key_node, here, f"given twice, first in line {first}", remedy, value="")
                continue
            self._document.lines[here] = key_node.start_mark.line + 1
            found[key] = self.value(value_node, here)
        return found

    def _refuse(self, node: yaml.Node, path: Place, message: str, remedy: str, *, value: str | None = None) -> None:
        if value is None:
            value = shown(node.value, field=dotted(path)) if isinstance(node, yaml.ScalarNode) else ""
        # An aliased node carries its anchor's place; where it was used is where its field begins.
        aliased = id(node) in self._met and path in self._document.lines
        line = self._document.lines[path] if aliased else node.start_mark.line + 1
        self._document.problems.append(
            Problem(field=dotted(path), message=message, remedy=remedy, value=value, line=line)
        )


def plan_schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of what a plan file may hold. Contradictions are found by ``load_plan`` only."""
    schema = Plan.model_json_schema(mode="validation")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Kafka migration plan",
    }


def schema_text() -> str:
    """The schema file's exact content."""
    return json.dumps(plan_schema(), indent=2, ensure_ascii=False) + "\n"


def write_schema(directory: Path) -> Path:
    """Writes the schema into ``directory`` and returns its path."""
    path = directory / SCHEMA_FILE
    path.write_text(schema_text(), encoding="utf-8")
    return path


if __name__ == "__main__":
    written = write_schema(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("migration_plans"))
    sys.stdout.write(f"{written}\n")
