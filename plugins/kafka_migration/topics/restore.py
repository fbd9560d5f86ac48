"""Restoring: the target topics get the configs of their sources, which were overridden while records were copied.

While mirroring a target topic keeps everything for ever, takes any timestamp as it is, and is not compacted
(:mod:`kafka_migration.topics.specs`). Once the link is sealed nothing is copied any more, and the source's own
retention, cleanup policy, timestamp type, bounds and codec come into force. Brokers then delete at once what is older
than the retention: so this comes last, and is a part of completing. ``undo`` overrides them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.errors import MigrationError, Refused
from kafka_migration.topics import configs, keeping, locks
from kafka_migration.topics.declared import HELD, KEPT_OPEN, KIND, is_restored, left_over, mirrored
from kafka_migration.topics.specs import BOUNDS, OLD_BOUND, explicit, restorable

if TYPE_CHECKING:
    from kafka_migration.kafka.types import ConfigValue
    from kafka_migration.migration.context import Context

_LIMIT = "max.message.bytes"
#: What becomes of records, and of their times: the source's value counts, be it a default of its brokers.
_BY_DEFAULT = ("cleanup.policy", "message.timestamp.type", "retention.bytes", "retention.ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """One topic: configs to be set (``set``) and to be left to the target's defaults (``delete``).

    ``configs_source`` are the source's explicit configs that these follow from; ``source``: whether they are those of
    now, or those that it had when the topic was created. ``lost`` is what an adopted topic had before, and does not get
    back; ``is_excluded``: the plan does not mean the topic any more.
    """

    topic: str
    set: Mapping[str, str]
    delete: tuple[str, ...]
    configs_source: Mapping[str, str]
    source: str = "now"
    lost: Mapping[str, str] = field(default_factory=dict)
    is_excluded: bool = False

    def __str__(self) -> str:
        """One line for people: the same in a dry run and in earnest."""
        parts = [f"{name}={value}" for name, value in sorted(self.set.items())]
        parts += [f"{name} as the target's default" for name in self.delete]
        when = "" if self.source == "now" else " (as the source had it when the topic was created)"
        lost = ", ".join(f"{name}={value}" for name, value in sorted(self.lost.items()))
        instead = f"; not as before it was adopted: {lost}" if lost else ""
        excluded = " (excluded from the plan)" if self.is_excluded else ""
        return f"restore {self.topic}{excluded}: {', '.join(parts) or 'nothing differs'}{when}{instead}"

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "topic": self.topic,
            "set": dict(sorted(self.set.items())),
            "delete": list(self.delete),
            "source": self.source,
            "lost": dict(sorted(self.lost.items())),
            "excluded": self.is_excluded,
        }


def check(ctx: Context) -> tuple[Restored, ...]:
    """What would be set on each topic. Changes nothing.

    Raises Refused unless the link is sealed, in every partition, and the migration holds its topics.
    """
    records = _records(ctx)
    if not records:
        raise Refused(f"migration {ctx.plan.name} has no target topics", remedy="see `status`")
    locks.require_held(ctx, sorted(records))
    seal = ctx.link.seal()
    if seal is None or not seal.is_complete:
        raise Refused(
            "the mirror may still write: retention would delete old records as they arrive, and another timestamp type"
            " would change them",
            remedy="`stop` drains and seals it; then run this again",
        )
    return _steps(ctx, records)


def apply(ctx: Context) -> tuple[Restored, ...]:
    """Set them, read back and compare; a second call changes nothing. Killed anywhere, the next call converges.

    Raises what the target answers to a config, Refused if it shows another value afterwards.
    """
    return configs.change(ctx, ctx.target, lambda: check(ctx), lambda restored: _note(ctx, restored))


def undo(ctx: Context) -> tuple[str, ...]:
    """Override again what was restored, before anything is copied once more; returns the topics."""
    restored = {name: record for name, record in _records(ctx).items() if is_restored(record)}
    for name, record in sorted(restored.items()):
        held = record[HELD]
        ctx.log(f"disable retention and compaction of topic {name} again, to mirror it")
        if not ctx.dry_run:
            surplus = [config for config in record["spec"]["configs"] if config not in held]
            ctx.target.alter_configs(name, set=held, delete=surplus)
            kept = {key: value for key, value in record.items() if key != HELD}
            ctx.journal.record(KIND, name, kept | {"spec": record["spec"] | {"configs": held}})
    return tuple(sorted(restored))


def _records(ctx: Context) -> dict[str, dict[str, Any]]:
    """Of all topics that were ever mirrored: also those that the plan does not mean any more."""
    return mirrored(ctx) | left_over(ctx)


def _steps(ctx: Context, records: Mapping[str, Mapping[str, Any]]) -> tuple[Restored, ...]:
    sources = _source_configs(ctx, records)
    there = ctx.target.topic_configs(ctx.target.topics(records))
    gone = sorted(records.keys() - there.keys())
    if gone:
        raise Refused(f"target: topics of this migration are missing: {', '.join(gone[:5])}", remedy="see `status`")
    return tuple(
        replace(_one(name, record, sources.get(name), there[name]), is_excluded=not ctx.plan.topics.matches(name))
        for name, record in sorted(records.items())
    )


def _source_configs(ctx: Context, names: Mapping[str, Any]) -> dict[str, Mapping[str, ConfigValue]]:
    """Configs of the source's topics now. None if it does not answer: it may be switched off by then."""
    try:
        return keeping.own(ctx, ctx.source.topic_configs(ctx.source.topics(names)))
    except MigrationError as error:
        ctx.log(
            "the source does not report its configs, so what was explicit at the creation counts, and else the target's"
            f" defaults: {error.message}"
        )
        return {}


def _one(
    name: str,
    record: Mapping[str, Any],
    source: Mapping[str, ConfigValue] | None,
    there: Mapping[str, ConfigValue],
) -> Restored:
    configs_source = record["configs_source"] if source is None else explicit(source)
    is_old = OLD_BOUND in there and not set(BOUNDS) & set(there)
    wanted = restorable(configs_source, record["left_out"], is_old=is_old)
    now, surplus = explicit(there), set(KEPT_OPEN)
    before: Mapping[str, str] = record.get("before", {})
    # Not what would delete records, or compact them, that the source keeps.
    wanted = {n: value for n, value in before.items() if n in KEPT_OPEN and n not in _BY_DEFAULT} | wanted
    if source is not None:
        wanted = _other_defaults(source, there) | wanted
        if _LIMIT in now and _LIMIT not in wanted:
            wanted |= _larger_limit(source, there, int(before.get(_LIMIT, 0)))
            surplus.add(_LIMIT)
    # What was never the source's, and is not one of those that mirroring overrides, is the target's own business.
    delete = tuple(sorted((now.keys() & surplus) - wanted.keys()))
    then = {n: value for n, value in now.items() if n not in delete} | wanted
    return Restored(
        topic=name,
        set=_changes(now, wanted),
        delete=delete,
        configs_source=configs_source,
        source="created" if source is None else "now",
        lost=_changes(then, before),
    )


def _changes(now: Mapping[str, str], then: Mapping[str, str]) -> dict[str, str]:
    """What of ``then`` is not so ``now``."""
    return {name: value for name, value in then.items() if now.get(name) != value}


def _other_defaults(source: Mapping[str, ConfigValue], there: Mapping[str, ConfigValue]) -> dict[str, str]:
    """What is explicit nowhere on the source, whose brokers have another default than the target's."""
    return {n: source[n].value or "" for n in _BY_DEFAULT if _differs(source.get(n), there.get(n))}


def _larger_limit(source: Mapping[str, ConfigValue], there: Mapping[str, ConfigValue], before: int) -> dict[str, str]:
    """The largest batch, if the target's default is too small for it. It is explicit on the target only: its default
    is smaller than the source's, or re-encoded batches needed room."""
    largest = max(_size(source.get(_LIMIT)), before)
    return {_LIMIT: str(largest)} if largest > _size(there.get(_LIMIT), default=True) else {}


def _differs(here: ConfigValue | None, there: ConfigValue | None) -> bool:
    """Whether the target's default is known, and another value than holds on the source."""
    if here is None or there is None or here.value is None:
        return False
    default = there.default if there.is_explicit else there.value
    return default is not None and default != here.value


def _size(config: ConfigValue | None, *, default: bool = False) -> int:
    value = None if config is None else config.default if default else config.value
    return int(value or 0)


def _note(ctx: Context, restored: Restored) -> None:
    record = ctx.journal.read(KIND, restored.topic) or {}
    held = dict(record["spec"]["configs"])
    declared = {name: value for name, value in held.items() if name not in restored.delete} | dict(restored.set)
    noted = {
        "spec": record["spec"] | {"configs": declared},
        "configs_source": dict(restored.configs_source),
        "restored_at": ctx.stamp(),
    }
    # Noted before: whoever looks meanwhile sees drift, and a mirror that is unsealed knows what to override again.
    ctx.journal.record(KIND, restored.topic, {HELD: held} | record | noted)
