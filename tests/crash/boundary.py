"""Which calls of the product change something: each method at its boundary is either here, or a test fails."""

from __future__ import annotations

from typing import Final

#: Of `kafka_migration.kafka.cluster.Cluster`.
CLUSTER_WRITES: Final = frozenset(
    {
        "alter_configs",
        "alter_quotas",
        "alter_scram_users",
        "commit",
        "create_acls",
        "create_partitions",
        "create_topics",
        "delete_acls",
        "delete_topics",
    }
)
CLUSTER_READS: Final = frozenset(
    {
        "acls",
        "api_versions",
        "broker_configs",
        "broker_count",
        "brokers",
        "cluster_id",
        "cluster_operations",
        "committed",
        "committed_of",
        "creatable",
        "denied_by_broker",
        "disk_use",
        "ends",
        "first_since",
        "group_operations",
        "group_state",
        "group_states",
        "groups",
        "log_epochs",
        "may_use_transactional_id",
        "producers",
        "quotas",
        "refused_changes",
        "refused_configs",
        "scram_users",
        "time_spans",
        "topic_configs",
        "topic_names",
        "topic_operations",
        "topics",
        "transactional_ids",
    }
)
#: Its own connections, and nothing of the cluster.
CLUSTER_OTHERS: Final = frozenset({"close", "topic_here", "wire"})

#: Of `kafka_migration.state.store.Store`, under journal and links.
STORE_WRITES: Final = frozenset({"put", "put_all", "delete"})
STORE_READS: Final = frozenset({"get", "located", "items", "keys", "deleted", "close"})

#: Of `kafka_migration.kafka.topic_log.TopicLog`, under stores, offset map and progress.
LOG_WRITES: Final = frozenset({"append", "ensure"})
LOG_READS: Final = frozenset({"close", "exists", "new_entries", "start_at", "read_up_to", "end", "warm"})

#: What the clients of confluent-kafka can do without changing anything that lasts.
CLIENT_READS: Final = frozenset(
    {
        "assign",
        "assignment",
        "close",
        "cluster_id",
        "committed",
        "consume",
        "consumer_group_metadata",
        "describe_acls",
        "describe_cluster",
        "describe_configs",
        "describe_consumer_groups",
        "describe_topics",
        "describe_user_scram_credentials",
        "flush",
        "get_watermark_offsets",
        "incremental_assign",
        "incremental_unassign",
        "list_consumer_group_offsets",
        "list_consumer_groups",
        "list_groups",
        "list_offsets",
        "list_topics",
        "memberid",
        "offsets_for_times",
        "pause",
        "poll",
        "position",
        "purge",
        "resume",
        "seek",
        "set_sasl_credentials",
        "unassign",
    }
)
#: And which requests of kafka-python change nothing.
REQUEST_READS: Final = frozenset(
    {
        "ApiVersionsRequest",
        "ConsumerGroupDescribeRequest",
        "DescribeAclsRequest",
        "DescribeConfigsRequest",
        "DescribeClientQuotasRequest",
        "DescribeGroupsRequest",
        "DescribeLogDirsRequest",
        "DescribeProducersRequest",
        "DescribeTransactionsRequest",
        "DescribeUserScramCredentialsRequest",
        "FetchRequest",
        "FindCoordinatorRequest",
        "HeartbeatRequest",  # of a member that does not exist
        "ListGroupsRequest",
        "ListOffsetsRequest",
        "ListTransactionsRequest",
        "MetadataRequest",
        "OffsetFetchRequest",
        "OffsetForLeaderEpochRequest",
        "ShareGroupDescribeRequest",
    }
)
#: All others, by the module that may make them, and as which points they are recorded. "not here" are those that no
#: step which is killed here makes, with what shows them.
CLIENT_WRITES: Final[dict[str, dict[str, str]]] = {
    "kafka/cluster.py": {
        "AlterClientQuotasRequest": "Cluster.alter_quotas",
        "AlterUserScramCredentialsRequest": "Cluster.alter_scram_users",
    },
    "kafka/acls.py": {
        "CreateAclsRequest": "Cluster.create_acls",
        "DeleteAclsRequest": "Cluster.delete_acls",
        # These ask whether it would be allowed: validate_only, or no record at all.
        "create_topics": "not here: validate_only",
        "incremental_alter_configs": "not here: validate_only",
        "ProduceRequest": "not here: without a record",
    },
    "kafka/groups.py": {"alter_consumer_group_offsets": "Cluster.commit"},
    "kafka/topics.py": {
        "create_partitions": "Cluster.create_partitions",
        "create_topics": "Cluster.create_topics",
        "delete_topics": "Cluster.delete_topics",
        "incremental_alter_configs": "Cluster.alter_configs",
    },
    "kafka/topic_log.py": {
        "create_topics": "TopicLog.ensure",
        "incremental_alter_configs": "TopicLog.ensure",
        "produce": "TopicLog.append",
    },
    # With Kerberos, under the same calls.
    "kafka/kerberos/admin.py": {
        "CreatePartitionsRequest": "Cluster.create_partitions",
        "CreateTopicsRequest": "Cluster.create_topics",
        "DeleteTopicsRequest": "Cluster.delete_topics",
        "IncrementalAlterConfigsRequest": "Cluster.alter_configs",
        "OffsetCommitRequest": "Cluster.commit",
    },
    "kafka/forwarding.py": dict.fromkeys(
        ("init_transactions", "begin_transaction", "produce", "commit_transaction", "abort_transaction"),
        "not here: `stragglers --forward`, tests/steps/test_stragglers.py",
    ),
    "kafka/keyed_topic.py": {"produce": "not here: positions of Connect, tests/positions"},
    "wire/fence.py": {
        "InitProducerIdRequest": "InitProducerId",
        "AddPartitionsToTxnRequest": "AddPartitionsToTxn",
        "EndTxnRequest": "EndTxn",
    },
    "wire/markers.py": {"WriteTxnMarkersRequest": "not here: only where an id was forgotten, tests/copy"},
    "wire/produce_request.py": {"ProduceRequest": "not here: the mirror, make kill-test"},
}
#: Functions by which hooks are run, by module: each is a point.
HOOKS: Final = {"run_hook": {"groups/move.py", "steps/fence.py", "steps/switch.py"}}
#: The same on the wire: what requests are made by (their names are Kafka's).
ON_WIRE: Final = {
    "Produce": "TopicLog.append",
    "InitProducerId": "InitProducerId",
    "AddPartitionsToTxn": "AddPartitionsToTxn",
    "EndTxn": "EndTxn",
    "CreateTopics": "TopicLog.ensure",
    "DeleteTopics": "Cluster.delete_topics",
    "IncrementalAlterConfigs": "Cluster.alter_configs",
    "OffsetCommit": "Cluster.commit",
    "CreateAcls": "Cluster.create_acls",
    "DeleteAcls": "Cluster.delete_acls",
}
