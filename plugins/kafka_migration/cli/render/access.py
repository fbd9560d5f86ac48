"""ACLs, client quotas and SCRAM users that the target lacks, and those of the source that it need not have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from kafka_migration.access.difference import in_words, where
from kafka_migration.access.limits import shown, words
from kafka_migration.cli.render.tables import facts, grid
from kafka_migration.domain.listing import listed

if TYPE_CHECKING:
    from kafka_migration.access.difference import AccessDiff
    from kafka_migration.access.grants import Grants, ToUndo
    from kafka_migration.access.limits import Limit, Limits
    from kafka_migration.kafka.types import Acl, ScramUser

#: Enough to see which; --json has them all.
_SHOWN = 100
_CREDENTIALS = ("user", "mechanism", ">iterations")


def difference(seen: AccessDiff, limits: Limits, users: Collection[ScramUser] = ()) -> RenderableType:
    """All as tables, with the ``users`` that are to be made, and how many ACLs are there."""
    columns = ("permission", "principal", "operation", "on")
    missing = [_row(acl) for acl in seen.missing]
    left_out = [(*_row(one.acl), one.why) for one in seen.left_out]
    count = len(missing) + len(limits.missing) + len(users)
    lacks = f"{count} missing: `--apply` makes them, `--commands` prints how" if count else "none missing"
    quotas = ("of", "limit", ">source", ">target")
    ours = [_limit(limit) for limit in (*limits.missing, *limits.different)]
    others = [_limit(limit) for limit in limits.by_hand]
    return Group(
        grid("The target lacks", columns, missing[:_SHOWN], note=_more(len(missing))),
        grid("Not copied", (*columns, "why"), left_out[:_SHOWN], note=_more(len(left_out))),
        grid("Client quotas that the target lacks, or has another value of", quotas, ours),
        grid("Client quotas of others, too: set them by hand, if they are wanted", quotas, others),
        grid("SCRAM users that get new passwords", _CREDENTIALS, _credentials(users)),
        facts(("note", text) for text in (*seen.notes, *limits.unknown, *limits.notes, *_by_hand(limits, users))),
        Text(f"{seen.present} ACLs there, {lacks}", "bold yellow" if count else "green"),
    )


def lines(grants: Grants) -> Iterator[str]:
    """Each ACL, limit and user, for whoever is asked."""
    yield from map(in_words, grants.acls)
    yield from (f"{limit.key}={shown(limit.value)} of {words(limit.entity)}" for limit in grants.limits)
    yield from (f"SCRAM user {user} by {name}, {count} iterations" for user, name, count in _credentials(grants.users))


def staying(found: ToUndo) -> RenderableType:
    """What is not removed, and why."""
    columns = ("permission", "principal", "operation", "on")
    stay, quotas = [_row(acl) for acl in found.stay.acls], ("of", "limit", ">set", ">before")
    return Group(
        grid("Stay, as another migration may go by them", columns, stay[:_SHOWN], note=_more(len(stay))),
        grid("Stay, as another migration goes by them", quotas, [_limit(limit) for limit in found.stay.limits]),
        grid("Stay, as another migration's clients may log in so", _CREDENTIALS, _credentials(found.stay.users)),
        grid(
            "Stay, as somebody has set another value since", quotas, [_limit(limit) for limit in found.changed.limits]
        ),
        grid("Stay, as somebody has set another password since", _CREDENTIALS, _credentials(found.changed.users)),
    )


def _limit(limit: Limit) -> tuple[str, str, str, str]:
    there = "" if limit.there is None else shown(limit.there)
    return words(limit.entity), limit.key, shown(limit.value), there


def _credentials(users: Iterable[ScramUser]) -> list[tuple[str, str, str]]:
    return [(user.user, name, str(count)) for user in users for name, count in user.credentials]


def _by_hand(limits: Limits, made: Collection[ScramUser]) -> Iterator[str]:
    if users := [user for user in limits.users or () if user not in made]:
        names = listed(f"{user.user} ({', '.join(name for name, _ in user.credentials)})" for user in users)
        yield f"no SCRAM credentials on the target: {names}; give them new passwords, or other ways to authenticate"


def _more(count: int) -> str:
    return f"and {count - _SHOWN} more: --json shows all" if count > _SHOWN else ""


def _row(acl: Acl) -> tuple[str, str, str, str]:
    return acl.permission, acl.principal, acl.operation, where(acl)
