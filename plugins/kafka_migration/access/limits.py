"""Client quotas and SCRAM users of those who use the plan's topics and groups: what the target lacks. Changes nothing.

A quota of a named user is carried if that user may use something of the plan's, under the user's name on the target.
One of everybody, of a client id or of an address concerns others, too: it is listed, and left to an administrator.
Secrets of SCRAM users cannot be read, so who lacks credentials gets new ones: as the plan has it (``access.users``), or
by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

from kafka_migration.domain.errors import NotAuthorized
from kafka_migration.domain.printable import in_one_line
from kafka_migration.kafka.errors import NotSupported
from kafka_migration.kafka.types import Quota, ScramUser

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: (type, name) pairs; the name None stands for that type's default.
Entity = tuple[tuple[str, str | None], ...]

_USER = "user"
_OPTIONS = {_USER: "users", "client-id": "clients"}
#: What brokers take: ScramMechanism's fewest iterations, ScramControlManager's most.
_FEWEST_ITERATIONS, _MOST_ITERATIONS = 4_096, 16_384
_ENABLED = "sasl.enabled.mechanisms"

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit of the source: ``value`` of ``key`` for ``entity``, under its name on the target, where it is ``there``
    (None: it has none)."""

    entity: Entity
    key: str
    value: float
    there: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """``missing`` on the target; ``different`` there, which somebody has decided; ``by_hand``: those of the source, not
    on the target, that concern more than the plan's clients. ``users`` have SCRAM credentials on the source alone: by
    their names on the target, None if that could not be read. ``unknown`` is what could not be read, and why;
    ``unknown_users`` what of it is about users, and ``shows_users``: whether a right would show them."""

    missing: tuple[Limit, ...] = ()
    different: tuple[Limit, ...] = ()
    by_hand: tuple[Limit, ...] = ()
    users: tuple[ScramUser, ...] | None = ()
    unknown: tuple[str, ...] = ()
    unknown_users: tuple[str, ...] = ()
    shows_users: bool = True
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "missing": [asdict(limit) for limit in self.missing],
            "different": [asdict(limit) for limit in self.different],
            "by_hand": [asdict(limit) for limit in self.by_hand],
            "scram_users": [asdict(user) for user in self.users or ()],
            "unknown": list(self.unknown),
            "notes": list(self.notes),
        }


def read(ctx: Context, users: Mapping[str, str], begun: Iterable[ScramUser]) -> Limits:
    """Compare both clusters, for ``users`` of the source by their names on the target; SCRAM users that the migration
    has ``begun`` to make may lack credentials. Raises what clusters that do not answer raise."""
    unknown: dict[str, Exception] = {}

    def asked(what: str, read: Callable[[], tuple[_T, ...]]) -> tuple[_T, ...] | None:
        try:
            return read()
        except (NotAuthorized, NotSupported) as error:
            unknown[f"{what} cannot be read: {error.message}"] = error
            return None

    found = asked("client quotas of the source", ctx.source.quotas)
    there = asked("client quotas of the target", ctx.target.quotas)
    quotas = tuple(unknown)
    here = asked("SCRAM users of the source", ctx.source.scram_users)
    known = asked("SCRAM users of the target", ctx.target.scram_users)
    limits = Limits() if found is None or there is None else _compared(found, there, users)
    if here is None or known is None:
        of_users = tuple(what for what in unknown if what not in quotas)
        shows_users = not any(isinstance(unknown[what], NotSupported) for what in of_users)
        return replace(limits, users=None, unknown=tuple(unknown), unknown_users=of_users, shows_users=shows_users)
    lack = tuple(_lacking(here, whole(known, begun), users))
    return replace(limits, users=lack, unknown=tuple(unknown), notes=tuple(_notes(ctx, lack)))


def whole(there: Iterable[ScramUser], begun: Iterable[ScramUser]) -> frozenset[str]:
    """Names of the users who are ``there``, but for those ``begun`` that have only some of their credentials: brokers
    are sent one mechanism after the other, and whoever died in between has left a password that nobody may know."""
    wanted = {user.user: {*user.credentials} for user in begun}
    return frozenset(user.user for user in there if not {*user.credentials} < wanted.get(user.user, set()))


def _lacking(source: Iterable[ScramUser], have: Collection[str], users: Mapping[str, str]) -> Iterator[ScramUser]:
    wanted = dict[str, dict[str, int]]()
    for user in source:
        if (name := users.get(user.user)) is not None and name not in have:
            # Of users that become one, the strongest.
            of_user = wanted.setdefault(name, {})
            for mechanism, iterations in user.credentials:
                clamped = min(max(iterations, _FEWEST_ITERATIONS), _MOST_ITERATIONS)
                of_user[mechanism] = max(clamped, of_user.get(mechanism, 0))
    for name, credentials in sorted(wanted.items()):
        yield ScramUser(user=name, credentials=tuple(sorted(credentials.items())))


def _notes(ctx: Context, lack: Collection[ScramUser]) -> Iterator[str]:
    if not lack:
        return
    with suppress(NotAuthorized, NotSupported):
        configs = ctx.target.broker_configs()
        enabled = str(configs[_ENABLED].value) if _ENABLED in configs else "SCRAM"
        # Of a single listener, brokers show that it is set, and not to what.
        if "SCRAM" not in enabled and not any(name.endswith(f".{_ENABLED}") for name in configs):
            yield f"the target's brokers enable no SCRAM mechanism ({_ENABLED}: {enabled}): its users cannot log in"


def _compared(source: Iterable[Quota], target: Iterable[Quota], users: Mapping[str, str]) -> Limits:
    there = {(quota.entity, key): value for quota in target for key, value in quota.limits}
    # Two users that become one may have a limit each; then which one is meant is not known here.
    wanted: dict[tuple[Entity, str], list[float]] = {}
    ours: set[Entity] = set()
    for quota in source:
        parts = dict(quota.entity)
        named = parts.get(_USER)
        if named is not None and named not in users:
            continue
        if named is not None:
            parts[_USER] = users[named]
        entity = tuple(parts.items())
        if named is not None and set(parts) <= set(_OPTIONS):
            ours.add(entity)
        for key, value in quota.limits:
            wanted.setdefault((entity, key), []).append(value)
    missing, different, by_hand = list[Limit](), list[Limit](), list[Limit]()
    for (entity, key), values in wanted.items():
        now = there.get((entity, key))
        if now in values:
            continue
        is_clear = entity in ours and len(set(values)) == 1
        kind = by_hand if not is_clear else missing if now is None else different
        kind += [Limit(entity=entity, key=key, value=value, there=now) for value in dict.fromkeys(values)]
    return Limits(missing=tuple(missing), different=tuple(different), by_hand=tuple(by_hand))


def commands(limits: Limits, *, servers: str) -> tuple[str, ...]:
    """What makes the missing quotas, as command lines of Kafka's own tool; ``servers`` as a shell word. Those that give
    users new passwords are comments: nobody but an administrator can know one."""
    start = f"kafka-configs --bootstrap-server {servers} --command-config admin.properties --alter --add-config"
    together: dict[Entity, list[Limit]] = {}
    for limit in limits.missing:
        together.setdefault(limit.entity, []).append(limit)
    lines = [
        " ".join([start, quote(",".join(f"{limit.key}={shown(limit.value)}" for limit in some)), *_options(entity)])
        for entity, some in together.items()
    ]
    for user in limits.users or ():
        given = ",".join(f"{name}=[iterations={count},password=NEW]" for name, count in user.credentials)
        # One line, whatever the name is: what follows a line break would be a command.
        lines.append(in_one_line(f"# {start} {quote(given)} {' '.join(_options(((_USER, user.user),)))}"))
    return tuple(lines)


def _options(entity: Entity) -> Iterator[str]:
    for kind, name in entity:
        yield f"--entity-type {_OPTIONS[kind]}"
        yield "--entity-default" if name is None else f"--entity-name {quote(name)}"


def shown(value: float) -> str:
    """A limit as Kafka's tools take it."""
    return f"{value:.0f}" if value.is_integer() else repr(value)


def words(entity: Entity) -> str:
    """An entity for people."""
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity)
