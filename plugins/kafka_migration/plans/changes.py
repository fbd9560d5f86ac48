"""What differs between two readings of one plan, field by field, and from when on each difference holds while the
migration runs. What may not change at all then stands here, too: a change of it would mean another migration.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

#: Field -> what to do instead of changing it.
_FIXED = {
    "name": "give the plan its name back; by another name it is another migration",
    "source": "name this connection again, and change the addresses in the connection itself; another cluster is"
    " migrated from by a plan of another name",
    "target": "name this connection again, and change the addresses in the connection itself; another cluster is"
    " migrated to by a plan of another name",
    "naming": "give it its former value, as topics were created by it, and their copies are found by it; or migrate by"
    " a plan of another name",
}

_NEXT_START = "from the next start of the mirror on"
#: Field, or the section that it stands in -> from when on a change of it holds.
_HOLDS = {
    "topics.adopt": "for topics that are created from now on",
    "topics": "topics in addition are copied by the mirror that runs, once `create` has made them; topics that are left"
    " out are copied until its next start",
    "topic_defaults": "for topics that are created from now on",
    "mirror.start": "for topics that are mirrored for the first time from now on",
    "mirror.follow_new_topics": "for the mirror that runs, once `create` has run",
    "mirror": _NEXT_START,
    "handlers": f"{_NEXT_START}; what was copied before is compared by them, too, so where they make other records of"
    " it, copy the topic again",
    "producers": "for the next fence; one that stands is lifted as it was made",
}
_AT_ONCE = "from the next step on"

_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One field that differs. ``before`` and ``now`` are JSON values as text; ``holds`` is from when on it counts.

    ``remedy`` only for what may not change while the migration runs: what to do instead.
    """

    field: str
    before: str
    now: str
    holds: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.field} was {_shown(self.before)}, is {_shown(self.now)} ({self.holds})"

    def as_dict(self) -> dict[str, str]:
        """JSON types only."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, str]) -> Self:
        """The inverse of ``as_dict``."""
        return cls(**value)


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[Change, ...]:
    """What differs between two snapshots of a plan, in the order of ``now``. A list differs as a whole; a field that
    one of them lacks counts as null there."""
    return tuple(_change(field, *values) for field, values in _differing("", before, now))


def _differing(path: str, before: Any, now: Any) -> Iterator[tuple[str, tuple[Any, Any]]]:
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys((*now, *before)):
            yield from _differing(f"{path}.{name}" if path else name, before.get(name), now.get(name))
    elif before != now:
        yield path, (before, now)


def _change(field: str, before: Any, now: Any) -> Change:
    holds = next((holds for place, holds in _HOLDS.items() if f"{field}.".startswith(f"{place}.")), _AT_ONCE)
    remedy = next((remedy for place, remedy in _FIXED.items() if f"{field}.".startswith(f"{place}.")), "")
    return Change(
        field=field,
        before=json.dumps(before, ensure_ascii=False),
        now=json.dumps(now, ensure_ascii=False),
        holds="may not change while the migration runs" if remedy else holds,
        remedy=remedy,
    )


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
