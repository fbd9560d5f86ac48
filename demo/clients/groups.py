"""The demo's consumer groups and what each of them shows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from demo.clients.topics import ADMIN_TIMEOUT_SECONDS

RETRY_SECONDS = 0.2
_NOT_READY = frozenset(
    {KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """One group.

    Attributes:
        members: processes.
        protocol: `classic`, or `consumer` for that of KIP-848.
        assignor: librdkafka's partition.assignment.strategy, for the classic protocol.
        slow: whether its pace on the source is limited, so that it does not reach the end there.
        stopped: whether its operator stopped it before the migration; it then stays so until the end.
    """

    name: str
    topics: tuple[str, ...]
    members: int = 1
    protocol: Literal["classic", "consumer"] = "classic"
    assignor: str = "range"
    slow: bool = False
    stopped: bool = False


GROUPS = (
    GroupSpec(name="demo.behind", topics=("demo.clicks",), slow=True),
    GroupSpec(name="demo.caught-up", topics=("demo.orders", "demo.payments", "demo.invoices"), protocol="consumer"),
    GroupSpec(name="demo.stopped", topics=("demo.audit", "demo.sessions"), slow=True, stopped=True),
    GroupSpec(
        name="demo.members",
        topics=("demo.sensors", "demo.profiles", "demo.inventory"),
        members=3,
        # Not cooperative-sticky. With it librdkafka commits behind a pending join, which the broker answers "rebalance
        # in progress" for as long as it takes, and a member without partitions ends without leaving the group: members
        # that are stopped during a rebalance then hold each other up for the session timeout. Seen with 2.16.
        assignor="roundrobin",
    ),
)
STOPPED = frozenset(group.name for group in GROUPS if group.stopped)


def commit_starts(
    admin: AdminClient, groups: Iterable[GroupSpec], log_starts: Mapping[str, list[int]]
) -> dict[str, dict[str, list[int]]]:
    """Commit every group to the start of all its logs: nobody relies on `auto.offset.reset`.

    Returns:
        What was committed: offsets by group and topic, in order of partition.

    Raises:
        KafkaException: the coordinator refused, or did not get ready in time.
    """
    starts = {group.name: {topic: list(log_starts[topic]) for topic in group.topics} for group in groups}
    for group, topics in starts.items():
        places = [
            TopicPartition(topic, partition, offset, metadata="starting commit")
            for topic, offsets in topics.items()
            for partition, offset in enumerate(offsets)
        ]
        _commit(admin, ConsumerGroupTopicPartitions(group, places))
    return starts


def _is_retriable(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and bool(error.args[0].retriable() or error.args[0].code() in _NOT_READY)


# A new cluster makes its offsets topic when the first group asks for it, and meanwhile has no coordinator.
@retry(
    retry=retry_if_exception(_is_retriable),
    stop=stop_after_delay(ADMIN_TIMEOUT_SECONDS),
    wait=wait_fixed(RETRY_SECONDS),
    reraise=True,
)
def _commit(admin: AdminClient, offsets: ConsumerGroupTopicPartitions) -> None:
    for future in admin.alter_consumer_group_offsets([offsets], request_timeout=ADMIN_TIMEOUT_SECONDS).values():
        # The call as a whole succeeds even if the coordinator refused each partition.
        for place in future.result(ADMIN_TIMEOUT_SECONDS).topic_partitions:
            if place.error is not None:
                raise KafkaException(place.error)
