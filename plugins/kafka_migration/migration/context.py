"""What every phase gets: the plan, both clusters, the journal and the link, a clock, and a way to report progress.

Opened once per command or task and closed at its end. Read-only phases open it without making anything: a target that
has no internal topics yet yields an empty journal and an empty link.

Its scope says what a gate, an answer or a measurement is about: the whole plan, or a wave of it. Lag, evidence and
approvals are the same code for both.
"""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, Protocol

from kafka_migration.domain import ledger
from kafka_migration.domain.direction import HOME, SOURCE, TARGET, Direction, Side
from kafka_migration.domain.errors import ClusterUnreachable, NotAuthorized, Refused
from kafka_migration.domain.handlers import Handler
from kafka_migration.kafka.cluster import Cluster, Role
from kafka_migration.kafka.lookup import find_connection
from kafka_migration.kafka.renamed import renamed
from kafka_migration.kafka.topic_log import TopicLog
from kafka_migration.migration.joined import require_names
from kafka_migration.migration.signing import Keyring, find_keys
from kafka_migration.plans.base import PLAIN_NAME
from kafka_migration.plans.model import Plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.link import LinkState
from kafka_migration.state.store import MemoryStore, SegmentStore, Store, TopicStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """``topics`` and ``groups`` of a plan by name; None: all of them. ``key`` is the wave's name, "" for all. ``after``
    are groups of the waves before, which have to be moved first; ``reading`` those of its own groups that read
    something of the plan, so that there is something to move; ``torn`` names, in words, what spans it and another wave,
    and may not."""

    key: str = ""
    topics: frozenset[str] | None = None
    groups: frozenset[str] | None = None
    after: frozenset[str] = frozenset()
    reading: frozenset[str] = frozenset()
    torn: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.key and not re.fullmatch(PLAIN_NAME, self.key):
            raise ValueError(f"a scope cannot be called {self.key!r}: use a-z, 0-9, dots, dashes and underscores")
        if bool(self.key) != (self.topics is not None and self.groups is not None):
            raise ValueError("a wave has a name, its topics and its groups; the whole plan has none of the three")

    @classmethod
    def wave(cls, key: str, *, topics: Set[str], groups: Set[str], after: Set[str] = frozenset(), **more: Any) -> Scope:
        """Some topics and groups under a name of their own."""
        return cls(key=key, topics=frozenset(topics), groups=frozenset(groups), after=frozenset(after), **more)

    @property
    def is_whole(self) -> bool:
        """Whether all of the plan is meant."""
        return not self.key

    def has_topic(self, topic: str) -> bool:
        """Whether ``topic`` is meant, if it is one of the plan."""
        return self.topics is None or topic in self.topics

    def has_group(self, group: str) -> bool:
        """Whether ``group`` is meant, if it is one of the plan."""
        return self.groups is None or group in self.groups

    def own(self, name: str) -> str:
        """``name`` of the journal as this scope's own: ``cutover``, or ``cutover/<wave>``."""
        return f"{name}/{self.key}" if self.key else name


WHOLE = Scope()


class Clock(Protocol):
    """Time, injected, so that waiting and failure are testable."""

    def now(self) -> datetime:
        """The wall clock, UTC."""

    def monotonic(self) -> float:
        """Seconds that never run backwards."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """The wall clock, UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)


def silent(_text: str) -> None:
    """Tell nobody."""


def connect(role: Role, conn_id: str, timeout_seconds: float) -> Cluster:
    """Another connection to a cluster, by its id; the caller closes it. Raises BadInput for an unknown one."""
    return Cluster(role, find_connection(conn_id), timeout_seconds=timeout_seconds)


@dataclass(slots=True, kw_only=True)
class Context:
    """Everything a step works with. ``dry_run``: report what would be done, change nothing. ``approval_keys`` looks for
    them: only who answers or is about to act needs them. ``on_make_state`` creates the internal topics if need be, and
    opens journal, link and segments on them.

    ``connect`` opens further connections: with another principal, or with other timeouts.

    ``link`` is that of ``direction``: what works on a link copies from ``origin`` to ``destination``, and never asks
    which of both is the source. It is the ``generation``-th of its direction, and the ``earlier`` ones, oldest first,
    were sealed before it began. ``on_open_link`` opens the state of another one. ``scope`` is what of the plan is
    looked at, judged and approved."""

    plan: Plan
    source: Cluster
    target: Cluster
    journal: Journal
    link: LinkState
    direction: Direction = Direction.FORWARD
    generation: int = 1
    earlier: tuple[tuple[Direction, LinkState], ...] = ()
    scope: Scope = WHOLE
    segments: SegmentStore = field(default_factory=SegmentStore)
    clock: Clock = field(default_factory=SystemClock)
    log: Callable[[str], None] = silent
    dry_run: bool = False
    approval_keys: Callable[[], Keyring] = find_keys
    connect: Callable[[Role, str, float], Cluster] = connect
    on_make_state: Callable[[], tuple[Journal, LinkState, SegmentStore]] | None = None
    on_open_link: Callable[[Direction, int], LinkState] | None = None

    @property
    def origin(self) -> Cluster:
        """Where the link reads."""
        return self.cluster(self.direction.origin)

    @property
    def destination(self) -> Cluster:
        """Where the link writes."""
        return self.cluster(self.direction.destination)

    @property
    def home(self) -> Cluster:
        """Where journal and links live."""
        return self.cluster(HOME)

    def called_on_target(self, topic: str) -> str:
        """For people who are to look for ``topic`` there: with its name on the target, where that is another one."""
        here = self.target.topic_here(topic)
        return topic if here == topic else f"{topic} (there: {here})"

    @property
    def is_first(self) -> bool:
        """Whether the link is the one that a migration begins with: what later ones copy is decided by it."""
        return (self.direction, self.generation) == (Direction.FORWARD, 1)

    def cluster(self, name: Side) -> Cluster:
        """The cluster of that name."""
        return self.source if name == SOURCE else self.target

    def within(self, scope: Scope) -> Context:
        """The same migration, as far as ``scope`` goes."""
        return replace(self, scope=scope)

    def require_whole(self, what: str) -> None:
        """Raises Refused for a wave: ``what`` is done for the whole plan alone."""
        if not self.scope.is_whole:
            raise Refused(
                f"{what} is for the whole plan {self.plan.name}, not for wave {self.scope.key}",
                remedy="run it without a wave",
            )

    def selects_topic(self, topic: str) -> bool:
        """Whether ``topic`` is one of the plan, and in scope."""
        return self.plan.topics.matches(topic) and self.scope.has_topic(topic)

    def selects_group(self, group: str) -> bool:
        """Whether ``group`` is one of the plan, and in scope."""
        return self.plan.groups.matches(group) and self.scope.has_group(group)

    def handler_of(self, topic: str) -> Handler | None:
        """What the plan has made of records of ``topic`` by this context's link: on the way back they stay as they
        are."""
        return self.plan.handler_of(topic) if self.direction is Direction.FORWARD else None

    def own(self, name: str) -> str:
        """``name`` of the journal as this link's own."""
        return self.direction.own(name, self.generation)

    def reverse(self) -> Context:
        """The same migration, seen from the link that follows this one and copies the other way; nothing else is
        different. What follows a reverse link is the next generation of the forward link.

        Raises Refused before the internal topics are there.
        """
        if self.on_open_link is None or not self.link.is_stored:
            raise Refused(
                f"migration {self.plan.name} has no state on the {HOME} yet, so no link that could be reversed",
                remedy="run `create` and `mirror` first",
            )
        direction = self.direction.opposite
        generation = self.generation + (direction is Direction.FORWARD)
        return replace(
            self,
            link=self.on_open_link(direction, generation),
            direction=direction,
            generation=generation,
            earlier=(*self.earlier, (self.direction, self.link)),
            on_make_state=None,
        )

    def before(self) -> Context:
        """The same migration, seen from the link behind which this one begins. Raises ValueError for the first one."""
        if not self.earlier:
            raise ValueError(f"no link of {self.plan.name} comes before its first")
        direction, link = self.earlier[-1]
        generation = self.generation - (direction is Direction.REVERSE)
        return replace(self, link=link, direction=direction, generation=generation, earlier=self.earlier[:-1])

    def newest(self) -> Context:
        """The same migration, seen from its newest forward link: a later one begins where a way back was sealed."""
        found = self
        while found.on_open_link is not None and found.link.is_stored and found.link.seal() is not None:
            back = found.reverse()
            if not back.link.topics() or not (again := back.reverse()).link.topics():
                break
            found = again
        return found

    def make_state(self) -> None:
        """See to it that the internal topics exist, so that what is written from now on stays; not in a dry run."""
        if self.on_make_state is not None and not self.dry_run:
            self.journal, self.link, self.segments = self.on_make_state()
            self.on_make_state = None

    def stamp(self) -> str:
        """The wall clock as stored values hold it: ISO-8601, UTC."""
        return self.clock.now().isoformat(timespec="milliseconds")


@contextmanager
def open_context(
    plan: Plan,
    *,
    log: Callable[[str], None] = silent,
    dry_run: bool = False,
    make_state: bool = False,
    to_check: bool = False,
) -> Iterator[Context]:
    """The context of ``plan``, from its connections. ``make_state`` creates the internal topics if need be.

    Raises BadInput for an unknown connection, ClusterUnreachable (AuthenticationFailed) or NotAuthorized for a target
    that does not answer. Not with ``to_check``, for who is about to check just that: state that is out of reach or
    hidden is then empty.
    """
    # Thousands of topics are answered with a million objects: the collector would walk them all again and again.
    gc.set_threshold(50_000)
    with ExitStack() as stack:
        names = plan.topic_names
        source = stack.enter_context(closing(Cluster("source", find_connection(plan.source))))
        target = renamed(stack.enter_context(closing(Cluster("target", find_connection(plan.target)))), names)
        properties = target.connection.librdkafka()
        is_made = False

        def open_link(direction: Direction, generation: int = 1, *, make: bool = False) -> LinkState:
            name, selects = direction.own(plan.name, generation), plan.topics.matches
            return stack.enter_context(closing(LinkState.on_target(name, properties, create=make, selects=selects)))

        def open_state(*, make: bool) -> tuple[Journal, LinkState, SegmentStore]:
            link = open_link(Direction.FORWARD, make=make)
            store = _journal_store(TopicLog(properties, ledger.JOURNAL_TOPIC), create=make)
            journal = stack.enter_context(closing(Journal(store, plan.name, locked_as=names.on_target)))
            log = TopicLog(properties, ledger.SEGMENTS_TOPIC)
            segments = stack.enter_context(closing(SegmentStore(log, plan.name, create=make)))
            nonlocal is_made
            is_made = link.is_stored and isinstance(store, TopicStore)
            return journal, link, segments

        def connect_by_name(role: Role, conn_id: str, timeout_seconds: float) -> Cluster:
            cluster = connect(role, conn_id, timeout_seconds)
            return renamed(cluster, names) if role == TARGET else cluster

        try:
            # First of all: it names in seconds, and in words, why there is no connection.
            target.cluster_id()
            journal, link, segments = open_state(make=make_state and not dry_run)
        except (ClusterUnreachable, NotAuthorized):
            if not to_check:
                raise
            memory = MemoryStore()
            journal, link, segments = (
                Journal(memory, plan.name),
                LinkState(plan.name, memory, None, None),
                SegmentStore(),
            )
        if not to_check:
            # `check` names it among its checks.
            require_names(journal, plan)
        ctx = Context(
            plan=plan,
            source=source,
            target=target,
            journal=journal,
            link=link,
            segments=segments,
            log=log,
            dry_run=dry_run,
            connect=connect_by_name,
            on_make_state=None if is_made else lambda: open_state(make=True),
            # Kept: what looks at groups that were rolled back asks for it again and again.
            on_open_link=cache(open_link),
        )
        # Without state there is no later link to be found.
        yield ctx if to_check else ctx.newest()


def _journal_store(log: TopicLog, *, create: bool) -> Store:
    if create:
        log.ensure()
    elif not log.exists():
        return MemoryStore()
    return TopicStore(log)
