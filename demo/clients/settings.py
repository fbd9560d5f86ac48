"""How large and how fast the live workload is."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

ClusterName = Literal["source", "target"]


def cluster_name(text: object) -> ClusterName:
    """Check a name that came from outside.

    Raises:
        ValueError: it is neither.
    """
    if text == "source":
        return "source"
    if text == "target":
        return "target"
    raise ValueError(f"unknown cluster {text!r}; give source or target.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the processes of one run share. The defaults are the demo's; tests take smaller ones.

    Attributes:
        source, target: librdkafka client properties of the two clusters, for consumers.
        producers_source, producers_target: the same for producers, if they are somebody else.
        admin_source: the same for who makes topics and starting commits, if that is somebody else.
        scenario: which workload it is, of `demo.clients.scenarios`.
        big_topic_records: records that the big topic holds, above its log start, before anyone produces live.
        small_topic_records: the same for each other topic.
        produced_per_second: records a second, of all producers together.
        producers: processes that produce live.
        preloaders: processes that fill the topics at the beginning.
        behind_per_second: records a second that a slow group processes on the source.
        target_per_second: most records a second that a member processes on the target. A group that catches up a
            million records as fast as it can would take a core away from the mirror.
        stopped_after_records: records that the stopped group processes before it is stopped.
        commit_interval_seconds: time between a member's commits.
    """

    source: Mapping[str, str]
    target: Mapping[str, str]
    producers_source: Mapping[str, str] | None = None
    producers_target: Mapping[str, str] | None = None
    admin_source: Mapping[str, str] | None = None
    scenario: Literal["demo", "full"] = "demo"
    big_topic_records: int = 1_000_000
    small_topic_records: int = 20_000
    produced_per_second: int = 1_500
    producers: int = 2
    preloaders: int = 2
    behind_per_second: int = 400
    target_per_second: int = 40_000
    stopped_after_records: int = 2_000
    commit_interval_seconds: float = 0.3

    def __post_init__(self) -> None:
        for name in ("source", "target", "producers_source", "producers_target", "admin_source"):
            properties = getattr(self, name)
            if properties is not None and "bootstrap.servers" not in properties:
                raise ValueError(f"{name} has no bootstrap.servers; give librdkafka client properties.")
        for name, value in asdict(self).items():
            if isinstance(value, (int, float)) and value <= 0:
                raise ValueError(f"{name} is {value}; it must be above 0.")
        if self.stopped_after_records > self.small_topic_records:
            # The stopped group reads before anyone produces live; what is not preloaded would never come.
            raise ValueError(
                f"stopped_after_records is {self.stopped_after_records}, more than the {self.small_topic_records}"
                " records that are sure to be there; lower it or raise small_topic_records."
            )

    def cluster(self, name: ClusterName) -> dict[str, str]:
        """Client properties of consumers of one cluster."""
        return dict(self.source if name == "source" else self.target)

    def producer_properties(self, name: ClusterName = "source") -> dict[str, str]:
        """Client properties of producers of one cluster."""
        own = self.producers_source if name == "source" else self.producers_target
        return dict(own or self.cluster(name))

    def admin_properties(self) -> dict[str, str]:
        """Client properties of the source's administrator."""
        return dict(self.admin_source or self.source)

    def to_json(self) -> str:
        """For the run directory; may hold credentials."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        """The inverse of `to_json`."""
        return cls(**json.loads(text))
