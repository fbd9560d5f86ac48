"""Who is notified, and when, of what needs a person: once, again at a growing interval, and when it is over.

All that stands goes into one message. What makes a task fail is left out: of that, Airflow alerts. The memory is in the
journal, so whoever looks next, wherever, goes on with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.printable import in_one_line
from kafka_migration.overview.attention import Attention, Kind

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.overview.status import Status

KIND, NAME = "notices", "sent"
#: A failed task, a mirror's death and a question that waits alert by themselves.
ALERTED_BY_TASKS = frozenset({Kind.MIRROR, Kind.VERDICT, Kind.END, Kind.PHASE, Kind.APPROVAL})
#: The part of the status page that has to be known before something of that kind may be called over.
_SEEN_IN = {"stragglers": "stragglers", "group": "groups", "topic": "drift"}
#: What comes and goes by itself, so that it is no news when it comes back.
_COMES_BACK = frozenset({Kind.GROUP, Kind.TOPIC, Kind.UNKNOWN})
#: So long something has to stand, or be gone, before it counts: a leader that moves is no news.
_SETTLED_SECONDS = 60.0
#: Between two messages, unless something of another kind has happened.
_LEAST_SECONDS = 300.0
_FIRST_SECONDS, _MOST_SECONDS = 3_600.0, 86_400.0
#: So long, at most, what is back stays without a message.
_BACK_SECONDS = 14_400.0
#: Of one message: how many things are named, and with how many characters.
_NAMED, _MOST_CHARACTERS = 2, 100
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
    day, and no news if they come back. ``last``: when the last message was sent; ``next``: when the next one is due of
    what stands, ``wait`` seconds after it.
    """

    stands: Sequence[str] = ()
    past: Mapping[str, float] = field(default_factory=dict)
    last: float = 0.0
    next: float = 0.0
    wait: float = 0.0

    @classmethod
    def of(cls, kept: Mapping[str, Any] | None) -> Memory:
        """From the journal, also as another version wrote it."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in (kept or {}).items() if name in known})


def due(
    memory: Memory, standing: Mapping[str, Attention], over: Sequence[str], now: float
) -> tuple[Notice, Memory] | None:
    """The message that is due ``now``, and the memory once it was sent; or None.

    ``standing``: by thing, what needs a person; ``over``: things of ``memory.stands`` that do not stand any more.
    """
    past = {thing: at for thing, at in memory.past.items() if now - at < _MOST_SECONDS}
    known = {*memory.stands, *past}
    news = [thing for thing in standing if thing not in known]
    kinds = {_kind_of(thing) for thing in known}
    if any(_kind_of(thing) not in kinds for thing in news):
        is_due = True
    elif news or over:
        is_due = now - memory.last >= _LEAST_SECONDS
    else:
        is_due = bool(standing) and now >= memory.next
    if not is_due:
        return None
    before = max(memory.wait, _FIRST_SECONDS)
    if news:
        wait = _FIRST_SECONDS
    else:
        wait = min(before, _BACK_SECONDS) if over else min(2 * before, _MOST_SECONDS)
    past |= {thing: now for thing in over if _kind_of(thing) in _COMES_BACK}
    newest = sorted(((at, thing) for thing, at in past.items() if thing not in standing), reverse=True)[:_MOST_THINGS]
    kept = [thing for thing in memory.stands if thing not in standing and thing not in over]
    after = Memory([*standing, *kept], {thing: at for at, thing in newest}, now, now + wait, wait)
    return _notice(standing, news, over), after


def _notice(standing: Mapping[str, Attention], news: Sequence[str], over: Sequence[str]) -> Notice:
    """What is new first. Of a line of many things, the new ones are named, and all are counted."""
    lines = dict.fromkeys(standing[thing] for thing in (*news, *standing))
    new = {line: [thing for thing in news if standing[thing] is line] for line in lines}
    needs = _named(_of_line(line, new[line]) for line in lines)
    parts = [f"needs a person: {needs}"] if lines else []
    parts += [f"over: {_named(over)}"] if over else []
    return Notice("; ".join(parts), _named(dict.fromkeys(line.remedy for line in lines)))


def _of_line(line: Attention, new: Sequence[str]) -> str:
    if len(line.things) == 1 or not new:
        return line.what
    return f"{line.kind}: {len(new)} new, such as {new[0].partition(': ')[2]}; {len(line.things)} in all"


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
    """What is remembered one by one, such as each halted partition with its reason; of a kind, the first hundreds."""
    found: dict[str, Attention] = {}
    left = dict.fromkeys(Kind, _MOST_THINGS)
    for need in needs:
        if need.kind not in ALERTED_BY_TASKS:
            things = need.things[: left[need.kind]]
            left[need.kind] -= len(things)
            found |= {_thing(need.kind, thing): need for thing in things}
    return found


def things_gone(memory: Memory, needs: Iterable[Attention], unknown: Mapping[str, str]) -> list[str]:
    """What stood by the last message, and stands no more; not what ``unknown`` parts of the page leave open."""
    still = {_thing(need.kind, thing) for need in needs for thing in need.things}
    return [thing for thing in memory.stands if thing not in still and _SEEN_IN.get(_kind_of(thing)) not in unknown]


def _thing(kind: Kind, thing: str) -> str:
    return f"{kind}: {in_one_line(thing)}"


class Notices:
    """Looks, and has ``send`` send what is due, which returns whether somebody got it. Belongs to one thread."""

    def __init__(self, send: Callable[[Notice], bool]) -> None:
        self._send = send
        self._stands_since: dict[str, float] = {}
        self._gone_since: dict[str, float] = {}
        self._not_before, self._pause = 0.0, _LEAST_SECONDS
        self._sent = Memory()

    def look(self, ctx: Context, page: Status, needs: Sequence[Attention]) -> None:
        """At what ``page`` shows. Raises what reading and writing the journal raises."""
        now, memory = page.at.timestamp(), Memory.of(ctx.journal.read(KIND, NAME))
        if self._sent.last > memory.last:
            # It was sent, and could not be recorded.
            memory = self._sent
        gone = things_gone(memory, needs, page.unknown)
        standing, over = self._settled(memory, things_of(needs), gone, now)
        found = due(memory, standing, over, now)
        if found is None or now < self._not_before:
            return
        notice, after = found
        if self._send(notice):
            self._sent, self._pause = after, _LEAST_SECONDS
            ctx.journal.record(KIND, NAME, asdict(after))
        else:
            # What was not sent is as due as before, and tried again at a growing interval.
            self._not_before, self._pause = now + self._pause, min(2 * self._pause, _FIRST_SECONDS)

    def _settled(
        self, memory: Memory, standing: Mapping[str, Attention], gone: Sequence[str], now: float
    ) -> tuple[dict[str, Attention], list[str]]:
        """Of what stands and what is gone, what has been so for long enough."""
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
