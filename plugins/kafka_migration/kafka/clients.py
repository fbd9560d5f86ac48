"""The live clients of one cluster: made when first needed, asked with a deadline, their errors translated.

Two libraries, because neither suffices: confluent-kafka for topics, configs and groups' offsets, kafka-python for what
its admin client lacks (log directories, producers, quotas, ACLs, groups of every protocol with subscriptions), and for
all of it where a cluster is reached by Kerberos.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

from kafka_migration.domain.codes import RETRYABLE
from kafka_migration.domain.errors import AuthenticationFailed, BadInput, ClusterUnreachable
from kafka_migration.domain.hiding import hidden
from kafka_migration.kafka.admin_client import AdminClient
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.errors import UNREACHABLE_CODES, Asked, retried, translated
from kafka_migration.kafka.libraries import is_kerberos
from kafka_migration.kafka.raw import RawClient

T = TypeVar("T")
K = TypeVar("K")
log = logging.getLogger(__name__)

_POLL_SECONDS = 0.05
#: "sasl_ssl://host:9092/bootstrap: … (after 3ms in state AUTH_REQ)": the middle is what a person needs.
_DECORATION = re.compile(r"^\S+/(?:bootstrap|\d+): |\s*\(after \d+ms in state \w+\)")


class _QuietLog:
    """librdkafka prints every failed connection as an error; here they are causes, reported once, in our errors."""

    def log(self, level: int, message: str, *args: object) -> None:
        log.debug(message, *args)


class _ConnectionErrors:
    """The last errors of connections, as librdkafka reported them. No reference to the client: it is its callback."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._connection = connection
        self.cause = ""
        self.authentication = ""

    def note(self, error: KafkaError) -> None:
        text = _DECORATION.sub("", hidden(error.str(), self._connection.secrets()))
        if error.code() == KafkaError._AUTHENTICATION:
            self.authentication = text
        elif error.code() != KafkaError._ALL_BROKERS_DOWN or not self.cause:
            self.cause = text


class Clients:
    """One cluster's clients. Safe to use from several threads; not picklable, and not to be carried over a fork.

    ``timeout_seconds`` bounds every call; ``connect_timeout_seconds`` bounds it as long as no broker ever answered.
    """

    def __init__(
        self,
        role: str,
        connection: ClusterConnection,
        *,
        timeout_seconds: float = 30.0,
        connect_timeout_seconds: float = 10.0,
    ) -> None:
        self.role, self.connection = role, connection
        self.timeout_seconds = timeout_seconds
        self.connect_timeout_seconds = min(connect_timeout_seconds, timeout_seconds)
        self._admin: AdminClient | None = None
        self._raw: RawClient | None = None
        self._lock = threading.Lock()
        self._errors = _ConnectionErrors(connection)
        self.reached = False

    def asked(self, operation: str, resource: str) -> Asked:
        """The context of a call, for errors."""
        return Asked(role=self.role, servers=self.connection.servers, operation=operation, resource=resource)

    def deadline_seconds(self) -> float:
        """How long a call that begins now may take."""
        return self.timeout_seconds if self.reached else self.connect_timeout_seconds

    def call(self, asked: Asked, ask: Callable[[Any, float], Future[T]]) -> T:
        """The result of one request: ``ask`` makes it, given the admin client and its timeout in seconds.

        Asks again, within the deadline, while a coordinator or leader moves. Raises our errors only.
        """
        return self.call_each(asked, lambda admin, seconds: {None: ask(admin, seconds)})[None]

    def call_each(
        self,
        asked: Asked,
        ask: Callable[[Any, float], Mapping[K, Future[T]]],
        *,
        name: Callable[[K], str] = lambda key: "" if key is None else str(key),
        on_error: Callable[[K, KafkaError], bool] = lambda key, error: False,
        within: Callable[[T], Iterable[tuple[str, KafkaError]]] = lambda result: (),
    ) -> dict[K, T]:
        """As :meth:`call`, for a request that has a result per key. The first failure is raised.

        ``on_error`` may take an error upon itself (returns True): that key is then left out of the results.
        ``within`` finds failures inside a result that counts as a success, and where they are.
        """
        deadline = time.monotonic() + self.deadline_seconds()

        def once() -> dict[K, T]:
            left = max(1.0, deadline - time.monotonic())
            results: dict[K, T] = {}
            for key, future in ask(self.admin(), left).items():
                try:
                    results[key] = self._wait(future, deadline + 1.0)
                except KafkaException as error:
                    cause = error.args[0]
                    self._raise_authentication()
                    if not on_error(key, cause):
                        raise _Failed(name(key), cause) from None
                    continue
                for where, cause in within(results[key]):
                    raise _Failed(f"{name(key)}, {where}", cause)
            self.reached = True
            return results

        try:
            return retried(once, deadline, lambda error: isinstance(error, _Failed) and error.error.code() in RETRYABLE)
        except _Failed as failed:
            where = replace(asked, resource=f"{asked.resource} {failed.where}".rstrip())
            raise self._translate(where, failed.error) from None

    def blocking(self, asked: Asked, ask: Callable[[Any, float], T]) -> T:
        """As :meth:`call`, for the admin client's few methods that block and return no future."""

        self._reach()

        def run(admin: Any, seconds: float) -> Future[T]:
            future: Future[T] = Future()
            try:
                future.set_result(ask(admin, seconds))
            except KafkaException as error:
                admin.poll(0)
                future.set_exception(error)
            return future

        return self.call(asked, run)

    def admin(self) -> Any:
        """The admin client, made at the first call. Raises BadInput for properties that librdkafka refuses."""
        if is_kerberos(self.connection.properties):
            from kafka_migration.kafka.kerberos.admin import AdminClient as OfKafkaPython

            return OfKafkaPython(self.raw())
        with self._lock:
            if self._admin is None:
                config: dict[str, Any] = {
                    # Nothing else of us is worth a reconnect storm against a cluster in trouble.
                    "reconnect.backoff.ms": "250",
                    **self.connection.librdkafka(),
                    "error_cb": self._errors.note,
                    "logger": _QuietLog(),
                }
                try:
                    self._admin = AdminClient(config)
                except KafkaException as error:
                    raise BadInput(
                        self.scrubbed(error.args[0].str()),
                        file=f"connection {self.connection.conn_id}",
                        remedy="correct the property that the message names",
                    ) from None
            return self._admin

    def _reach(self) -> None:
        """Ask for something first that fails at once, and with a clear reason, if there is no connection."""
        if not self.reached:
            asked = self.asked("Describe", "cluster")
            self.call(asked, lambda admin, seconds: admin.describe_cluster(request_timeout=seconds))

    def scrubbed(self, text: str) -> str:
        """``text`` without the connection's secrets: clients and brokers choose their own words."""
        return hidden(text, self.connection.secrets())

    def raw(self) -> RawClient:
        """kafka-python's connections, opened at the first call. Raises ClusterUnreachable or AuthenticationFailed."""
        if not is_kerberos(self.connection.properties):
            self._reach()
        with self._lock:
            if self._raw is None:
                self._raw = RawClient(
                    self.role,
                    self.connection,
                    timeout_seconds=self.timeout_seconds,
                    connect_timeout_seconds=self.connect_timeout_seconds,
                )
            return self._raw

    def close(self) -> None:
        """Drop the clients. Calls that are under way end with errors."""
        with self._lock:
            self._admin = None
            raw, self._raw = self._raw, None
        if raw is not None:
            raw.close()

    def _wait(self, future: Future[T], until: float) -> T:
        # Errors of connections come through poll, in the calling thread; results come by themselves.
        while True:
            try:
                return future.result(timeout=_POLL_SECONDS)
            except FutureTimeout:
                self.admin().poll(0)
                self._raise_authentication()
                if time.monotonic() > until:
                    cause = self._errors.cause or f"no answer within {self.timeout_seconds:g} s"
                    raise ClusterUnreachable(self.role, self.connection.servers, cause) from None

    def _raise_authentication(self) -> None:
        if cause := self._errors.authentication:
            self._errors.authentication = ""
            raise AuthenticationFailed(self.role, self.connection.servers, cause)

    def _translate(self, asked: Asked, error: KafkaError) -> Exception:
        text = self.scrubbed(error.str())
        if error.code() in UNREACHABLE_CODES and self._errors.cause:
            text = self._errors.cause
        return translated(asked, code=error.code(), name=error.name(), text=text)


class Calls:
    """What can be asked of a cluster, or changed there, with its clients: the base of the parts of ``Cluster``."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients


class _Failed(Exception):
    def __init__(self, where: str, error: KafkaError) -> None:
        self.where, self.error = where, error
        super().__init__(error.str())
