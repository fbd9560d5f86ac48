"""Who is notified, and when, of what needs a person: once, again at a growing interval, and when it is over.

Everything that stands goes into one message. What tasks of a migration alert of themselves is not repeated here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_migration.steps.attention import Attention, Kind

#: A failed task, a mirror's death and a question that waits alert by themselves.
OF_TASKS = frozenset({Kind.MIRROR, Kind.VERDICT, Kind.END, Kind.PHASE, Kind.APPROVAL})
#: So long something has to stand, or be gone, before it counts: a leader that moves is no news.
_SETTLED_SECONDS = 60.0
#: Between two messages, unless something of another kind has happened.
_LEAST_SECONDS = 300.0
_FIRST_SECONDS, _MOST_SECONDS = 3_600.0, 86_400.0
_MOST_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Notice:
    """One message: ``what`` stands and what is over, ``remedy`` of what stands, "" if nothing does."""

    what: str
    remedy: str

    def as_dict(self) -> dict[str, str]:
        """JSON types only."""
        return {"what": self.what, "remedy": self.remedy}


def not_sent(memory: Mapping[str, Any]) -> dict[str, Any]:
    """``memory`` where the newest message could not be sent: what stands is in one again after five minutes."""
    return {**memory, "at": memory["at"] - _FIRST_SECONDS + _LEAST_SECONDS, "repeats": 0} if memory else {}


@dataclass(slots=True)
class Notices:
    """What was sent of one migration. ``memory`` is what of it outlives a process, as JSON types: when the last message
    was sent (``at``, seconds since 1970), how many were sent since there was news (``repeats``), and of what
    (``sent``, by key: how many, and the text)."""

    memory: Mapping[str, Any] = field(default_factory=dict)
    _stands_since: dict[str, float] = field(default_factory=dict)
    _gone_since: dict[str, float] = field(default_factory=dict)

    def look(self, needs: Sequence[Attention], now: float, *, is_whole: bool) -> Notice | None:
        """The message that is due ``now``, or None. It counts as sent. Where not everything could be looked at
        (``is_whole`` false), nothing is over."""
        sent: Mapping[str, tuple[int, str]] = self.memory.get("sent", {})
        standing = {need.key: need for need in needs if need.kind not in OF_TASKS}
        self._stands_since = {key: self._stands_since.get(key, now) for key in standing}
        gone = [key for key in sent if key not in standing] if is_whole else []
        self._gone_since = {key: self._gone_since.get(key, now) for key in gone}
        settled = {
            key: need
            for key, need in standing.items()
            if key in sent or now - self._stands_since[key] >= _SETTLED_SECONDS
        }
        over = [key for key in gone if now - self._gone_since[key] >= _SETTLED_SECONDS]
        news = [key for key, need in settled.items() if need.count > sent.get(key, (0, ""))[0]]
        if not self._is_due(settled, over, news, now):
            return None
        kept = {key: known for key, known in sent.items() if key not in settled and key not in over}
        self.memory = self._after(settled, kept, now, repeats=0 if news or over else self.memory["repeats"] + 1)
        stands = [*sorted(settled, key=lambda key: key not in news)]
        return Notice(
            what="; ".join(
                [
                    *([f"needs a person: {'; '.join(settled[key].what for key in stands)}"] if stands else []),
                    *([f"over: {'; '.join(sent[key][1] for key in over)}"] if over else []),
                ]
            ),
            remedy="; ".join(dict.fromkeys(settled[key].remedy for key in stands)),
        )

    def _is_due(self, settled: Mapping[str, Attention], over: Sequence[str], news: Sequence[str], now: float) -> bool:
        if not self.memory:
            return bool(news)
        known = {key.partition(":")[0] for key in self.memory["sent"]}
        if any(settled[key].kind not in known for key in news):
            return True
        waited = now - self.memory["at"]
        if news or over:
            return bool(waited >= _LEAST_SECONDS)
        return bool(settled and waited >= min(_MOST_SECONDS, _FIRST_SECONDS * 2.0 ** min(self.memory["repeats"], 16)))

    def _after(
        self, settled: Mapping[str, Attention], kept: Mapping[str, Any], now: float, *, repeats: int
    ) -> dict[str, Any]:
        sent = {**kept, **{key: (need.count, need.what[:_MOST_CHARACTERS]) for key, need in settled.items()}}
        return {"at": now, "repeats": repeats, "sent": sent} if sent else {}
