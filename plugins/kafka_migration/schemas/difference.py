"""What the source's schema registry has for the plan's topics, and the target's lacks. Changes nothing.

Ids are what records refer to, so they are the same on both sides, or there is a collision, and nothing is copied.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.checks import CheckResult
from kafka_migration.domain.direction import SOURCE, TARGET
from kafka_migration.domain.errors import BadInput, Fatal, MigrationError, Refused
from kafka_migration.domain.listing import listed
from kafka_migration.schemas.connection import find_registry
from kafka_migration.schemas.registry import IMPORT, READONLY, Registry
from kafka_migration.schemas.types import Reference, Subject, Version

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.plans.model import Plan
    from kafka_migration.plans.schemas import Schemas
    from kafka_migration.state.journal import Journal

#: By subject: numbers, and the newest one's id (:meth:`Registry.newest`).
Versions = frozenset[tuple[str, tuple[int, ...]]]

KIND = "schemas"
#: As the registry's own naming by topic has it.
_SUFFIXES = ("-key", "-value")
#: How names of other contexts than the default one begin.
_CONTEXT = ":."


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What the migration has made of a subject of the target, or was about to. ``versions`` are ids by their numbers;
    ``before`` is the mode of its own that it had, and ``is_importing`` whether a run that was about it has not come to
    its end: it may still be in mode IMPORT. ``config`` and ``mode`` are what it was given, if anything."""

    versions: Mapping[int, int] = field(default_factory=dict)
    before: str = ""
    is_importing: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)
    mode: str = ""

    @classmethod
    def all(cls, journal: Journal) -> dict[str, Made]:
        """By subject."""
        found = journal.all(KIND)
        return {
            name: cls(**{**value, "versions": {int(at): schema_id for at, schema_id in value["versions"].items()}})
            for name, value in found.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """All by the target's names of subjects. ``missing`` are in the order in which they may be made; ``deletions`` are
    those that are there and have to be soft-deleted, or will be once they are made; ``configs`` and ``modes`` those to
    be set; ``left_importing`` subjects that a run has left halfway, maybe in mode IMPORT. ``collisions`` and
    ``left_out`` are sentences, and so are ``notes``. ``there`` are subjects of the target as they are; ``seen`` are the
    source's versions, by its own names of subjects."""

    missing: tuple[Version, ...] = ()
    deletions: tuple[Version, ...] = ()
    configs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    modes: Mapping[str, str] = field(default_factory=dict)
    left_importing: tuple[str, ...] = ()
    collisions: tuple[str, ...] = ()
    present: int = 0
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    there: Mapping[str, Subject] = field(default_factory=dict)
    seen: Versions = frozenset()

    @property
    def is_none(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.missing or self.deletions or self.configs or self.modes or self.left_importing)

    @property
    def exit_code(self) -> int:
        """0 if the target has everything, 1 otherwise."""
        return int(bool(self.collisions) or not self.is_none)

    def __str__(self) -> str:
        parts = {
            "versions": self.missing,
            "soft deletions": self.deletions,
            "compatibility configs": self.configs,
            "modes": {*self.modes, *self.left_importing},
        }
        return ", ".join(f"{len(found)} {what}" for what, found in parts.items() if found) or "0 versions"

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "missing": [version.as_dict() for version in self.missing],
            "deletions": [version.as_dict() for version in self.deletions],
            "configs": {name: dict(config) for name, config in self.configs.items()},
            "modes": dict(self.modes),
            "left_importing": list(self.left_importing),
            "collisions": list(self.collisions),
            "present": self.present,
            "left_out": list(self.left_out),
            "notes": list(self.notes),
        }


@contextmanager
def target_registry(plan: Plan) -> Iterator[Registry]:
    """The one of the target alone. Raises BadInput for a plan without, and for a connection that is none."""
    with Registry(TARGET, find_registry(_section(plan).target)) as target:
        yield target


@contextmanager
def registries(plan: Plan) -> Iterator[tuple[Registry, Registry]]:
    """The plan's two registries. Raises what :func:`target_registry` does, and BadInput for one that is both."""
    with Registry(SOURCE, find_registry(_section(plan).source)) as source, target_registry(plan) as target:
        if source.connection.url == target.connection.url:
            raise BadInput(
                f"both connections lead to {target.connection.url}, and one registry needs no copy",
                field="schemas.target",
                value=_section(plan).target,
                remedy="name two registries, or remove the section schemas",
            )
        yield source, target


def _section(plan: Plan) -> Schemas:
    if plan.schemas is None:
        raise BadInput(
            "the plan names no schema registries",
            field="schemas",
            remedy="add the section schemas, with source and target (docs/schemas.md)",
        )
    return plan.schemas


def read(ctx: Context) -> Difference:
    """Compare both registries. Raises what :func:`registries` does, Refused for what cannot be copied at all, and what
    the registries answer."""
    with registries(ctx.plan) as (source, target):
        return between(ctx, source, target)


def check(ctx: Context, *, is_due: bool) -> tuple[CheckResult, ...]:
    """Whether the target's registry has what the source's has, as a named check; none for a plan without. What is
    missing shuts the gate only where it ``is_due``."""
    if ctx.plan.schemas is None:
        return ()
    name, remedy = "schemas on the target", "run `schemas PLAN --apply`"
    try:
        found = read(ctx)
    except MigrationError as error:
        result = CheckResult.failed if isinstance(error, Fatal) else CheckResult.unchecked
        return (result(name, error.message, error.remedy),)
    if found.collisions:
        return (CheckResult.failed(name, listed(found.collisions, separator="; "), _FREE),)
    if not found.is_none:
        result = CheckResult.failed if is_due else CheckResult.warned
        which = f": {listed(found.missing)}" if found.missing else ""
        return (result(name, f"lacks {found}{which}", remedy),)
    if found.left_out:
        return (CheckResult.warned(name, listed(found.left_out, separator="; "), "copy these by hand, if need be"),)
    return (CheckResult.passed(name, f"{found.present} versions, with the source's ids"),)


_FREE = "choose a registry whose ids are free, or have these deleted there for good (`schemas PLAN` lists all)"


def require_no_collision(found: Difference) -> None:
    """Raises Refused if an id or a version is taken on the target."""
    if found.collisions:
        count = len(found.collisions)
        raise Refused(f"{count} ids or versions are taken: {listed(found.collisions, separator='; ')}", remedy=_FREE)


# -- which subjects, and how they are called ---------------------------------------------------------------------------


def selects(plan: Plan, subject: str) -> bool:
    """Whether ``subject`` is of the plan by itself, and not for what refers to it alone."""
    if plan.schemas is None or subject.startswith(_CONTEXT):
        return False
    topic, _ = _topic_of(subject)
    return plan.schemas.names(subject) or (bool(topic) and plan.topics.matches(topic))


def called(plan: Plan, subject: str) -> str:
    """The name of ``subject`` on the target: that of its topic there, if it is of one of the plan's."""
    topic, suffix = _topic_of(subject)
    return plan.topic_names.on_target(topic) + suffix if topic and plan.topics.matches(topic) else subject


def is_called_so(plan: Plan, name: str) -> bool:
    """Whether a subject of the plan is called ``name`` on the target."""
    topic, suffix = _topic_of(name)
    return selects(plan, name) or selects(plan, plan.topic_names.known_as(topic) + suffix)


def _topic_of(subject: str) -> tuple[str, str]:
    for suffix in _SUFFIXES:
        if subject.endswith(suffix):
            return subject.removesuffix(suffix), suffix
    return "", ""


def _chosen(plan: Plan, source: Registry, names: Iterable[str]) -> dict[str, Subject]:
    """Subjects of the plan, and those that they refer to, and so on."""
    found: dict[str, Subject] = {}
    todo = {name for name in names if selects(plan, name)}
    while todo:
        found |= {subject.name: subject for subject in source.each(source.subject, sorted(todo))}
        referred = {one.subject for name in todo for one in _references(found[name])}
        todo = referred - found.keys()
        if others := sorted(name for name in todo if name.startswith(_CONTEXT)):
            raise Refused(
                f"schemas of the plan refer to other contexts, which have ids of their own: {listed(others)}",
                remedy="exclude these topics, or copy their schemas by hand and remove the section schemas",
            )
    return found


def _references(subject: Subject) -> Iterator[Reference]:
    for version in subject.versions.values():
        yield from version.content.references


def _on_target(plan: Plan, version: Version) -> Version:
    references = tuple(replace(one, subject=called(plan, one.subject)) for one in version.content.references)
    content = replace(version.content, references=references)
    return replace(version, subject=called(plan, version.subject), content=content)


# -- comparing ---------------------------------------------------------------------------------------------------------


def between(ctx: Context, source: Registry, target: Registry) -> Difference:
    """As :func:`read`, of registries that are open."""
    plan, names = ctx.plan, source.subjects()
    chosen = _chosen(plan, source, names)
    _require_apart(plan, chosen)
    there = {one.name: one for one in target.each(target.subject, sorted(called(plan, name) for name in chosen))}
    made, missing, deletions, collisions, notes = Made.all(ctx.journal), list[Version](), list[Version](), [], []
    left_out = [
        f"{name}: of another context, whose ids are its own"
        for name in names
        if name.startswith(_CONTEXT) and selects(plan, name.rpartition(":")[2])
    ]
    present = 0
    for subject in chosen.values():
        left_out += [f"{subject.name} version {at}: soft-deleted, and not shown" for at in subject.unreadable]
        for version in (_on_target(plan, one) for one in subject.versions.values()):
            here = there[version.subject].versions.get(version.version)
            ours = made.get(version.subject, Made()).versions.get(version.version) == version.id
            if here is not None and (here.id != version.id or not here.content.is_same(version.content)):
                taken = f"is id {here.id} there" if here.id != version.id else "is another schema there"
                collisions.append(f"{version} {taken}")
            elif here is None or (here.is_deleted and not version.is_deleted):
                missing.append(version)
                deletions += [version] if version.is_deleted else []
            elif version.is_deleted and not here.is_deleted and ours:
                deletions.append(version)
            elif version.is_deleted and not here.is_deleted:
                notes.append(f"{version}: not deleted on the target")
            else:
                present += 1
    collisions += _taken_ids(target, missing)
    configs, modes, more = _settings(plan, source, target, chosen, there, made)
    return Difference(
        missing=tuple(version for part in rounds(missing) for version in part),
        deletions=tuple(deletions),
        configs=configs,
        modes=modes,
        left_importing=tuple(name for name, one in made.items() if one.is_importing),
        collisions=tuple(collisions),
        present=present,
        left_out=tuple(left_out),
        notes=(*notes, *more),
        there=there,
        seen=frozenset((one.name, one.newest) for one in chosen.values() if one.is_there),
    )


def has_changed(ctx: Context, seen: Versions, *, until: float = math.inf) -> bool:
    """Whether the source's registry has other versions than those ``seen``: by two requests a subject, so that it can
    be asked while clients stand still, and again and again. Raises CouldNotFindOut if that is not known ``until`` then
    (by the context's monotonic clock)."""
    with registries(ctx.plan) as (source, _):
        source.end_in(until - ctx.clock.monotonic())
        names = sorted({name for name in source.subjects() if selects(ctx.plan, name)} | {name for name, _ in seen})
        now = zip(names, source.each(source.newest, names), strict=True)
        return seen != {(name, newest) for name, newest in now if newest}


def _require_apart(plan: Plan, chosen: Iterable[str]) -> None:
    names: dict[str, str] = {}
    for subject in chosen:
        name = called(plan, subject)
        if (other := names.setdefault(name, subject)) != subject:
            raise BadInput(
                f"subjects {other} and {subject} would both be {name} on the target",
                field="naming",
                remedy="choose names by which subjects stay apart",
            )


def _taken_ids(target: Registry, missing: Iterable[Version]) -> Iterator[str]:
    """Ids that stand for something else on the target."""
    wanted = {version.id: version for version in missing}
    for version, content in zip(wanted.values(), target.each(target.content, wanted), strict=True):
        if content is not None and not content.is_same(version.content):
            yield f"{version}: the id is another schema's there"


def _settings(
    plan: Plan,
    source: Registry,
    target: Registry,
    chosen: Mapping[str, Subject],
    there: Mapping[str, Subject],
    made: Mapping[str, Made],
) -> tuple[dict[str, Mapping[str, Any]], dict[str, str], list[str]]:
    """Configs and modes to be set, and notes on what differs and is left. What holds for a whole registry holds for
    others, too: it is never set, but a subject is given as its own what it went by on the source."""
    configs, modes, notes = dict[str, Mapping[str, Any]](), dict[str, str](), list[str]()
    source_mode, target_mode, target_config = source.mode(), target.mode(), target.config()
    if source_mode != target_mode:
        notes.append(f"the registries' own modes differ, and stay: {source_mode} on the source, {target_mode} there")
    for subject in chosen.values():
        if all(version.is_deleted for version in subject.versions.values()):
            continue
        name = called(plan, subject.name)
        here, ours = there[name], made.get(name, Made())
        is_halfway = ours.is_importing
        if _given(here.config) != _given(subject.config):
            if here.config == (ours.config or target_config) or (is_halfway and here.config == target_config):
                configs[name] = subject.config
            else:
                notes.append(f"{name}: another config on the target, {here.config}, not {subject.config}")
        if subject.mode in (source_mode, here.mode):
            continue
        if subject.mode == IMPORT:
            notes.append(f"{name}: in mode {IMPORT} on the source, which is for copies into it")
        elif subject.mode.startswith(READONLY) and here.is_there and ours.mode != subject.mode:
            # Whoever freezes the source before clients move would freeze the target for them.
            notes.append(f"{name}: in mode {subject.mode} on the source since it was copied, which is not copied")
        elif here.mode == (ours.mode or target_mode) or (is_halfway and here.mode in (target_mode, IMPORT)):
            modes[name] = subject.mode
        else:
            notes.append(f"{name}: in mode {here.mode} on the target, not {subject.mode}")
    return configs, modes, notes


def _given(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if value}


def rounds(versions: Iterable[Version]) -> Iterator[list[Version]]:
    """``versions`` in parts: each refers only to those of parts before it, and follows lower ones of its subject."""
    by = {(version.subject, version.version): version for version in versions}
    sorter: TopologicalSorter[tuple[str, int]] = TopologicalSorter()
    last: dict[str, tuple[str, int]] = {}
    for place in sorted(by):
        before = {(one.subject, one.version) for one in by[place].content.references} & by.keys()
        sorter.add(place, *before, *([last[place[0]]] if place[0] in last else []))
        last[place[0]] = place
    sorter.prepare()
    while sorter.is_active():
        ready = sorter.get_ready()
        yield [by[place] for place in sorted(ready)]
        sorter.done(*ready)
