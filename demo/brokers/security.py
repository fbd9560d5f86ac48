"""Guarded clusters: TLS on every listener, StandardAuthorizer that denies by default, credentials for everybody.

Those of the secure demo: passwords (SCRAM) over TLS, certificates on both sides (mutual TLS), and tickets (Kerberos).
Brokers among themselves, and the administrator, always show certificates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from demo.brokers.certificates import Authority
from demo.brokers.kdc import REALM, SERVICE, Kdc

ADMIN = "admin"
"""The only principal beside the brokers themselves that access rules do not bind."""
_BROKER = "broker"
_ITERATIONS = 4096
"""The least that Kafka takes: passwords of a run are random and long."""
_SECONDS = 30.0
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """What guards a cluster.

    Attributes:
        properties: of the servers; they name files, and hold no secret.
        admin: librdkafka properties of the administrator, for the internal listener; without servers.
        passwords: SCRAM users and their passwords, made as soon as the cluster runs. By request, since Kafka's tool
            for it takes passwords on its command line, where everybody on the machine can read them.
    """

    properties: Mapping[str, str]
    admin: Mapping[str, str]
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)


def scram(authority: Authority, passwords: Mapping[str, str]) -> Security:
    """Clients come by SASL_SSL with SCRAM-SHA-512, as the users of ``passwords``."""
    listener = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
        # Who has a password needs no certificate.
        "ssl.client.auth": "none",
    }
    properties = {f"listener.name.client.{name}": value for name, value in listener.items()}
    return Security(
        properties={**_guarded(authority, "SASL_SSL"), **properties},
        admin=authority.client(ADMIN),
        passwords=dict(passwords),
    )


def mutual_tls(authority: Authority) -> Security:
    """Clients come by SSL with certificates of ``authority``; the common name is the principal."""
    return Security(properties=_guarded(authority, "SSL"), admin=authority.client(ADMIN))


def kerberos(authority: Authority, kdc: Kdc, protocol: str) -> Security:
    """Clients come with tickets of ``kdc``, by ``protocol``: SASL_SSL or SASL_PLAINTEXT. Its JVMs need
    ``kdc.jvm_option``."""
    listener = {**kerberos_listener(kdc), "ssl.client.auth": "none"}
    properties = {f"listener.name.client.{name}": value for name, value in listener.items()}
    return Security(properties={**_guarded(authority, protocol), **properties}, admin=authority.client(ADMIN))


def kerberos_listener(kdc: Kdc) -> dict[str, str]:
    """Properties of a listener that lets in whoever has a ticket."""
    keytab = kdc.keytab(kdc.broker)
    login = f'useKeyTab=true storeKey=true keyTab="{keytab}" principal="{kdc.broker}@{REALM}"'
    return {
        "sasl.enabled.mechanisms": "GSSAPI",
        "gssapi.sasl.jaas.config": f"com.sun.security.auth.module.Krb5LoginModule required {login};",
        "sasl.kerberos.service.name": SERVICE,
    }


def kerberos_client(kdc: Kdc, principal: str, protocol: str = "SASL_PLAINTEXT") -> dict[str, str]:
    """librdkafka properties of ``principal``, without servers, and with SASL_SSL without an authority."""
    return {
        "security.protocol": protocol,
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": SERVICE,
        "sasl.kerberos.principal": principal,
        "sasl.kerberos.keytab": str(kdc.keytab(principal)),
    }


def scram_client(authority: Authority, user: str, password: str) -> dict[str, str]:
    """librdkafka properties of a client of a :func:`scram` cluster, without servers."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.ca),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
    }


def _guarded(authority: Authority, protocol: str) -> dict[str, str]:
    # Both clusters of a run may show the same certificate: what tells them apart is whom they let in.
    authority.client(_BROKER)
    return {
        "listener.security.protocol.map": f"CLIENT:{protocol},INTERNAL:SSL,CONTROLLER:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.directory / f"{_BROKER}.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/",
        "authorizer.class.name": _AUTHORIZER,
        "allow.everyone.if.no.acl.found": "false",
        "super.users": f"User:{ADMIN};User:{_BROKER}",
    }


def add_scram_users(admin: Mapping[str, str], passwords: Mapping[str, str]) -> None:
    """Make SCRAM-SHA-512 users, or give them these passwords, as the administrator ``admin`` (librdkafka properties).

    Raises:
        KafkaException: the cluster refused, or did not answer in time.
    """
    from confluent_kafka.admin import (
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialAlteration,
        UserScramCredentialUpsertion,
    )

    kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
    client = AdminClient(dict(admin))
    wanted: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(user, kind, password.encode()) for user, password in passwords.items()
    ]
    for future in client.alter_user_scram_credentials(wanted).values():
        future.result(_SECONDS)
