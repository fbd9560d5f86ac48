"""Forward, back, and forward again, on real brokers: offsets of either cluster name the very same records, whichever
link copied them, below and above the first cut, and after the second one."""

import random
import uuid
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.offset_map import NotMirroredYet
from kafka_migration.domain.types import TopicPartition
from kafka_migration.link import reverse, seal
from kafka_migration.migration.context import Context
from kafka_migration.positions.texts import Position
from kafka_migration.positions.translation import How, Rules, Translator
from kafka_migration.steps import cutover, mirror, rollback
from kafka_migration.steps.cutover import Fate
from tests.copy.bench import ThreadRunner
from tests.copy.test_reverse import sealed
from tests.kafka_tools import Row, ToSend, commit, committed, produce, produce_transaction, read_all

OFFSETS = 1_000


def _write(servers: str, topic: str, count: int) -> None:
    """Records whose values are unique, in both partitions, and between them transactions, whose markers leave gaps."""
    for _ in range(3):
        produce(servers, topic, [ToSend(uuid.uuid4().bytes, partition=n % 2) for n in range(count // 3)])
        produce_transaction(servers, topic, [uuid.uuid4().bytes for _ in range(5)])


def _copy(ctx: Context) -> None:
    assert not mirror.apply(ctx, ThreadRunner(), until_caught_up=True).halted


def _first_at(rows: Sequence[Row], offset: int) -> Row | None:
    at = bisect_left(rows, offset, key=lambda row: row.offset)
    return rows[at] if at < len(rows) else None


def _check(ctx: Context, here: str, there: str, cuts: Mapping[TopicPartition, Sequence[int]], chance: random.Random):
    """So many random offsets of the target: each goes on at the record that stands there, and nowhere before it.

    ``cuts`` are the target offsets between which the links copied; of each stretch some offsets were looked at.
    """
    topics = {tp.topic: 2 for tp in cuts}
    target, source = read_all(there, topics), read_all(here, topics)
    maps = reverse.offset_maps(ctx, list(cuts))
    seen = dict.fromkeys(range(max(map(len, cuts.values())) + 1), 0)
    for _ in range(OFFSETS):
        tp = chance.choice(sorted(cuts))
        offset = chance.choice([chance.randrange(target[tp][-1].offset + 1), *cuts[tp]])
        wanted = _first_at(target[tp], offset)
        assert wanted is not None
        found = maps[tp].to_source(offset)
        assert (row := _first_at(source[tp], found)) is not None, (tp, offset)
        assert (row.offset, row.without_offset()) == (found, wanted.without_offset()), (tp, offset)
        assert maps[tp].to_target(found) == wanted.offset, (tp, offset)
        seen[sum(cut <= offset for cut in cuts[tp])] += 1
    assert all(count > 20 for count in seen.values()), seen
    # Behind the last record the next one follows, wherever it is written.
    for tp, rows in target.items():
        assert maps[tp].to_source(rows[-1].offset + 1) > source[tp][-1].offset


def test_random_offsets_return_to_their_very_records_after_one_cut_and_after_two(source_cluster, target_cluster):
    here, there = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    topic, chance = f"ways-{uuid.uuid4().hex[:8]}.orders", random.Random(38)
    partitions = [TopicPartition(topic, n) for n in range(2)]
    with sealed(here, there, topic) as (_, ctx):
        first = ctx.link.seal()
        assert first is not None
        back = reverse.arm(ctx)
        _write(there, topic, 90)
        with pytest.raises(NotMirroredYet):
            reverse.offset_maps(back, partitions)[partitions[0]].to_source(first.ends[partitions[0]] + 9)
        _copy(back)
        _write(there, topic, 60)
        _copy(back)
        # The very same offsets before any record came back, and after the second cut.
        cut = {tp: [first.ends[tp], first.ends[tp] + 1] for tp in partitions}
        _check(back, here, there, cut, chance)

        seal.apply(back)
        again = reverse.arm(back)
        assert (again.direction, again.generation, again.link.name) == (
            Direction.FORWARD,
            2,
            f"{ctx.link.name}:2",
        )
        _write(here, topic, 60)
        _copy(again)
        second = {tp: at.source for tp, at in back.link.positions().items()}
        _check(again, here, there, {tp: [*cut[tp], second[tp]] for tp in partitions}, chance)
        # What a group committed on the source in the meantime, and before, goes forward as ever.
        rows, copies = read_all(here, {topic: 2}), read_all(there, {topic: 2})
        for tp, maps in reverse.offset_maps(again, partitions).items():
            assert [maps.to_target(row.offset) for row in rows[tp]] == [row.offset for row in copies[tp]]
        # So do positions in files, asked of the migration as a command opens it.
        on_source, on_target = (
            [Position(tp=tp, offset=row.offset, where="", start=0, end=0) for tp in partitions for row in found[tp]]
            for found in (rows, copies)
        )
        for rules, given, others in ((Rules(back=True), on_target, on_source), (Rules(), on_source, on_target)):
            answers = [(one.offset, one.how) for one in Translator(ctx, rules).translated(given)]
            assert answers == [(other.offset, How.EXACT) for other in others]


class Open:
    """A gate that lets pass: what the cutover's asks is not meant here."""

    def ask(self) -> str:
        return "open"


def test_group_goes_to_the_target_and_back_at_its_very_next_records_through_real_links(source_cluster, target_cluster):
    here, there = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    prefix = f"ways-{uuid.uuid4().hex[:8]}"
    topic, group = f"{prefix}.orders", f"{prefix}.app"
    below, above = (TopicPartition(topic, n) for n in range(2))
    plan = {
        "groups": {"include": [rf"{prefix}\..*"]},
        "cutover": {"stopped_groups": [group], "rest_seconds": 0.1},
        "consumers": {"wait_seconds": 1},
        "approvals": {"cutover": False},
    }
    with sealed(here, there, topic, **plan) as (made, ctx):
        commit(here, group, {below: 31, above: 7})
        assert [one.outcome for one in cutover.apply(ctx, [group], gate=Open()).groups] == [Fate.MOVED]
        with pytest.raises(Refused, match="has not begun"):
            rollback.apply(ctx, [group])
        back = reverse.arm(ctx)
        _write(there, topic, 90)
        target = read_all(there, {topic: 2})
        stand = {below: target[below][40], above: target[above][-3]}
        commit(there, group, {tp: row.offset for tp, row in stand.items()})
        (outcome,) = rollback.apply(ctx, [group]).groups
        assert (outcome.outcome, "beyond the mirror's position" in outcome.reason) == (Fate.REFUSED, True)
        assert committed(here, group) == {below: 31, above: 7}
        _copy(back)
        (outcome,) = rollback.apply(ctx, [group]).groups
        assert outcome.outcome is Fate.MOVED, outcome
        assert any("the reverse link has 0 offsets of the target to copy in 2 partitions" in line for line in made.told)
        source = read_all(here, {topic: 2})
        for tp, offset in committed(here, group).items():
            assert _first_at(source[tp], offset) == replace(stand[tp], offset=offset)
