"""Retire: what still uses the source, as a checklist for switching it off. Read-only.

Two looks, some seconds apart: what moved between them is in use now (FAIL). What rests and may come back, or would be
lost with the cluster, is a WARN; what could not be asked is UNCHECKED, and is not taken for unused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from kafka_migration.domain.checks import CheckResult, Gate
from kafka_migration.domain.errors import CouldNotFindOut, MigrationError, NotAuthorized
from kafka_migration.domain.listing import listed
from kafka_migration.groups import sides
from kafka_migration.groups.looks import MOVABLE_PROTOCOLS, Commits
from kafka_migration.inventory.facts import Finding, failed, passed, warned
from kafka_migration.kafka.errors import NoAuthorizer
from kafka_migration.link.heartbeat import describe, mirror_state
from kafka_migration.migration.joined import names_of
from kafka_migration.topics.declared import KIND as TOPICS

if TYPE_CHECKING:
    from kafka_migration.domain.types import PartitionEnds, TopicPartition
    from kafka_migration.kafka.types import Acl, ActiveProducer, GroupListing, GroupState
    from kafka_migration.migration.context import Context

T = TypeVar("T")

ENDS, PRODUCERS, TRANSACTIONS = "no log end moves", "no producer is active", "no transaction is open"
GROUPS, OTHER_GROUPS, OUTSIDE = "no group is active", "no share, streams or other group", "topics outside the plan"
WRITERS, LOCKS, MIRROR = "principals that may write", "no other migration holds topics", "the mirror has ended"

#: What no check can show.
CONNECTIONS = (
    "Clients that are connected and neither write nor are in a group (readers by assign(), admin clients, Connect and"
    " Streams applications that rest) cannot be seen through Kafka's protocol: look at the brokers' connection metrics."
)

_STOP_PRODUCERS = "stop these producers, or have them write to the target; then run this again"
_STOP_GROUPS = "move them (`cutover --group NAME`), or stop them if nobody needs them; then run this again"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What the source showed at one moment, each part or why it was not shown. Seconds are of the context's clock."""

    at: float
    ends: Mapping[TopicPartition, PartitionEnds] | MigrationError
    producers: Mapping[TopicPartition, tuple[ActiveProducer, ...]] | MigrationError
    groups: Mapping[str, GroupListing] | MigrationError
    states: Mapping[str, GroupState] | MigrationError
    commits: Mapping[str, Commits] | MigrationError


def check(ctx: Context, *, seconds: float = 10.0) -> Gate:
    """Everything that uses the source, or may: a named check each. Open only if nothing does."""
    first = _look(ctx)
    ctx.log(f"watching the source for {seconds:g} s")
    ctx.clock.sleep(seconds)
    last = _look(ctx)
    results = [
        _named(GROUPS, lambda: _groups(first, last)),
        _named(OTHER_GROUPS, lambda: _other_groups(last)),
        *_may_be_hidden((sides.CHECK_BACK,), lambda: (sides.check_back(ctx),)),
        *_may_be_hidden((sides.CHECK_SIDES, sides.CHECK_MOVED), lambda: sides.check(ctx)),
        _named(PRODUCERS, lambda: _producers(first, last)),
        _named(TRANSACTIONS, lambda: _transactions(ctx, last)),
        _named(ENDS, lambda: _ends(ctx, first, last)),
        _named(OUTSIDE, lambda: _outside(ctx, first, last)),
        _named(WRITERS, lambda: _writers(ctx)),
        _named(MIRROR, lambda: _mirror(ctx)),
        _named(LOCKS, lambda: _locks(ctx, last)),
    ]
    return Gate.of("retire", results)


def _look(ctx: Context) -> _Look:
    source = ctx.source
    ends = _asked(
        lambda: source.ends(
            [tp for topic in source.topics().values() if not topic.is_internal for tp in topic.topic_partitions]
        )
    )
    groups = _asked(source.groups)
    names = [name for name, group in _or_none(groups).items() if group.protocol in MOVABLE_PROTOCOLS]
    return _Look(
        at=ctx.clock.monotonic(),
        ends=ends,
        producers=ends if isinstance(ends, MigrationError) else _asked(lambda: source.producers(list(ends))),
        groups=groups,
        states=groups if isinstance(groups, MigrationError) else _asked(lambda: source.group_states(names)),
        commits=groups
        if isinstance(groups, MigrationError)
        else _asked(lambda: source.committed_of(names, is_stable=False)),
    )


def _asked(ask: Callable[[], T]) -> T | MigrationError:
    try:
        return ask()
    except (CouldNotFindOut, NotAuthorized) as error:
        return error


def _or_none(found: Mapping[str, T] | MigrationError) -> Mapping[str, T]:
    return {} if isinstance(found, MigrationError) else found


def _known(found: T | MigrationError) -> T:
    if isinstance(found, MigrationError):
        raise found
    return found


def _named(name: str, find: Callable[[], Finding]) -> CheckResult:
    try:
        found = find()
    except (CouldNotFindOut, NotAuthorized) as error:
        return CheckResult.unchecked(name, error.message, remedy=error.remedy)
    return CheckResult(name=name, verdict=found.verdict, evidence=found.evidence, remedy=found.remedy)


def _may_be_hidden(names: Iterable[str], ask: Callable[[], Iterable[CheckResult]]) -> tuple[CheckResult, ...]:
    """Checks that raise NotAuthorized where a group is not shown: here that is an answer like the others'."""
    try:
        return tuple(ask())
    except NotAuthorized as error:
        return tuple(CheckResult.unchecked(name, error.message, remedy=error.remedy) for name in names)


# -- readers --------------------------------------------------------------------------------------------------------


def _groups(first: _Look, last: _Look) -> Finding:
    """A client that is no member may commit as well (Flink, assign()), so commits count by themselves."""
    before, now = _known(first.commits), _known(last.commits)
    found = []
    for group, state in sorted(_known(last.states).items()):
        uses = [f"{len(state.members)} members ({_clients(state)})"] if state.members else []
        then = before.get(group, {})
        moved = [tp for tp, commit in sorted(now.get(group, {}).items()) if then.get(tp) != commit]
        uses += [f"committed {listed(moved)}"] if moved else []
        found += [f"{group}: {' and '.join(uses)}"] if uses else []
    if found:
        return failed(listed(found, separator="; "), _STOP_GROUPS)
    return passed(f"{len(now)} groups, none with members, and no commit moved in {_seconds(first, last)}")


def _clients(state: GroupState) -> str:
    return listed(sorted({f"{member.client_id} at {member.host.lstrip('/')}" for member in state.members}))


def _other_groups(last: _Look) -> Finding:
    """Of these only the state is asked: their commits are not like other groups'."""
    others = {name: one for name, one in _known(last.groups).items() if one.protocol not in MOVABLE_PROTOCOLS}
    if not others:
        return passed("none")
    rows = {name: f"{name} ({one.protocol}, {one.state})" for name, one in sorted(others.items())}
    active = [rows[name] for name, one in sorted(others.items()) if one.state not in ("Empty", "Dead")]
    if active:
        return failed(listed(active), "stop their applications on the source, and start them on the target by hand")
    return warned(f"without members: {listed(rows.values())}", "what they keep on the source ends with it")


# -- writers --------------------------------------------------------------------------------------------------------


def _producers(first: _Look, last: _Look) -> Finding:
    """Leaders remember who wrote for a day or so: only who wrote between the looks is active for certain."""
    before, now = _known(first.producers), _known(last.producers)
    active, resting = list[str](), list[str]()
    for tp, producers in sorted(now.items()):
        then = {(one.producer_id, one.epoch): one.last_timestamp for one in before.get(tp, ())}
        for one in producers:
            row = f"{tp} producer {one.producer_id}, last record {_moment(one.last_timestamp)}"
            wrote = then.get((one.producer_id, one.epoch)) != one.last_timestamp
            (active if wrote else resting).append(row)
    if active:
        return failed(listed(active, separator="; "), _STOP_PRODUCERS)
    if resting:
        return warned(
            f"none wrote in {_seconds(first, last)}; brokers remember {listed(resting, separator='; ')}",
            "if such a producer may still run, stop it; brokers forget it after producer.id.expiration.ms",
        )
    return passed(f"brokers remember none; those that are not idempotent show in {ENDS!r} alone")


def _moment(milliseconds: int) -> str:
    if milliseconds < 0:
        return "at an unknown time"
    return f"{datetime.fromtimestamp(milliseconds / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"


def _transactions(ctx: Context, last: _Look) -> Finding:
    holding = {
        one.producer_id: tp
        for tp, producers in sorted(_known(last.producers).items())
        for one in producers
        if one.in_transaction
    }
    if not holding:
        return passed("none")
    names = ctx.source.transactional_ids(holding)
    rows = (f"{names.get(number, f'producer {number}')} ({tp})" for number, tp in sorted(holding.items()))
    return failed(
        listed(rows),
        "have their producers commit or abort; abort one that hangs for good with kafka-transactions.sh",
    )


def _ends(ctx: Context, first: _Look, last: _Look) -> Finding:
    moved = [row for topic, row in _growth(first, last) if ctx.plan.topics.matches(topic)]
    if moved:
        return failed(listed(moved, separator="; "), _STOP_PRODUCERS)
    return passed(f"no end of the plan's topics moved in {_seconds(first, last)}")


def _outside(ctx: Context, first: _Look, last: _Look) -> Finding:
    outside = {tp: log for tp, log in _known(last.ends).items() if not ctx.plan.topics.matches(tp.topic)}
    moved = [row for topic, row in _growth(first, last) if not ctx.plan.topics.matches(topic)]
    if moved:
        return failed(listed(moved, separator="; "), "migrate these topics by another plan, or stop their producers")
    holding = sorted({tp.topic for tp, log in outside.items() if log.end > log.start})
    if holding:
        return warned(
            f"{len(holding)} hold records that no plan of this migration copies: {listed(holding)}",
            "migrate them by another plan, or see that nobody needs them: they end with the source",
        )
    return passed("none holds records")


def _growth(first: _Look, last: _Look) -> Iterator[tuple[str, str]]:
    """Topics whose log ends moved, with by how much and how fast; one that appeared meanwhile counts in full."""
    before, grown = _known(first.ends), dict[str, int]()
    for tp, log in sorted(_known(last.ends).items()):
        then = before[tp].high_watermark if tp in before else log.start
        grown[tp.topic] = grown.get(tp.topic, 0) + log.high_watermark - then
    seconds = max(last.at - first.at, 0.001)
    return ((topic, f"{topic} +{more} ({more / seconds:,.1f}/s)") for topic, more in grown.items() if more > 0)


def _writers(ctx: Context) -> Finding:
    try:
        acls = ctx.source.acls()
    except NoAuthorizer:
        return warned("the source has no authorizer: whoever reaches a broker may write", "close the clients' way in")
    writers = [acl for acl in acls if acl.resource_type == "TOPIC" and acl.operation in ("WRITE", "ALL")]
    denied = {acl.resource for acl in writers if acl.permission == "DENY" and acl.principal == "User:*"}
    allowed = _principals(acl for acl in writers if acl.permission == "ALLOW" and not {acl.resource, "*"} & denied)
    if allowed:
        return warned(listed(allowed, separator="; "), "remove their ACLs, or add denials, before the cluster is kept")
    return passed("no ACL allows it; super users may always")


def _principals(acls: Iterable[Acl]) -> list[str]:
    topics: dict[str, set[str]] = {}
    for acl in acls:
        topics.setdefault(acl.principal, set()).add(acl.resource + ("*" if acl.pattern == "PREFIXED" else ""))
    return [f"{principal} to {listed(sorted(names))}" for principal, names in sorted(topics.items())]


# -- migrations -----------------------------------------------------------------------------------------------------


def _mirror(ctx: Context) -> Finding:
    state, beat = mirror_state(ctx)
    if state == "running":
        return failed(describe(state, beat), "end it through its gate: `stop`")
    if state == "silent":
        return warned(describe(state, beat), "start it again and end it: `stop`")
    return passed(describe(state, beat))


def _locks(ctx: Context, last: _Look) -> Finding:
    topics = {tp.topic for tp in _known(last.ends)}
    others = ctx.journal.held_elsewhere(topics)
    for journal in ctx.journal.others():
        # They may have names of their own for them on the target.
        theirs = journal.called(names_of(journal).on_target).holders(topics & journal.all(TOPICS).keys())
        others |= {topic: by for topic, by in theirs.items() if by == journal.migration}
    if others:
        rows = (f"{topic} ({by})" for topic, by in sorted(others.items()))
        return failed(listed(rows), "finish these migrations and `release` them, or `cancel` them")
    return passed("none")


def _seconds(first: _Look, last: _Look) -> str:
    return f"{last.at - first.at:.0f} s"
