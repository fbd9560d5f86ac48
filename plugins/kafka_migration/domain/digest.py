"""Digests of plans, inventories, evidence and reports: what an approval or a signature binds to."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def digest_of(value: Any) -> str:
    """SHA-256 over the canonical JSON of ``value`` (sorted keys, no blanks), as ``sha256:<64 hex digits>``.

    ``value`` must consist of JSON types only: anything else raises TypeError rather than be digested by its
    accidental string form.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, as ``object_pairs_hook`` of ``json.loads``. Raises ValueError if a field stands in it twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        # Of twins only the last one counts, for most readers; which one is meant is not ours to decide.
        names = [name for name, _ in pairs]
        raise ValueError(f"field {next(name for name in names if names.count(name) > 1)!r} stands twice in an object")
    return found
