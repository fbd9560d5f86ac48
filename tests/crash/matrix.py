"""Every point of every scenario: the process dies there, the same command is run again, and the ends are compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kafka_migration.domain.errors import MigrationError
from tests.crash.ends import end_of
from tests.crash.process import Process
from tests.crash.scenarios import Scenario
from tests.crash.shop import Shop
from tests.steps.killing import Killed

#: How long after a death somebody runs the command again: the mirror and the clients go on meanwhile.
_LATER_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A death before or ``after`` the ``at``-th change of a scenario, which is called ``name``."""

    scenario: Scenario
    at: int
    after: bool
    name: str

    def __str__(self) -> str:
        return f"{self.scenario.name}: {'after' if self.after else 'before'} change {self.at}, {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Undisturbed:
    """A run to its end: the changes in order, and how everything stands then."""

    changes: tuple[str, ...]
    end: dict[str, object]


def prepared(scenario: Scenario) -> Shop:
    """What stands before the command is run."""
    shop = Shop(is_created=scenario.is_created)
    scenario.prepare(shop)
    shop.clock.sleep(_LATER_SECONDS)
    return shop


def undisturbed(scenario: Scenario) -> Undisturbed:
    """Run it to its end. Each read on the way is proved to change nothing."""
    with Shop.at_the_boundary():
        shop = prepared(scenario)
        shop.process, shop.proves_reads = Process(), True
        scenario.run(shop)
        changes = tuple(shop.process.changes)
        return Undisturbed(changes=changes, end=end_of(shop))


def points(scenario: Scenario, run: Undisturbed) -> Iterator[Point]:
    """Before and after each change."""
    for at, name in enumerate(run.changes, start=1):
        for after in (False, True):
            yield Point(scenario=scenario, at=at, after=after, name=name)


def problem(point: Point, run: Undisturbed) -> str:
    """What is wrong if the process dies there and the command is run again; "" if the end is that of ``run``."""
    with Shop.at_the_boundary():
        shop = prepared(point.scenario)
        shop.process = Process(dies_at=point.at, after=point.after)
        try:
            point.scenario.run(shop)
        except Killed:
            pass
        else:
            return "the process did not die"
        if shop.process.changes[-1] != point.name:
            return f"change {point.at} was another one: {shop.process.changes[-1]}"
        shop.clock.sleep(_LATER_SECONDS)
        shop.process = Process()
        try:
            point.scenario.run(shop)
        except (MigrationError, AssertionError) as error:
            return f"the command, run again, ends with {type(error).__name__}: {error}"
        return "; ".join(_differences(run.end, end_of(shop)))


def _differences(wanted: object, found: object, place: str = "") -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in sorted({*wanted, *found}, key=str):
            yield from _differences(wanted.get(key), found.get(key), f"{place}/{key}")
    elif wanted != found:
        yield f"{place}: {found}, and not {wanted}"
