"""Who gets into the demo's two clusters, and as whom: everybody, or only principals with the rights that they need.

Locked, the source asks for passwords (SCRAM over TLS) and the target for certificates (mutual TLS), or both for tickets
(Kerberos), and both deny what nobody granted. The migration has a principal of its own on each side, with exactly the
rules that its own table says (`python -m kafka_migration acls`); producers and consumers have theirs.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo.brokers import EmbeddedKafka, security
from demo.brokers.certificates import Authority
from demo.brokers.kdc import Kdc
from demo.clients.settings import Settings
from demo.clients.topics import HEALTH

if TYPE_CHECKING:
    from confluent_kafka.admin import AclBinding

    from kafka_migration.inventory.permissions import Rule

MIGRATION = {"source": "migration-reader", "target": "migration-writer"}
PRODUCERS, CONSUMERS, PROBE = "demo-producers", "demo-consumers", "demo-probe"
_SECONDS = 30.0
_PROTOCOLS = {"source": "SASL_SSL", "target": "SASL_PLAINTEXT"}
"""By which clients with tickets come."""


class Access:
    """Two clusters that are open to everybody on this machine."""

    locks = ""
    """How they are locked, for people."""

    def __init__(self) -> None:
        """Describe them; nothing is started."""
        self.source = EmbeddedKafka(name="source")
        self.target = EmbeddedKafka(name="target")

    def prepare(self, stack: ExitStack) -> None:
        """Start what the clusters need before they are started; ``stack`` ends it."""

    def open_up(self, plan: Path) -> None:
        """Grant what has to be granted, once both run."""

    def settings(self) -> Settings:
        """How the workload's clients get in."""
        return Settings(source=self.client("source"), target=self.client("target"))

    def client(self, side: str) -> dict[str, str]:
        """librdkafka properties of the migration's own clients."""
        return {"bootstrap.servers": self._cluster(side).bootstrap_servers}

    def connections(self) -> dict[str, dict[str, Any]]:
        """The plan's two connections, as Airflow's JSON form has them."""
        return {f"kafka_{side}": {"conn_type": "kafka", "extra": self.client(side)} for side in ("source", "target")}

    def _cluster(self, side: str) -> EmbeddedKafka:
        return self.source if side == "source" else self.target


class LockedAccess(Access):
    """Two clusters behind TLS, credentials and access rules. Certificates go below ``directory``."""

    locks = ", locked: passwords over TLS on the source, certificates on the target"

    def __init__(self, directory: Path) -> None:
        """Make the authority and the passwords of this run."""
        self._authority = Authority(directory)
        users = (MIGRATION["source"], PRODUCERS, CONSUMERS, PROBE)
        self._passwords = {user: secrets.token_urlsafe(24) for user in users}
        self.source = EmbeddedKafka(name="source", security=security.scram(self._authority, self._passwords))
        self.target = EmbeddedKafka(name="target", security=security.mutual_tls(self._authority))

    def open_up(self, plan: Path) -> None:
        """Grant the migration what its table says for ``plan``, producers to write, consumers to read."""
        from kafka_migration.inventory import permissions
        from kafka_migration.plans.load import load_plan

        loaded = load_plan(plan)
        names = permissions.names_of(loaded)
        for side in permissions.SIDES:
            rules = permissions.rules(loaded, side, names)
            wanted = [binding(rule, f"User:{MIGRATION[side]}") for rule in rules]
            wanted += [_prefixed("TOPIC", "READ", CONSUMERS), _prefixed("GROUP", "READ", CONSUMERS)]
            wanted += self._more(side)
            grant(self._cluster(side), wanted)

    def _more(self, side: str) -> list[AclBinding]:
        return [_prefixed("TOPIC", "WRITE", PRODUCERS)] if side == "source" else []

    def settings(self) -> Settings:
        """How the workload's clients get in."""
        return Settings(
            source=self._as(CONSUMERS, "source"),
            target=self._as(CONSUMERS, "target"),
            producers_source=self._as(PRODUCERS, "source"),
            admin_source=self.source.admin_properties,
        )

    def client(self, side: str) -> dict[str, str]:
        """librdkafka properties of the migration's own clients."""
        return self._as(MIGRATION[side], side)

    def _as(self, principal: str, side: str) -> dict[str, str]:
        servers = {"bootstrap.servers": self._cluster(side).bootstrap_servers}
        if side == "source":
            return servers | security.scram_client(self._authority, principal, self._passwords[principal])
        return servers | self._authority.client(principal)


class KerberosAccess(LockedAccess):
    """Two clusters that ask the migration for tickets, each for those of another principal: over TLS on the source, in
    clear on the target. Producers and consumers, who know no Kerberos, come by the internal listener, with
    certificates."""

    locks = ", locked: Kerberos, over TLS on the source, and with another principal in clear on the target"

    def __init__(self, directory: Path) -> None:
        """Make the authority of this run, the KDC's database, and keytabs."""
        self._authority, self._kdc = Authority(directory), Kdc(directory / "kdc").create()
        self.source, self.target = (
            EmbeddedKafka(
                name=side,
                security=security.kerberos(self._authority, self._kdc, protocol),
                jvm_options=[self._kdc.jvm_option],
            )
            for side, protocol in _PROTOCOLS.items()
        )

    def prepare(self, stack: ExitStack) -> None:
        """Start the KDC; this process, and each that it starts, goes to it."""
        os.environ.update(stack.enter_context(self._kdc).environment)

    def client(self, side: str) -> dict[str, str]:
        """librdkafka properties of the migration's own clients."""
        protocol = _PROTOCOLS[side]
        return {
            "bootstrap.servers": self._cluster(side).bootstrap_servers,
            **security.kerberos_client(self._kdc, MIGRATION[side], protocol),
            **({"ssl.ca.location": str(self._authority.ca)} if protocol == "SASL_SSL" else {}),
        }

    def _as(self, principal: str, side: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self._cluster(side).internal_servers,
            **self._authority.client(principal),
        }


class MovingAccess(LockedAccess):
    """Locked clusters on which producers are moved, too, and groups may be rolled back."""

    produced_per_second = 120

    def settings(self) -> Settings:
        """How the workload's clients get in."""
        return replace(
            super().settings(),
            producers_target=self._as(PRODUCERS, "target"),
            scenario="full",
            produced_per_second=self.produced_per_second,
        )

    def connections(self) -> dict[str, dict[str, Any]]:
        """The plan's connections, the fences' probes among them."""
        probes = {f"kafka_{side}_probe": self._as(PROBE, side) for side in ("source", "target")}
        return super().connections() | {name: {"conn_type": "kafka", "extra": it} for name, it in probes.items()}

    def _more(self, side: str) -> list[AclBinding]:
        wanted = [_prefixed("TOPIC", "WRITE", who) for who in (PRODUCERS, PROBE)]
        wanted.append(_prefixed("TOPIC", "WRITE", PRODUCERS, HEALTH))
        # Of each generation of a link: the first one's is in the table.
        who = {PRODUCERS: "demo.", MIGRATION[side]: "kafka-migration."}
        wanted += [_prefixed("TRANSACTIONAL_ID", "WRITE", user, prefix) for user, prefix in who.items()]
        if side == "source":
            # The way back: the reverse mirror writes here, and keeps its state beside; offsets are committed.
            own, state = MIGRATION["source"], "kafka-migration."
            wanted += [_prefixed("TOPIC", right, own) for right in ("WRITE", "ALTER_CONFIGS")]
            wanted.append(_prefixed("GROUP", "READ", own))
            wanted += [
                _prefixed("TOPIC", right, own, state) for right in ("CREATE", "READ", "WRITE", "DESCRIBE_CONFIGS")
            ]
        return wanted


def grant(cluster: EmbeddedKafka, bindings: Iterable[AclBinding]) -> None:
    """Make access rules, as the cluster's administrator.

    Raises:
        KafkaException: the cluster refused, or did not answer in time.
    """
    from confluent_kafka.admin import AdminClient

    # Held until it has answered: a client that is gone answers nothing.
    admin = AdminClient(dict(cluster.admin_properties))
    for future in admin.create_acls(list(bindings)).values():
        future.result(_SECONDS)


def binding(rule: Rule, principal: str) -> AclBinding:
    """A rule of the migration's table, for ``principal``, from any host."""
    value = rule.as_dict()
    kind = "BROKER" if value["resource_type"] == "CLUSTER" else value["resource_type"]
    return _binding(kind, value["resource"], value["pattern"], principal, value["operation"])


def _prefixed(kind: str, operation: str, user: str, prefix: str = "demo.") -> AclBinding:
    return _binding(kind, prefix, "PREFIXED", f"User:{user}", operation)


def _binding(kind: str, name: str, pattern: str, principal: str, operation: str) -> AclBinding:
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    return AclBinding(
        ResourceType[kind],
        name,
        ResourcePatternType[pattern],
        principal,
        "*",
        AclOperation[operation],
        AclPermissionType.ALLOW,
    )
