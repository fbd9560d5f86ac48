"""Copy ACLs: what is missing on the target is shown, made, read back, and removed again.

Before they are made, exactly those that the target lacked are written down: `undo` removes these, and no other. An ACL
that was there before is somebody else's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kafka_migration.access.carried import Carried, carried, in_order
from kafka_migration.domain.errors import CouldNotFindOut, Refused
from kafka_migration.domain.listing import listed
from kafka_migration.fence import record as fences
from kafka_migration.fence.bans import BANS, EARLY_WRITES
from kafka_migration.kafka.types import Acl
from kafka_migration.plans.access import Access

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: Journal kind: ACLs that this migration made on the target, so many in a record.
KIND = "access"
_IN_A_RECORD = 500
#: A change of ACLs reaches a broker a moment later.
_SEEN_SECONDS = 60.0
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessDiff:
    """``carried`` of the source; ``missing`` of it on the target, ``present`` there already; ``made`` by this migration
    and still there."""

    carried: tuple[Carried, ...]
    missing: tuple[Acl, ...]
    present: int
    made: tuple[Acl, ...]

    @property
    def left_out(self) -> tuple[Carried, ...]:
        """ACLs of the source that the target does not get."""
        return tuple(one for one in self.carried if not one.made)

    @property
    def exit_code(self) -> int:
        """0 if the target lacks none, else 1."""
        return 1 if self.missing else 0

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "missing": [asdict(acl) for acl in self.missing],
            "present": self.present,
            "made": len(self.made),
            "left_out": [asdict(one.acl) | {"why": one.why} for one in self.left_out],
        }


def read(ctx: Context) -> AccessDiff:
    """Compare both clusters. Raises NotSupported for a cluster without an authorizer, NotAuthorized."""
    found = carried(
        ctx.source.acls(),
        selects={"TOPIC": ctx.plan.topics.matches, "GROUP": ctx.plan.groups.matches},
        names={
            "TOPIC": ctx.plan.topics.select(ctx.source.topic_names()),
            "GROUP": ctx.plan.groups.select(ctx.source.groups()),
        },
        access=ctx.plan.access or Access(),
        fences=_fences(ctx, "source"),
    )
    there = set(ctx.target.acls())
    wanted = {acl for one in found for acl in one.made}
    return AccessDiff(
        carried=found,
        missing=tuple(in_order(wanted - there)),
        present=len(wanted & there),
        made=tuple(acl for acl in recorded(ctx) if acl in there),
    )


def apply(ctx: Context) -> AccessDiff:
    """Make what is missing, and return the difference as it is then; in a dry run as it is now.

    Raises Refused while the target is closed to producers for principals that could write then; CouldNotFindOut if not
    all of it can be read back: run it again.
    """
    diff = read(ctx)
    _require_closed_stays_closed(ctx, diff.missing)
    if ctx.dry_run or not diff.missing:
        return diff
    _record(ctx, [*recorded(ctx), *diff.missing])
    ctx.target.create_acls(diff.missing)
    _until(ctx, lambda: not read(ctx).missing, "not all ACLs can be read back")
    return read(ctx)


def undo(ctx: Context) -> tuple[Acl, ...]:
    """Remove what this migration made; returns what of it was there. In a dry run what is there."""
    made = recorded(ctx)
    if ctx.dry_run:
        return tuple(acl for acl in made if acl in set(ctx.target.acls()))
    # Denials last, so that nobody may more in between than before.
    removed = ctx.target.delete_acls(in_order(made)[::-1])
    _until(ctx, lambda: not set(made) & set(ctx.target.acls()), "not all ACLs are gone")
    ctx.journal.forget_all(KIND, ctx.journal.all(KIND))
    return removed


def _until(ctx: Context, condition: Any, what: str) -> None:
    deadline = ctx.clock.monotonic() + _SEEN_SECONDS
    while not condition():
        if ctx.clock.monotonic() > deadline:
            raise CouldNotFindOut(f"{what} within {_SEEN_SECONDS:g} s", remedy="run the same command again")
        ctx.clock.sleep(_LOOK_SECONDS)


def recorded(ctx: Context) -> list[Acl]:
    """What this migration wrote down that it makes on the target; whether it is there is another matter."""
    return [Acl(**acl) for record in ctx.journal.all(KIND).values() for acl in record["acls"]]


def _record(ctx: Context, acls: Iterable[Acl]) -> None:
    every = [asdict(acl) for acl in in_order(acls)]
    parts = [every[at : at + _IN_A_RECORD] for at in range(0, len(every), _IN_A_RECORD)]
    ctx.journal.record_all(KIND, {f"{n:04}": {"acls": part, "at": ctx.stamp()} for n, part in enumerate(parts)})


def _fences(ctx: Context, side: str) -> frozenset[Acl]:
    found: set[Acl] = set()
    for ban in BANS:
        record = fences.read(ctx, ban) if ban.side == side else None
        if record is not None and record.snapshot is not None:
            found |= set(record.snapshot.all(ban))
    return frozenset(found)


def _require_closed_stays_closed(ctx: Context, missing: Iterable[Acl]) -> None:
    """Whoever may write there only from now on was not denied when the target was closed."""
    record = fences.read(ctx, EARLY_WRITES)
    if record is None or not record.stands or record.snapshot is None:
        return
    names = record.snapshot.names
    denied = {acl.principal for acl in record.snapshot.wanted(EARLY_WRITES)}
    could = sorted({acl.principal for acl in missing if EARLY_WRITES.allows(acl, names)} - denied)
    if could:
        raise Refused(
            f"the target is closed to producers (producers.target_closed), and {listed(could)} would not be denied",
            remedy="lift it (`stop`, `switch` or `cancel` do), or grant these by hand and run `create` again, which"
            " denies them; before `create`, `access --apply` needs neither",
        )
