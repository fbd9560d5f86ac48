"""The two workloads: that of `make demo`, and that of `make demo-full`, in which producers move, too."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from demo.clients.groups import GROUPS, GroupSpec
from demo.clients.topics import TOPICS, TopicSpec

Kind = Literal["idempotent", "transactional", "acks=1"]
WAVES = ("first", "second")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSpec:
    """A producer that writes to topics of one wave, on whichever cluster it is started.

    Attributes:
        java: the Java client; otherwise librdkafka's.
    """

    name: str
    kind: Kind
    topics: tuple[str, ...]
    java: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What a run has. Without ``producers`` those of `demo.clients.producers` write to all topics on the source."""

    topics: tuple[TopicSpec, ...]
    groups: tuple[GroupSpec, ...]
    producers: tuple[ProducerSpec, ...] = ()


#: What the reverse mirror writes to the source must stay there: see docs/rollback.md.
_KEPT = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
_TOPICS = {"orders": 4, "payments": 3, "events": 2}
_PRODUCERS: tuple[tuple[str, Kind, bool], ...] = (
    ("orders", "idempotent", False),
    ("orders", "idempotent", True),
    ("orders", "acks=1", False),
    ("payments", "transactional", False),
    ("payments", "transactional", True),
    ("events", "idempotent", False),
)
#: What each group reads, with how many members, by which protocol.
_GROUPS: tuple[tuple[str, tuple[str, ...], int, Literal["classic", "consumer"]], ...] = (
    ("billing", ("orders", "payments"), 1, "classic"),
    ("shipping", ("orders",), 2, "classic"),
    ("ledger", ("payments",), 1, "consumer"),
    ("search", ("orders", "events"), 1, "consumer"),
    ("audit", ("orders", "payments", "events"), 1, "classic"),
)


def _topic(wave: str, name: str) -> str:
    return f"demo.{wave}.{name}"


FULL = Scenario(
    topics=tuple(
        TopicSpec(
            name=_topic(wave, name), partitions=partitions, codec="lz4", keys="always", headers=False, share=1, burst=1,
            configs=_KEPT,
        )
        for wave in WAVES
        for name, partitions in _TOPICS.items()
    ),
    groups=tuple(
        GroupSpec(
            name=f"demo.{wave}-{name}",
            topics=tuple(_topic(wave, topic) for topic in topics),
            members=members,
            protocol=protocol,
            assignor="roundrobin",
        )
        for wave in WAVES
        for name, topics, members, protocol in _GROUPS
    ),
    producers=tuple(
        ProducerSpec(
            name=f"{wave}-{topic}-{'java-' if java else ''}{kind}",
            kind=kind,
            topics=(_topic(wave, topic), _topic(wave, "events")) if kind == "transactional" else (_topic(wave, topic),),
            java=java,
        )
        for wave in WAVES
        for topic, kind, java in _PRODUCERS
    ),
)  # fmt: skip
SCENARIOS: Mapping[str, Scenario] = {"demo": Scenario(topics=TOPICS, groups=GROUPS), "full": FULL}
BY_GROUP = {group.name: group for scenario in SCENARIOS.values() for group in scenario.groups}
BY_TOPIC = {topic.name: topic for scenario in SCENARIOS.values() for topic in scenario.topics}
