"""What keeps records of a mirror topic as they are: the configs that a target topic must have while it is mirrored.

Retention would delete old records soon after they land, compaction would remove some of them, and a broker that stamps
records itself would give them other times. At the end the source's own configs come into force.
"""

from __future__ import annotations

from collections.abc import Mapping

KEEPS_RECORDS: Mapping[str, str] = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
}
