"""YAML read strictly: plain JSON types only, every key once, and the line of every field.

PyYAML alone lets the last of two equal keys win, turns an unquoted date into an object and keeps no line numbers.
Aliases are refused: a plan is read by people who approve it, and each field must stand where it takes effect.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from kafka_migration.plans.problems import Problem, shown

Path: TypeAlias = tuple[str | int, ...]

_SCALARS = ("null", "bool", "int", "float", "str")
_DEEPEST = 32


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
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line_of(self, path: Path) -> int:
        """The line of ``path``, or of the nearest enclosing field that the file has."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 0)


def dotted(path: Path) -> str:
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

    def value(self, node: yaml.Node, path: Path) -> Any:
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

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
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

    def _refuse(self, node: yaml.Node, path: Path, message: str, remedy: str, *, value: str | None = None) -> None:
        if value is None:
            value = shown(node.value, field=dotted(path)) if isinstance(node, yaml.ScalarNode) else ""
        # An aliased node carries its anchor's place; where it was used is where its field begins.
        aliased = id(node) in self._met and path in self._document.lines
        line = self._document.lines[path] if aliased else node.start_mark.line + 1
        self._document.problems.append(
            Problem(field=dotted(path), message=message, remedy=remedy, value=value, line=line)
        )
