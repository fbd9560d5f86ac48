"""What an operator does to a cluster, through kafka-python's admin client: quotas, and other leaders."""

import random
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.protocol.admin import AlterClientQuotasRequest

from tests.waiting import wait_until

_MOVED_SECONDS, _PATIENCE_SECONDS = 15.0, 60.0


@contextmanager
def _admin(servers: str) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        yield admin
    finally:
        admin.close()


def set_quota(servers: str, client_id: str, key: str, bytes_per_second: float | None) -> None:
    """Let clients of that id write (`producer_byte_rate`) or read (`consumer_byte_rate`) so much of each broker; None
    takes the quota away."""
    entry = AlterClientQuotasRequest.EntryData
    request = AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[entry.EntityData(entity_type="client-id", entity_name=client_id)],
                ops=[entry.OpData(key=key, value=bytes_per_second or 0.0, remove=bytes_per_second is None)],
            )
        ],
        validate_only=False,
    )

    def is_set() -> bool:
        # The controller may just be away, or another one by now.
        with suppress(KafkaError, RuntimeError), _admin(servers) as admin:
            answer: Any = admin._manager.run(admin._send_request_to_controller, request)
            return not any(it.error_code for it in answer.entries)
        return False

    wait_until(is_set, f"the quota of {client_id} is {bytes_per_second}", deadline_seconds=_PATIENCE_SECONDS)


def deny_write(servers: str, user: str, topic: str, *, denied: bool) -> None:
    """Whether `user` may not write to one topic, of a cluster that permits everything where no rule stands."""

    def rule(operation: AclOperation, permission: AclPermissionType) -> AclBinding:
        literal = ResourcePatternType.LITERAL
        return AclBinding(ResourceType.TOPIC, topic, literal, f"User:{user}", "*", operation, permission)

    # Beside a rule everything else needs one, too.
    rules = [
        rule(AclOperation.ALL, AclPermissionType.ALLOW),
        rule(AclOperation.WRITE, AclPermissionType.DENY),
    ]

    def is_done() -> bool:
        with suppress(KafkaException):
            admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
            if denied:
                answers = admin.create_acls(rules).values()
            else:
                answers = admin.delete_acls([_filter(it) for it in rules[::-1]]).values()
            for answer in answers:
                answer.result(30)
            return True
        return False

    wait_until(is_done, f"the rule for {user} on {topic} is {'there' if denied else 'gone'}")


def _filter(it: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        it.restype, it.name, it.resource_pattern_type, it.principal, it.host, it.operation, it.permission_type
    )


def leaders(servers: str, topics: Collection[str]) -> dict[tuple[str, int], tuple[int, list[int]]]:
    """The leader and the replicas of every partition of `topics`."""
    found = AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(timeout=30).topics
    return {
        (name, number): (part.leader, list(part.replicas))
        for name in topics
        if name in found
        for number, part in found[name].partitions.items()
    }


def move_leaders(
    servers: str,
    topics: Collection[str],
    chance: random.Random,
    *,
    share: float = 0.5,
    onto: Collection[int] | None = None,
) -> int:
    """Have another replica lead about that `share` of the partitions of `topics`, one of `onto` if those are given;
    how many have another leader then."""
    before = leaders(servers, topics)
    movable = sorted(place for place, (_, replicas) in before.items() if len(replicas) > 1)
    chosen = [place for place in movable if chance.random() < share] or movable[:1]
    wanted = {}
    for place in chosen:
        leader, replicas = before[place]
        first = chance.choice([it for it in replicas if it != leader and (onto is None or it in onto)])
        wanted[place] = [first, *(it for it in replicas if it != first)]
    with _admin(servers) as admin:
        refused = {
            tp: error
            for tp, error in admin.alter_partition_reassignments(
                {TopicPartition(*place): replicas for place, replicas in wanted.items()}
            ).items()
            if error is not None
        }
        if refused:
            raise RuntimeError(f"replicas could not be put in another order: {refused}")
        by_topic: dict[str, list[int]] = {}
        for name, number in chosen:
            by_topic.setdefault(name, []).append(number)

        def have_moved() -> bool:
            try:
                # The first replica leads, once the new order is known everywhere.
                admin.elect_leaders(0, by_topic, raise_errors=False)
                now = leaders(servers, topics)
            except KafkaException:
                return False
            return all(now[place][0] == replicas[0] for place, replicas in wanted.items())

        wait_until(have_moved, f"{len(wanted)} partitions have other leaders", deadline_seconds=_MOVED_SECONDS)
    return len(wanted)
