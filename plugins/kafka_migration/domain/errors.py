"""Everything that can go wrong, by what a person or a retry can do about it.

Every error carries evidence as fields and a remedy. ``exit_code`` is the command line's:
1 a check or gate refuses, 2 bad input, 3 could not find out. Three families guide the callers:

- ``Retryable``: the same call, made again later, may succeed.
- ``Fatal``: the same call will fail again until a person changes something.
- ``NeedsRollback``: a step is half done and must be undone or finished before anything else.
"""

from __future__ import annotations

from collections.abc import Mapping


class MigrationError(Exception):
    """Base of all errors that a person is meant to read."""

    exit_code = 3

    def __init__(self, message: str, *, remedy: str = "") -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(f"{message}\n  remedy: {remedy}" if remedy else message)

    def __reduce__(self) -> tuple[object, ...]:
        # Spark and Airflow carry errors between processes; keyword-only fields need help to survive that.
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


def _rebuild(kind: type[MigrationError], args: tuple[object, ...], state: dict[str, object]) -> MigrationError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class Retryable(MigrationError):
    """The same call, made again later, may succeed."""


class Fatal(MigrationError):
    """The same call will fail again until a person changes something."""


class NeedsRollback(MigrationError):
    """A step is half done; it must be finished or undone before anything else is tried."""


class BadInput(Fatal):
    """A plan, an option or a connection is wrong. Raised before anything was changed.

    ``field`` is a dotted path (``topics.include[1]``), ``value`` what stood there, ``file`` where.
    """

    exit_code = 2

    def __init__(
        self, message: str, *, field: str = "", value: object = None, file: str = "", remedy: str = ""
    ) -> None:
        self.field, self.value, self.file = field, value, file
        where = ": ".join(part for part in (file, field) if part)
        super().__init__(f"{where}: {message}" if where else message, remedy=remedy)


class Refused(Fatal):
    """A check or a gate refuses. Nothing was changed."""

    exit_code = 1


class CouldNotFindOut(Retryable):
    """A cluster did not answer, or not completely: the truth is unknown, so nothing is claimed."""

    exit_code = 3


class ClusterUnreachable(CouldNotFindOut):
    """No broker of a cluster answered. ``cluster`` is ``source`` or ``target`` or a connection id."""

    def __init__(self, cluster: str, servers: str, cause: str) -> None:
        self.cluster, self.servers, self.cause = cluster, servers, cause
        super().__init__(
            f"{cluster}: no broker at {servers} answered ({cause})",
            remedy="check bootstrap.servers and security properties of the connection, and that the brokers run",
        )


class AuthenticationFailed(ClusterUnreachable):
    """A broker answered, and does not accept this connection's credentials. Not worth another try."""

    def __init__(self, cluster: str, servers: str, cause: str) -> None:
        super().__init__(cluster, servers, cause)
        self.message = f"{cluster}: authentication failed at {servers} ({cause})"
        self.remedy = "check security.protocol, sasl.mechanism and credentials of the connection"
        self.args = (f"{self.message}\n  remedy: {self.remedy}",)


class NotAuthorized(Refused):
    """The principal in use lacks a permission. ``operation`` and ``resource`` as Kafka names them; ``topic`` as the
    plan does, where the cluster has another name for it."""

    def __init__(self, cluster: str, operation: str, resource: str, *, topic: str = "") -> None:
        self.cluster, self.operation, self.resource = cluster, operation, resource
        #: The topic that it is about, if it is about one.
        self.topic = topic or (resource.removeprefix("topic ") if resource.startswith("topic ") else "")
        super().__init__(
            f"{cluster}: not authorized: {operation} on {resource}",
            remedy=f"grant {operation} on {resource} to the principal of this connection",
        )


class TakenOver(Fatal):
    """Another process runs this link or this migration now; this one must stop."""

    exit_code = 3

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"taken over: another process runs {what} now",
            remedy="let the other process go on, or stop it and run this command again",
        )


class StateConflict(Fatal):
    """Persisted state is unknown, of a newer version, or contradicts what is observed."""

    exit_code = 3


class HaltedPartition(Refused):
    """The mirror of one partition stopped, because going on could lose, double or alter a record.

    ``reason`` is a name from :class:`kafka_migration.domain.types.Halt`; offsets are next-to-read.
    """

    def __init__(
        self,
        *,
        topic: str,
        partition: int,
        reason: str,
        detail: str,
        source_offset: int | None = None,
        target_offset: int | None = None,
        remedy: str = "",
    ) -> None:
        self.topic, self.partition, self.reason, self.detail = topic, partition, reason, detail
        self.source_offset, self.target_offset = source_offset, target_offset
        at = "".join(
            f", {side} offset {offset}"
            for side, offset in (("source", source_offset), ("target", target_offset))
            if offset is not None
        )
        super().__init__(f"{topic}-{partition}: {reason}{at}: {detail}", remedy=remedy)


def reason_of(error: BaseException) -> str:
    """What a client's error states, or its name if it states nothing."""
    return str(error) or type(error).__name__


def as_data(error: MigrationError) -> dict[str, object]:
    """``error`` as JSON types: the nearest class of :data:`_BY_NAME`, its text, and its evidence as far as it is plain.

    For where the other side is not to be trusted with more than data: what unpickles runs what it is given.
    """
    kind = next(cls.__name__ for cls in type(error).__mro__ if cls.__name__ in _BY_NAME)
    evidence = {
        name: value for name, value in error.__dict__.items() if isinstance(value, (str, int, float, type(None)))
    }
    return {"kind": kind, "text": str(error), "evidence": evidence}


def from_data(data: Mapping[str, object]) -> MigrationError:
    """The error that :func:`as_data` made ``data`` of. An unknown kind becomes a plain MigrationError."""
    kind, text, evidence = _BY_NAME.get(str(data.get("kind"))), data.get("text"), data.get("evidence")
    if kind is None or not isinstance(text, str) or not isinstance(evidence, dict):
        return MigrationError(f"an error that this version does not know: {str(data)[:500]}")
    error = kind.__new__(kind)
    MigrationError.__init__(error, text)
    error.__dict__.update(
        {name: value for name, value in evidence.items() if isinstance(value, (str, int, float, type(None)))}
    )
    error.args = (text,)
    return error


_BY_NAME: dict[str, type[MigrationError]] = {
    kind.__name__: kind
    for kind in (
        MigrationError,
        Retryable,
        Fatal,
        NeedsRollback,
        BadInput,
        Refused,
        CouldNotFindOut,
        ClusterUnreachable,
        AuthenticationFailed,
        NotAuthorized,
        TakenOver,
        StateConflict,
        HaltedPartition,
    )
}
