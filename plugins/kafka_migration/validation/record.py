"""What a validation leaves in the journal: its verdict, and before it has one, that it began and what it found.

Gates look at the last verdict of everything, and a run may die, or drill for a quarter of an hour, after it has found
a difference. So each run has a note of its own from before it reads on: it holds the first difference at once, and an
end without a verdict. A note goes when its run ends EQUAL, or with the verdict of a later run of everything that
saw it when it began; no run overrules what was found while it read, since it may have kept just that from before.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_migration.compare.result import Equality
from kafka_migration.domain.errors import MigrationError
from kafka_migration.domain.ledger import pack, pack_ends, unpack, unpack_ends
from kafka_migration.domain.types import TopicPartition

if TYPE_CHECKING:
    from kafka_migration.compare.digests import SegmentOutcome
    from kafka_migration.migration.context import Context
    from kafka_migration.validation.validate import Validation

#: Ids in the journal: the last validation of everything, and the last one of some topics.
KIND, LATEST, PARTIAL = "validation", "latest", "partial"
#: The notes, by run.
RUN = "validation-run"
_KEPT_VERDICTS = 20
_NAMED = 5
#: A record of the journal has a limit of about 1 MB. The whole result is in validation.json.
_MOST_BYTES = 700_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Of a run that ``began`` (ISO-8601, UTC): segments that ``differs`` names, the ``verdict`` if it came to one that
    is not EQUAL, and ``broke_off``: why it ended without."""

    began: str
    topics: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    verdict: str = ""
    broke_off: str = ""

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Note:
        """The inverse of ``asdict``, by way of JSON."""
        return cls(**{**value, "topics": tuple(value["topics"]), "differs": tuple(value["differs"])})

    @property
    def objection(self) -> Equality | None:
        """What it has against an EQUAL; None of a run that is under way, or was killed, and has found nothing."""
        if self.differs or self.verdict:
            return Equality(self.verdict or Equality.DIFFERENT)
        return Equality.INCONCLUSIVE if self.broke_off else None

    @property
    def text(self) -> str:
        run = f"the validation of {', '.join(self.topics)}" if self.topics else "the validation"
        found = f"found differences in {', '.join(self.differs)}" if self.differs else ""
        end = f"broke off: {self.broke_off}" if self.broke_off else "has not ended"
        end = f"ended {self.verdict}" if self.verdict else end
        return f"{run} that began at {self.began} {' and '.join(filter(None, (found, end)))}"


def notes(ctx: Context) -> dict[str, Note]:
    """All notes on validations in the direction of ``ctx``'s link, by key in the journal."""
    found = ctx.journal.all(RUN)
    # A run's id has no colon.
    return {key: Note.from_dict(found[key]) for key in found if key == ctx.direction.own(key.partition(":")[0])}


def kept(ctx: Context) -> dict[str, Any] | None:
    """The last verdict on everything in the direction of ``ctx``'s link, as it was recorded."""
    return ctx.journal.read(KIND, ctx.direction.own(LATEST))


def rewound_since(ctx: Context, at: str) -> dict[TopicPartition, int]:
    """Partitions of which the target lost records since ``at`` (ISO-8601), and the first source offset that was copied
    again."""
    since = datetime.fromisoformat(at)
    found = {
        tp: [rewind["source"] for rewind in rewinds if datetime.fromisoformat(rewind["at"]) >= since]
        for tp, rewinds in ctx.link.rewinds().items()
    }
    return {tp: min(sources) for tp, sources in found.items() if sources}


class Account:
    """What one run leaves in the journal; nothing in a dry run. Made before it chooses what to read."""

    def __init__(self, ctx: Context, run: str, topics: Collection[str]) -> None:
        self._ctx, self._run = ctx, ctx.direction.own(run)
        self._note = Note(began=ctx.stamp(), topics=tuple(sorted(topics)[:_NAMED]))
        self._before, self._last = notes(ctx), _identity(kept(ctx))
        self._write(self._note)

    def differs(self, outcomes: Iterable[SegmentOutcome]) -> None:
        """These segments were read, and are certainly not equal."""
        named = (f"{outcome.tp} at source offsets {outcome.start}..{outcome.end}" for outcome in outcomes)
        differs = tuple(dict.fromkeys((*self._note.differs, *named)))[:_NAMED]
        if differs != self._note.differs:
            self._write(replace(self._note, differs=differs))

    def breaks_off(self, reason: str) -> None:
        """It ends, and without a verdict, unless it had one before."""
        self._write(replace(self._note, broke_off=reason))

    def ends(self, validation: Validation) -> None:
        """The verdict; more than once, if more is known of what differs."""
        if self._ctx.dry_run:
            return
        is_equal = validation.verdict is Equality.EQUAL
        if not is_equal:
            # First: whoever overwrites the verdict meanwhile with one of their own does not overwrite this.
            self._write(replace(self._note, verdict=str(validation.verdict)))
        self._record(validation)
        # Segments that were found to differ, and are explained by now, are explained by this very run.
        over = [self._run] if is_equal else []
        if not validation.is_partial:
            now = notes(self._ctx)
            over += [run for run, note in self._before.items() if now.get(run) == note]
        self._ctx.journal.forget_all(RUN, over)

    def _record(self, validation: Validation) -> None:
        journal, whole = self._ctx.journal, kept(self._ctx)
        is_equal = validation.verdict is Equality.EQUAL
        if validation.is_partial:
            _append(self._ctx, PARTIAL, validation)
            if whole is not None and whole["verdict"] == Equality.EQUAL and not is_equal:
                # Some topics cannot make the whole equal, but they can end that it is: gates look at the whole.
                changed = {"verdict": str(validation.verdict), "passed": False, "at": validation.result.at}
                names = sorted({partition.topic for partition in validation.result.partitions})[:10]
                hints = [*whole["hints"], f"{', '.join(names)}: validated again, alone"]
                journal.record(KIND, self._ctx.direction.own(LATEST), {**whole, **changed, "hints": hints})
        elif is_equal and whole is not None and whole["verdict"] != Equality.EQUAL and _identity(whole) != self._last:
            self._ctx.log(
                f"another validation ended {whole['verdict']} while this one read, and its verdict stands:"
                " run `validate` again"
            )
        else:
            _append(self._ctx, LATEST, validation)

    def _write(self, note: Note) -> None:
        self._note = note
        if not self._ctx.dry_run:
            self._ctx.journal.record(RUN, self._run, asdict(note))


@contextmanager
def accounted(ctx: Context, run: str, topics: Collection[str]) -> Iterator[Account]:
    """The account of a run. What it raises is noted, and passes through unchanged."""
    account = Account(ctx, run, topics)
    try:
        yield account
    except BaseException as error:
        # The first error is what a person must see, also where the journal cannot be written any more.
        with suppress(MigrationError):
            reason = error.message.partition("\n")[0] if isinstance(error, MigrationError) else type(error).__name__
            account.breaks_off(reason)
        raise


def _identity(value: dict[str, Any] | None) -> tuple[str, ...] | None:
    """Which verdict a record is."""
    return None if value is None else (value["id"], value["at"], value["verdict"])


def _append(ctx: Context, name: str, validation: Validation) -> None:
    name = ctx.direction.own(name)
    before = ctx.journal.read(KIND, name)
    earlier = [] if before is None else before.get("earlier", [])
    if before is not None and before["id"] != validation.result.id:
        earlier = [*earlier, {k: before[k] for k in ("at", "verdict", "id")}]
    value = {**validation.as_dict(with_segments=False), "earlier": earlier[-_KEPT_VERDICTS:]}
    ctx.journal.record(KIND, name, _bounded(value))


class Compared(NamedTuple):
    """A topic as a kept verdict has it: which one (:func:`which`), how many of its partitions were compared, and source
    offsets up to which they were found equal, by partition as text; None if it does not have these."""

    which: str
    partitions: int
    equal_to: Mapping[str, int] | None


def which(ids: Sequence[str | None]) -> str:
    """Short for the ids that a topic has on source and target."""
    return blake2b(json.dumps(list(ids)).encode(), digest_size=8).hexdigest()


def compared(value: Mapping[str, Any]) -> dict[str, Compared]:
    """What a kept verdict is of, by topic; of one that an earlier version kept, as far as it has that."""
    if "topics" in value:
        return {name: Compared(*row) for name, row in unpack(value["topics"]).items()}
    ids, partitions = value.get("topic_ids", {}), value.get("partitions", ())
    counts = Counter(one["topic"] for one in partitions)
    equal_to = value.get("equal_to")
    if equal_to is None and not value.get("left_out"):
        equal_to = _equal_to(partitions)
    return {
        name: Compared(which(ids.get(name, ())), counts[name], None if equal_to is None else equal_to.get(name, {}))
        for name in sorted(counts.keys() | ids.keys())
    }


def equal_up_to(value: Mapping[str, Any]) -> dict[TopicPartition, int] | None:
    """Source offsets up to which a kept verdict found partitions equal; None if it does not have them all."""
    equal = {name: topic.equal_to for name, topic in compared(value).items()}
    if None in equal.values() or (value.get("left_out") and not equal):
        return None
    return unpack_ends({name: ends for name, ends in equal.items() if ends})


def _equal_to(partitions: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    equal = (one for one in partitions if one.get("verdict") == Equality.EQUAL)
    return pack_ends({TopicPartition(one["topic"], one["partition"]): one["source_end"] for one in equal})


def _bounded(value: dict[str, Any]) -> dict[str, Any]:
    # Small beside the partitions themselves: gates ask for it, and whoever moves producers begins there.
    topics = compared(value)
    value = {key: item for key, item in value.items() if key != "topic_ids"} | {"topics": pack(topics)}
    if len(json.dumps({**value, "partitions": []})) > _MOST_BYTES:
        value["topics"] = pack({name: topic._replace(equal_to=None) for name, topic in topics.items()})
    # Those that are not equal are what a person looks for: they stay longest.
    partitions = sorted(value["partitions"], key=lambda partition: partition["equal"])
    while partitions and len(json.dumps({**value, "partitions": partitions})) > _MOST_BYTES:
        partitions = partitions[: len(partitions) // 2]
    left_out = len(value["partitions"]) - len(partitions)
    partitions.sort(key=lambda partition: (partition["topic"], partition["partition"]))
    return {**value, "partitions": partitions, "left_out": left_out}
