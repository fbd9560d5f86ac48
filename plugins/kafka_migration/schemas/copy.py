"""Making on the target's schema registry what it lacks, and taking that back.

A subject is in mode IMPORT while its versions are made, by the ids that they have on the source, and gets its own mode
back. Each id is read back, as some registries accept that mode and give ids of their own. All is in the journal before
it is made: killed anywhere, the next call goes on, and ends mode IMPORT where one that died has left it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.errors import Refused
from kafka_migration.domain.waiting import tries
from kafka_migration.migration import cancellation, joined
from kafka_migration.plans.problems import InvalidPlan
from kafka_migration.schemas.difference import (
    KIND,
    Difference,
    Made,
    between,
    is_called_so,
    registries,
    require_no_collision,
    rounds,
)
from kafka_migration.schemas.registry import IMPORT, Registry
from kafka_migration.schemas.types import Version

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.state.journal import Claim, Journal

_OWNER = "target"
#: Another node of a registry shows what was written a moment later.
_READ_BACK_SECONDS, _READ_BACK_PAUSE = 5.0, 0.1


class IdsNotKept(Refused):
    """The target's registry gives ids of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToUndo:
    """What :func:`undo` deletes, in its order; subjects that have to ``stay``, as another migration to this target may
    need them; and ``changed`` versions that are somebody else's by now."""

    removed: tuple[Version, ...] = ()
    stay: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        removed = [version.as_dict() for version in self.removed]
        return {"removed": removed, "stay": list(self.stay), "changed": list(self.changed)}


def apply(ctx: Context) -> Difference:
    """Make what is missing now, and read it back; what was made.

    Raises Refused for ids or versions that are taken, IdsNotKept for a registry that gives its own, what the registries
    answer, and TakenOver if somebody else copies or removes schemas meanwhile.
    """
    with registries(ctx.plan) as (source, target):
        claim = ctx.journal.claim(KIND, _OWNER, at=ctx.stamp())
        todo = between(ctx, source, target)
        require_no_collision(todo)
        if not todo.is_none:
            ctx.log(f"make {todo}")
            _make(ctx, claim, target, todo)
        return todo


def _make(ctx: Context, claim: Claim, target: Registry, todo: Difference) -> None:
    if todo.missing:
        _require_ids_kept(ctx, target, todo.missing[0])
    records, importing = Made.all(ctx.journal), sorted({version.subject for version in todo.missing})
    touched = sorted({*importing, *todo.configs, *todo.modes, *(one.subject for one in todo.deletions)})
    made: dict[str, dict[int, int]] = {}
    for version in todo.missing:
        # One that is there, soft-deleted, stays behind an undo.
        if version.version not in todo.there[version.subject].versions:
            made.setdefault(version.subject, {})[version.version] = version.id
    for name, before in zip(touched, target.each(target.own_mode, touched), strict=True):
        last = records.get(name, Made())
        records[name] = replace(
            last,
            versions={**last.versions, **made.get(name, {})},
            before=last.before if last.is_importing or last.mode else before,
            is_importing=last.is_importing or name in importing,
            config=todo.configs.get(name, last.config),
            mode=todo.modes.get(name, last.mode),
        )
    _write(ctx.journal, {name: records[name] for name in touched})
    try:
        target.each(lambda name: target.set_mode(name, IMPORT), importing)
        for part in rounds(todo.missing):
            ctx.journal.require(claim)
            target.each(lambda version: _register(ctx, target, version), part)
        # What refers goes before what it refers to.
        for part in reversed([*rounds(todo.deletions)]):
            target.each(lambda version: target.delete(version.subject, version.version), part)
        target.each(lambda item: target.set_config(*item), todo.configs.items())
    finally:
        # Whatever went wrong, producers of the target must not find their subjects in mode IMPORT.
        ends = {name: one.mode or one.before for name, one in records.items() if one.is_importing or name in todo.modes}
        target.each(lambda item: _set_mode(target, *item), ends.items())
        _write(ctx.journal, {name: replace(records[name], is_importing=False) for name in ends})


def _write(journal: Journal, records: Mapping[str, Made]) -> None:
    journal.record_all(KIND, {name: asdict(one) for name, one in records.items()})


def _set_mode(target: Registry, subject: str, mode: str) -> None:
    if mode:
        target.set_mode(subject, mode)
    else:
        target.unset_mode(subject)


def _register(ctx: Context, target: Registry, version: Version) -> None:
    """Make one version, and read it back. Raises IdsNotKept, Refused."""
    target.register(version)
    found = None
    for _ in tries(ctx.clock, seconds=_READ_BACK_SECONDS, pause=_READ_BACK_PAUSE):
        found = target.read_back(replace(version, is_deleted=False))
        if found is not None and found.id == version.id and found.content.is_same(version.content):
            return
        if found is not None and found.id != version.id:
            break
    shown = "is not shown" if found is None else f"is shown as id {found.id}"
    if found is not None and found.id == version.id:
        raise Refused(f"{version} was made, and is shown as another schema", remedy="compare both by hand")
    raise IdsNotKept(
        f"the target's registry does not keep ids: {version} was made there, and {shown}",
        remedy="use a registry that imports schemas by Confluent's API; Apicurio keeps ids by its own export and import"
        " alone (POST /apis/registry/v3/admin/import): do that, and `schemas PLAN` compares the outcome",
    )


def _require_ids_kept(ctx: Context, target: Registry, first: Version) -> None:
    """Make a version in a subject of its own, which is removed again: before anything else is made there."""
    probe = replace(first, subject=_probe(ctx), version=1)
    try:
        target.set_mode(probe.subject, IMPORT)
        _register(ctx, target, probe)
    finally:
        target.delete_subject(probe.subject)
        target.unset_mode(probe.subject)


def _probe(ctx: Context) -> str:
    return f"kafka-migration.probe-{ctx.plan.name}"


def _delete_for_good(target: Registry, version: Version) -> None:
    target.delete(version.subject, version.version)
    target.delete(version.subject, version.version, for_good=True)


# -- undoing -----------------------------------------------------------------------------------------------------------


def to_undo(ctx: Context) -> ToUndo:
    """What :func:`undo` would delete. Changes nothing."""
    with registries(ctx.plan) as (_, target):
        return _to_undo(ctx, target)


def _to_undo(ctx: Context, target: Registry) -> ToUndo:
    records = Made.all(ctx.journal)
    stay = {name for name in records if any(_may_need(journal, name) for journal in ctx.journal.others())}
    removed, changed = list[Version](), list[Version]()
    for subject in target.each(target.subject, sorted(records.keys() - stay)):
        for at, schema_id in records[subject.name].versions.items():
            if (version := subject.versions.get(at)) is None:
                continue
            (removed if version.id == schema_id else changed).append(version)
    ordered = (version for part in reversed([*rounds(removed)]) for version in reversed(part))
    return ToUndo(removed=tuple(ordered), stay=tuple(sorted(stay)), changed=tuple(map(str, changed)))


def _may_need(other: Journal, subject: str) -> bool:
    """Whether another migration to this target may go by ``subject``."""
    cancelled = cancellation.of(other)
    if cancelled is not None and cancelled.holds:
        return False
    plan, last = None, joined.of(other)
    with suppress(InvalidPlan):
        plan = last.plan() if last is not None else None
    if subject in Made.all(other):
        return True
    # One that has begun by a plan that this version cannot read may go by anything.
    return is_called_so(plan, subject) if plan is not None else last is not None


def undo(ctx: Context) -> ToUndo:
    """Delete for good what was made, with the configs and modes that came with it; what was deleted, and what stays.
    Killed anywhere, the next call goes on. Raises TakenOver, and what the target's registry answers."""
    with registries(ctx.plan) as (_, target):
        claim = ctx.journal.claim(KIND, _OWNER, at=ctx.stamp())
        todo, records = _to_undo(ctx, target), Made.all(ctx.journal)
        if records:
            target.delete_subject(_probe(ctx))
        gone = records.keys() - {*todo.stay}
        # First: of a subject that is read-only nothing is deleted.
        target.each(lambda name: _give_back(target, name, records[name]), sorted(gone))
        for part in reversed([*rounds(todo.removed)]):
            ctx.journal.require(claim)
            target.each(lambda version: _delete_for_good(target, version), part)
        ctx.journal.forget_all(KIND, gone)
        return todo


def _give_back(target: Registry, name: str, made: Made) -> None:
    """The config and mode of a subject as they were, unless somebody has changed them since."""
    if made.config and target.config(name) == made.config:
        target.unset_config(name)
    if made.is_importing or (made.mode and target.mode(name) == made.mode):
        _set_mode(target, name, made.before)
