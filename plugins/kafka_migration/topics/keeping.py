"""The source's topics, while the reverse link writes to them: they keep every record, as target topics do while they
are mirrored; what they had before is in the journal, and given back.

Records that are mirrored back arrive with their old timestamps: the source's own retention would delete them soon after
they land, compaction would remove some of them, and a broker that stamps records itself would change them. And what was
written on the target may be larger than the source takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kafka_migration.kafka.types import ConfigValue
from kafka_migration.topics import configs
from kafka_migration.topics.specs import HELD_OPEN, LONG_MAX, OLD_BOUND

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

KIND = "source-configs"

_KEEPS: Mapping[str, str] = {**HELD_OPEN, OLD_BOUND: LONG_MAX}
_LIMIT = "max.message.bytes"

Configs = Mapping[str, ConfigValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One topic of the source: configs to be set (``set``) and to be left to its defaults (``delete``), so that it
    keeps every record or, if ``is_over``, has its own configs again. ``before`` is what it had explicitly (None: it had
    not); ``theirs`` are names that somebody else has set meanwhile: they stay."""

    topic: str
    set: Mapping[str, str]
    before: Mapping[str, str | None]
    delete: tuple[str, ...] = ()
    theirs: tuple[str, ...] = ()
    is_over: bool = False

    def __str__(self) -> str:
        """One line for people: the same in a dry run and in earnest."""
        had = {name: "the default" if value is None else value for name, value in self.before.items()}
        if not self.is_over:
            rows = [f"{name}={value} (was {had[name]})" for name, value in sorted(self.set.items())]
            return f"topic {self.topic} of the source keeps every record: {', '.join(rows)}"
        rows = [f"{name}={value}" for name, value in sorted(self.set.items())]
        rows += [f"{name} as the source's default" for name in self.delete]
        others = f"; set by somebody else since, and left so: {', '.join(self.theirs)}" if self.theirs else ""
        return f"topic {self.topic} of the source gets its configs back: {', '.join(rows) or 'nothing differs'}{others}"


def check(ctx: Context) -> tuple[Kept, ...]:
    """What is to be set on topics of ``ctx``'s link, which writes to the source. Changes nothing; nothing of a topic
    that keeps every record already."""
    names = sorted(ctx.source.topics(ctx.link.topics()))
    source, target = ctx.source.topic_configs(names), ctx.target.topic_configs(ctx.target.topics(names))
    wanted = {name: _wanted(source[name], target.get(name, {})) for name in names}
    return tuple(
        Kept(topic=name, set=some, before={one: _explicit(source[name].get(one)) for one in some})
        for name, some in wanted.items()
        if some
    )


def apply(ctx: Context) -> tuple[Kept, ...]:
    """Set them, read back and compare; a second call changes nothing. Killed anywhere, the next call goes on.

    Raises NotAuthorized without AlterConfigs on the source's topics, before any record is copied.
    """
    return configs.change(ctx, ctx.source, lambda: check(ctx), lambda kept: _note(ctx, kept))


def give_back(ctx: Context) -> tuple[Kept, ...]:
    """Give the source's topics back what they had; a second call changes nothing. What somebody else has set since
    stays, and is named."""
    done = configs.change(ctx, ctx.source, lambda: _back(ctx), lambda _kept: None)
    if not ctx.dry_run:
        # Last: killed in between, the next call finds what is left to do.
        ctx.journal.forget_all(KIND, sorted(ctx.journal.all(KIND)))
    return done


def own(ctx: Context, shown: Mapping[str, Configs]) -> dict[str, Configs]:
    """Configs of the source's topics, as ``shown``, but with their own where this migration has others set for now."""
    noted = ctx.journal.all(KIND)
    return {topic: _own(found, noted[topic]) if topic in noted else found for topic, found in shown.items()}


def _own(found: Configs, noted: Mapping[str, Any]) -> Configs:
    own = dict(found)
    for name, before in noted["before"].items():
        if _is_ours(found, noted, name):
            now = found[name]
            own[name] = replace(now, value=now.default if before is None else before, is_explicit=before is not None)
    return own


def _is_ours(found: Configs, noted: Mapping[str, Any], name: str) -> bool:
    ours: str = noted["set"][name]
    return _explicit(found.get(name)) == ours


def _wanted(source: Configs, target: Configs) -> dict[str, str]:
    found = {name: value for name, value in _KEEPS.items() if name in source and source[name].value != value}
    here, there = (int(side[_LIMIT].value or 0) if _LIMIT in side else 0 for side in (source, target))
    return found | ({_LIMIT: str(there)} if there > here else {})


def _explicit(config: ConfigValue | None) -> str | None:
    return config.value if config is not None and config.is_explicit else None


def _note(ctx: Context, kept: Kept) -> None:
    last = ctx.journal.read(KIND, kept.topic) or {"before": {}, "set": {}}
    # What was noted first is what the topic had.
    noted = {"before": {**kept.before, **last["before"]}, "set": {**last["set"], **kept.set}, "at": ctx.stamp()}
    ctx.journal.record(KIND, kept.topic, noted)


def _back(ctx: Context) -> tuple[Kept, ...]:
    noted = ctx.journal.all(KIND)
    now = ctx.source.topic_configs(sorted(ctx.source.topics(sorted(noted))))
    return tuple(_back_of(topic, found, noted[topic]) for topic, found in now.items())


def _back_of(topic: str, found: Configs, noted: Mapping[str, Any]) -> Kept:
    before: Mapping[str, str | None] = noted["before"]
    ours = {
        name: value for name, value in before.items() if _is_ours(found, noted, name) and value != noted["set"][name]
    }
    return Kept(
        topic=topic,
        set={name: value for name, value in ours.items() if value is not None},
        delete=tuple(sorted(name for name, value in ours.items() if value is None)),
        before=before,
        theirs=tuple(
            sorted(n for n in before if not _is_ours(found, noted, n) and _explicit(found.get(n)) != before[n])
        ),
        is_over=True,
    )
