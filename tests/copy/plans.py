"""A small plan between two real clusters, its connections in the environment, its topics already created."""

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from kafka_migration.domain import ledger
from kafka_migration.kafka.lookup import variable_of
from kafka_migration.kafka.topic_log import TopicLog
from kafka_migration.state.journal import Journal
from kafka_migration.state.store import TopicStore
from tests.kafka_tools import create_topics, topic_ids


@dataclass(frozen=True)
class SmallPlan:
    """A plan file and the environment in which a command finds its clusters."""

    name: str
    path: Path
    environment: dict[str, str]


def small_plan(folder: Path, source: str, target: str, topics: Mapping[str, int], **sections: object) -> SmallPlan:
    """Write a plan for `topics`, create them on the target as the create phase would, and note them in the journal."""
    name = f"plan-{uuid.uuid4().hex[:8]}"
    configs = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
    create_topics(target, topics, configs)
    ids = [topic_ids(servers, topics) for servers in (source, target)]
    journal = Journal(_store(target), name)
    assert not journal.lock(topics, at="2030-01-01T00:00:00+00:00"), "a test's topics are its own"
    for topic, count in topics.items():
        record = {
            "created": True,
            "source_topic_id": str(ids[0][topic]),
            "topic_id": str(ids[1][topic]),
            "configs_source": {},
            "left_out": {},
            "spec": {"partitions": count, "replication_factor": 1, "configs": configs},
        }
        journal.record("topic", topic, record)
    journal.close()
    document = {
        "version": 1,
        "name": name,
        "source": f"{name}_source",
        "target": f"{name}_target",
        "topics": {"include": list(topics)},
        "mirror": {"num_streams": 2, "epoch_seconds": 5},
        **sections,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document))
    environment = {
        variable_of(f"{name}_{side}"): json.dumps(
            {"conn_type": "kafka", "extra": json.dumps({"bootstrap.servers": servers})}
        )
        for side, servers in (("source", source), ("target", target))
    }
    return SmallPlan(name, path, {**os.environ, **environment})


def _store(target: str) -> TopicStore:
    log = TopicLog({"bootstrap.servers": target}, ledger.JOURNAL_TOPIC)
    log.ensure()
    return TopicStore(log)
