"""What the Spark job says while it runs: what it found of segments goes between lines for people, one JSON a line.

The phase keeps it as it comes. Whatever becomes of the job, what it had read by then need not be read again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from kafka_migration.compare.digests import SegmentOutcome

_MARK = "@segments "


def said(found: Sequence[SegmentOutcome]) -> str:
    """``found`` as a line."""
    return _MARK + json.dumps([it.as_dict() for it in found], separators=(",", ":"))


def heard(line: str) -> list[SegmentOutcome] | None:
    """What a line says of segments; None if it is for people."""
    if not line.startswith(_MARK):
        return None
    return [SegmentOutcome.from_dict(it) for it in json.loads(line.removeprefix(_MARK))]
