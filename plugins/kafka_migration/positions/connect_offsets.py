"""Positions that Kafka Connect's source connectors keep: in a compacted topic, under ``["connector", {partition}]``.

All that the topic holds is brought to another one: positions of Kafka that the plan's topics have are translated
(:func:`kafka_migration.positions.formats.of_connect` knows whose these are), and all else, which is of other
connectors and systems, stays byte for byte. The topic that is read is never changed, so a second run computes the same,
finds it there, and writes nothing. What the other topic has is replaced only where it lies behind.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.errors import BadInput, CouldNotFindOut, Refused
from kafka_migration.domain.listing import listed
from kafka_migration.positions import formats
from kafka_migration.positions.texts import Position, rewritten, whole
from kafka_migration.positions.translation import How, NotExact, Rules, Translated, Translator, require_same_names, row

if TYPE_CHECKING:
    from kafka_migration.kafka.keyed_topic import KeyedTopic
    from kafka_migration.migration.context import Context


class Change(enum.StrEnum):
    """What becomes of a key on the other topic; the words are shown."""

    NEW = "new"
    FORWARD = "moves forward"
    SAME = "is there"
    AHEAD = "further ahead there"
    OTHER = "another value there"


#: Never written without an explicit order: what is there may be what the connector has reached meanwhile.
_HELD = (Change.AHEAD, Change.OTHER)
#: A connector's name, and its partition.
_KEY_PARTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A key of the offsets topic and its newest value. ``connector`` is "" where the key is not one of Connect's;
    ``position`` is None where it keeps no position of Kafka, else of the source that it calls ``cluster``."""

    key: bytes
    value: bytes
    connector: str
    position: Position | None
    cluster: str = ""

    @property
    def place(self) -> str:
        """What it is, for people."""
        return self.connector or ascii(self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """An entry, its translation if it keeps a position, and the value of the other topic: None where there is a
    problem. ``change`` is None if there is no other topic."""

    entry: Entry
    translated: Translated | None
    value: bytes | None
    change: Change | None = None

    @property
    def problem(self) -> str:
        """Why it cannot be written; "" if it can."""
        return "" if self.translated is None else self.translated.problem


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsTranslation:
    """What became of each key. ``written`` is how many were written; None if nothing was to be."""

    topic: str
    output: str | None
    back: bool
    moved: tuple[Moved, ...]
    written: int | None = None

    @property
    def positions(self) -> tuple[Moved, ...]:
        """Keys with a position of Kafka."""
        return tuple(one for one in self.moved if one.translated is not None)

    @property
    def others(self) -> int:
        """How many keys have none, and stay as they are."""
        return len(self.moved) - len(self.positions)

    @property
    def held(self) -> tuple[Moved, ...]:
        """Keys whose value on the other topic is not behind."""
        return tuple(one for one in self.moved if one.change in _HELD)

    @property
    def exit_code(self) -> int:
        """0 if everything translates, 1 if something does not, or stands further ahead on the other topic."""
        return int(any(one.problem for one in self.moved) or (self.written is None and bool(self.held)))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        rows = []
        for one in self.moved:
            if one.translated is not None:
                change = None if one.change is None else str(one.change)
                found = row(one.translated, where=one.entry.place, back=self.back)
                rows.append({**found, "connector": one.entry.connector, "change": change})
        return {
            "topic": self.topic,
            "output": self.output,
            "positions": rows,
            "others": self.others,
            "held": [one.entry.place for one in self.held],
            "written": self.written,
        }


def entries(values: Mapping[bytes, bytes], *, topic: str, connectors: Collection[str] = ()) -> list[Entry]:
    """What an offsets topic holds, ordered by key; of ``connectors``, or of all.

    Raises BadInput for a connector that it does not know, and for a position that is none.
    """
    every = [_entry(key, value, topic) for key, value in sorted(values.items())]
    known = {one.connector for one in every} - {""}
    for name in connectors:
        if name not in known:
            raise BadInput(
                f"{topic} holds nothing of this connector",
                field="--connector",
                value=name,
                remedy=f"correct its name ({name}); it knows {listed(sorted(known)) or 'none'}",
            )
    return [one for one in every if not connectors or one.connector in connectors]


def _entry(key: bytes, value: bytes, topic: str) -> Entry:
    kept_as_it_is = Entry(key=key, value=value, connector="", position=None)
    name = partition = None
    found = _loaded(key)
    if isinstance(found, list) and len(found) == _KEY_PARTS:
        name, partition = found
    if not isinstance(name, str) or not isinstance(partition, dict):
        return kept_as_it_is
    if not formats.is_position_of_connect(partition) or not isinstance(_loaded(value), dict):
        # Of another system, or of another converter: nothing that is known here, and no business of ours.
        return replace(kept_as_it_is, connector=name)
    file = f"{topic} {key!a}"
    place = formats.parsed(key.decode(), file=file, where="key").items[1]
    kept = formats.parsed(value.decode(), file=file, where="value")
    position = next(formats.of_connect(place, kept, file=file, where="value"), None)
    return replace(kept_as_it_is, connector=name, position=position, cluster=str(partition.get("cluster", "")))


def _loaded(text: bytes) -> object:
    """A value of JSON, as lenient readers have it; None for what is none."""
    try:
        return json.loads(text.decode(), parse_int=whole)
    except (ValueError, RecursionError):
        return None


def moved(
    found: Sequence[Entry], translated: Sequence[Translated], there: Mapping[bytes, bytes] | None
) -> tuple[Moved, ...]:
    """Each entry with the value that it gets, compared with what is ``there`` (None: nothing is to be compared).

    ``translated`` are the translations of those with a position, in order.
    """
    answers = iter(translated)
    out = []
    for entry in found:
        one = next(answers) if entry.position is not None else None
        if one is None:
            value: bytes | None = entry.value
        elif one.offset is None:
            value = None
        else:
            value = rewritten(entry.value.decode(), {one.position: one.offset}).encode()
        change = None if there is None or value is None else _change(entry, value, there.get(entry.key))
        out.append(Moved(entry=entry, translated=one, value=value, change=change))
    return tuple(out)


def _change(entry: Entry, value: bytes, before: bytes | None) -> Change:
    if before is None:
        return Change.NEW
    if before == value or (_loaded(before) is not None and _loaded(before) == _loaded(value)):
        return Change.SAME
    try:
        new, old = (_entry(entry.key, text, "").position for text in (value, before))
    except BadInput:
        # What is there is no position, though its key is one's: a person is to look at it.
        return Change.OTHER
    if new is None or old is None:
        return Change.OTHER
    return Change.AHEAD if old.offset > new.offset else Change.FORWARD


def translate(
    ctx: Context,
    source: KeyedTopic,
    output: KeyedTopic | None = None,
    *,
    rules: Rules,
    connectors: Collection[str] = (),
    rewind: bool = False,
) -> OffsetsTranslation:
    """Translate what ``source`` holds, and write it to ``output`` if there is one and this is no dry run.

    Raises NotExact or Refused before anything is written if a position cannot be translated, or, without ``rewind``,
    if ``output`` has something else under a key that does not lie behind; CouldNotFindOut if what was written is not
    what is then read there.
    """
    require_same_names(ctx)
    if output is not None:
        _require_another(source, output)
        output.require_compacted()
    found = entries(source.latest(), topic=source.topic, connectors=connectors)
    positions = [entry.position for entry in found if entry.position is not None]
    translator = Translator(ctx, rules)
    translated = translator.translated(positions)
    if not connectors:
        _require_one_source(source.topic, [entry for entry in found if entry.position is not None], translated)
    rows = moved(found, translated, None if output is None else output.latest())
    result = OffsetsTranslation(
        topic=source.topic, output=None if output is None else output.topic, back=rules.back, moved=rows
    )
    if output is None:
        return result
    problems = [(one.entry.place, one.translated) for one in rows if one.translated is not None and one.problem]
    if problems:
        raise NotExact(source.topic, problems, of=len(positions))
    if result.held and not rewind:
        raise Refused(
            f"{output.topic} holds values that do not lie behind, so nothing was written: "
            + listed((f"{one.entry.place} ({_named(one)}): {one.change}" for one in result.held), separator="; "),
            remedy="look at what its connectors have done there; --rewind replaces these, too",
        )
    if ctx.dry_run:
        return result
    wanted = {one.entry.key: one.value for one in rows if one.change is not Change.SAME and one.value is not None}
    translator.note_output(translated, output.topic)
    output.put(wanted)
    now = output.latest()
    lost = [key for key, value in wanted.items() if now.get(key) != value]
    if lost:
        raise CouldNotFindOut(
            f"{output.topic} holds another value than was written, of {listed(map(ascii, lost))}",
            remedy="stop the connectors that write to it, then run this again",
        )
    return OffsetsTranslation(topic=source.topic, output=output.topic, back=rules.back, moved=rows, written=len(wanted))


def _require_one_source(topic: str, found: Sequence[Entry], translated: Sequence[Translated]) -> None:
    """Of a cluster that the maps are not of, offsets would lead to other records."""
    pairs = zip(found, translated, strict=True)
    clusters = {entry.cluster for entry, one in pairs if one.how is not How.STAYS}
    if len(clusters) > 1:
        raise Refused(
            f"{topic} holds positions of several source clusters, by their aliases: {listed(sorted(clusters))}",
            remedy="choose the connectors that read the source of this plan, with --connector NAME",
        )


def _named(one: Moved) -> str:
    return ascii(one.entry.key) if one.translated is None else str(one.translated.position.tp)


def _require_another(source: KeyedTopic, output: KeyedTopic) -> None:
    is_same = source.topic == output.topic and source.cluster.cluster_id() == output.cluster.cluster_id()
    if is_same:
        raise BadInput(
            "is the topic that is read: a second run would translate what was translated",
            field="--output-topic",
            value=output.topic,
            remedy="name another topic, or one of another cluster",
        )
