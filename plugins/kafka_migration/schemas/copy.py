"""Making on the target's schema registry what it lacks, and taking that back.

A subject is in mode IMPORT while its versions are made, by the ids that they have on the source, and gets its own mode
back. Each id is read back, as some registries accept that mode and give ids of their own. All is in the journal before
it is made: killed anywhere, the next call goes on. First of all, and by the target alone, that ends mode IMPORT where
one that died has left it. One process at a time does any of this (:mod:`kafka_migration.schemas.lease`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.errors import Refused
from kafka_migration.domain.waiting import tries
from kafka_migration.migration import cancellation, joined
from kafka_migration.plans.problems import InvalidPlan
from kafka_migration.schemas import lease
from kafka_migration.schemas.difference import (
    KIND,
    Difference,
    Made,
    between,
    is_called_so,
    registries,
    require_no_collision,
    rounds,
    target_registry,
)
from kafka_migration.schemas.lease import Lease
from kafka_migration.schemas.registry import IMPORT, READONLY, Registry, RegistryRefused
from kafka_migration.schemas.types import Version

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.state.journal import Journal

#: Another node of a registry shows what was written a moment later.
_READ_BACK_SECONDS, _READ_BACK_PAUSE = 5.0, 0.1
#: The registry's codes for a subject that is read-only, and for a version to which another schema refers.
_STAYS = (42205, 42206)


class IdsNotKept(Refused):
    """The target's registry gives ids of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToUndo:
    """What :func:`undo` deletes, in its order; subjects that have to ``stay``, as another migration to this target may
    need them, or because the registry does not delete what others refer to; and ``changed`` versions that are somebody
    else's by now."""

    removed: tuple[Version, ...] = ()
    stay: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        removed = [version.as_dict() for version in self.removed]
        return {"removed": removed, "stay": list(self.stay), "changed": list(self.changed)}


def apply(ctx: Context, *, until: float | None = None, is_ended: Callable[[], bool] = lambda: False) -> Difference:
    """Make what is missing now, and read it back; what was made. ``until`` then (by the context's monotonic clock) it
    is done, or left for another call; so it is soon after ``is_ended``.

    Raises Refused for ids or versions that are taken, IdsNotKept for a registry that gives its own, what the registries
    answer, and CouldNotFindOut if time is over, or another process copies or removes schemas all the while.
    """
    with lease.held(ctx, until=until, is_ended=is_ended) as held:
        if is_halfway(ctx):
            with target_registry(ctx.plan) as target:
                held.covers(target)
                _end_import(ctx, target)
        with registries(ctx.plan) as (source, target):
            held.covers(source, target)
            todo = between(ctx, source, target)
            require_no_collision(todo)
            if not todo.is_none:
                ctx.log(f"make {todo}")
                _make(ctx, held, target, todo)
            return todo


def is_halfway(ctx: Context) -> bool:
    """Whether a run has not come to its end, so that a subject may be in mode IMPORT."""
    return any(one.is_importing for one in Made.all(ctx.journal).values())


def _end_import(ctx: Context, target: Registry) -> None:
    records = {name: one for name, one in Made.all(ctx.journal).items() if one.is_importing}
    found = zip(records.items(), target.each(target.own_mode, records), strict=True)
    ends = [(name, one.mode or one.before) for (name, one), mode in found if mode == IMPORT]
    target.each(lambda item: _set_mode(target, *item), ends, leaves_none=True)


def _make(ctx: Context, held: Lease, target: Registry, todo: Difference) -> None:
    if todo.missing:
        _require_ids_kept(ctx, held, target, todo.missing[0])
    records, registered = Made.all(ctx.journal), {version.subject for version in todo.missing}
    deleted = {version.subject for version in todo.deletions}
    touched = sorted({*registered, *deleted, *todo.configs, *todo.modes, *todo.left_importing})
    made: dict[str, dict[int, int]] = {}
    for version in todo.missing:
        # One that is there, soft-deleted, stays behind an undo.
        if version.version not in todo.there[version.subject].versions:
            made.setdefault(version.subject, {})[version.version] = version.id
    own = dict(zip(touched, target.each(target.own_mode, touched), strict=True))
    for name in touched:
        last = records.get(name, Made())
        # What somebody has set since is theirs.
        is_ours = bool(last.mode) and last.mode == own[name]
        records[name] = replace(
            last,
            versions={**last.versions, **made.get(name, {})},
            before=last.before if is_ours else own[name],
            is_importing=True,
            config=todo.configs.get(name, last.config),
            mode=todo.modes.get(name, last.mode if is_ours else ""),
        )
    _write(ctx.journal, {name: records[name] for name in touched})
    # Nothing is changed of one that is read-only.
    frozen = {name for name in touched if name in todo.there and todo.there[name].mode.startswith(READONLY)}
    importing = registered | frozen
    try:
        target.each(lambda name: target.set_mode(name, IMPORT), sorted(importing))
        for part in rounds(todo.missing):
            target.each(lambda version: _register(ctx, target, version), part)
        # What refers goes before what it refers to.
        for part in reversed([*rounds(todo.deletions)]):
            target.each(lambda version: target.delete(version.subject, version.version), part)
        target.each(lambda item: target.set_config(*item), todo.configs.items())
    finally:
        # Whatever went wrong, producers of the target must not find their subjects in mode IMPORT. Without the lease
        # they are put in order by who has it, or will have.
        ends = {name: todo.modes.get(name, own[name]) for name in sorted({*importing, *todo.modes})}
        with held.ending():
            target.each(lambda item: _set_mode(target, *item), ends.items(), leaves_none=True)
    with held.ending():
        _write(ctx.journal, {name: replace(records[name], is_importing=False) for name in touched})


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


def _require_ids_kept(ctx: Context, held: Lease, target: Registry, first: Version) -> None:
    """Make a version in a subject of its own, which is removed again: before anything else is made there."""
    probe = replace(first, subject=_probe(ctx), version=1)
    try:
        target.set_mode(probe.subject, IMPORT)
        _register(ctx, target, probe)
    finally:
        with held.ending():
            target.delete_subject(probe.subject)
            target.unset_mode(probe.subject)


def _probe(ctx: Context) -> str:
    return f"kafka-migration.probe-{ctx.plan.name}"


# -- undoing -----------------------------------------------------------------------------------------------------------


def to_undo(ctx: Context) -> ToUndo:
    """What :func:`undo` would delete. Changes nothing."""
    with target_registry(ctx.plan) as target:
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
    Killed anywhere, the next call goes on. Raises what the target's registry answers, and CouldNotFindOut if another
    process copies or removes schemas all the while."""
    with lease.held(ctx) as held, target_registry(ctx.plan) as target:
        held.covers(target)
        todo, records = _to_undo(ctx, target), Made.all(ctx.journal)
        if records:
            target.delete_subject(_probe(ctx))
        gone = sorted(records.keys() - {*todo.stay})
        # First: of a subject that is read-only nothing is deleted.
        target.each(lambda name: _give_back(target, name, records[name]), gone)
        stuck = list[Version]()
        for part in reversed([*rounds(todo.removed)]):
            are_gone = target.each(lambda version: _delete_for_good(target, version), part)
            stuck += [version for version, is_gone in zip(part, are_gone, strict=True) if not is_gone]
        left = {version.subject for version in stuck}
        held.keep()
        _write(ctx.journal, {name: replace(records[name], is_importing=False) for name in left})
        ctx.journal.forget_all(KIND, [name for name in gone if name not in left])
        removed = tuple(version for version in todo.removed if version not in stuck)
        return replace(todo, removed=removed, stay=tuple(sorted({*todo.stay, *left})))


def _give_back(target: Registry, name: str, made: Made) -> None:
    """The mode and config of a subject as they were, unless somebody has changed them since."""
    mode = target.own_mode(name)
    if (made.is_importing and mode == IMPORT) or (made.mode and mode == made.mode):
        _set_mode(target, name, made.before)
    if made.config and target.config(name) == made.config:
        _is_done(lambda: target.unset_config(name))


def _delete_for_good(target: Registry, version: Version) -> bool:
    """Whether that was possible."""
    name, at = version.subject, version.version
    return _is_done(lambda: target.delete(name, at)) and _is_done(lambda: target.delete(name, at, for_good=True))


def _is_done(change: Callable[[], None]) -> bool:
    """Make a change; False where the registry does not, as others need what there is."""
    try:
        change()
    except RegistryRefused as refused:
        if refused.code not in _STAYS:
            raise
        return False
    return True
