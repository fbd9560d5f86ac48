"""Selection by regular expressions: which topics and which groups a plan means. Pure, and the same everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, Any

import re2
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from kafka_migration.domain.names import ELSEWHERE
from kafka_migration.plans.base import Contradictions, Name, PlanModel, each_once, wrong

#: Excluded from every plan that does not set ``topics.internal``.
INTERNAL_TOPICS = ("__.*", r".*\.internal")

#: Kafka's own topics: the state of a cluster, never data. Copying them would corrupt the target.
_NEVER = re.compile(r"__(consumer_offsets|transaction_state|share_group_state|cluster_metadata)")

#: More characters than any name has.
_LONGEST = 500

#: A pattern that matches one name alone.
_SPELLED_OUT = re.compile(r"(?:[A-Za-z0-9_-]|\\[!-/:-@\[-`{-~])+")
_ESCAPE = re.compile(r"\\(.)")

_SPLIT_QUANTIFIER = re.compile(r"\{\d*,\d*\}")


def _compiles(pattern: str) -> str:
    if not pattern.strip():
        raise wrong("an empty pattern matches no name", "write a regular expression, or remove the entry")
    if len(pattern) > _LONGEST:
        raise wrong(f"longer than {_LONGEST} characters, as no name is", "write several shorter patterns")
    try:
        _one(pattern)
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        if _is_known_elsewhere(pattern):
            # A DAG file is parsed by a process that all plans share: what may take exponential time would hang it.
            raise wrong(
                f"this is not supported, since every name is matched in linear time: {why}",
                "do without look-around, backreferences, possessive quantifiers and repetitions beyond 1000; instead of"
                " (?!...), write what is not meant into exclude",
            ) from None
        raise wrong(
            f"not a regular expression: {why}",
            "correct it; a literal character such as ( or * needs a backslash before it",
        ) from None
    return pattern


def _is_known_elsewhere(pattern: str) -> bool:
    """Whether the matcher of Python, which backtracks as Java's does, understands ``pattern``."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _split(value: Any) -> Any:
    """A string is MirrorMaker's short form: a comma means "or"."""
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, str):
        return value
    if _SPLIT_QUANTIFIER.search(value):
        raise wrong(
            "a comma inside braces would be taken for the end of a pattern",
            "write the patterns as a YAML list, where a comma is just a comma",
        )
    return tuple(part.strip() for part in value.split(",")) if value.strip() else ()


Pattern = Annotated[str, AfterValidator(_compiles)]
Patterns = Annotated[
    tuple[Pattern, ...],
    BeforeValidator(_split, json_schema_input_type=str | list[str]),
]


def matches_any(patterns: tuple[str, ...], name: str) -> bool:
    """Whether a pattern matches the whole of ``name``: RE2's syntax, in which Kafka's tools' patterns (Java's) mean the
    same, but for what needs backtracking.

    One by one, not joined by |: joined, a flag of one pattern would change its neighbours.
    """
    names, others = _matchers(patterns)
    return name in names or any(pattern.fullmatch(name) is not None for pattern in others)


def pattern_of(name: str) -> str:
    """A pattern that matches ``name`` alone; what needs no escape has none, so that people can read it."""
    return "".join(char if char.isalnum() or char in "-_" else re2.escape(char) for char in name)


@lru_cache(maxsize=256)
def _matchers(patterns: tuple[str, ...]) -> tuple[frozenset[str], tuple[re2._Regexp, ...]]:
    """Names that are spelled out, of which a plan may have thousands, and the other patterns."""
    spelled = {pattern for pattern in patterns if _SPELLED_OUT.fullmatch(pattern)}
    names = frozenset(_ESCAPE.sub(r"\1", pattern) for pattern in spelled)
    return names, tuple(_one(pattern) for pattern in patterns if pattern not in spelled)


@lru_cache(maxsize=1024)
def _one(pattern: str) -> re2._Regexp:
    options = re2.Options()
    # To standard error, that is; whoever asks has the error.
    options.log_errors = False
    return re2.compile(pattern, options)


class Selection(PlanModel):
    """Names that match a pattern of ``include`` and none of ``exclude``. Patterns match the whole name."""

    include: Patterns = ()
    """Regular expressions; a name must match one of them, whole. As one string, a comma means "or"."""

    exclude: Patterns = ()
    """Regular expressions; a name that matches one of them is left out, even if it matches ``include``."""

    @model_validator(mode="after")
    def _exclude_leaves_something(self) -> Selection:
        found = Contradictions()
        for at, pattern in enumerate(self.include):
            if pattern in self.exclude:
                found.add(
                    ("include", at),
                    pattern,
                    "the same pattern is excluded, so it selects nothing",
                    "remove it from include or from exclude",
                )
        if self.exclude and not self.include:
            found.add(("exclude",), list(self.exclude), "excludes from nothing, as include is empty", "fill include")
        found.raise_any(type(self).__name__)
        return self

    def matches(self, name: str) -> bool:
        """Whether the plan means this name."""
        return matches_any(self.include, name) and not matches_any(self.exclude, name)

    def select(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of ``names`` that the plan means, sorted, each once."""
        return tuple(sorted({name for name in names if self.matches(name)}))


class TopicSelection(Selection):
    """Topics to mirror: include, less exclude, less internal topics."""

    include: Annotated[Patterns, Field(min_length=1)]
    """Regular expressions; a topic must match one of them, whole. As one string, a comma means "or"."""

    internal: Patterns = INTERNAL_TOPICS
    """Topics left out by default: Kafka's and tools' own. Give another list only to migrate such a topic."""

    adopt: tuple[Name, ...] = ()
    """Topics that exist on the target and may be used all the same, if they have the source topic's partitions, and no
    other migration holds them: empty ones, and those that MirrorMaker has filled (`adopt`). By their names, not by
    patterns."""

    @model_validator(mode="after")
    def _adopted_topics_are_selected(self) -> TopicSelection:
        found = Contradictions()
        each_once(found, "adopt", self.adopt)
        for at, name in enumerate(self.adopt):
            if not self.matches(name):
                found.add(
                    ("adopt", at),
                    name,
                    "to be adopted, but topics does not select it",
                    "add it to topics.include (and see topics.exclude), or remove it here",
                )
        found.raise_any(type(self).__name__)
        return self

    def matches(self, name: str) -> bool:
        """Whether the plan mirrors this topic. Kafka's own state topics never match, nor what the target alone has."""
        if name.startswith(ELSEWHERE):
            return False
        return not _NEVER.fullmatch(name) and not matches_any(self.internal, name) and super().matches(name)


class GroupSelection(Selection):
    """Consumer groups to move: include, less exclude. Empty: topics only, no group is moved."""
