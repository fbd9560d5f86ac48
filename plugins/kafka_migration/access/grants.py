"""Making on the target what it lacks of ACLs, client quotas and SCRAM users, and taking that back.

Each part is in the journal before it is made, and no ACL that is in the journal outlives :func:`undo`, whoever died in
between, but for what another migration to this target may go by. Denials are made before anything is allowed, and
removed after it, in requests of their own: brokers before KRaft make those of one request in no order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from kafka_migration.access.carried import in_order
from kafka_migration.access.difference import AccessDiff, denials_of_fences, in_words, may_be_open, own_principal
from kafka_migration.access.limits import Entity, Limit, Limits, whole, words
from kafka_migration.domain.direction import TARGET
from kafka_migration.domain.errors import CouldNotFindOut, Refused, TakenOver
from kafka_migration.domain.listing import listed
from kafka_migration.domain.waiting import tries
from kafka_migration.fence import fence, record
from kafka_migration.fence.bans import BACK_WRITES, BANS, EARLY_WRITES, LIFTED_BY, may
from kafka_migration.fence.checks import OPEN_DOOR
from kafka_migration.fence.record import FenceState
from kafka_migration.kafka.types import Acl, ScramUser
from kafka_migration.migration import cancellation, joined
from kafka_migration.plans.problems import InvalidPlan
from kafka_migration.plans.producers import EVERYBODY

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.plans.model import Plan
    from kafka_migration.state.journal import Claim, Journal

KIND = "access"
_OWNER = "target"
#: ACLs, limits or users in one record of the journal and in one request.
_AT_ONCE = 500
_READ_BACK_SECONDS, _READ_BACK_PAUSE = 30.0, 0.2
#: From looking at ACLs to recording a fence that they are for.
_CLOSING_SECONDS = 5.0
_NONE: Mapping[str, str] = {}
#: Fences that keep producers from the target.
_CLOSED = (EARLY_WRITES, BACK_WRITES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """ACLs, limits of client quotas, and SCRAM users without their passwords."""

    acls: tuple[Acl, ...] = ()
    limits: tuple[Limit, ...] = ()
    users: tuple[ScramUser, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.acls or self.limits or self.users)

    def __str__(self) -> str:
        others = ((self.limits, "limits of client quotas"), (self.users, "SCRAM users"))
        return " and ".join([f"{len(self.acls)} ACLs", *(f"{len(some)} {name}" for some, name in others if some)])

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "acls": [asdict(acl) for acl in self.acls],
            "quotas": [asdict(limit) for limit in self.limits],
            "scram_users": [asdict(user) for user in self.users],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ToUndo:
    """What :func:`undo` removes, in its order; what has to ``stay``, as another migration may go by it, and may be
    undone later; what was ``changed`` since, limits and iterations of users, and so is somebody else's."""

    removed: Grants = Grants()
    stay: Grants = Grants()
    changed: Grants = Grants()

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "removed": self.removed.as_dict(),
            "stay": self.stay.as_dict(),
            "changed": [asdict(limit) for limit in self.changed.limits],
            "changed_users": [asdict(user) for user in self.changed.users],
        }


def missing(seen: AccessDiff, limits: Limits, users: Iterable[ScramUser] = ()) -> Grants:
    """What the target lacks."""
    return Grants(acls=tuple(in_order(seen.missing)), limits=limits.missing, users=tuple(users))


def made(journal: Journal) -> Grants:
    """What the migration of ``journal`` has made, or was about to make, and has not undone."""
    parts = sorted(journal.all(KIND).items(), key=lambda item: [int(n) for n in item[0].split(".")])
    acls = {Acl(**acl) for _, part in parts for acl in part["acls"]}
    # Of two values of one limit the later one is meant.
    limits = {(limit.entity, limit.key): limit for _, part in parts for limit in map(_limit, part["quotas"])}
    users = {user.user: user for _, part in parts for user in map(_user, part.get("scram_users", ()))}
    return Grants(acls=tuple(in_order(acls)), limits=tuple(limits.values()), users=tuple(users.values()))


# -- making -----------------------------------------------------------------------------------------------------------


def check(ctx: Context, todo: Grants) -> None:
    """Raise Refused, with the remedy, if ``todo`` may not be made here now."""
    require_rights(ctx, todo)
    denials = [acl for acl in todo.acls if acl.permission == "DENY"]
    narrowing = [*map(in_words, denials)]
    narrowing += [f"{limit.key} of {words(limit.entity)}" for limit in todo.limits]
    if narrowing and not own_principal(ctx):
        raise Refused(
            f"the migration's own principal on the target is not known, so it could be meant by: {listed(narrowing)}",
            remedy="name it in access.own_principal of the plan, or have this made by an administrator"
            " (`access PLAN --commands`)",
        )
    if not todo.acls:
        return
    if may_be_open(ctx.target):
        raise Refused(
            f"the target's brokers may let everybody use what has no ACL ({OPEN_DOOR} is set, and its value hidden):"
            " the first ACL on a topic would shut out whoever has none there, the migration, too",
            remedy="have all who use the target granted what they need, and this setting removed from its brokers; or"
            " have the ACLs made by an administrator who knows better (`access PLAN --commands`)",
        )
    if shared := denials_of_fences(ctx, TARGET).intersection(denials):
        raise Refused(
            f"a fence on the target makes, or made until a minute ago, some of the same denials, which go with it:"
            f" {listed(map(in_words, in_order(shared)))}",
            remedy="run this again a minute after it was lifted; `status` shows what stands",
        )
    _require_closed(ctx, todo.acls)


def require_rights(ctx: Context, todo: Grants) -> None:
    """Raise Refused if the migration's principal may not make, or remove, ``todo``."""
    needs = {"ALTER": bool(todo.acls or todo.users), "ALTER_CONFIGS": bool(todo.limits)}
    if lacks := sorted({right for right, is_needed in needs.items() if is_needed} - ctx.target.cluster_operations()):
        names = {"ALTER": "Alter (for ACLs and SCRAM users)", "ALTER_CONFIGS": "AlterConfigs (for client quotas)"}
        raise Refused(
            f"the migration's principal lacks on the target's cluster: {listed(names[right] for right in lacks)}",
            remedy="grant it (`acls PLAN` prints it as optional), or have it done by an administrator"
            " (`access PLAN --commands` prints how)",
        )


def _require_closed(ctx: Context, acls: Iterable[Acl]) -> None:
    """Nobody is let in whom a fence keeps from the target, or should."""
    every = [*acls]
    for ban in _CLOSED:
        last = record.read(ctx, ban)
        if last is None or not last.stands or not any(ban.allows(acl, (acl.resource,)) for acl in every):
            continue
        topics = {name for name in (*ctx.source.topic_names(), *ctx.target.topic_names()) if ctx.selects_topic(name)}
        if unclosed := may(every, ban, map(ctx.target.topic_here, topics.difference(last.names))):
            raise Refused(
                f"the target is closed to producers since {last.at}, but not yet in topics that came later, to which"
                f" these could write: {listed(sorted(unclosed))}",
                remedy="run `create` again, which closes them, too",
            )
        if not (writers := may(every, ban, map(ctx.target.topic_here, last.names))):
            continue
        text = f"the target is closed to producers ({last.state} since {last.at})"
        if last.state is not FenceState.FENCED:
            raise Refused(
                f"the target is being closed to producers, or opened ({last.state} since {last.at}), which is not done"
                " yet",
                remedy="wait until it is done; `status` shows how to go on if its process died",
            )
        denied = {*last.snapshot.principals, last.snapshot.probe} if last.snapshot else set[str]()
        if late := sorted(writers - denied):
            remedy = LIFTED_BY[ban.key]
            if EVERYBODY in late:
                remedy = f"leave these ACLs out (access.exclude), or wait: {remedy}"
            elif ban is EARLY_WRITES:
                remedy = (
                    "name them in principals of producers.target_fence (or producers.fence, where that is its own), and"
                    f" run `create` again, which denies them first; or wait: {remedy}"
                )
            raise Refused(f"{text}, and these would be let in: {listed(late)}", remedy=remedy)
        if gone := frozenset(last.snapshot.wanted(ban) if last.snapshot else ()).difference(ctx.target.acls()):
            raise Refused(
                f"{text}, and {len(gone)} of its denials are gone from the target",
                remedy="run `create` again, which makes them again",
            )


def apply(ctx: Context, todo: Grants, require_still: Callable[[], None], passwords: Mapping[str, str] = _NONE) -> None:
    """Make ``todo``, its users with these ``passwords``, and read it back. Killed anywhere, the next call goes on with
    what is missing then.

    Raises Refused as :func:`check` does, what ``require_still`` raises, and TakenOver if somebody else makes or removes
    access meanwhile: then nothing of it is left. CouldNotFindOut if the target does not show what was made.
    """
    claim = ctx.journal.claim(KIND, _OWNER, at=ctx.stamp())
    check(ctx, todo)
    done: dict[int, Grants] = {}

    def require(acls: Iterable[Acl]) -> None:
        ctx.journal.require(claim)
        require_still()
        _require_closed(ctx, acls)

    try:
        for number, part in enumerate(_parts(todo, "DENY", "ALLOW")):
            require(part.acls)
            _require_new(ctx, part.users)
            done[number] = part
            ctx.journal.write(_noted(ctx, claim, {number: part}))
            ctx.log(f"make {part}")
            _change(ctx, part, passwords)
        require(todo.acls)
        _read_back(ctx, todo, "made")
        if any(ban.allows(acl, (acl.resource,)) for ban in _CLOSED for acl in todo.acls) and ctx.plan.producers:
            # Whoever closes the target has looked whom to deny, and then writes down that it does.
            ctx.clock.sleep(_CLOSING_SECONDS)
        require(todo.acls)
    except (Refused, TakenOver):
        for part in reversed(done.values()):
            fence.insist(ctx, partial(_change, ctx, part, removes=True))
        ctx.journal.forget_all(KIND, [_name(claim, number) for number in done])
        raise


def _require_new(ctx: Context, users: Iterable[ScramUser]) -> None:
    names = {user.user for user in users}
    if names and (there := names & whole(ctx.target.scram_users(), made(ctx.journal).users)):
        raise Refused(
            f"somebody has made these SCRAM users on the target meanwhile: {listed(sorted(there))}",
            remedy="run this again: their passwords stay",
        )


# -- undoing ----------------------------------------------------------------------------------------------------------


def to_undo(ctx: Context) -> ToUndo:
    """What :func:`undo` would remove. Changes nothing."""
    mine, others = made(ctx.journal), [*_others(ctx)]
    theirs = {(limit.entity, limit.key) for other in others for limit in other.made.limits}
    values = _values(ctx) if mine.limits else {}
    credentials = _credentials(ctx) if mine.users else {}
    kept = {acl for acl in mine.acls if any(other.may_go_by(acl) for other in others)}
    # Without its denials, what stays would allow more than it did.
    kept |= {acl for acl in mine.acls if acl.permission == "DENY" and any(_narrows(acl, one) for one in kept)}
    stay = Grants(
        acls=tuple(in_order(kept)),
        limits=tuple(limit for limit in mine.limits if (limit.entity, limit.key) in theirs),
        # Whom else a user's clients read and write, nobody knows.
        users=mine.users if any(other.has_begun for other in others) else (),
    )
    reset = [user for user in mine.users if any(now != one for now, one in _both(user, credentials) if now is not None)]
    allowed_first = reversed(in_order({*mine.acls} - {*stay.acls}))
    ours = {limit: values.get((limit.entity, limit.key)) for limit in mine.limits if limit not in stay.limits}
    return ToUndo(
        removed=Grants(
            acls=tuple(allowed_first),
            limits=tuple(one for one, now in ours.items() if now in (None, one.value)),
            users=tuple(user for user in mine.users if user not in (*stay.users, *reset)),
        ),
        stay=stay,
        changed=Grants(
            limits=tuple(one for one, now in ours.items() if now not in (None, one.value)),
            users=tuple(user for user in reset if user not in stay.users),
        ),
    )


def _both(user: ScramUser, there: Mapping[str, Mapping[str, int]]) -> Iterator[tuple[int | None, int]]:
    """Of each of the credentials: iterations on the target, None without it, and those that it was made with."""
    now = there.get(user.user, {})
    return ((now.get(mechanism), iterations) for mechanism, iterations in user.credentials)


def _narrows(denial: Acl, allowed: Acl) -> bool:
    """Whether ``denial`` takes something of what ``allowed`` grants."""
    if allowed.permission != "ALLOW" or denial.resource_type != allowed.resource_type:
        return False
    if denial.principal != allowed.principal and EVERYBODY not in (denial.principal, allowed.principal):
        return False
    if denial.pattern == "LITERAL":
        return allowed.is_on(denial.resource_type, denial.resource)
    return denial.is_on(allowed.resource_type, allowed.resource) or (
        allowed.pattern == "PREFIXED" and denial.resource.startswith(allowed.resource)
    )


def undo(ctx: Context, require_unused: Callable[[], None]) -> ToUndo:
    """Remove what was made, and read back. Killed anywhere, the next call goes on.

    Raises what ``require_unused`` raises, Refused while a fence relies on any of it, TakenOver if somebody makes access
    meanwhile, CouldNotFindOut if the target still shows what was removed.
    """
    claim = ctx.journal.claim(KIND, _OWNER, at=ctx.stamp())
    names, todo = list(ctx.journal.all(KIND)), to_undo(ctx)
    require_rights(ctx, todo.removed)
    others, users = replace(todo.removed, users=()), tuple[ScramUser, ...]()
    removed: list[Grants] = []

    def require() -> None:
        ctx.journal.require(claim)
        require_unused()
        _require_no_fence(ctx, todo.removed.acls)

    try:
        for part in _parts(others, "ALLOW", "DENY"):
            require()
            ctx.log(f"remove {part}")
            removed.append(part)
            # Also what this broker does not show yet, or not any more.
            _change(ctx, part, removes=True)
        _read_back(ctx, others, "removed")
        require()
    except Refused:
        # Somebody has begun to rely on it meanwhile, and has found it there.
        for part in reversed(removed):
            fence.insist(ctx, partial(_change, ctx, part))
        raise
    # Last, when nobody relies on the rest: they could not be made again with the passwords that they had.
    for part in _parts(Grants(users=todo.removed.users)):
        ctx.journal.require(claim)
        # Whoever has set a password, or begun to go by it, since the beginning keeps it.
        now = to_undo(ctx)
        gone = tuple(user for user in part.users if user in now.removed.users)
        _change(ctx, Grants(users=gone), removes=True)
        users += gone
        todo = ToUndo(
            removed=replace(others, users=users),
            stay=replace(todo.stay, users=now.stay.users),
            changed=replace(todo.changed, users=now.changed.users),
        )
    _read_back(ctx, Grants(users=users), "removed")
    # What another migration has made as well, that one removes.
    theirs = frozenset[Acl]().union(*(other.made.acls for other in _others(ctx)))
    their_users = frozenset(user.user for other in _others(ctx) for user in other.made.users)
    left = Grants(
        acls=tuple(acl for acl in todo.stay.acls if acl not in theirs),
        users=tuple(user for user in todo.stay.users if user.user not in their_users),
    )
    kept = _noted(ctx, claim, dict(enumerate(_parts(left, "DENY", "ALLOW"))))
    ctx.journal.write({**kept, **{(KIND, name): None for name in names}})
    return todo


def _require_no_fence(ctx: Context, acls: Iterable[Acl]) -> None:
    """A denial that was there before a fence is not made by it, and the fence would fall with it."""
    cluster, mine = ctx.target.cluster_id(), frozenset(acls)
    for ban in BANS:
        if ban.side != TARGET:
            continue
        last = record.read(ctx, ban)
        wanted = frozenset(last.snapshot.wanted(ban) if last is not None and last.stands and last.snapshot else ())
        if shared := mine & wanted.union(*record.of_others(ctx, ban, cluster).values()):
            raise Refused(
                f"a fence on the target ({ban.key}) relies on {len(shared)} of these ACLs:"
                f" {listed(map(in_words, in_order(shared)))}",
                remedy=f"wait until it is lifted: {LIFTED_BY[ban.key]}",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Other:
    """Another migration to this target: what it has made, whether it has begun at all, and by which plan (None: it has
    none yet, or this version cannot read it)."""

    made: Grants
    has_begun: bool
    plan: Plan | None

    def may_go_by(self, acl: Acl) -> bool:
        """Whether its clients may need ``acl``, or be meant by it. What is of no single topic or group may be
        anybody's."""
        if acl in self.made.acls:
            return True
        if not self.has_begun or self.plan is None:
            return self.has_begun
        if acl.pattern == "LITERAL" and acl.resource_type == "TOPIC":
            return self.plan.topics.matches(self.plan.topic_names.known_as(acl.resource))
        return acl.pattern != "LITERAL" or acl.resource_type != "GROUP" or self.plan.groups.matches(acl.resource)


def _others(ctx: Context) -> Iterator[_Other]:
    for journal in ctx.journal.others():
        cancelled = cancellation.of(journal)
        if cancelled is None or not cancelled.holds:
            plan, last, theirs = None, joined.of(journal), made(journal)
            with suppress(InvalidPlan):
                plan = last.plan() if last is not None else None
            yield _Other(made=theirs, has_begun=last is not None or bool(theirs), plan=plan)


# -- both -------------------------------------------------------------------------------------------------------------


def _parts(grants: Grants, *permissions: str) -> Iterator[Grants]:
    """``grants`` in parts, ACLs in this order of their permissions."""
    for permission in permissions:
        acls = [acl for acl in grants.acls if acl.permission == permission]
        for at in range(0, len(acls), _AT_ONCE):
            yield Grants(acls=tuple(acls[at : at + _AT_ONCE]))
    for at in range(0, len(grants.limits), _AT_ONCE):
        yield Grants(limits=grants.limits[at : at + _AT_ONCE])
    for at in range(0, len(grants.users), _AT_ONCE):
        yield Grants(users=grants.users[at : at + _AT_ONCE])


def _change(ctx: Context, part: Grants, passwords: Mapping[str, str] = _NONE, *, removes: bool = False) -> None:
    if part.acls and removes:
        ctx.target.delete_acls(part.acls)
    elif part.acls:
        ctx.target.create_acls(part.acls)
    if part.limits:
        changes: dict[Entity, dict[str, float | None]] = {}
        for limit in part.limits:
            changes.setdefault(limit.entity, {})[limit.key] = None if removes else limit.value
        ctx.target.alter_quotas(changes)
    if part.users and removes:
        ctx.target.alter_scram_users({}, removed=part.users)
    elif part.users:
        ctx.target.alter_scram_users({user: passwords[user.user] for user in part.users})


def _limit(value: Mapping[str, Any]) -> Limit:
    entity = tuple((kind, name) for kind, name in value["entity"])
    return Limit(entity=entity, key=value["key"], value=value["value"], there=value["there"])


def _user(value: Mapping[str, Any]) -> ScramUser:
    return ScramUser(user=value["user"], credentials=tuple((name, count) for name, count in value["credentials"]))


def _name(claim: Claim, number: int) -> str:
    return f"{claim.owner_epoch}.{number}"


def _noted(ctx: Context, claim: Claim, parts: Mapping[int, Grants]) -> dict[tuple[str, str], dict[str, Any] | None]:
    """Records of ``parts`` by their numbers, under names that no other claim has."""
    at = ctx.stamp()
    return {(KIND, _name(claim, number)): {"at": at, **part.as_dict()} for number, part in parts.items()}


def _values(ctx: Context) -> dict[tuple[Entity, str], float]:
    return {(quota.entity, key): value for quota in ctx.target.quotas() for key, value in quota.limits}


def _credentials(ctx: Context) -> dict[str, dict[str, int]]:
    """Iterations of the target's SCRAM users, by name and mechanism."""
    return {user.user: dict(user.credentials) for user in ctx.target.scram_users()}


def _read_back(ctx: Context, grants: Grants, what: Literal["made", "removed"]) -> None:
    """Return once the target shows ``grants``, or none of them: a change may take a moment to get to a broker."""
    is_there = what == "made"
    for _ in tries(ctx.clock, seconds=_READ_BACK_SECONDS, pause=_READ_BACK_PAUSE):
        acls = frozenset(ctx.target.acls()) if grants.acls else frozenset[Acl]()
        values = _values(ctx) if grants.limits else {}
        credentials = _credentials(ctx) if grants.users else {}
        wrong = [in_words(acl) for acl in grants.acls if (acl in acls) is not is_there]
        wrong += [
            f"{limit.key} of {words(limit.entity)}"
            for limit in grants.limits
            if (values.get((limit.entity, limit.key)) == limit.value) is not is_there
        ]
        wrong += [
            f"SCRAM user {user.user}"
            for user in grants.users
            if any(now != (one if is_there else None) for now, one in _both(user, credentials))
        ]
        if not wrong:
            return
    state = "not shown by the target yet" if is_there else "still shown by the target"
    raise CouldNotFindOut(
        f"{what}, and {_READ_BACK_SECONDS:g} s later {state}: {listed(wrong)}",
        remedy="run this again; if it stays so, somebody else changes them",
    )
