"""ACLs as command lines of Kafka's own tool, for an administrator."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote

from kafka_migration.kafka.types import Acl

#: Names in one command line.
_AT_ONCE = 50


def adding(acls: Iterable[Acl], *, servers: str) -> tuple[str, ...]:
    """Command lines that make ``acls``, as few as possible, in their order. ``servers`` as a shell word.

    The administrator's own credentials are in the file ``admin.properties``, never on the command line.
    """
    together: dict[tuple[str, str, str, str, str, tuple[str, ...]], list[str]] = {}
    operations: dict[tuple[str, str, str, str, str, str], list[str]] = {}
    for acl in acls:
        key = (acl.permission, acl.principal, acl.host, acl.resource_type, acl.pattern, acl.resource)
        operations.setdefault(key, []).append(acl.operation)
    for (permission, principal, host, kind, pattern, resource), found in operations.items():
        together.setdefault((permission, principal, host, kind, pattern, tuple(found)), []).append(resource)
    lines = []
    for (permission, principal, host, kind, pattern, may), names in together.items():
        verb = permission.lower()
        words = ["kafka-acls", "--bootstrap-server", servers, "--command-config", "admin.properties", "--add"]
        words += [f"--{verb}-principal", quote(principal)]
        words += [] if host == "*" else [f"--{verb}-host", quote(host)]
        words += [word for one in may for word in ("--operation", one.title().replace("_", ""))]
        words += ["--resource-pattern-type", "prefixed"] if pattern == "PREFIXED" else []
        option = f"--{kind.lower().replace('_', '-')}"
        for at in range(0, len(names), _AT_ONCE):
            some = names[at : at + _AT_ONCE]
            rest = [option] if kind == "CLUSTER" else [word for name in some for word in (option, quote(name))]
            lines.append(" ".join([*words, *rest]))
    return tuple(lines)
