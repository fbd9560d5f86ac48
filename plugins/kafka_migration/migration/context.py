"""What every phase gets: the plan, both clusters, the journal and the link, a clock, and a way to tell a person.

Opened once per command or task and closed at its end. Read-only phases open it without making anything: a target that
has no internal topics yet yields an empty journal and an empty link.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from kafka_migration.domain import ledger
from kafka_migration.domain.errors import ClusterUnreachable, NotAuthorized
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.lookup import find_connection
from kafka_migration.kafka.topic_log import TopicLog
from kafka_migration.migration.signing import Keyring, find_keys
from kafka_migration.plans.model import Plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.link import LinkState
from kafka_migration.state.segments import SegmentStore
from kafka_migration.state.store import MemoryStore, Store, TopicStore


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


@dataclass(slots=True, kw_only=True)
class Context:
    """Everything a phase works with. ``dry_run``: say what would be done, change nothing. ``approval_keys`` looks for
    them: only who answers or is about to act needs them."""

    plan: Plan
    source: Cluster
    target: Cluster
    journal: Journal
    link: LinkState
    segments: SegmentStore = field(default_factory=SegmentStore)
    clock: Clock = field(default_factory=SystemClock)
    tell: Callable[[str], None] = silent
    dry_run: bool = False
    approval_keys: Callable[[], Keyring] = find_keys

    def stamp(self) -> str:
        """The wall clock as stored values hold it: ISO-8601, UTC."""
        return self.clock.now().isoformat(timespec="milliseconds")


@contextmanager
def open_context(
    plan: Plan,
    *,
    tell: Callable[[str], None] = silent,
    dry_run: bool = False,
    make_state: bool = False,
    to_check: bool = False,
) -> Iterator[Context]:
    """The context of ``plan``, from its connections. ``make_state`` creates the internal topics if need be.

    Raises BadInput for an unknown connection, ClusterUnreachable (AuthenticationFailed) or NotAuthorized for a target
    that does not answer. Not with ``to_check``, for who is about to check just that: state that is out of reach or
    hidden is then empty.
    """
    source = Cluster("source", find_connection(plan.source))
    target = Cluster("target", find_connection(plan.target))
    journal: Journal | None = None
    link: LinkState | None = None
    segments = SegmentStore()
    try:
        make = make_state and not dry_run
        try:
            # First of all: it says in seconds, and in words, why there is no connection.
            target.cluster_id()
            properties = target.connection.librdkafka()
            link = LinkState.on_target(plan.name, properties, create=make, selects=plan.topics.matches)
            journal = Journal(_journal_store(TopicLog(properties, ledger.JOURNAL_TOPIC), create=make), plan.name)
            segments = SegmentStore(TopicLog(properties, ledger.SEGMENTS_TOPIC), plan.name, create=make)
        except (ClusterUnreachable, NotAuthorized):
            if not to_check:
                raise
            link, journal = link or LinkState(plan.name, MemoryStore(), None, None), Journal(MemoryStore(), plan.name)
        yield Context(
            plan=plan,
            source=source,
            target=target,
            journal=journal,
            link=link,
            segments=segments,
            tell=tell,
            dry_run=dry_run,
        )
    finally:
        for part in (journal, segments, link, source, target):
            if part is not None:
                part.close()


def _journal_store(log: TopicLog, *, create: bool) -> Store:
    if create:
        log.ensure()
    elif not log.exists():
        return MemoryStore()
    return TopicStore(log)
