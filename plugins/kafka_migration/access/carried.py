"""Which ACLs of the source become which ones of the target, and why others become none. Pure.

What is granted there reaches the plan's topics and groups, and no others. So an ACL on everything (``*``) becomes one
on each of them; a prefix stays a prefix where all that there is under it, on either cluster, is the plan's, and becomes
names where it is not. Denials follow: they reach as far as what is granted, and no further. What is of the whole
cluster, or would stop the migration itself, is listed, and left to an administrator.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

from kafka_migration.domain.errors import BadInput
from kafka_migration.domain.names import SAME, TopicNames
from kafka_migration.kafka.types import Acl
from kafka_migration.plans.access import Access
from kafka_migration.plans.producers import EVERYBODY

_EVERYTHING = "*"
_WRITES = frozenset({"WRITE", "ALL"})
#: Names of the migration's own topics and transactional ids begin so.
_OWN = "kafka-migration."

_NOT_OURS = "of nothing that the plan selects"
_BY_HAND = "of more than the plan's topics and groups: grant it by hand if it is wanted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """An ACL of the source, and those that the target should have for it; if none, ``why`` is the reason."""

    acl: Acl
    made: tuple[Acl, ...] = ()
    why: str = ""


class Names:
    """Topics, or groups. ``selects`` says of a name whether the plan means it, also of one that is yet to come;
    ``there`` are those that there are, on either cluster."""

    def __init__(self, selects: Callable[[str], bool], there: Iterable[str]) -> None:
        every = sorted(set(there))
        self.selects = selects
        self.selected = [name for name in every if selects(name)]
        self._others = [name for name in every if not selects(name)]

    def under(self, prefix: str) -> list[str]:
        """Those that the plan selects, with this prefix."""
        return _under(self.selected, prefix)

    def is_whole(self, prefix: str) -> bool:
        """Whether nothing else has this prefix."""
        return not _under(self._others, prefix) and not _overlap(prefix, _OWN)


def _under(ordered: list[str], prefix: str) -> list[str]:
    first = bisect_left(ordered, prefix)
    last = first
    while last < len(ordered) and ordered[last].startswith(prefix):
        last += 1
    return ordered[first:last]


def _overlap(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


@dataclass(slots=True, kw_only=True)
class Copying:
    """What is known when ACLs are carried: ``names`` by resource type, the plan's section, how topics are ``called`` on
    the target, ``own`` principals of the migration on either cluster, and ``fences``, denials that migrations made
    themselves, which are no permissions."""

    names: Mapping[str, Names]
    access: Access
    called: TopicNames = SAME
    own: Set[str] = frozenset()
    fences: Set[Acl] = frozenset()
    _kept: dict[str, list[str]] = field(default_factory=dict, init=False)
    _writers: set[str] = field(default_factory=set, init=False)

    def carried(self, acls: Iterable[Acl]) -> tuple[Carried, ...]:
        """What becomes of each of ``acls`` whose principal may use something of the plan's, or is denied it.

        Raises BadInput if two principals get one name, and one of them is denied something.
        """
        every = [acl for acl in acls if acl not in self.fences]
        allowed = [acl for acl in every if acl.permission == "ALLOW" and self._is_on(acl)]
        self._kept = {
            kind: sorted(
                {
                    acl.resource
                    for acl in allowed
                    if acl.resource_type == kind
                    and acl.pattern == "PREFIXED"
                    and names.is_whole(acl.resource)
                    and (kind != "TOPIC" or self.called.prefix_on_target(acl.resource) is not None)
                }
            )
            for kind, names in self.names.items()
        }
        self._writers = {acl.principal for acl in allowed if acl.resource_type == "TOPIC" and acl.operation in _WRITES}
        concerned = [acl for acl in every if self._is_on(acl) or self._narrows(acl)]
        users = {acl.principal for acl in concerned}
        if EVERYBODY in self._writers:
            users |= {acl.principal for acl in every if acl.resource_type == "TRANSACTIONAL_ID"}
        self._require_apart(concerned)
        return tuple(self._one(acl) for acl in every if acl.principal in users)

    def _is_on(self, acl: Acl) -> bool:
        if (names := self.names.get(acl.resource_type)) is None:
            return False
        if acl.pattern == "PREFIXED":
            return bool(names.under(acl.resource))
        return bool(names.selected) if acl.resource == _EVERYTHING else names.selects(acl.resource)

    def _narrows(self, acl: Acl) -> bool:
        """Whether it denies some of what is granted by a prefix, though nothing of that is there yet."""
        kept = self._kept.get(acl.resource_type, [])
        if acl.permission != "DENY" or not kept:
            return False
        if acl.pattern == "PREFIXED":
            return any(_overlap(acl.resource, prefix) for prefix in kept)
        return acl.resource == _EVERYTHING or any(acl.resource.startswith(prefix) for prefix in kept)

    def _require_apart(self, concerned: Iterable[Acl]) -> None:
        called: dict[str, set[str]] = {}
        denied: set[str] = set()
        for acl in concerned:
            if acl.principal not in self.access.exclude:
                name = self.access.principals.get(acl.principal, acl.principal)
                called.setdefault(name, set()).add(acl.principal)
                denied |= {name} if acl.permission == "DENY" else set()
        for name in sorted(denied):
            if len(called[name]) > 1:
                raise BadInput(
                    f"{', '.join(sorted(called[name]))} would all be {name}, and what one is denied, all would be",
                    field="access.principals",
                    remedy="give each a name of its own, or exclude one of them (access.exclude)",
                )

    def _one(self, acl: Acl) -> Carried:
        if acl.principal in self.access.exclude:
            return Carried(acl=acl, why="the plan excludes this principal (access.exclude)")
        if acl.principal in self.own:
            return Carried(acl=acl, why="the migration's own principal: `acls` prints what it needs")
        named = replace(acl, principal=self.access.principals.get(acl.principal, acl.principal))
        if acl.operation.isdecimal():
            return Carried(acl=acl, why="an operation that is not known here")
        if acl.permission == "DENY" and (named.principal == EVERYBODY or named.principal in self.own):
            return Carried(acl=acl, why="it would deny the migration, too: make it by hand when that is over")
        if acl.resource_type in self.names:
            made = tuple(dict.fromkeys(map(self._on_target, self._made(named))))
            return Carried(acl=acl, made=made, why="" if made else _NOT_OURS)
        if acl.resource_type == "CLUSTER" and acl.operation == "IDEMPOTENT_WRITE":
            return self._of_writers(acl, named)
        if acl.resource_type == "TRANSACTIONAL_ID":
            is_own = acl.resource.startswith(_OWN) or (acl.pattern == "PREFIXED" and _overlap(acl.resource, _OWN))
            if is_own or acl.resource == _EVERYTHING:
                return Carried(acl=acl, why="reaches the migration's own id: grant those that are in use by hand")
            return self._of_writers(acl, named)
        return Carried(acl=acl, why=_BY_HAND)

    def _on_target(self, acl: Acl) -> Acl:
        if acl.resource_type != "TOPIC":
            return acl
        if acl.pattern == "PREFIXED":
            return replace(acl, resource=self.called.prefix_on_target(acl.resource) or acl.resource)
        return replace(acl, resource=self.called.on_target(acl.resource))

    def _of_writers(self, acl: Acl, named: Acl) -> Carried:
        if acl.principal in self._writers or EVERYBODY in self._writers:
            return Carried(acl=acl, made=(named,))
        return Carried(acl=acl, why="its principal writes to none of the plan's topics")

    def _made(self, acl: Acl) -> Iterator[Acl]:
        names, kept = self.names[acl.resource_type], self._kept[acl.resource_type]
        is_denial = acl.permission == "DENY"
        if acl.pattern == "LITERAL" and acl.resource != _EVERYTHING:
            if names.selects(acl.resource) or self._narrows(acl):
                yield acl
            return
        prefix = "" if acl.pattern == "LITERAL" else acl.resource
        if is_denial:
            for granted in kept:
                if _overlap(prefix, granted):
                    yield replace(acl, pattern="PREFIXED", resource=max(prefix, granted, key=len))
        elif prefix in kept:
            yield acl
            return
        yield from (replace(acl, pattern="LITERAL", resource=name) for name in names.under(prefix))


def in_order(acls: Iterable[Acl]) -> list[Acl]:
    """As they are to be made: denials first, so that nobody may more in between than in the end."""
    return sorted(set(acls), key=lambda acl: (acl.permission != "DENY", repr(acl)))
