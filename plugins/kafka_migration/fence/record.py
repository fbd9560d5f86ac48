"""What the journal has of a fence: the snapshot that it was made from, and how far it came.

The snapshot is written before anything is changed, and holds exactly the ACLs that will be added: lifting removes these
and no other. An ACL that was there before is somebody else's, also if it denies the same.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from kafka_migration.domain.digest import digest_of
from kafka_migration.domain.states import known
from kafka_migration.fence.bans import BANS, REHEARSALS, WRITES, Ban, rehearsal_of, rehearsed_by
from kafka_migration.kafka.types import Acl
from kafka_migration.plans.hooks import Hook

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

KIND = "fence"
#: So long after a fence was lifted a broker that is behind may still show its ACLs.
_SHOWN_SECONDS = 60.0


class FenceState(enum.StrEnum):
    """How far a fence came. The names are part of the journal's format.

    ``FENCING``: it is being applied, or its process died meanwhile: whether anybody is denied is not known. ``FENCED``:
    it was proved. ``LIFTING``: it is being lifted. ``LIFTED``: nothing of it is left.
    """

    FENCING = "fencing"
    FENCED = "fenced"
    LIFTING = "lifting"
    LIFTED = "lifted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Whom a fence denies on what: every one of ``principals`` on every one of ``names``, as ACLs call them, and
    ``probe`` last, but for ``theirs``, the ACLs among these that were there before. ``before`` and ``count`` are the
    digest and the number of all ACLs that there were then."""

    names: tuple[str, ...]
    principals: tuple[str, ...]
    probe: str
    theirs: tuple[Acl, ...]
    before: str
    count: int

    def denials(self, ban: Ban) -> tuple[Acl, ...]:
        """The ACLs to add for all but the probe."""
        return self._of(ban, self.principals)

    def last(self, ban: Ban) -> tuple[Acl, ...]:
        """The ACLs to add for the probe, when all others are there."""
        return self._of(ban, (self.probe,) if self.probe else ())

    def all(self, ban: Ban) -> tuple[Acl, ...]:
        """Every ACL of this fence, in the order in which they are added."""
        return (*self.denials(ban), *self.last(ban))

    def wanted(self, ban: Ban) -> tuple[Acl, ...]:
        """Every denial that the fence relies on, whoever made it."""
        return (*self.all(ban), *self.theirs)

    def _of(self, ban: Ban, principals: Iterable[str]) -> tuple[Acl, ...]:
        theirs = frozenset(self.theirs)
        wanted = (ban.denial(name, principal) for principal in principals for name in self.names)
        return tuple(acl for acl in wanted if acl not in theirs)

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return asdict(self) | {"theirs": [asdict(acl) for acl in self.theirs]}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`as_dict`."""
        return cls(
            names=tuple(value["names"]),
            principals=tuple(value["principals"]),
            probe=value["probe"],
            theirs=tuple(Acl(**acl) for acl in value["theirs"]),
            before=value["before"],
            count=value["count"],
        )


def digest_of_acls(acls: Iterable[Acl]) -> str:
    """Of all ACLs of a cluster, whatever their order."""
    return digest_of([asdict(acl) for acl in sorted(acls, key=repr)])


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceRecord:
    """``kind`` as in the plan; ``snapshot`` for ACLs only. ``names`` are the topics or groups that it is about.
    ``stopped``: stop hooks were run, so the hooks ``start`` are due when it is lifted; ``closed``: likewise for those
    that close the way in, and ``open``. Both are those of the plan that it was made by, whatever the plan has by then.
    ``proof`` is the evidence, of a fence that was proved; ``at`` the wall clock (ISO-8601, UTC). ``cluster`` is the id
    of the cluster that it is on; "" in records of earlier versions."""

    state: FenceState
    kind: str
    names: tuple[str, ...]
    at: str
    snapshot: Snapshot | None = None
    stopped: bool = False
    closed: bool = False
    open: tuple[Hook, ...] = ()
    start: tuple[Hook, ...] = ()
    proof: Mapping[str, Any] = field(default_factory=dict)
    cluster: str = ""

    @property
    def stands(self) -> bool:
        """Whether it keeps anybody out, or may do so in part."""
        return self.state is not FenceState.LIFTED

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "state": str(self.state),
            "kind": self.kind,
            "names": list(self.names),
            "at": self.at,
            "snapshot": None if self.snapshot is None else self.snapshot.as_dict(),
            "stopped": self.stopped,
            "closed": self.closed,
            "open": [hook.model_dump(mode="json") for hook in self.open],
            "start": [hook.model_dump(mode="json") for hook in self.start],
            "proof": dict(self.proof),
            "cluster": self.cluster,
        }


def read(ctx: Context, ban: Ban) -> FenceRecord | None:
    """What was last recorded. Raises StateConflict for a state that this version does not know."""
    value = ctx.journal.read(KIND, ctx.scope.own(ban.key))
    if value is None:
        return None
    state = known(FenceState, value["state"], f"the fence {ban.key} is in state")
    snapshot = value["snapshot"]
    return FenceRecord(
        state=state,
        kind=value["kind"],
        names=tuple(value["names"]),
        at=value["at"],
        snapshot=None if snapshot is None else Snapshot.from_dict(snapshot),
        stopped=value["stopped"],
        closed=value["closed"],
        open=_hooks(value.get("open", ())),
        start=_hooks(value.get("start", ())),
        proof=value["proof"],
        cluster=value.get("cluster", ""),
    )


def standing(ctx: Context) -> dict[str, FenceRecord]:
    """Every fence of the migration that stands, or may stand in part, by its key. No rehearsal: that keeps nobody
    out."""
    found = {ban.key: read(ctx, ban) for ban in BANS}
    return {key: one for key, one in found.items() if one is not None and one.stands}


def proved(ctx: Context) -> frozenset[str]:
    """The topics whose producers are kept from the source, by a fence that was proved and stands."""
    found = read(ctx, WRITES)
    return frozenset(found.names if found is not None and found.state is FenceState.FENCED else ())


def describe(ctx: Context) -> str:
    """What stands, as one line for people; "" for nothing."""
    return "; ".join(described(ctx).values())


def described(ctx: Context) -> dict[str, str]:
    """What stands, by its key, as a line for people."""
    return {
        key: f"fence {key} of {len(one.names)} topics or groups is {one.state} since {one.at}"
        for key, one in standing(ctx).items()
    }


def rehearsals(ctx: Context) -> dict[Ban, FenceRecord]:
    """Every rehearsal whose denials of the probe may be there: it goes on, or its process died."""
    found = {ban: read(ctx, ban) for ban in REHEARSALS}
    return {ban: one for ban, one in found.items() if one is not None and one.stands}


def describe_rehearsals(ctx: Context) -> str:
    """What of rehearsals is there, as one line for people; "" for nothing."""
    return "; ".join(_described(ban, one) for ban, one in rehearsals(ctx).items())


def _described(ban: Ban, one: FenceRecord) -> str:
    return (
        f"a rehearsal on the {ban.side} is {one.state} since {one.at}: it goes on, or its process died. The probe alone"
        f" is denied, on {len(one.names)} topics; `fence --lift` ends it"
    )


def _hooks(values: Iterable[Any]) -> tuple[Hook, ...]:
    return tuple(Hook.model_validate_json(json.dumps(value)) for value in values)


def own_acls(ctx: Context, ban: Ban) -> frozenset[Acl]:
    """The ACLs of this migration's last fence and of its rehearsal, as long as brokers may show them: while it stands,
    and shortly after.

    Taken for somebody else's, they would be neither made again nor ever removed.
    """
    return frozenset[Acl]().union(*(_shown(ctx, one) for one in _alike(ban)))


def _alike(ban: Ban) -> tuple[Ban, ...]:
    """``ban``, and what makes the same denials as it does: its rehearsal, or what it rehearses."""
    other = rehearsed_by(ban) or rehearsal_of(ban)
    return (ban,) if other is None else (ban, other)


def _shown(ctx: Context, ban: Ban) -> frozenset[Acl]:
    last = read(ctx, ban)
    if last is None or last.snapshot is None:
        return frozenset()
    since = (ctx.clock.now() - datetime.fromisoformat(last.at)).total_seconds()
    if not last.stands and since > _SHOWN_SECONDS:
        return frozenset()
    return frozenset(last.snapshot.all(ban))


def of_others(ctx: Context, ban: Ban, cluster: str) -> dict[str, frozenset[Acl]]:
    """By migration, the denials of the cluster with the id ``cluster`` that fences of other migrations rely on, as long
    as these stand. Known are migrations with the same target: their journal is the same topic."""
    found: dict[str, frozenset[Acl]] = {}
    keys = {one.key for one in _alike(ban)}
    for (migration, name), value in ctx.journal.of_others(KIND).items():
        is_same = name.split("/")[0] in keys and value.get("cluster", "") in ("", cluster)
        if is_same and value["state"] != FenceState.LIFTED and value["snapshot"] is not None:
            wanted = Snapshot.from_dict(value["snapshot"]).wanted(ban)
            found[migration] = found.get(migration, frozenset()) | frozenset(wanted)
    return found


def relied_on(ctx: Context, ban: Ban, cluster: str) -> dict[str, frozenset[Acl]]:
    """By migration, the denials that stay though ``ban`` is lifted: as :func:`of_others`, and for a rehearsal those of
    the fence that has begun meanwhile."""
    found = of_others(ctx, ban, cluster)
    fence = rehearsed_by(ban)
    last = None if fence is None else read(ctx, fence)
    if fence is not None and last is not None and last.stands and last.snapshot is not None:
        found[f"{ctx.journal.migration} itself"] = frozenset(last.snapshot.wanted(fence))
    return found


def write(ctx: Context, ban: Ban, record: FenceRecord) -> None:
    """Record it; durable on return."""
    ctx.journal.record(KIND, ctx.scope.own(ban.key), record.as_dict())
