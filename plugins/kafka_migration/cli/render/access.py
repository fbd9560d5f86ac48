"""ACLs and client quotas that the target lacks, and those of the source that it need not have."""

from __future__ import annotations

from collections.abc import Iterator
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
    from kafka_migration.kafka.types import Acl

#: Enough to see which; --json has them all.
_SHOWN = 100


def difference(seen: AccessDiff, limits: Limits) -> RenderableType:
    """All as tables, and how many are there."""
    columns = ("permission", "principal", "operation", "on")
    missing = [_row(acl) for acl in seen.missing]
    left_out = [(*_row(one.acl), one.why) for one in seen.left_out]
    count = len(missing) + len(limits.missing)
    lacks = f"{count} missing: `--apply` makes them, `--commands` prints how" if count else "none missing"
    quotas = ("of", "limit", ">source", ">target")
    ours = [_limit(limit) for limit in (*limits.missing, *limits.different)]
    others = [_limit(limit) for limit in limits.by_hand]
    return Group(
        grid("The target lacks", columns, missing[:_SHOWN], note=_more(len(missing))),
        grid("Not copied", (*columns, "why"), left_out[:_SHOWN], note=_more(len(left_out))),
        grid("Client quotas that the target lacks, or has another value of", quotas, ours),
        grid("Client quotas of others, too: set them by hand, if they are wanted", quotas, others),
        facts(("note", text) for text in (*seen.notes, *limits.unknown, *_users(limits))),
        Text(f"{seen.present} ACLs there, {lacks}", "bold yellow" if count else "green"),
    )


def lines(grants: Grants) -> Iterator[str]:
    """Each ACL and limit, for whoever is asked."""
    yield from map(in_words, grants.acls)
    yield from (f"{limit.key}={shown(limit.value)} of {words(limit.entity)}" for limit in grants.limits)


def staying(found: ToUndo) -> RenderableType:
    """What is not removed, and why."""
    columns = ("permission", "principal", "operation", "on")
    stay, quotas = [_row(acl) for acl in found.stay.acls], ("of", "limit", ">set", ">before")
    return Group(
        grid("Stay, as another migration may go by them", columns, stay[:_SHOWN], note=_more(len(stay))),
        grid("Stay, as another migration goes by them", quotas, [_limit(limit) for limit in found.stay.limits]),
        grid("Stay, as somebody has set another value since", quotas, [_limit(limit) for limit in found.changed]),
    )


def _limit(limit: Limit) -> tuple[str, str, str, str]:
    there = "" if limit.there is None else shown(limit.there)
    return words(limit.entity), limit.key, shown(limit.value), there


def _users(limits: Limits) -> Iterator[str]:
    if limits.users:
        names = listed(f"{user.user} ({', '.join(name for name, _ in user.credentials)})" for user in limits.users)
        yield f"no SCRAM credentials on the target: {names}; give them new passwords, or other ways to authenticate"


def _more(count: int) -> str:
    return f"and {count - _SHOWN} more: --json shows all" if count > _SHOWN else ""


def _row(acl: Acl) -> tuple[str, str, str, str]:
    return acl.permission, acl.principal, acl.operation, where(acl)
