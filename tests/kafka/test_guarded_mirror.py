"""A permission that is taken from one topic of a running mirror, on either side: that topic waits, all else goes on."""

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import ResourceType

from demo.brokers import EmbeddedKafka
from kafka_migration.copy.driver.mirror import Mirror, Settings
from kafka_migration.copy.orders import Limits
from kafka_migration.domain.errors import NotAuthorized
from kafka_migration.domain.types import Desired
from kafka_migration.state.link import Wish
from tests.copy.bench import BRIEF, Bench, ThreadRunner, assert_same, bench, records
from tests.copy.test_watching import LONG, Running, running
from tests.kafka.guarded import Guarded
from tests.kafka_tools import produce
from tests.waiting import wait_until


@pytest.fixture
def topics() -> tuple[str, str]:
    name = uuid.uuid4().hex[:8]
    return f"{name}-waits", f"goes-{name}"


class AsReader(Bench):
    """A bench whose mirror reaches the guarded cluster as a principal that may do only what it is granted."""

    def mirror(self, runner: object = None, *, settings: Settings | None = None, **extra: Any) -> Mirror:
        sides = {"source": {"bootstrap_servers": self.source}, "target": {"bootstrap_servers": self.target}}
        sides[extra.pop("side")] = extra.pop("guarded").connection("reader").kafka_python()
        return Mirror(
            link=extra.pop("link", self.link),
            runner=runner or ThreadRunner(),  # type: ignore[arg-type]
            settings=settings or Settings(streams=2, epoch_seconds=5, limits=Limits(**BRIEF)),
            **sides,  # type: ignore[arg-type]
            **extra,
        )


@contextmanager
def as_reader(guarded: Guarded, other: EmbeddedKafka, side: str, topics: tuple[str, str]) -> Iterator[AsReader]:
    """A link of both topics; the reader may do everything but with the topics themselves."""
    inside = guarded.cluster.internal_servers
    servers = (inside, other.bootstrap_servers) if side == "source" else (other.bootstrap_servers, inside)
    with bench(*servers, dict.fromkeys(topics, 1)) as it, ExitStack() as stack:
        for kind, name, operations in (
            (ResourceType.TOPIC, "kafka-migration.", ("READ", "WRITE", "DESCRIBE_CONFIGS")),
            (ResourceType.TRANSACTIONAL_ID, it.link.transactional_id, ("WRITE", "DESCRIBE")),
        ):
            stack.enter_context(guarded.granted(kind, name, *operations))
        yield AsReader(it.link, it.topics, it.source, it.target)


def _told(it: Bench) -> str:
    return str((it.link.run() or {}).get("waiting", ""))


def _until(live: Running, topic: str, offset: int) -> None:
    what = f"{topic} is copied up to {offset}"
    wait_until(lambda: live.copied(topic) == offset or live.error, what)
    assert live.error is None


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("side", "operation"), [("source", "READ"), ("target", "WRITE"), ("target", "READ")])
def test_topic_whose_permission_is_revoked_waits_by_name_and_goes_on_by_itself_once_it_is_back(
    guarded: Guarded, source_cluster: EmbeddedKafka, topics: tuple[str, str], side: str, operation: str
) -> None:
    waits, goes = topics
    needed = ("READ",) if side == "source" else ("READ", "WRITE")
    left = [it for it in needed if it != operation]
    more: dict[str, Any] = {"side": side, "guarded": guarded}
    with (
        as_reader(guarded, source_cluster, side, topics) as it,
        guarded.granted(ResourceType.TOPIC, goes, *needed),
        ExitStack() as stack,
    ):
        if left:
            stack.enter_context(guarded.granted(ResourceType.TOPIC, waits, *left))
        with guarded.granted(ResourceType.TOPIC, waits, operation):
            for topic in topics:
                produce(it.source, topic, records(100, 1, 1))
            live = stack.enter_context(running(it, LONG, **more))
            for topic in topics:
                _until(live, topic, 100)
        wanted = f"not authorized: {operation.title()} on topic {waits}"
        produce(it.source, goes, records(100, 1, 2))
        _until(live, goes, 200)
        if (side, operation) == ("target", "READ"):
            # Nothing needs it until the next fence.
            it.link.wish(Wish(desired=Desired.STOP, reason="to fence again", at=""))
            live.thread.join(60)
            it.link.wish(Wish(desired=Desired.RUN, reason="to fence again", at=""))
            live = stack.enter_context(running(it, LONG, **more))
        if side == "source":
            # A fetch that began before may still bring what is written meanwhile.
            wait_until(lambda: wanted in _told(it) or live.error, "the permission is named in the state")
        produce(it.source, waits, records(100, 1, 2))
        wait_until(lambda: wanted in _told(it) or live.error, "the permission is named in the state")
        assert (live.error, live.copied(waits)) == (None, 100)
        produce(it.source, goes, records(100, 1, 3))
        _until(live, goes, 300)
        with guarded.granted(ResourceType.TOPIC, waits, operation):
            _until(live, waits, 200)
            wait_until(lambda: not _told(it), "nobody waits")
            it.link.wish(Wish(desired=Desired.STOP, reason="the test is over", at=""))
            live.thread.join(60)
            assert (live.error, it.link.halts()) == (None, {})
            assert assert_same(it) == 500


def test_run_that_may_copy_nothing_at_all_names_the_permission_at_once(
    guarded: Guarded, source_cluster: EmbeddedKafka, topics: tuple[str, str]
) -> None:
    with (
        as_reader(guarded, source_cluster, "target", topics) as it,
        pytest.raises(NotAuthorized, match=r"target: not authorized: .* on topic"),
    ):
        it.mirror(side="target", guarded=guarded).run()
