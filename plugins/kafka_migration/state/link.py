"""The state of a link: its topics, its fences, where every partition stands, and what a person wants of it.

Written by the mirror's driver (identity, fences, halts), by its tasks (openings and progress, see
:mod:`kafka_migration.copy.task.task`), and by commands (desired state); read by everyone. All of it stands in internal
topics on the target, so a later run on another machine finds everything.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from kafka_migration.domain import ledger
from kafka_migration.domain.controls import Controls, Pause, Throttle
from kafka_migration.domain.errors import CouldNotFindOut, NotAuthorized, StateConflict
from kafka_migration.domain.offset_map import OffsetMap, RunOpening
from kafka_migration.domain.openings import Openings
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.skips import Skip
from kafka_migration.domain.types import Desired, Identity, Position, TopicPartition
from kafka_migration.kafka.topic_log import TopicLog
from kafka_migration.state.store import MemoryStore, Progress, Store, TopicStore

#: Of a topic whose brokers know no ids.
_UNKNOWN = str(uuid.UUID(int=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTopic:
    """A topic as the link pinned it: another id under the same name is another topic."""

    name: str
    source_id: uuid.UUID
    target_id: uuid.UUID

    @classmethod
    def of(cls, name: str, source_id: str, target_id: str) -> Self:
        """By ids as clusters report them: "" where brokers know none."""
        return cls(name=name, source_id=uuid.UUID(source_id or _UNKNOWN), target_id=uuid.UUID(target_id or _UNKNOWN))

    @property
    def ids(self) -> tuple[str, str]:
        """The inverse: on source and target. An id that is not known is no proof of whose topic it is."""
        source, target = (str(found) if found.int else "" for found in (self.source_id, self.target_id))
        return source, target

    @property
    def key(self) -> str:
        """What the offset map calls the topic: its target id, or its name where brokers know no ids."""
        return str(self.target_id) if self.target_id.int else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a person wants of the link. ``ends`` (with DRAIN) are the source offsets up to which to copy.
    ``is_news_due``: another wish is about to follow, and somebody waits until it is obeyed."""

    desired: Desired
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    reason: str = ""
    at: str = ""
    is_news_due: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HaltRecord:
    """Why a partition's mirror stopped, as recorded, and into which target topic it copied (its key)."""

    reason: str
    detail: str
    source_offset: int
    target_offset: int
    at: str
    topic_key: str = ""


def _every(_topic: str) -> bool:
    return True


class LinkState:
    """The state of the link called ``name``. ``links`` holds its records; the two logs may be absent in memory.

    A topic that ``selects`` returns False for is not shown: its pins, openings and halts are kept, and not seen.
    """

    def __init__(
        self,
        name: str,
        links: Store,
        openings: TopicLog | None,
        progress: TopicLog | None,
        *,
        selects: Callable[[str], bool] = _every,
    ) -> None:
        self.name, self._selects = name, selects
        self._links, self._openings_log, self._progress = links, openings, Progress(name, links, progress)
        self._openings: dict[tuple[str, int], Openings] = {}

    @classmethod
    def on_target(
        cls,
        name: str,
        properties: Mapping[str, str],
        *,
        create: bool = False,
        selects: Callable[[str], bool] = _every,
    ) -> LinkState:
        """The link's state on the target that librdkafka's ``properties`` reach.

        With ``create`` the internal topics are made first; without, a target that has none yields an empty state.
        """
        logs = [TopicLog(properties, t) for t in (ledger.LINKS_TOPIC, ledger.OFFSET_MAP_TOPIC, ledger.PROGRESS_TOPIC)]
        if create:
            for log in logs:
                log.ensure()
        elif not all(log.exists() for log in logs):
            return cls(name, MemoryStore(), None, None)
        return cls(name, TopicStore(logs[0]), logs[1], logs[2], selects=selects)

    def select_also(self, selects: Callable[[str], bool]) -> None:
        """Show the topics, too, that ``selects`` returns True for."""
        before = self._selects
        self._selects = lambda topic: before(topic) or selects(topic)

    @property
    def is_stored(self) -> bool:
        """Whether it stands in topics of the target, and outlives this process."""
        return self._openings_log is not None

    def warm(self) -> None:
        """Get ready to read and write soon, and quickly."""
        for log in (self._links, self._openings_log):
            if isinstance(log, TopicStore | TopicLog):
                log.warm()
        self._progress.warm()
        self.positions()

    def close(self) -> None:
        """Give up connections."""
        self._links.close()
        self._progress.close()
        if self._openings_log is not None:
            self._openings_log.close()

    # -- identity ---------------------------------------------------------------------------------------------

    @property
    def transactional_id(self) -> str:
        """The id whose producer epochs fence this link's attempts."""
        return f"kafka-migration.{self.name}"

    def pin(self, *, source_cluster: str, target_cluster: str, topics: Iterable[LinkTopic], at: str) -> None:
        """Pin cluster ids and topics. Raises StateConflict where something else was pinned before."""
        pinned = {"source_cluster": source_cluster, "target_cluster": target_cluster, "isolation": "read_committed"}
        before = self._links.get(self._key())
        if before is not None and {k: before.get(k) for k in pinned} != pinned:
            raise StateConflict(
                f"link {self.name} was made for {before}, not for {pinned}",
                remedy="give this migration another name, or point its connections at the clusters that it began with",
            )
        if before is None:
            # Earlier versions spread the openings of a partition over the whole map; they refuse to read this account.
            self._links.put(self._key(), {**pinned, "at": at, "openings_by_partition": self._progress.begin()})
        known = self.topics()
        self.pin_again([topic for topic in topics if topic.name not in known], at=at)

    def pin_again(self, topics: Iterable[LinkTopic], *, at: str) -> None:
        """Pin other ids of topics: their maps, positions and halts begin again, since all belong to the ids."""
        self._links.put_all(
            {
                self._key("topic", t.name): {"source_id": str(t.source_id), "target_id": str(t.target_id), "at": at}
                for t in topics
            }
        )

    def topics(self) -> dict[str, LinkTopic]:
        """The pinned topics, by name."""
        return {
            name: LinkTopic.of(name, value["source_id"], value["target_id"])
            for name, value in self._records("topic")
            if self._selects(name)
        }

    def unpin(self, topics: Iterable[str]) -> None:
        """Forget which ids these topics had, and that partitions of them halted: there is nothing to copy any more."""
        names = set(topics)
        halts = [place for place, _ in self._records("halt") if place.rsplit("/", 1)[0] in names]
        keys = [self._key("halt", place) for place in halts] + [self._key("topic", name) for name in sorted(names)]
        self._links.put_all(dict.fromkeys(keys))

    # -- fences and openings ----------------------------------------------------------------------------------

    def fences(self) -> dict[int, Identity]:
        """All fences so far, by number: a later fence has a higher one."""
        return {
            int(fence): Identity(value["producer_id"], value["producer_epoch"])
            for fence, value in self._records("fence")
        }

    def record_fence(self, fence: int, identity: Identity, *, at: str) -> None:
        """Note who writes from this fence on. Before any opening of that fence is written."""
        value = {"producer_id": identity.producer_id, "producer_epoch": identity.producer_epoch, "at": at}
        self._links.put(self._key("fence", str(fence)), value)

    def record_openings(
        self, openings: Iterable[tuple[TopicPartition, RunOpening]], topic_keys: Mapping[str, str] | None = None
    ) -> None:
        """Write openings to the offset map; durable on return.

        ``topic_keys`` are of the topics that they are about; without, of those that are pinned now.
        """
        if self._openings_log is None:
            raise StateConflict(f"link {self.name} has no internal topics yet")
        keys = {name: topic.key for name, topic in self.topics().items()} if topic_keys is None else topic_keys
        self._openings_log.append(
            (
                ledger.opening_key(self.name, keys[tp.topic], tp.partition, opening),
                ledger.opening_value(opening),
            )
            for tp, opening in openings
        )

    def openings(
        self, of: Collection[TopicPartition] | None = None, topic_keys: Mapping[str, str] | None = None
    ) -> dict[TopicPartition, Openings]:
        """The stored openings by partition, ordered by fence and records, void ones included; ``of`` these, or all.

        ``topic_keys`` as :meth:`record_openings` has them.
        """
        keys = {name: topic.key for name, topic in self.topics().items()} if topic_keys is None else topic_keys
        wanted = None if of is None else {(keys[tp.topic], tp.partition) for tp in of if tp.topic in keys}
        self._read_openings(wanted)
        names = {key: name for name, key in keys.items()}
        found = {TopicPartition(names[key], n): some for (key, n), some in self._openings.items() if key in names}
        return found if of is None else {tp: found[tp] for tp in of if tp in found}

    def _read_openings(self, of: Iterable[tuple[str, int]] | None) -> None:
        if self._openings_log is None:
            return
        prefix, places = f"{self.name}/".encode(), None
        if of is not None and (self._links.get(self._key()) or {}).get("openings_by_partition"):
            places = {ledger.place_of_openings(self.name, key, partition) for key, partition in of}
        for entry in self._openings_log.new_entries(places):
            if entry.value is None or not entry.key.startswith(prefix):
                continue
            _, key, partition, opening = ledger.read_opening(entry.key, entry.value)
            found = self._openings.get((key, partition))
            if found is None:
                found = self._openings[key, partition] = Openings()
            found.add(opening)

    # -- positions and translation ----------------------------------------------------------------------------

    def progress(self) -> dict[TopicPartition, tuple[Position, dict[str, Any]]]:
        """The newest reported position per partition, with ``b`` bytes since the fence, ``x`` state, ``at`` ms."""
        return self._progress.newest()

    def positions(self, of: Collection[TopicPartition] | None = None) -> dict[TopicPartition, Position]:
        """Where partitions stand (``of`` these, or all) by their tasks' reports; everything before it is confirmed."""
        return {tp: position for tp, (position, _) in self._opened(of).items()}

    def offset_maps(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, OffsetMap]:
        """The offset maps up to the positions, of ``partitions`` or of all that have one."""
        of = None if partitions is None else list(partitions)
        return {
            tp: openings.offset_map(source_end=at.source, target_end=at.target)
            for tp, (at, openings) in self._opened(of).items()
        }

    def records(self) -> dict[TopicPartition, int]:
        """How many records each partition's offset map covers: all that were ever mirrored and still count."""
        return {tp: openings.records(target_end=at.target) for tp, (at, openings) in self._opened(None).items()}

    def _opened(self, of: Collection[TopicPartition] | None) -> dict[TopicPartition, tuple[Position, Openings]]:
        """Position and openings, as for :meth:`positions`."""
        # Before the openings: those of everything that is reported were written earlier, so none of them is missed.
        reported = self.progress()
        out = {}
        for tp, openings in self.openings(of).items():
            opened = openings.first_of_newest()
            newest = opened.fence
            position = reported[tp][0] if tp in reported else None
            if position is None or (position.fence, position.records, position.source) < (newest, 0, opened.source):
                # Nothing was reported since this fence, or not that the source has nothing before its first record.
                position = Position(source=opened.source, target=opened.target, fence=newest, records=0)
            out[tp] = position, openings
        return out

    # -- halts and wishes -------------------------------------------------------------------------------------

    def halt(
        self,
        tp: TopicPartition,
        reason: str,
        detail: str,
        source: int,
        target: int,
        at: str,
        topic_key: str | None = None,
    ) -> None:
        """Note that a partition's mirror stopped, and why; offsets are where it stood.

        ``topic_key`` is of the topic that it copied into; without, of the one that is pinned now.
        """
        if topic_key is None:
            pinned = self.topics().get(tp.topic)
            topic_key = pinned.key if pinned is not None else ""
        value = {"reason": reason, "detail": detail, "source_offset": source, "target_offset": target, "at": at}
        value["topic_key"] = topic_key
        self._links.put(self._key("halt", *_place(tp)), value)
        with suppress(CouldNotFindOut, NotAuthorized):
            self._progress.write_account(at_once=True, of_many=True)

    def halted(self) -> set[TopicPartition]:
        """Partitions that the mirror will not touch until a person has decided."""
        return set(self.halts())

    def halted_topics(self) -> set[str]:
        """Topics with a halted partition, those included that are not selected."""
        return {place.rsplit("/", 1)[0] for place, _ in self._records("halt")}

    def halts(self) -> dict[TopicPartition, HaltRecord]:
        """Why each halted partition stopped."""
        topics, out = self.topics(), {}
        for place, value in self._records("halt"):
            topic, partition = place.rsplit("/", 1)
            if not self._selects(topic):
                continue
            found = HaltRecord(**value)
            # A halt is of the topic that was pinned then: once another one is, a late report of an old run is void.
            if not found.topic_key or topic not in topics or topics[topic].key == found.topic_key:
                out[TopicPartition(topic, int(partition))] = found
        return out

    def lift(self, lifted: Mapping[TopicPartition, Skip | None]) -> None:
        """Remove the halts of these partitions; a mirror resumes them, after the offsets that are given up there."""
        # The skip first: killed in between, the partition is still halted.
        self.leave_out({tp: skip for tp, skip in lifted.items() if skip is not None})
        self._links.put_all({self._key("halt", *_place(tp)): None for tp in lifted})

    def leave_out(self, skips: Mapping[TopicPartition, Skip]) -> None:
        """Note what is not copied; a partition resumes after it at its next fence."""
        self._links.put_all(
            {self._key("skip", *_place(tp), str(skip.start)): asdict(skip) for tp, skip in skips.items()}
        )

    def record_rewind(self, tp: TopicPartition, *, fence: int, lost: tuple[int, int], source: int, at: str) -> None:
        """Note that the target lost confirmed records, at target offsets from ``lost[0]`` to below ``lost[1]``, which
        are copied again from source offset ``source`` behind ``fence``."""
        value = {"lost_from": lost[0], "lost_to": lost[1], "source": source, "at": at}
        self._links.put(self._key("rewind", *_place(tp), str(fence)), value)

    def rewinds(self) -> dict[TopicPartition, list[dict[str, Any]]]:
        """What the target lost and was copied again, of each partition, in order."""
        out: dict[TopicPartition, list[dict[str, Any]]] = {}
        for place, value in self._records("rewind"):
            topic, partition, fence = place.rsplit("/", 2)
            out.setdefault(TopicPartition(topic, int(partition)), []).append({"fence": int(fence), **value})
        return {tp: sorted(found, key=lambda rewind: rewind["fence"]) for tp, found in out.items()}

    def skips(self) -> dict[TopicPartition, tuple[Skip, ...]]:
        """What was given up of each partition of the topics that are pinned now, in order."""
        topics = self.topics()
        out: dict[TopicPartition, list[Skip]] = {}
        for place, value in self._records("skip"):
            topic, partition, _ = place.rsplit("/", 2)
            skip = Skip(**value)
            if topic in topics and topics[topic].key == skip.topic_key:
                out.setdefault(TopicPartition(topic, int(partition)), []).append(skip)
        return {tp: tuple(sorted(found, key=lambda skip: skip.start)) for tp, found in out.items()}

    def record_extras(self, extras: Mapping[TopicPartition, Sequence[tuple[int, int]]], topic_key: str) -> None:
        """Note where the target topic of that key holds what no run covers, by offsets (from, and up to without), and
        is to keep it; nothing where it holds none."""
        self._links.put_all(
            {
                self._key("extra", *_place(tp)): {"topic_key": topic_key, "spans": [list(span) for span in spans]}
                for tp, spans in extras.items()
            }
        )

    def extras(self) -> dict[TopicPartition, tuple[tuple[int, int], ...]]:
        """Where the target's topics that are pinned now hold what no run covers, and is known, in order."""
        topics, out = self.topics(), {}
        for place, value in self._records("extra"):
            topic, partition = place.rsplit("/", 1)
            if topic in topics and topics[topic].key == value["topic_key"]:
                out[TopicPartition(topic, int(partition))] = tuple((start, end) for start, end in value["spans"])
        return out

    def wish(self, wish: Wish) -> None:
        """Record what is wanted of the link; a running mirror obeys within two seconds."""
        ends = ledger.pack_ends(wish.ends)
        value: dict[str, Any] = {"desired": str(wish.desired), "ends": ends, "reason": wish.reason, "at": wish.at}
        if wish.is_news_due:
            # Earlier versions look as often as ever.
            value["news_due"] = True
        self._links.put(self._key("desired"), value)

    def wished(self) -> Wish:
        """What is wanted of the link; to run, if nobody asked for anything."""
        value = self._links.get(self._key("desired"))
        if value is None:
            return Wish(desired=Desired.RUN)
        ends = ledger.unpack_ends(value["ends"])
        return Wish(desired=Desired(value["desired"]), ends=ends, reason=value["reason"], at=value["at"])

    def wanted(self) -> tuple[Desired, Mapping[TopicPartition, int]]:
        """The wish as the mirror takes it: the desired state, and the source offsets up to which to drain."""
        wish = self.wished()
        return wish.desired, wish.ends

    # -- the seal ---------------------------------------------------------------------------------------------

    def seal(self) -> Seal | None:
        """The link's seal, or None. A sealed link is not mirrored, whether its seal is complete or not."""
        value = self._links.get(self._key("seal"))
        return None if value is None else Seal.from_dict(value)

    def record_seal(self, seal: Seal) -> None:
        """Seal the link: running tasks stop at their next look."""
        self._links.put(self._key("seal"), seal.as_dict())

    def unseal(self) -> None:
        """Take the seal away: the link may be mirrored again."""
        self._links.delete(self._key("seal"))

    # -- controls ---------------------------------------------------------------------------------------------

    def pause(self, pause: Pause) -> None:
        """Neither fetch nor send until :meth:`resume`; a running mirror obeys within two seconds."""
        self._links.put(self._key(ledger.PAUSE), {"paused": True, **asdict(pause)})

    def resume(self, *, by: str, at: str) -> None:
        """Go on."""
        self._links.put(self._key(ledger.PAUSE), {"paused": False, "by": by, "at": at, "reason": ""})

    def throttle(self, throttle: Throttle) -> None:
        """Send at most so much from now on; a running mirror obeys within two seconds."""
        self._links.put(self._key(ledger.THROTTLE), asdict(throttle))

    def controls(self) -> Controls:
        """What holds the mirror back now."""
        pause, throttle = self._links.get(self._key(ledger.PAUSE)), self._links.get(self._key(ledger.THROTTLE))
        return Controls(
            pause=Pause(by=pause["by"], at=pause["at"], reason=pause["reason"]) if pause and pause["paused"] else None,
            throttle=None if throttle is None else Throttle(**throttle),
        )

    # -- the running mirror -----------------------------------------------------------------------------------

    def claim(self, attempt: str, *, at: str) -> None:
        """Record that ``attempt`` is about to fence the link and to write; those before it must stop."""
        self._links.put(self._key("attempt", attempt), {"state": "running", "at": at})

    def end_attempt(self, attempt: str, *, at: str) -> None:
        """Record that ``attempt`` has ended, and that every request that it ever sent was answered or fenced out."""
        self._links.put(self._key("attempt", attempt), {"state": "ended", "at": at})

    def attempts(self) -> dict[str, bool]:
        """Every attempt that is remembered, by when it last wrote; True while it is not known to be dead."""
        return {attempt: value["state"] == "running" for attempt, value in self._records("attempt")}

    def forget_attempts(self, attempts: Iterable[str]) -> None:
        """Forget attempts that are certainly dead."""
        for attempt in attempts:
            self._links.delete(self._key("attempt", attempt))

    def commands_from(self) -> int:
        """The offset of the links topic from which later commands can be followed."""
        return self._links.end() if isinstance(self._links, TopicStore) else 0

    def recall(self, epoch: int, *, is_urgent: bool = False) -> None:
        """Ask the tasks of ``epoch`` to end it now; ``is_urgent``: others wait for that, so a fence is the lesser evil
        where much is still to be sent."""
        self._links.put(self._key("recall"), {"epoch": epoch, "is_urgent": is_urgent})

    def record_run(self, value: dict[str, Any]) -> None:
        """Record what the running (or last) mirror reports: ``state`` running or ended, ``fence``, ``at``, …"""
        self._links.put(self._key("run"), value)
        with suppress(CouldNotFindOut, NotAuthorized):  # a hint: without it readers have more to read
            self._progress.write_account(at_once=value.get("state") == "ended" or bool(value.get("waiting")))

    def write_progress(self) -> None:
        """Write down where all partitions stand. Raises NotAuthorized where progress may not be written: whoever begins
        a run is there to read why."""
        self._progress.write_account(at_once=True)

    def run(self) -> dict[str, Any] | None:
        """What the running (or last) mirror reported of itself, or None."""
        return self._links.get(self._key("run"))

    def _records(self, kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """The records of a kind, by what follows it in their keys, ordered by when they were last written."""
        prefix = self._key(kind, "")
        return ((key[len(prefix) :], value) for key, value in self._links.items(prefix).items())

    def _key(self, *parts: str) -> str:
        return ledger.link_key(self.name, *parts).decode()


def _place(tp: TopicPartition) -> tuple[str, str]:
    return tp.topic, str(tp.partition)
