"""Requests of the protocol that no admin client makes, sent with kafka-python: one manager and one thread a cluster."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

import kafka.errors as kafka_errors
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest

from kafka_migration import __version__
from kafka_migration.domain.codes import GROUP_AUTHORIZATION_FAILED, RETRYABLE
from kafka_migration.domain.errors import AuthenticationFailed, ClusterUnreachable, MigrationError, reason_of
from kafka_migration.domain.hiding import hidden
from kafka_migration.kafka import schemas
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.errors import Asked, retried, translated

T = TypeVar("T")

_RECEIVE_MAX_BYTES = 100 * 1024 * 1024
#: The last version of Metadata that calls topics by names.
_METADATA_TO = 12


class ConsumerGroupDescribeRequest(ApiMessage, load_json=schemas):  # type: ignore[call-arg,misc]
    """Describes groups of the consumer protocol (KIP-848)."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=schemas):  # type: ignore[call-arg,misc]
    """Its answer."""


class ShareGroupDescribeRequest(ApiMessage, load_json=schemas):  # type: ignore[call-arg,misc]
    """Describes share groups (KIP-932)."""


class ShareGroupDescribeResponse(ApiMessage, load_json=schemas):  # type: ignore[call-arg,misc]
    """Its answer."""


class Moving(Exception):
    """A coordinator or leader is elsewhere now, or not ready: worth asking again. Never leaves this room."""

    def __init__(self, code: int, text: str) -> None:
        self.code, self.text = code, text
        super().__init__(text)


_PASSING = (Moving, kafka_errors.KafkaConnectionError, kafka_errors.NodeNotReadyError)


class _Connections(KafkaConnectionManager):  # type: ignore[misc]
    """As its base, which only writes to a log why a connection could not be made."""

    last_failure: Exception | None = None

    async def _connect(self, node: Any, conn: Any, *args: Any, **options: Any) -> None:
        await super()._connect(node, conn, *args, **options)
        if not isinstance(conn.init_future.exception, kafka_errors.KafkaTimeoutError) or self.last_failure is None:
            # The last try is cut off by the bootstrap's own end; why those before it failed says more.
            self.last_failure = conn.init_future.exception
        is_rejected = isinstance(self.last_failure, kafka_errors.SaslAuthenticationFailedError)
        if is_rejected and self.cluster.is_bootstrap(node.node_id):
            # What will not get better ends the bootstrap, which tries again until its time is over.
            self._auth_failures[node.node_id] = self.last_failure


class RawClient:
    """Connections of kafka-python to one cluster, with a thread of their own. Methods block; all have a deadline."""

    def __init__(
        self,
        role: str,
        connection: ClusterConnection,
        *,
        timeout_seconds: float,
        connect_timeout_seconds: float,
    ) -> None:
        self.role, self.connection = role, connection
        self.timeout_seconds = timeout_seconds
        config = connection.kafka_python()
        self._net = NetworkSelector(client_id=config.get("client_id", "kafka-migration"))
        self._manager = _Connections(
            self._net,
            **{
                "receive_message_max_bytes": _RECEIVE_MAX_BYTES,
                "reconnect_backoff_max_ms": 1_000,
                "request_timeout_ms": int(timeout_seconds * 1000),
                **config,
            },
        )
        self._net.start()
        try:
            self._manager.bootstrap(int(connect_timeout_seconds * 1000))
        except Exception as error:
            self.close()
            raise self._unreachable(self._manager.last_failure or error) from None

    def close(self) -> None:
        """End the connections and the thread."""
        self._manager.close()
        self._net.stop(timeout_ms=5_000)

    def brokers(self) -> list[int]:
        """Ids of the brokers in the newest metadata."""
        return sorted(broker.node_id for broker in self._manager.cluster.brokers())

    def supports(self, request: type, version: int = 0) -> bool:
        """True if the brokers take ``version`` of ``request``."""
        try:
            return bool(self._manager.broker_version_data.api_version(request) >= version)
        except kafka_errors.KafkaError:
            return False

    def run(self, asked: Asked, ask: Callable[[], Awaitable[T]], *, seconds: float | None = None) -> T:
        """The result of the coroutine that ``ask`` makes, on the clients' thread.

        Runs it again within the deadline (``seconds`` from now) while it raises :class:`Moving` or loses its
        connection: only for what may be repeated. Raises our errors only.
        """
        deadline = time.monotonic() + (self.timeout_seconds if seconds is None else seconds)
        try:
            result: T = retried(lambda: self._manager.run(ask), deadline, lambda error: isinstance(error, _PASSING))
            return result
        except MigrationError:
            raise
        except Moving as error:
            raise translated(asked, code=error.code, name=code_name(error.code), text=error.text) from None
        except Exception as error:
            raise self._unreachable(error) from None

    async def send(self, request: Any, node: int | None, *, seconds: float | None = None) -> Any:
        """One request to one broker (None: any); no answer within ``seconds`` is as good as no broker."""
        within = None if seconds is None else max(1, int(seconds * 1000))
        return await self._manager.send(request, node_id=node, request_timeout_ms=within)

    def require(self, asked: Asked, code: int, text: str | None = None) -> None:
        """Raise our error for a response's error code; Moving for one that is worth another try."""
        if code == 0:
            return
        if code in RETRYABLE:
            raise Moving(code, text or "")
        raise translated(asked, code=code, name=code_name(code), text=text or "")

    async def coordinators(
        self, asked: Asked, groups: Iterable[str], *, denied: list[str] | None = None
    ) -> dict[int, list[str]]:
        """Groups by the broker that coordinates them. Always asked again: coordinators move.

        Groups that the principal may not describe are put into ``denied``; without it, they are an error.
        """
        found: dict[int, list[str]] = {}

        def put(group: str, answer: Any) -> None:
            if denied is not None and answer.error_code == GROUP_AUTHORIZATION_FAILED:
                denied.append(group)
                return
            self.require(replace(asked, resource=f"group {group}"), answer.error_code, answer.error_message)
            found.setdefault(answer.node_id, []).append(group)

        wanted = list(groups)
        if wanted and self.supports(FindCoordinatorRequest, 4):
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=wanted, min_version=4)
            for answer in (await self.send(request, None)).coordinators:
                put(answer.key, answer)
            return found
        for group in wanted:
            put(group, await self.send(FindCoordinatorRequest(key=group, key_type=0, max_version=3), None))
        return found

    async def controller(self) -> int | None:
        """Who takes changes: beside a ZooKeeper one broker only; otherwise the metadata name any."""
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False, max_version=_METADATA_TO)
        found: int = (await self.send(request, None)).controller_id
        return found if found >= 0 else None

    async def refresh(self) -> None:
        """Fetch metadata, so that brokers that joined are known."""
        await self._manager.cluster.refresh_metadata()

    async def api_versions(self) -> dict[int, tuple[int, int]]:
        """API key -> (lowest, highest version) that *every* broker takes."""
        common: dict[int, tuple[int, int]] | None = None
        for node in self.brokers():
            # Brokers refuse the request without a client's name (KIP-511).
            request = ApiVersionsRequest(client_software_name="kafka-migration", client_software_version=__version__)
            answer = await self.send(request, node)
            mine = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
            if common is None:
                common = mine
            else:
                both = common.keys() & mine.keys()
                common = {k: (max(common[k][0], mine[k][0]), min(common[k][1], mine[k][1])) for k in both}
        return common or {}

    def _unreachable(self, error: Exception) -> MigrationError:
        servers = self.connection.servers
        for broker in self._manager.cluster.bootstrap_brokers():
            failure = self._manager.auth_failure(broker.node_id)
            if failure is not None:
                return AuthenticationFailed(self.role, servers, self._scrubbed(failure))
        if isinstance(error, kafka_errors.SaslAuthenticationFailedError):
            return AuthenticationFailed(self.role, servers, self._scrubbed(error))
        return ClusterUnreachable(self.role, servers, self._scrubbed(error))

    def _scrubbed(self, error: BaseException) -> str:
        return hidden(reason_of(error), self.connection.secrets())


def code_name(code: int) -> str:
    """A protocol error code by its name, as Kafka's documentation writes it."""
    error = kafka_errors.for_code(code)
    return str(getattr(error, "message", error.__name__))
