"""How to reach a cluster, written once and translated for the three clients that reach it.

A connection's properties are librdkafka's (what Airflow's connection type ``kafka`` holds in its Extra). The mirror
speaks through kafka-python and Spark's validation through the JVM, so every property must mean the same to all three:
what cannot be translated is refused by name, rather than honoured by one client and ignored by another.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_migration.domain.errors import BadInput
from kafka_migration.kafka import jaas
from kafka_migration.kafka.properties import FILES, SAME, SECRETS, normalised

if TYPE_CHECKING:
    from kafka_migration.kafka.sasl import KerberosLogin

KERBEROS = "GSSAPI"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PASSWORD_MODULES = {"PLAIN": _PLAIN, "SCRAM-SHA-256": _SCRAM, "SCRAM-SHA-512": _SCRAM}
_OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
_OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"

_KEY = re.compile(r"-----BEGIN (?P<locked>ENCRYPTED )?PRIVATE KEY-----(?P<body>[A-Za-z0-9+/=\s]*)-----END", re.ASCII)
#: Object identifier 1.2.840.113549.1.5.13 in DER (RFC 8018, appendix A.4).
_PBES2 = bytes.fromhex("06092a864886f70d01050d")


@dataclass(frozen=True, slots=True, repr=False)
class ClusterConnection:
    """A connection id and its properties, in librdkafka's names, normalised and known to be translatable.

    Raises BadInput, naming connection, property and remedy (and never a secret). Files are looked at only when a
    client is about to be made, on the machine where that happens.
    """

    conn_id: str
    properties: Mapping[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "properties", normalised(self.conn_id, self.properties))

    def __repr__(self) -> str:
        shown = {k: ("<hidden>" if k in SECRETS else v) for k, v in self.properties.items()}
        return f"ClusterConnection({self.conn_id!r}, {shown!r})"

    @property
    def servers(self) -> str:
        """``bootstrap.servers``, for messages."""
        return self.properties["bootstrap.servers"]

    @property
    def uses_tls(self) -> bool:
        return self.properties["security.protocol"].endswith("SSL")

    @property
    def mechanism(self) -> str:
        """The SASL mechanism, or "" without SASL."""
        return self.properties.get("sasl.mechanism", "")

    @property
    def sent_in_clear(self) -> str:
        """What crosses the network as it is: "the password", "the token", or "" for nothing that is secret. SCRAM
        proves that it knows the password and does not send it."""
        if self.properties["security.protocol"] != "SASL_PLAINTEXT":
            return ""
        return {"PLAIN": "the password", "OAUTHBEARER": "the token"}.get(self.mechanism, "")

    def secrets(self) -> frozenset[str]:
        """Every string that must never be shown: the secrets, and how the JVM's properties spell them."""
        plain = {v for k, v in self.properties.items() if k in SECRETS and v}
        return frozenset(plain | {jaas.escaped(secret) for secret in plain})

    def librdkafka(self) -> dict[str, str]:
        """Properties for confluent-kafka."""
        self._require_files()
        properties = dict(self.properties)
        if self.uses_tls:
            properties.setdefault("ssl.endpoint.identification.algorithm", "https")
        return properties

    def kafka_python(self) -> dict[str, object]:
        """Keyword arguments for ``kafka.net.manager.KafkaConnectionManager``: picklable, no live objects.

        The manager's defaults hold for what the connection does not set.
        """
        self._require_files()
        mine = self.properties
        out: dict[str, object] = {
            name: (int(mine[key]) if number else mine[key]) for key, (name, _, number) in SAME.items() if key in mine
        }
        if self.uses_tls:
            out["ssl_cafile"] = mine.get("ssl.ca.location")
            out["ssl_certfile"] = mine.get("ssl.certificate.location")
            out["ssl_keyfile"] = mine.get("ssl.key.location")
            out["ssl_password"] = mine.get("ssl.key.password")
            out["ssl_check_hostname"] = mine.get("ssl.endpoint.identification.algorithm", "https") == "https"
        if self.mechanism:
            out["sasl_mechanism"] = self.mechanism
        if self.mechanism in _PASSWORD_MODULES:
            out["sasl_plain_username"] = self._username_on_the_wire()
            out["sasl_plain_password"] = mine["sasl.password"]
        elif self.mechanism == "OAUTHBEARER":
            from kafka_migration.kafka.sasl import ClientCredentialsTokens

            out["sasl_oauth_token_provider"] = ClientCredentialsTokens(
                url=mine["sasl.oauthbearer.token.endpoint.url"],
                client_id=mine["sasl.oauthbearer.client.id"],
                client_secret=mine["sasl.oauthbearer.client.secret"],
                scope=mine.get("sasl.oauthbearer.scope", ""),
                extension_pairs=self._oauth_extensions(),
            )
        elif self.mechanism == KERBEROS:
            out["sasl_kerberos_name"] = self._kerberos_login()
        return out

    def jvm(self) -> dict[str, str]:
        """Java client properties. A key that stands in a file of its own is inlined (the JVM wants key and
        certificate in one PEM file, or both as values): keep ``ssl.keystore.key`` out of logs like a password."""
        self._require_files()
        out = {name: self.properties[key] for key, (_, name, _) in SAME.items() if key in self.properties}
        return out | (self._jvm_tls() if self.uses_tls else {}) | self._jvm_sasl()

    def _jvm_tls(self) -> dict[str, str]:
        mine = self.properties
        verify = mine.get("ssl.endpoint.identification.algorithm", "https")
        out = {"ssl.endpoint.identification.algorithm": "" if verify == "none" else verify}
        if "ssl.ca.location" in mine:
            out |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": mine["ssl.ca.location"]}
        if "ssl.key.location" in mine:
            out |= jvm_keystore(
                self.conn_id,
                certificate=Path(mine["ssl.certificate.location"]),
                key=Path(mine["ssl.key.location"]),
                password=mine.get("ssl.key.password", ""),
            )
        return out

    def _jvm_sasl(self) -> dict[str, str]:
        mine = self.properties
        if self.mechanism in _PASSWORD_MODULES:
            options = {"username": mine["sasl.username"], "password": mine["sasl.password"]}
            login = jaas.entry(_PASSWORD_MODULES[self.mechanism], options)
            return {"sasl.mechanism": self.mechanism, "sasl.jaas.config": login}
        if self.mechanism == KERBEROS:
            options = {"principal": mine["sasl.kerberos.principal"], "keyTab": mine["sasl.kerberos.keytab"]}
            options |= {"useKeyTab": "true", "storeKey": "true", "doNotPrompt": "true"}
            return {
                "sasl.mechanism": self.mechanism,
                "sasl.kerberos.service.name": mine["sasl.kerberos.service.name"],
                "sasl.jaas.config": jaas.entry(_KERBEROS_MODULE, options),
            }
        if self.mechanism != "OAUTHBEARER":
            return {}
        options = {
            "clientId": mine["sasl.oauthbearer.client.id"],
            "clientSecret": mine["sasl.oauthbearer.client.secret"],
            "scope": mine.get("sasl.oauthbearer.scope", ""),
        } | {f"extension_{name}": value for name, value in self._oauth_extensions().items()}
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": mine["sasl.oauthbearer.token.endpoint.url"],
            "sasl.login.callback.handler.class": _OAUTH_HANDLER,
            "sasl.jaas.config": jaas.entry(_OAUTH_MODULE, {k: v for k, v in options.items() if v}),
        }

    def jvm_system_properties(self) -> dict[str, str]:
        """What the JVM wants beside client properties: it asks only token endpoints that are allowed by name
        (KIP-1139's successor rule in 3.9.1 and 4.0), and looks for krb5.conf by its own property only. Holds no
        secret."""
        if self.mechanism == KERBEROS:
            config = os.environ.get("KRB5_CONFIG")
            return {"java.security.krb5.conf": config} if config else {}
        if self.mechanism != "OAUTHBEARER":
            return {}
        return {
            "org.apache.kafka.sasl.oauthbearer.allowed.urls": self.properties["sasl.oauthbearer.token.endpoint.url"]
        }

    def _username_on_the_wire(self) -> str:
        """RFC 5802, section 5.1: SCRAM writes "=" and "," in names as =3D and =2C. The other two clients do so
        themselves; kafka-python 3.0 sends the name as it is."""
        name = self.properties["sasl.username"]
        return name.replace("=", "=3D").replace(",", "=2C") if self.mechanism.startswith("SCRAM") else name

    def _kerberos_login(self) -> KerberosLogin:
        from kafka_migration.kafka.sasl import KerberosLogin

        principal, keytab, service = (
            self.properties[f"sasl.kerberos.{name}"] for name in ("principal", "keytab", "service.name")
        )
        return KerberosLogin(principal=principal, keytab=keytab, service=service)

    def _oauth_extensions(self) -> dict[str, str]:
        pairs = self.properties.get("sasl.oauthbearer.extensions", "")
        return dict(pair.split("=", 1) for pair in pairs.split(",") if pair)

    def _require_files(self) -> None:
        for name in FILES:
            path = self.properties.get(name)
            if path is not None:
                require_readable(self.conn_id, name, Path(path))
        if "ssl.key.location" in self.properties:
            key = Path(self.properties["ssl.key.location"])
            require_usable_key(self.conn_id, key, has_password="ssl.key.password" in self.properties)
        if self.mechanism == KERBEROS:
            self._kerberos_login().require_usable(self.conn_id)


def _bad(conn_id: str, name: str, message: str, remedy: str) -> BadInput:
    return BadInput(message, file=f"connection {conn_id}", field=name, remedy=remedy)


def require_readable(conn_id: str, name: str, path: Path) -> None:
    """Raises BadInput unless ``path`` can be read here: the clients' own messages do not name the property."""
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise _bad(
            conn_id,
            name,
            f"cannot read {path} ({error.strerror or type(error).__name__})",
            "the file must exist, readable, on every machine of the migration: here and on Spark's workers",
        ) from None


def require_usable_key(conn_id: str, key: Path, *, has_password: bool) -> None:
    """Raises BadInput for a key that one of the three clients cannot read: its own message would be obscure."""
    text = _text(conn_id, "ssl.key.location", key)
    block = _KEY.search(text)
    if block is None:
        raise _bad(
            conn_id,
            "ssl.key.location",
            f"{key} holds no PKCS#8 key, and the JVM reads no other kind",
            "convert it: openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in OLD -out NEW (or with -nocrypt)",
        )
    if not block["locked"]:
        return
    if not has_password:
        # OpenSSL would ask for it on the terminal, and wait.
        raise _bad(conn_id, "ssl.key.password", f"missing, and {key} is encrypted", "add it to the connection")
    if _PBES2 in base64.b64decode(block["body"])[:64]:
        raise _bad(
            conn_id,
            "ssl.key.location",
            f"{key} is encrypted by PBES2, which Kafka's client cannot open before Java 19",
            "convert it: openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in OLD -out NEW (or with -nocrypt)",
        )


def jvm_keystore(conn_id: str, *, certificate: Path, key: Path, password: str) -> dict[str, str]:
    """The JVM's key store properties (KIP-651) for PEM files: one file for both is passed by name, two are inlined."""
    out = {"ssl.keystore.type": "PEM"}
    if certificate == key:
        out["ssl.keystore.location"] = str(key)
    else:
        out["ssl.keystore.certificate.chain"] = _text(conn_id, "ssl.certificate.location", certificate)
        out["ssl.keystore.key"] = _text(conn_id, "ssl.key.location", key)
    if password:
        out["ssl.key.password"] = password
    return out


def _text(conn_id: str, name: str, path: Path) -> str:
    require_readable(conn_id, name, path)
    return path.read_text(encoding="utf-8", errors="replace")
