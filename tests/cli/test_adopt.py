"""`adopt` at a terminal: what it shows of a finding, how it asks before it deletes, and its exit codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafka_migration.compare.explain.matching import Match, Mismatch, Span
from kafka_migration.domain.offset_map import Run
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.migration.context import Context
from kafka_migration.steps import adopt
from kafka_migration.steps.adopt import Adoption, Choices, Fate
from kafka_migration.steps.step import Decision
from tests.cli.conftest import Terminal

ENDS = PartitionEnds(start=0, end=100)
DIFFERENCES = {Mismatch.MISSING: (Span(7, 8, 1),), Mismatch.DOUBLED: (Span(40, 50, 10), Span(90, 95, 5))}
MATCH = Match(
    tp=TopicPartition("shop.orders", 3),
    source=ENDS,
    target=ENDS,
    runs=[Run(0, 0, 80)],
    source_at=80,
    differences=DIFFERENCES,
)
ORDERS = Adoption(
    topic="shop.orders",
    here="west.shop.orders",
    fate=Fate.LEFT,
    why="1 records missing; 15 records doubled",
    remedy="`--copy-again` deletes it",
    matches=(MATCH,),
)


class Step:
    """In the stead of the step: what it was asked, and what it answers."""

    def __init__(self, found: Sequence[Adoption], exit_code: int) -> None:
        self.found, self.exit_code = found, exit_code
        self.asked: dict[str, Any] = {}
        self.is_dry = False

    def run(self, ctx: Context, *, may_delete: Callable[[Sequence[Adoption]], object], **asked: Any) -> Decision:
        self.asked, self.is_dry = asked, ctx.dry_run
        if doomed := [one for one in self.found if one.fate is Fate.COPIED_AGAIN]:
            may_delete(doomed)
        return Decision(exit_code=self.exit_code, message="1 topics", facts={"left": 1}, value=tuple(self.found))


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Step:
    found = Step([ORDERS], 1)
    monkeypatch.setattr(adopt, "run", found.run)
    return found


def test_differences_are_shown_by_side_and_offsets_with_what_can_be_chosen(terminal: Terminal, step: Step) -> None:
    result = terminal.run("adopt")
    shown = " ".join(result.stdout.split())
    assert (result.exit_code, step.is_dry) == (1, True)
    assert "shop.orders 3 missing 1 source 7" in shown
    assert "shop.orders 3 doubled 15 target 40..49, 90..94" in shown
    assert "`--copy-again` deletes it" in shown
    assert "without --apply nothing was written" in shown


def test_json_has_every_offset(terminal: Terminal, step: Step) -> None:
    found = terminal.json("adopt", "--apply", "--keep-extra", "--topic", "shop.orders", "--seconds", "3")
    assert (step.is_dry, found["applied"], found["left"]) == (False, True, 1)
    assert step.asked == {"choices": Choices(keep_extra=True), "only": ["shop.orders"], "seconds": 3.0}
    ((topic),) = found["topics"]
    assert (topic["topic"], topic["on_target"], topic["outcome"]) == ("shop.orders", "west.shop.orders", "left")
    assert topic["partitions"] == [
        {
            "partition": 3,
            "records": 80,
            "runs": 1,
            "goes_on_at": 80,
            "trouble": "",
            "differences": {
                "missing": [{"start": 7, "end": 8, "records": 1}],
                "doubled": [{"start": 40, "end": 50, "records": 10}, {"start": 90, "end": 95, "records": 5}],
            },
        }
    ]


def test_topics_are_deleted_once_a_person_has_said_yes_or_beforehand(terminal: Terminal, step: Step) -> None:
    again = Adoption(topic="shop.orders", here="shop.orders", fate=Fate.COPIED_AGAIN, why="1 records missing")
    step.found, step.exit_code = [again], 0
    asked = terminal.run("adopt", "--apply", "--copy-again")
    assert asked.exit_code == 1
    assert "nobody can be asked here: Delete 1 topics on the target?" in asked.stderr
    assert terminal.run("adopt", "--apply", "--copy-again", "--yes").exit_code == 0
