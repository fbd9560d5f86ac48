"""Where the clients' errors become ours: one table for librdkafka and kafka-python, by Kafka's error codes.

Both clients keep the protocol's codes (:mod:`kafka_migration.domain.codes`); librdkafka's own are negative.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential_jitter

from kafka_migration.domain import codes
from kafka_migration.domain.errors import (
    AuthenticationFailed,
    ClusterUnreachable,
    CouldNotFindOut,
    MigrationError,
    NotAuthorized,
    Refused,
)

T = TypeVar("T")

# librdkafka's own codes (rdkafka.h, rd_kafka_resp_err_t).
_TRANSPORT, _RESOLVE, _ALL_BROKERS_DOWN, _TIMED_OUT, _SSL = -195, -193, -187, -185, -181
_AUTHENTICATION, _TIMED_OUT_QUEUE, _UNSUPPORTED_FEATURE, _NOENT = -169, -166, -165, -156

UNREACHABLE_CODES = frozenset({_TRANSPORT, _RESOLVE, _ALL_BROKERS_DOWN, _TIMED_OUT, _SSL, _TIMED_OUT_QUEUE})
_BACK_OFF = wait_exponential_jitter(multiplier=0.1, max=2.0)


class NotSupported(CouldNotFindOut):
    """The cluster lacks a feature that a question needs: too old, or switched off."""


class NoAuthorizer(NotSupported):
    """The cluster checks no permissions: there are no ACLs, and everybody may do everything."""


class UnknownTopic(CouldNotFindOut):
    """A topic or partition that was asked about does not exist (any more)."""


class TopicExists(Refused):
    """A topic that was to be created exists."""


class GroupBusy(Refused):
    """A group has members, or is being rebalanced: its offsets cannot be written."""


class BrokerRefused(Refused):
    """The cluster understood the request and refuses it (a config, a policy, a number).

    ``code`` is the protocol's error code, ``reason`` the broker's own text.
    """

    def __init__(self, message: str, *, code: int, reason: str, remedy: str = "") -> None:
        self.code, self.reason = code, reason
        super().__init__(message, remedy=remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked of whom: the context of a failure. ``operation`` and ``resource`` as Kafka names them
    (Describe, topic orders)."""

    role: str
    servers: str
    operation: str
    resource: str

    def __str__(self) -> str:
        return f"{self.role}: {self.operation} on {self.resource}"


def translated(asked: Asked, *, code: int, name: str, text: str) -> MigrationError:
    """Our error for the protocol's (or librdkafka's) ``code``; ``text`` is that of the client or broker."""
    reason = text or name
    if code in codes.UNAUTHENTICATED or code == _AUTHENTICATION:
        return AuthenticationFailed(asked.role, asked.servers, reason)
    if code in UNREACHABLE_CODES:
        return ClusterUnreachable(asked.role, asked.servers, reason)
    if code in codes.UNAUTHORIZED:
        return NotAuthorized(asked.role, asked.operation, asked.resource)
    if code == codes.SECURITY_DISABLED:
        return NoAuthorizer(f"{asked}: the cluster has no authorizer ({reason})")
    if code in (codes.UNSUPPORTED_VERSION, _UNSUPPORTED_FEATURE):
        return NotSupported(f"{asked}: not supported ({reason})", remedy="see the evidence of the check that asked")
    if code in (codes.UNKNOWN_TOPIC_OR_PARTITION, _NOENT):
        return UnknownTopic(f"{asked}: does not exist", remedy="check the name, and whether it was deleted")
    if code == codes.TOPIC_ALREADY_EXISTS:
        return TopicExists(f"{asked}: it exists", remedy="choose another name, or have the plan adopt it")
    if code in codes.GROUP_BUSY:
        return GroupBusy(
            f"{asked}: the group has members ({reason})",
            remedy="stop its consumers, wait until it is empty, try again",
        )
    if code in codes.REFUSED:
        return BrokerRefused(f"{asked}: refused ({name}: {reason})", code=code, reason=reason)
    if code in codes.RETRYABLE:
        return CouldNotFindOut(f"{asked}: still not possible ({name}: {reason})", remedy="try again in a minute")
    return CouldNotFindOut(f"{asked}: failed ({name}: {reason})", remedy="look into the brokers' logs, then try again")


def retried(ask: Callable[[], T], deadline: float, is_passing: Callable[[BaseException], bool]) -> T:
    """What ``ask`` returns; asked again, with growing pauses, after errors that are passing, until ``deadline``
    (monotonic seconds). Raises the last error."""
    return Retrying(
        stop=stop_after_delay(max(0.0, deadline - time.monotonic())),
        retry=retry_if_exception(is_passing),
        wait=_BACK_OFF,
        reraise=True,
    )(ask)
