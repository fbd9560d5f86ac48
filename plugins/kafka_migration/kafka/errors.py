"""Where the clients' errors become ours: one table for librdkafka and kafka-python, by Kafka's error codes.

Codes are those of the protocol (https://kafka.apache.org/protocol#protocol_error_codes), which both clients keep;
librdkafka's own are negative.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_migration.domain.errors import (
    AuthenticationFailed,
    ClusterUnreachable,
    CouldNotFindOut,
    MigrationError,
    NotAuthorized,
    Refused,
)

# librdkafka's own codes (rdkafka.h, rd_kafka_resp_err_t).
_TRANSPORT, _RESOLVE, _ALL_BROKERS_DOWN, _TIMED_OUT, _SSL = -195, -193, -187, -185, -181
_AUTHENTICATION, _TIMED_OUT_QUEUE, _UNSUPPORTED_FEATURE, _NOENT = -169, -166, -165, -156

UNKNOWN_TOPIC = 3
TOPIC_EXISTS = 36
UNSUPPORTED_VERSION = 35
SECURITY_DISABLED = 54
GROUP_AUTHORIZATION_FAILED = 30
GROUP_NOT_FOUND = 69

_AUTHENTICATION_CODES = frozenset({33, 34, 58, _AUTHENTICATION})
_AUTHORIZATION_CODES = frozenset({29, 30, 31, 53, 65})
UNREACHABLE_CODES = frozenset({_TRANSPORT, _RESOLVE, _ALL_BROKERS_DOWN, _TIMED_OUT, _SSL, _TIMED_OUT_QUEUE})
_UNSUPPORTED_CODES = frozenset({UNSUPPORTED_VERSION, _UNSUPPORTED_FEATURE})
#: A coordinator or leader that moves, a metadata that lags: the same call, a moment later, succeeds.
RETRYABLE_CODES = frozenset({5, 6, 7, 8, 9, 13, 14, 15, 16, 41, 51, 74, 75, 76, 78, 88, 89, 100, 103})
_BUSY_GROUP_CODES = frozenset({22, 25, 27, 68, 82})
#: The broker understood, and says no: the message is its own.
REFUSAL_CODES = frozenset({10, 17, 37, 38, 39, 40, 42, 44, 87})


class NotSupported(CouldNotFindOut):
    """The cluster lacks a feature that a question needs: too old, or switched off."""


class NoAuthorizer(NotSupported):
    """The cluster checks no permissions: there are no access rules, and everybody may do everything."""


class UnknownTopic(CouldNotFindOut):
    """A topic or partition that was asked about does not exist (any more)."""


class TopicExists(Refused):
    """A topic that was to be created exists."""


class GroupBusy(Refused):
    """A group has members, or is being rebalanced: its offsets cannot be written."""


class BrokerRefused(Refused):
    """The cluster understood the request and says no (a setting, a policy, a number).

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
    """Our error for the protocol's (or librdkafka's) ``code``; ``text`` is what the client or broker said."""
    said = text or name
    if code in _AUTHENTICATION_CODES:
        return AuthenticationFailed(asked.role, asked.servers, said)
    if code in UNREACHABLE_CODES:
        return ClusterUnreachable(asked.role, asked.servers, said)
    if code in _AUTHORIZATION_CODES:
        return NotAuthorized(asked.role, asked.operation, asked.resource)
    if code == SECURITY_DISABLED:
        return NoAuthorizer(f"{asked}: the cluster has no authorizer ({said})")
    if code in _UNSUPPORTED_CODES:
        return NotSupported(f"{asked}: not supported ({said})", remedy="see the evidence of the check that asked")
    if code in (UNKNOWN_TOPIC, _NOENT):
        return UnknownTopic(f"{asked}: does not exist", remedy="check the name, and whether it was deleted")
    if code == TOPIC_EXISTS:
        return TopicExists(f"{asked}: it exists", remedy="choose another name, or have the plan adopt it")
    if code in _BUSY_GROUP_CODES:
        return GroupBusy(
            f"{asked}: the group has members ({said})",
            remedy="stop its consumers, wait until it is empty, try again",
        )
    if code in REFUSAL_CODES:
        return BrokerRefused(f"{asked}: refused ({name}: {said})", code=code, reason=said)
    if code in RETRYABLE_CODES:
        return CouldNotFindOut(f"{asked}: still not possible ({name}: {said})", remedy="try again in a minute")
    return CouldNotFindOut(f"{asked}: failed ({name}: {said})", remedy="look into the brokers' logs, then try again")
