"""Who is notified, and when, of what needs a person: once, again at a growing interval, and when it is over.

All that stands goes into one message. What makes a task fail is left out: of that, Airflow alerts. The memory is in the
journal, so whoever looks next, wherever, goes on with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from kafka_migration.domain.printable import in_one_line
from kafka_migration.steps.attention import Attention, Kind

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.steps.status import Status

KIND, NAME = "notices", "sent"
#: A failed task, a mirror's death and a question that waits alert by themselves.
ALERTED_BY_TASKS = frozenset({Kind.MIRROR, Kind.VERDICT, Kind.END, Kind.PHASE, Kind.APPROVAL})
#: The part of the status page that has to be known before something of that kind may be called over.
_SEEN_IN = {Kind.STRAGGLERS: "stragglers", Kind.GROUP: "groups", Kind.TOPIC: "drift"}
#: So long something has to stand, or be gone, before it counts: a leader that moves is no news.
_SETTLED_SECONDS = 60.0
#: Between two messages, unless something of another kind has happened.
_LEAST_SECONDS = 300.0
_FIRST_SECONDS, _MOST_SECONDS = 3_600.0, 86_400.0
#: Of one message: how many things are named, and with how many characters.
_NAMED, _MOST_CHARACTERS = 2, 110
#: Things of one kind that are remembered one by one.
_MOST_THINGS = 500


@dataclass(frozen=True, slots=True)
class Notice:
    """One message: ``what`` stands and what is over, and the ``remedy`` of what stands, "" if nothing does."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Memory:
    """What was sent. Times are seconds since 1970.

    ``stands``: things that the last message had as standing. ``past``: things that are over since some time of the last
    day; what comes back until then is no news. ``last``: when the last message was sent; ``next``: when the next one is
    due of what stands, ``wait`` seconds after it.
    """

    stands: Sequence[str] = ()
    past: Mapping[str, float] = field(default_factory=dict)
    last: float = 0.0
    next: float = 0.0
    wait: float = 0.0


def due(
    memory: Memory, standing: Mapping[str, Attention], over: Sequence[str], now: float
) -> tuple[Notice, Memory] | None:
    """The message that is due ``now``, and the memory once it was sent; or None.

    ``standing``: by thing, what needs a person; ``over``: things of ``memory.stands`` that do not stand any more.
    """
    past = {thing: at for thing, at in memory.past.items() if now - at < _MOST_SECONDS}
    news = [thing for thing in standing if thing not in memory.stands and thing not in past]
    kinds = {_kind_of(thing) for thing in (*memory.stands, *past)}
    if any(_kind_of(thing) not in kinds for thing in news):
        is_due = True
    elif news or over:
        is_due = now - memory.last >= _LEAST_SECONDS
    else:
        is_due = bool(standing) and now >= memory.next
    if not is_due:
        return None
    if news:
        wait = _FIRST_SECONDS
    else:
        wait = memory.wait if over else min(2 * memory.wait, _MOST_SECONDS)
    past = {thing: at for thing, at in past.items() if thing not in standing} | dict.fromkeys(over, now)
    kept = [thing for thing in memory.stands if thing not in standing and thing not in over]
    after = Memory(stands=[*standing, *kept], past=past, last=now, next=now + wait, wait=wait)
    return _notice(standing, news, over), after


def _notice(standing: Mapping[str, Attention], news: Sequence[str], over: Sequence[str]) -> Notice:
    """News first; of each kind of thing the whole line, which names the first few."""
    lines = dict.fromkeys(standing[thing] for thing in (*news, *standing))
    parts = [f"{label}: {_named(texts)}" for label, texts in _sections(lines, over) if texts]
    return Notice("; ".join(parts), _named(dict.fromkeys(line.remedy for line in lines)))


def _sections(lines: Iterable[Attention], over: Sequence[str]) -> list[tuple[str, list[str]]]:
    return [("needs a person", [line.what for line in lines]), ("over", list(over))]


def _named(texts: Iterable[str]) -> str:
    found = [_short(text) for text in texts]
    more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return "; ".join(found[:_NAMED]) + more


def _short(text: str) -> str:
    line = in_one_line(text)
    return line if len(line) <= _MOST_CHARACTERS else f"{line[: _MOST_CHARACTERS - 1]}…"


def _kind_of(thing: str) -> str:
    return thing.partition(":")[0]


def things_of(needs: Iterable[Attention]) -> dict[str, Attention]:
    """What is remembered one by one: such as each halted partition with its reason."""
    found: dict[str, Attention] = {}
    for need in needs:
        if need.kind not in ALERTED_BY_TASKS:
            things = need.things[:_MOST_THINGS]
            found |= {f"{need.kind}: {in_one_line(thing)}": need for thing in things}
    return found


class Notices:
    """Looks, and has ``send`` send what is due, which returns whether somebody got it. Belongs to one thread."""

    def __init__(self, send: Callable[[Notice], bool]) -> None:
        self._send = send
        self._stands_since: dict[str, float] = {}
        self._gone_since: dict[str, float] = {}
        self._not_before, self._pause = 0.0, _LEAST_SECONDS

    def look(self, ctx: Context, page: Status, needs: Iterable[Attention]) -> None:
        """At what ``page`` shows. Raises what reading and writing the journal raises."""
        now, kept = page.at.timestamp(), ctx.journal.read(KIND, NAME)
        memory = Memory() if kept is None else Memory(**kept)
        standing, over = self._settled(memory, things_of(needs), now, page.unknown)
        found = due(memory, standing, over, now)
        if found is None or now < self._not_before:
            return
        notice, after = found
        if self._send(notice):
            ctx.journal.record(KIND, NAME, asdict(after))
            self._pause = _LEAST_SECONDS
        else:
            # What was not sent is as due as before, and tried again at a growing interval.
            self._not_before, self._pause = now + self._pause, min(2 * self._pause, _FIRST_SECONDS)

    def _settled(
        self, memory: Memory, standing: Mapping[str, Attention], now: float, unknown: Mapping[str, str]
    ) -> tuple[dict[str, Attention], list[str]]:
        """Of what stands and what is gone, what has been so for long enough."""
        gone = [
            thing
            for thing in memory.stands
            if thing not in standing and _SEEN_IN.get(Kind(_kind_of(thing))) not in unknown
        ]
        self._stands_since = {thing: self._stands_since.get(thing, now) for thing in standing}
        self._gone_since = {thing: self._gone_since.get(thing, now) for thing in gone}
        return (
            {
                thing: need
                for thing, need in standing.items()
                if thing in memory.stands or now - self._stands_since[thing] >= _SETTLED_SECONDS
            },
            [thing for thing in gone if now - self._gone_since[thing] >= _SETTLED_SECONDS],
        )
