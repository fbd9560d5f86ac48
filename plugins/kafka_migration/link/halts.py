"""What each halt means for a person, and what can be done about it: the one table of it.

A halted partition is never touched again by itself. Its neighbours go on; its groups are not moved past the halt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kafka_migration.domain.direction import SOURCE, TARGET, Direction
from kafka_migration.domain.types import Halt

_AGAIN = (
    "then copy it again: `mirror --again TOPIC` (before groups that read it are moved), or exclude it from the plan"
)
_BEHIND_A_CUT = (
    "what is copied behind an earlier cut is not copied again: exclude its topic from the plan, and migrate it by a"
    " plan of its own"
)
_AT = "`resume --at TOPIC:PARTITION:OFFSET`, with the offset at which it stands (given in the halt) to try again"
NOT_BACK = (
    "it is not mirrored back any more, and cannot be resumed there: what reads and writes it stays on the target; to"
    " take everything else back, exclude its topic from the plan"
)
#: After these, what was copied and what is on the link's origin do not belong together any more.
COPY_AGAIN = frozenset({Halt.FOREIGN_WRITER, Halt.DUPLICATED, Halt.LOG_REGRESSED, Halt.ALTERED, Halt.TRUNCATED})
#: What halts for these can be resumed on the way back, too, where no topic is copied again.
_RESUMED_BACK = frozenset({Halt.CORRUPT, Halt.UNREADABLE, Halt.DATA_LOSS, Halt.REFUSED, Halt.CONFIG_DRIFT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What happened, and what a person can do."""

    meaning: str
    remedy: str


MEANINGS: Mapping[Halt, Meaning] = {
    Halt.FOREIGN_WRITER: Meaning(
        meaning="something else than this mirror wrote to the target partition",
        remedy=f"find that client and take its Write permission on the target topic away; {_AGAIN}",
    ),
    Halt.DUPLICATED: Meaning(
        meaning="a batch stands on the target twice",
        remedy=f"see that one mirror runs for this plan, and no other; {_AGAIN}",
    ),
    Halt.LOG_REGRESSED: Meaning(
        meaning="the target's log ends before what it had confirmed: records were lost there, or deleted",
        remedy="look for an unclean leader election, DeleteRecords or retention on the target topic, and repair that; "
        + _AGAIN,
    ),
    Halt.ALTERED: Meaning(
        meaning="the target gave records other timestamps than they have on the source",
        remedy="find out who set message.timestamp.type of the target topic to LogAppendTime, and see that it stays"
        f" CreateTime; {_AGAIN}",
    ),
    Halt.CONFIG_DRIFT: Meaning(
        meaning="a config of the target topic was changed, under which records of the copy are deleted or altered",
        remedy="find out who changed it, and set it back on the target topic, as the detail shows (`kafka-configs.sh"
        f" --alter`); then {_AT}. If records are gone already, that is refused; {_AGAIN}",
    ),
    Halt.CORRUPT: Meaning(
        meaning="a batch on the source does not match its checksum",
        remedy="look at the source brokers' disks; if another replica holds the batch unharmed, make it the leader, and"
        f" {_AT}, or that of the next batch (given there too) to give this one's records up",
    ),
    Halt.UNREADABLE: Meaning(
        meaning="the checksum of a source batch is right, but this version of the mirror cannot read the batch",
        remedy="read it with another client (`kafka-dump-log.sh --print-data-log` on the source broker shows it), and"
        " report the detail, since this is a defect of the mirror or of the producer; with a version that reads it"
        f" {_AT}, or a later one to give the records before it up",
    ),
    Halt.DATA_LOSS: Meaning(
        meaning="retention (or DeleteRecords) on the source removed records before they were copied",
        remedy="raise retention.ms and retention.bytes of the source topic, or the plan's num_streams that copy it;"
        " then `resume --accept-loss TOPIC[:PARTITION]` resumes where the source begins now, and the report lists what"
        " is missing",
    ),
    Halt.TRUNCATED: Meaning(
        meaning="the source's log was cut below what was copied, as after an unclean leader election",
        remedy="set unclean.leader.election.enable=false on the source topic; what the source lost may stand on the"
        f" target still, so save it first; {_AGAIN}",
    ),
    Halt.RECREATED: Meaning(
        meaning="the topic was deleted and created again under its name, as every broker that answered reported",
        remedy=f"find out who did so, and which of the two topics is meant; {_AGAIN}",
    ),
    Halt.TOPIC_MISSING: Meaning(
        meaning="the topic is gone from one of the clusters, as every broker that answered reported",
        remedy="if it is there after all, the mirror goes on by itself; else find out who deleted it: if it is to stay"
        f" deleted, exclude it from the plan, and if not, create it on the source, {_AGAIN}",
    ),
    Halt.REFUSED: Meaning(
        meaning="the target refuses a batch for good, or never answers it clearly",
        remedy="read the broker's reason in the detail; if the batch is too large, raise max.message.bytes of the"
        " target topic (and message.max.bytes, replica.fetch.max.bytes of its brokers), then"
        f" {_AT}, or that of the next batch (given there too) to give this one's records up",
    ),
    Halt.HANDLER: Meaning(
        meaning="the topic's handler raised an error, returned what no record is, or is not there",
        remedy="correct the function, and its sha256 in the plan (`check` shows it); have the same module on every"
        f" executor; then {_AT}, or, unless no record is at fault (as the detail shows), that of the next record (given"
        " there too) to give the record up",
    ),
    Halt.NO_PARTITION: Meaning(
        meaning="the source topic has a partition that the target topic lacks, and it could not be added",
        remedy="read the reason in the detail (Alter on the target topic is needed, and no policy against it); add the"
        " partition there, or permit it, then `resume --at TOPIC:PARTITION:OFFSET` with the partition's log start",
    ),
}


def meaning_of(reason: str, direction: Direction = Direction.FORWARD, generation: int = 1) -> Meaning:
    """What ``reason`` means for a link of that ``direction`` and ``generation``; for one that a later version recorded,
    that this version does not know it."""
    found = _known(reason)
    if direction is Direction.FORWARD:
        return found if generation == 1 else replace(found, remedy=found.remedy.replace(_AGAIN, _BEHIND_A_CUT))
    # It copies from the target to the source, and nothing of it is copied again.
    remedy = NOT_BACK
    if is_resumed(reason, direction):
        remedy = _swapped(found.remedy).replace("`resume --", "`resume --reverse --").replace(_AGAIN, NOT_BACK)
    return Meaning(meaning=_swapped(found.meaning), remedy=remedy)


def remedies(reasons: Iterable[str], direction: Direction, generation: int) -> dict[str, str]:
    """What to do about each of ``reasons``, sorted, on such a link."""
    return {reason: meaning_of(reason, direction, generation).remedy for reason in sorted(set(reasons))}


def is_resumed(reason: str, direction: Direction) -> bool:
    """True if a partition of a link of that ``direction`` may be resumed that halted for ``reason``."""
    return reason not in COPY_AGAIN if direction is Direction.FORWARD else reason in _RESUMED_BACK


def _swapped(text: str) -> str:
    return re.sub(r"\b(source|target)\b", lambda side: TARGET if side[1] == SOURCE else SOURCE, text)


def _known(reason: str) -> Meaning:
    try:
        return MEANINGS[Halt(reason)]
    except ValueError:
        return Meaning(
            meaning="a reason that this version does not know",
            remedy="look at it with the version that recorded it; if this one copies what that one could not,"
            " `resume --at TOPIC:PARTITION:OFFSET` with the offset at which it stands tries again",
        )
