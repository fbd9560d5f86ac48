"""Many things in one line of a message: the first few, and how many more there are."""

from __future__ import annotations

from collections.abc import Iterable

_SHOWN = 8


def listed(items: Iterable[object], *, separator: str = ", ") -> str:
    """The first few of ``items``, and how many more there are."""
    texts = [str(item) for item in items]
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return separator.join(texts[:_SHOWN]) + more
