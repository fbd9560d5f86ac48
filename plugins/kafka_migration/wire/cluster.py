"""One cluster at the protocol's level: leaders, and the requests that the mirror and its fences make.

Several clusters can share one event loop (:class:`~kafka_migration.wire.selector.Selector`), so a task copies from one
to another without threads. It is not asyncio's: coroutines here await only its own waits and kafka-python's futures.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

import kafka.errors as kafka_errors
from kafka.future import Future
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from kafka_migration.domain import codes
from kafka_migration.domain.errors import (
    AuthenticationFailed,
    ClusterUnreachable,
    CouldNotFindOut,
    MigrationError,
    NotAuthorized,
    reason_of,
)
from kafka_migration.domain.names import SAME, TopicNames
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.connections import Connections
from kafka_migration.wire.selector import Selector

NO_TOPIC_ID = uuid.UUID(int=0)
EARLIEST, LATEST = -2, -1
READ, WRITE = 3, 4
"""Operations as authorizers number them (AclOperation); a broker answers which are permitted (KIP-430)."""
_REJECTED = (kafka_errors.SaslAuthenticationFailedError, kafka_errors.AuthorizationError)
_RECEIVE_MAX_BYTES = 256 * 1024 * 1024
_ANSWER_SECONDS = 3.0


def not_authorized(role: str, operation: str, topic: str) -> str:
    """What is lacking, for people."""
    return f"{role}: not authorized: {operation} on topic {topic}; grant it to the principal of this connection"


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a partition: broker id and leader epoch (-1 where the broker does not report one)."""

    node: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Replicas:
    """How many replicas a partition has, and how many of them are in sync."""

    count: int
    in_sync: int

    def lack(self, wanted: int) -> bool:
        """True if a write to all of them is refused where ``wanted`` (``min.insync.replicas``) must be in sync."""
        return self.in_sync < min(self.count, wanted)


@dataclass(frozen=True, slots=True)
class Reported:
    """What one broker's metadata report of a topic: an error code, 0 for none, and its id, zero if unknown."""

    error: int
    topic_id: uuid.UUID


class LeaderUnknown(CouldNotFindOut):
    """A partition has no leader that the cluster could name in time."""


def code_name(code: int) -> str:
    """A protocol error code as people know it: ``NOT_ENOUGH_REPLICAS (19)``."""
    error = kafka_errors.for_code(code)
    return f"{getattr(error, 'message', error.__name__)} ({code})"


class WireCluster:
    """Connections to one cluster. ``config`` are kafka-python's properties, and as ``topic_names`` how topics are
    called there, if it is otherwise than on the source; ``role`` is source or target.

    :attr:`moves` grows whenever :attr:`leaders` may have changed. :attr:`coordinators` have just
    answered, by transactional id. ``stuck_seconds``: see :class:`Connections`.
    """

    def __init__(
        self,
        net: Selector,
        config: Mapping[str, Any],
        role: str,
        *,
        in_flight: int = 5,
        stuck_seconds: float | None = None,
    ) -> None:
        self.net, self.role = net, role
        config = dict(config)
        self.names: TopicNames = config.pop("topic_names", SAME)
        self.servers = str(config.get("bootstrap_servers", ""))
        self.request_timeout_ms = int(config.get("request_timeout_ms", 30_000))
        self.manager = Connections(
            net,
            stuck_seconds=stuck_seconds,
            **{
                "receive_message_max_bytes": _RECEIVE_MAX_BYTES,
                "reconnect_backoff_max_ms": 1_000,
                **config,
                # One in flight more than we use: kafka-python pauses a connection that reaches the limit.
                "max_in_flight_requests_per_connection": in_flight + 1,
            },
        )
        self.leaders: dict[TopicPartition, Leader] = {}
        self.moves = 0
        self.coordinators: dict[str, int] = {}
        self.partitions: dict[str, frozenset[int]] = {}
        self.replicas: dict[TopicPartition, Replicas] = {}
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.pinned: dict[str, uuid.UUID] = {}
        self._operations: dict[str, Collection[int]] = {}
        self._brokers_seen: set[int] = set()

    def connect(self, timeout_ms: int = 30_000) -> None:
        """Reach any broker of the cluster. Raises ClusterUnreachable, or AuthenticationFailed."""
        try:
            self.manager.bootstrap(timeout_ms)
        except kafka_errors.KafkaError as error:
            self._raise_unreachable(error)

    async def ensure_connected(self, timeout_ms: int = 30_000) -> None:
        """As :meth:`connect`, inside the loop; at once if it is already connected."""
        try:
            await self.manager.bootstrap_async(timeout_ms, refresh=False)
        except kafka_errors.KafkaError as error:
            self._raise_unreachable(error)

    def _raise_unreachable(self, error: Exception) -> None:
        for broker in self.manager.cluster.bootstrap_brokers():
            failure = self.manager.auth_failure(broker.node_id)
            if failure is not None:
                raise AuthenticationFailed(self.role, self.servers, str(failure)) from error
        cause = self.manager.last_failure or error
        kind = AuthenticationFailed if isinstance(cause, _REJECTED) else ClusterUnreachable
        raise kind(self.role, self.servers, reason_of(cause)) from error

    def close(self) -> None:
        """End all connections; requests still under way are failed."""
        self.manager.close()

    def name_here(self, topic: str) -> str:
        """How ``topic`` is called on this cluster: what stands in requests."""
        return self.names.on_target(topic)

    def known_as(self, name: str) -> str:
        """The topic that is called ``name`` on this cluster: the inverse of :meth:`name_here`."""
        return self.names.known_as(name)

    def topic_id(self, topic: str) -> uuid.UUID:
        """The id to ask for ``topic`` by: the pinned one, else that of the newest metadata; zero if unknown.

        A topic that was deleted and created again then answers with an error, instead of being taken for the same.
        """
        return self.pinned.get(topic) or self.topic_ids.get(topic, NO_TOPIC_ID)

    def is_another(self, topic: str, reported: uuid.UUID | None = None) -> bool:
        """True if the topic of this name is not the pinned one, by the ``reported`` id, else by the newest metadata. An
        id that is not known is no proof of whose topic it is."""
        pinned = self.pinned.get(topic, NO_TOPIC_ID)
        known = self.topic_ids.get(topic, NO_TOPIC_ID) if reported is None else reported
        return bool(pinned.int and known.int) and known != pinned

    def forget_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Who led these does not any more, or does not answer: the next refresh finds their leaders again."""
        self.moves += 1
        for tp in partitions:
            self.leaders.pop(tp, None)

    def begin(
        self,
        request: Any,
        node: int | None,
        *,
        timeout_ms: int | None = None,
        allowed: Callable[[], bool] | None = None,
    ) -> Future:
        """Write (or queue) one request now; kafka-python's future of its response. Never raises: the future fails.

        With ``allowed`` it is not queued, and written only while that is true (see :meth:`Connections.send_while`).
        """
        try:
            if allowed is not None:
                return self.manager.send_while(allowed, request, node, timeout_ms)
            return self.manager.send(request, node_id=node, request_timeout_ms=timeout_ms)
        except kafka_errors.KafkaError as error:
            # A broker that the metadata no longer know, or one that rejected our credentials before.
            return Future().failure(error)

    def throttled_seconds(self, tps: Iterable[TopicPartition]) -> float:
        """For how long a leader of ``tps`` still forbids, by its quota, to send anything to it."""
        nodes = self.by_leader(tps)
        return max((self.manager.throttled_seconds(node) for node in nodes), default=0.0)

    async def send(self, request: Any, node: int | None, *, timeout_ms: int | None = None) -> Any:
        """Send one request and await its response.

        Raises kafka-python's errors, but AuthenticationFailed if the broker rejects our credentials.
        """
        try:
            return await self.begin(request, node, timeout_ms=timeout_ms)
        except _REJECTED as error:
            raise AuthenticationFailed(self.role, self.servers, str(error)) from error
        except kafka_errors.UnknownBrokerIdError:
            self.manager.cluster.request_update()
            raise

    async def send_to_any(self, request: Any, *, deadline: float) -> Any:
        """As :meth:`send`, to any broker, again after connection trouble until ``deadline`` (monotonic seconds).

        Only for requests that may be repeated safely. Raises ClusterUnreachable at the deadline.
        """
        while True:
            try:
                return await self.send(request, None)
            except kafka_errors.KafkaError as error:
                if time.monotonic() > deadline:
                    raise ClusterUnreachable(self.role, self.servers, reason_of(error)) from error
                await self.net.sleep(0.1)

    def permits(self, topic: str, operation: int) -> bool:
        """False if, by the newest refresh that asked for operations, this one is not permitted on ``topic``."""
        return topic not in self._operations or operation in self._operations[topic]

    async def refresh(
        self, topics: Iterable[str], *, timeout: float = 30.0, operations: bool = False
    ) -> dict[str, int]:
        """Ask for the leaders of ``topics``; never creates one. Returns error codes of topics that have any.

        With ``operations`` also for what the principal may do (see :meth:`permits`), which costs the brokers more.
        Fills :attr:`leaders`, :attr:`partitions` and :attr:`topic_ids`. Partitions without a leader are simply absent
        from the leaders afterwards, not from the partitions. Raises ClusterUnreachable after ``timeout`` seconds.
        """
        wanted = set(topics)
        request = self._metadata_request(wanted, operations=operations)
        response = await self.send_to_any(request, deadline=time.monotonic() + timeout)
        problems: dict[str, int] = {}
        self.moves += 1
        for tp in [tp for tp in self.leaders if tp.topic in wanted]:
            del self.leaders[tp]
        for topic in response.topics:
            name = self.known_as(topic.name)
            if topic.error_code:
                problems[name] = topic.error_code
                continue
            self._note_topic(name, topic)
            if operations:
                self._note_operations(name, topic.authorized_operations)
        await self._know({broker.node_id for broker in response.brokers})
        return problems

    async def _know(self, brokers: Set[int]) -> None:
        """Have kafka-python know where these brokers are."""
        self._brokers_seen |= brokers
        cluster = self.manager.cluster
        if not brokers <= {broker.node_id for broker in cluster.brokers()}:
            try:
                await cluster.refresh_metadata()
            except kafka_errors.KafkaError:
                # Then requests to the new broker fail, and whoever sends them refreshes again.
                cluster.request_update()

    def _note_topic(self, name: str, topic: Any) -> None:
        self.topic_ids[name] = getattr(topic, "topic_id", None) or NO_TOPIC_ID
        self.partitions[name] = frozenset(partition.partition_index for partition in topic.partitions)
        for partition in topic.partitions:
            tp = TopicPartition(name, partition.partition_index)
            self.replicas[tp] = Replicas(len(partition.replica_nodes), len(partition.isr_nodes))
            if partition.leader_id >= 0:
                epoch = partition.leader_epoch
                self.leaders[tp] = Leader(partition.leader_id, -1 if epoch is None else epoch)

    def _note_operations(self, topic: str, permitted: Collection[int] | None) -> None:
        """``permitted`` is None where the broker does not report them: then nothing is known to be denied."""
        self._operations.pop(topic, None)
        if permitted is not None:
            self._operations[topic] = permitted

    def require_authorized(self, operation: str, topic: str, code: int) -> None:
        """Raise NotAuthorized if ``code`` is an error of permissions."""
        if code in codes.UNAUTHORIZED:
            raise NotAuthorized(self.role, operation, f"topic {self.name_here(topic)}", topic=topic)

    async def answers(self, node: int) -> bool:
        """Whether this broker answers a request that names no topic, within some seconds."""
        try:
            await self.send(self._metadata_request(()), node, timeout_ms=int(1000 * _ANSWER_SECONDS))
        except kafka_errors.KafkaError:
            return False
        return True

    async def reports(self, topics: Collection[str]) -> list[dict[str, Reported]]:
        """What each broker reports of ``topics``; brokers that do not answer within some seconds are left out.

        Empty where fewer answer than two, of a cluster that was seen with more: one broker alone proves nothing.
        """
        asks = {node: partial(self.send, self._metadata_request(topics)) for node in self._brokers_seen}
        found = [
            {
                self.known_as(topic.name): Reported(topic.error_code, getattr(topic, "topic_id", None) or NO_TOPIC_ID)
                for topic in answer.value.topics
            }
            for answer in (await self.ask_each(asks)).values()
            if answer.succeeded()
        ]
        return found if len(found) >= min(2, len(self._brokers_seen)) else []

    async def ask_each(
        self, asks: Mapping[int, Callable[[int], Any]], seconds: float = _ANSWER_SECONDS
    ) -> dict[int, Future]:
        """Ask several brokers at once, each by calling its ``asks`` with its id; the futures of their answers, which
        are done or belong to a broker that has not answered for ``seconds``. One after the other, all would wait behind
        a broker that does not answer.
        """
        under_way = {node: self.net.call_soon_with_future(ask, node) for node, ask in asks.items()}
        late = time.monotonic() + seconds
        while not all(answer.is_done for answer in under_way.values()) and time.monotonic() < late:
            await self.net.sleep(0.01)
        return under_way

    async def wait_for_leaders(self, partitions: Iterable[TopicPartition], *, deadline: float) -> None:
        """Refresh until every partition has a leader. Raises LeaderUnknown at ``deadline``, NotAuthorized at once."""
        wanted = set(partitions)
        while True:
            timeout = min(30.0, max(1.0, deadline - time.monotonic()))
            problems = await self.refresh({tp.topic for tp in wanted}, timeout=timeout)
            for topic, code in problems.items():
                self.require_authorized("Describe", topic, code)
            missing = wanted - self.leaders.keys()
            if not missing:
                return
            if time.monotonic() > deadline:
                first = min(missing)
                why = code_name(problems[first.topic]) if first.topic in problems else "no leader"
                raise LeaderUnknown(
                    f"{self.role}: {len(missing)} partitions have no leader, first {first}: {why}",
                    remedy="check that the topic exists and that its brokers are up, then run this again",
                )
            await self.net.sleep(0.1)

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Partitions grouped by the broker that leads them; those without a leader are left out."""
        grouped: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            leader = self.leaders.get(tp)
            if leader is not None:
                grouped.setdefault(leader.node, []).append(tp)
        return grouped

    async def list_offsets(
        self, partitions: Iterable[TopicPartition], when: int, *, deadline: float, committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Offsets at ``when`` (EARLIEST or LATEST) of all partitions, asked of their current leaders.

        LATEST is the high watermark, or the last stable offset with ``committed``. Asks again after leader moves
        until ``deadline``, then raises LeaderUnknown.
        """
        pending, found, problem = set(partitions), dict[TopicPartition, int](), ""
        await self.wait_for_leaders(pending, deadline=deadline)
        while pending:
            for node, group in self.by_leader(pending).items():
                try:
                    answers = await self._offsets_of(node, group, when, committed=committed)
                except kafka_errors.KafkaError as error:
                    # The broker may be gone for good: ask again who leads, do not wait for this one.
                    problem = reason_of(error)
                    continue
                for tp, (offset, code) in answers.items():
                    self.require_authorized("Describe", tp.topic, code)
                    if code:
                        problem = code_name(code)
                    else:
                        found[tp] = offset
            pending -= found.keys()
            if not pending:
                break
            if time.monotonic() > deadline:
                raise LeaderUnknown(
                    f"{self.role}: no offsets of {len(pending)} partitions, first {min(pending)}: {problem}",
                    remedy="check that the brokers which lead them are up, then run this again",
                )
            await self.net.sleep(0.05)
            await self.wait_for_leaders(pending, deadline=deadline)
        return found

    async def offsets_in_reach(
        self,
        partitions: Iterable[TopicPartition],
        when: int,
        *,
        seconds: float,
        answer_seconds: float = _ANSWER_SECONDS,
        committed: bool = False,
    ) -> dict[TopicPartition, int]:
        """As :meth:`list_offsets`, but of those partitions only whose leader answers: no longer than ``seconds`` are
        the others asked again, and no broker is waited for longer than ``answer_seconds``. What may not be described is
        left out like what does not answer.

        Raises ClusterUnreachable if no broker names the leaders, AuthenticationFailed if all that lead reject us.
        """
        pending, found, until = set(partitions), dict[TopicPartition, int](), time.monotonic() + seconds
        while pending:
            await self.refresh({tp.topic for tp in pending})
            asks = {
                node: partial(self._offsets_of, group=group, when=when, committed=committed)
                for node, group in self.by_leader(pending).items()
            }
            refused: list[MigrationError] = []
            for answer in (await self.ask_each(asks, answer_seconds)).values():
                if isinstance(answer.exception, MigrationError):
                    refused.append(answer.exception)
                if answer.succeeded():
                    found |= {tp: offset for tp, (offset, code) in answer.value.items() if code == 0}
            if refused and not found:
                # One broker that rejects our credentials is like one that is away; all of them are not.
                raise refused[0]
            pending -= found.keys()
            if time.monotonic() >= until:
                break
            if pending:
                await self.net.sleep(0.1)
        return found

    async def _offsets_of(
        self, node: int, group: list[TopicPartition], when: int, *, committed: bool
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Offset and error code of partitions that ``node`` leads."""
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(committed),
            topics=self._list_offsets_topics(group, when),
        )
        response = await self.send(request, node)
        found: dict[TopicPartition, tuple[int, int]] = {}
        for topic in response.topics:
            for answer in topic.partitions:
                tp = TopicPartition(self.known_as(topic.name), answer.partition_index)
                found[tp] = (answer.offset, answer.error_code)
        return found

    def _metadata_request(self, topics: Iterable[str], *, operations: bool = False) -> MetadataRequest:
        kind, names = MetadataRequest.MetadataRequestTopic, sorted(map(self.name_here, topics))
        return MetadataRequest(
            topics=[kind(name=name, topic_id=NO_TOPIC_ID) for name in names],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=operations,
        )

    def _list_offsets_topics(self, group: list[TopicPartition], when: int) -> list[Any]:
        kind, topics = ListOffsetsRequest.ListOffsetsTopic, dict[str, list[Any]]()
        for tp in group:
            partition = kind.ListOffsetsPartition(
                partition_index=tp.partition,
                # Forgotten by now, where metadata came meanwhile: then the broker says whether it leads.
                current_leader_epoch=self.leaders[tp].epoch if tp in self.leaders else -1,
                timestamp=when,
            )
            topics.setdefault(self.name_here(tp.topic), []).append(partition)
        return [kind(name=name, partitions=parts) for name, parts in topics.items()]
