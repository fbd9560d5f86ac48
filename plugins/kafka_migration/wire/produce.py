"""Appending prepared batches: one produce request carries at most one batch per partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import kafka.errors as kafka_errors

from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.cluster import WireCluster
from kafka_migration.wire.lean import Batch, TopicIds
from kafka_migration.wire.produce_request import Appended, LeanProduceRequest


class Append:
    """One produce request under way. ``future`` is kafka-python's; it fails at once if nothing was written."""

    __slots__ = ("future", "node")

    def __init__(
        self,
        cluster: WireCluster,
        node: int,
        batches: Mapping[TopicPartition, Batch],
        *,
        answer_seconds: float = 30.0,
        replicas_seconds: float = 20.0,
        allowed: Callable[[], bool] | None = None,
    ) -> None:
        """Send one batch per partition to ``node``, acks=all. Never raises; :meth:`answers` does.

        The request is written (or queued behind earlier ones of the same connection) before this returns, so that
        calls in a row arrive in that order. Without an answer after ``answer_seconds`` its connection is closed; the
        broker itself gives up on its replicas after ``replicas_seconds``, before that. Once ``allowed`` is false no
        byte of it is sent. Topics are named by id where both sides have them (see :meth:`WireCluster.topic_id`): a
        recreated one answers with an error instead of taking the data.
        """
        self.node = node
        topics: dict[str, list[tuple[int, Batch]]] = {}
        for tp, batch in batches.items():
            topics.setdefault(tp.topic, []).append((tp.partition, batch))
        ids = TopicIds({name: cluster.topic_id(name) for name in topics}, cluster.names)
        request = LeanProduceRequest(topics, ids, timeout_ms=round(1000 * replicas_seconds))
        self.future = cluster.begin(request, node, timeout_ms=round(1000 * answer_seconds), allowed=allowed)

    @property
    def was_not_sent(self) -> bool:
        """True if the connection took nothing (not ready, throttled): the batches may be sent again as they are."""
        return bool(self.future.failed()) and isinstance(self.future.exception, kafka_errors.NodeNotReadyError)

    def then(self, receive: Callable[[list[Appended], float, Exception | None], None]) -> None:
        """Call ``receive`` with the broker's answers, one per partition, and for how many seconds it throttles us; or
        with the error that leaves them unknown.

        Calls come in the order of the requests of a connection, as its responses do. Coroutines that each await their
        own request would not keep it: one whose answer is there when it first runs overtakes those already waiting.
        """
        self.future.add_callback(lambda response: receive(response.answers, response.throttle_time_ms / 1000, None))
        self.future.add_errback(lambda error: receive([], 0.0, error))

    async def answers(self) -> list[Appended]:
        """Await the broker's answers, one per partition. Raises kafka-python's errors: then nothing is known."""
        answers: list[Appended] = (await self.future).answers
        return answers
