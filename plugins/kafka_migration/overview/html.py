"""Pages for people: templates of this package, filled in. Everything that they show is escaped."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.amounts import moment, seconds

if TYPE_CHECKING:
    from jinja2 import Environment


def rendered(template: str, **values: Any) -> str:
    """The page of this ``template``. It names no other file, and is readable on light and dark screens."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    # Imported here: nothing but a page needs it.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("kafka_migration")
    found = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    found.filters |= {"number": _number, "seconds": seconds, "when": moment, "short": _short}
    return found


def _number(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _short(value: str | None) -> str:
    """A digest, short enough for a table."""
    return value[: len("sha256:") + 12] if value else "-"
