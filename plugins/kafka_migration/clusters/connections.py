"""How to reach a cluster, said once and translated for the three clients that reach it.

A connection's properties are librdkafka's (what Airflow's connection type ``kafka`` holds in its Extra). The mirror
speaks through kafka-python and Spark's validation through the JVM, so every property must mean the same to all three:
what cannot be translated is refused by name, rather than honoured by one client and ignored by another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafka_migration.clusters import jaas, pem
from kafka_migration.domain.errors import BadInput

SECRET_PROPERTIES = frozenset({"sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret"})
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PASSWORD_MECHANISMS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"

#: librdkafka name -> (kafka-python name, JVM name, is a number), where the meaning is simply the same.
_SAME: dict[str, tuple[str, str, bool]] = {
    "bootstrap.servers": ("bootstrap_servers", "bootstrap.servers", False),
    "security.protocol": ("security_protocol", "security.protocol", False),
    "client.id": ("client_id", "client.id", False),
    "client.dns.lookup": ("client_dns_lookup", "client.dns.lookup", False),
    "socket.timeout.ms": ("request_timeout_ms", "request.timeout.ms", True),
    "socket.connection.setup.timeout.ms": (
        "socket_connection_setup_timeout_ms",
        "socket.connection.setup.timeout.ms",
        True,
    ),
    "reconnect.backoff.ms": ("reconnect_backoff_ms", "reconnect.backoff.ms", True),
    "reconnect.backoff.max.ms": ("reconnect_backoff_max_ms", "reconnect.backoff.max.ms", True),
    "connections.max.idle.ms": ("connections_max_idle_ms", "connections.max.idle.ms", True),
    "metadata.max.age.ms": ("metadata_max_age_ms", "metadata.max.age.ms", True),
}
_SSL = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password")
_FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
_SASL = ("sasl.mechanism", "sasl.username", "sasl.password")
_OAUTH = tuple(
    f"sasl.oauthbearer.{name}"
    for name in ("method", "client.id", "client.secret", "token.endpoint.url", "scope", "extensions")
)
_KNOWN = frozenset((*_SAME, *_SSL, *_SASL, *_OAUTH, "ssl.endpoint.identification.algorithm"))

#: Names that Java users write, and old librdkafka names.
_ALIASES = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "request.timeout.ms": "socket.timeout.ms",
    "ssl.truststore.location": "ssl.ca.location",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}

#: What a client of this connection may be told, but every client of a migration decides for itself.
_DECIDED_HERE = frozenset(
    {
        "group.id",
        "group.instance.id",
        "auto.offset.reset",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "auto.commit.interval.ms",
        "session.timeout.ms",
        "max.poll.interval.ms",
        "acks",
        "linger.ms",
        "compression.type",
        "enable.idempotence",
    }
)

_AS_FILE = "write it to a file that is readable wherever the migration runs, and name that file in {}"
_REMEDIES = {
    "ssl.ca.pem": _AS_FILE.format("ssl.ca.location"),
    "ssl.certificate.pem": _AS_FILE.format("ssl.certificate.location"),
    "ssl.key.pem": _AS_FILE.format("ssl.key.location"),
    "ssl.truststore.certificates": _AS_FILE.format("ssl.ca.location"),
    "ssl.keystore.certificate.chain": _AS_FILE.format("ssl.certificate.location"),
    "ssl.keystore.key": _AS_FILE.format("ssl.key.location"),
    "ssl.keystore.location": "convert it to PEM files, and name those in ssl.certificate.location and ssl.key.location",
    "ssl.keystore.password": "convert the key store to PEM files, and give the key's password as ssl.key.password",
    "ssl.truststore.password": "convert the trust store to a PEM file, and name it in ssl.ca.location",
    "ssl.crl.location": "the JVM takes no revocation list by property; remove it, or end TLS with it in a proxy",
    "enable.ssl.certificate.verification": "neither kafka-python nor the JVM can switch verification off; name the"
    " broker's own authority in ssl.ca.location instead",
    "sasl.kerberos.service.name": "use SASL PLAIN, SCRAM or OAUTHBEARER for the migration's principal",
    "oauth_cb": "a function cannot be handed to Spark; use sasl.oauthbearer.method=oidc with a token endpoint",
    "sasl.oauthbearer.config": "use sasl.oauthbearer.method=oidc with a token endpoint",
}


@dataclass(frozen=True, slots=True, repr=False)
class ClusterConnection:
    """A connection id and its properties, in librdkafka's names, normalised and known to be translatable.

    Raises BadInput, naming connection, property and remedy (and never a secret). Files are looked at only when a
    client is about to be made, on the machine where that happens.
    """

    conn_id: str
    properties: Mapping[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "properties", _normalised(self.conn_id, self.properties))

    def __repr__(self) -> str:
        shown = {k: ("<hidden>" if k in SECRET_PROPERTIES else v) for k, v in self.properties.items()}
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

    def secrets(self) -> frozenset[str]:
        """Every string that must never be shown: the secrets, and how the JVM's properties spell them."""
        plain = {v for k, v in self.properties.items() if k in SECRET_PROPERTIES and v}
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

        The manager's defaults hold for what the connection does not say.
        """
        self._require_files()
        mine = self.properties
        out: dict[str, object] = {
            name: (int(mine[key]) if number else mine[key]) for key, (name, _, number) in _SAME.items() if key in mine
        }
        if self.uses_tls:
            out["ssl_cafile"] = mine.get("ssl.ca.location")
            out["ssl_certfile"] = mine.get("ssl.certificate.location")
            out["ssl_keyfile"] = mine.get("ssl.key.location")
            out["ssl_password"] = mine.get("ssl.key.password")
            out["ssl_check_hostname"] = mine.get("ssl.endpoint.identification.algorithm", "https") == "https"
        if self.mechanism:
            out["sasl_mechanism"] = self.mechanism
        if self.mechanism in _PASSWORD_MECHANISMS:
            out["sasl_plain_username"] = self._username_on_the_wire()
            out["sasl_plain_password"] = mine["sasl.password"]
        elif self.mechanism == "OAUTHBEARER":
            from kafka_migration.clusters.oauth import ClientCredentialsTokens

            out["sasl_oauth_token_provider"] = ClientCredentialsTokens(
                url=mine["sasl.oauthbearer.token.endpoint.url"],
                client_id=mine["sasl.oauthbearer.client.id"],
                client_secret=mine["sasl.oauthbearer.client.secret"],
                scope=mine.get("sasl.oauthbearer.scope", ""),
                extension_pairs=self._oauth_extensions(),
            )
        return out

    def jvm(self) -> dict[str, str]:
        """Java client properties. A key that stands in a file of its own is inlined (the JVM wants key and
        certificate in one PEM file, or both as values): keep ``ssl.keystore.key`` out of logs like a password."""
        self._require_files()
        mine = self.properties
        out = {name: mine[key] for key, (_, name, _) in _SAME.items() if key in mine}
        if self.uses_tls:
            verify = mine.get("ssl.endpoint.identification.algorithm", "https")
            out["ssl.endpoint.identification.algorithm"] = "" if verify == "none" else verify
            if "ssl.ca.location" in mine:
                out |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": mine["ssl.ca.location"]}
            if "ssl.key.location" in mine:
                out |= pem.jvm_keystore(
                    self.conn_id,
                    certificate=Path(mine["ssl.certificate.location"]),
                    key=Path(mine["ssl.key.location"]),
                    password=mine.get("ssl.key.password", ""),
                )
        if self.mechanism in _PASSWORD_MECHANISMS:
            out["sasl.mechanism"] = self.mechanism
            out["sasl.jaas.config"] = jaas.entry(
                _PASSWORD_MECHANISMS[self.mechanism],
                {"username": mine["sasl.username"], "password": mine["sasl.password"]},
            )
        elif self.mechanism == "OAUTHBEARER":
            options = {
                "clientId": mine["sasl.oauthbearer.client.id"],
                "clientSecret": mine["sasl.oauthbearer.client.secret"],
                "scope": mine.get("sasl.oauthbearer.scope", ""),
            } | {f"extension_{name}": value for name, value in self._oauth_extensions().items()}
            out["sasl.mechanism"] = "OAUTHBEARER"
            out["sasl.oauthbearer.token.endpoint.url"] = mine["sasl.oauthbearer.token.endpoint.url"]
            out["sasl.login.callback.handler.class"] = _OAUTH_HANDLER
            out["sasl.jaas.config"] = jaas.entry(_OAUTH_MODULE, {k: v for k, v in options.items() if v})
        return out

    def jvm_system_properties(self) -> dict[str, str]:
        """What the JVM wants beside client properties: it asks only token endpoints that are allowed by name
        (KIP-1139's successor rule in 3.9.1 and 4.0). Holds no secret."""
        if self.mechanism != "OAUTHBEARER":
            return {}
        return {"org.apache.kafka.sasl.oauthbearer.allowed.urls": self.properties["sasl.oauthbearer.token.endpoint.url"]}

    def _username_on_the_wire(self) -> str:
        """RFC 5802, section 5.1: SCRAM writes "=" and "," in names as =3D and =2C. The other two clients do so
        themselves; kafka-python 3.0 sends the name as it is."""
        name = self.properties["sasl.username"]
        return name.replace("=", "=3D").replace(",", "=2C") if self.mechanism.startswith("SCRAM") else name

    def _oauth_extensions(self) -> dict[str, str]:
        pairs = self.properties.get("sasl.oauthbearer.extensions", "")
        return dict(pair.split("=", 1) for pair in pairs.split(",") if pair)

    def _require_files(self) -> None:
        for name in _FILES:
            path = self.properties.get(name)
            if path is not None:
                pem.require_readable(self.conn_id, name, Path(path))
        if "ssl.key.location" in self.properties and "ssl.key.password" not in self.properties:
            pem.require_unencrypted(self.conn_id, Path(self.properties["ssl.key.location"]))


def _normalised(conn_id: str, given: Mapping[str, object]) -> dict[str, str]:
    def bad(name: str, message: str, remedy: str) -> BadInput:
        # Never the value: the property may hold a secret under a misspelled name.
        return BadInput(message, file=f"connection {conn_id}", field=name, remedy=remedy)

    texts = {name: _text(value) for name, value in given.items() if value is not None}
    _drop_pem_type(texts, bad)
    properties: dict[str, str] = {}
    for written, value in texts.items():
        name = _ALIASES.get(written, written)
        if written in _DECIDED_HERE or written == "sasl.jaas.config":
            continue
        if name not in _KNOWN:
            raise bad(
                written,
                "this property cannot be translated to all of librdkafka, kafka-python and the JVM",
                _REMEDIES.get(written, "remove it from the connection, or check its spelling"),
            )
        if name in properties and properties[name] != value:
            raise bad(written, f"says something else than its synonym {name}", "keep one of the two")
        if re.search(r"[\x00-\x1f\x7f]", value):
            raise bad(written, "holds a control character (a line end, perhaps)", "remove it")
        # A blank around a host is a slip; inside a password it may be meant.
        properties[name] = value if name in SECRET_PROPERTIES else value.strip()
    if "sasl.jaas.config" in texts:
        _from_jaas(texts["sasl.jaas.config"], properties, bad)
    _check_values(properties, bad)
    return properties


Bad = Callable[[str, str, str], BadInput]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _drop_pem_type(texts: dict[str, str], bad: Bad) -> None:
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        kind = texts.pop(name, "PEM")
        if kind.upper() != "PEM":
            raise bad(name, f"{kind} is the JVM's own format", "convert the store to PEM files (keytool, openssl)")
    location = texts.get("ssl.truststore.location", "")
    if location.lower().endswith((".jks", ".p12", ".pfx")):
        raise bad("ssl.truststore.location", f"{location} is not a PEM file", "convert it to PEM (keytool, openssl)")


def _from_jaas(text: str, properties: dict[str, str], bad: Bad) -> None:
    options = jaas.options(text)
    if options is None or not {"username", "password"} <= options.keys():
        raise bad(
            "sasl.jaas.config",
            "only the user name and password of a PLAIN or SCRAM login module can be taken from it",
            "write sasl.username and sasl.password instead",
        )
    for name, option in (("sasl.username", "username"), ("sasl.password", "password")):
        if properties.setdefault(name, options[option]) != options[option]:
            raise bad(name, "says something else than sasl.jaas.config", "keep one of the two")


def _check_values(properties: dict[str, str], bad: Bad) -> None:
    servers = properties.get("bootstrap.servers", "")
    for server in servers.split(","):
        if not re.fullmatch(r"\s*(\[[0-9a-fA-F:.%]+\]|[^\s:/\[\],]+):\d{1,5}\s*", server):
            raise bad(
                "bootstrap.servers",
                f"{servers!r} is not a list of host:port" if servers else "missing",
                'write it as "host:9092" or "host1:9092,host2:9092"',
            )
    properties["bootstrap.servers"] = ",".join(server.strip() for server in servers.split(","))
    for name, (_, _, number) in _SAME.items():
        if number and name in properties and not properties[name].isdecimal():
            raise bad(name, f"{properties[name]!r} is not a number of milliseconds", "write it in digits")

    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    properties["security.protocol"] = protocol
    if protocol not in _PROTOCOLS:
        raise bad("security.protocol", f"{protocol!r} is unknown", f"use one of {', '.join(_PROTOCOLS)}")
    if protocol.endswith("SSL"):
        if ("ssl.certificate.location" in properties) != ("ssl.key.location" in properties):
            raise bad("ssl.certificate.location", "certificate and key belong together", "name both files, or neither")
        if properties.get("ssl.endpoint.identification.algorithm", "https") not in ("https", "none"):
            raise bad("ssl.endpoint.identification.algorithm", "unknown", 'use "https" or "none"')
    else:
        _require_none(properties, (*_SSL, "ssl.endpoint.identification.algorithm"), protocol, bad)
    if protocol.startswith("SASL"):
        _check_sasl(properties, bad)
    else:
        _require_none(properties, (*_SASL, *_OAUTH), protocol, bad)


def _require_none(properties: Mapping[str, str], names: tuple[str, ...], protocol: str, bad: Bad) -> None:
    # A password beside PLAINTEXT is a forgotten security.protocol: going on would try without it.
    for name in names:
        if name in properties:
            fix = "SASL_PLAINTEXT or SASL_SSL" if name.startswith("sasl") else "SSL or SASL_SSL"
            raise bad(name, f"has no meaning with security.protocol={protocol}", f"use {fix}, or remove it")


def _check_sasl(properties: dict[str, str], bad: Bad) -> None:
    mechanism = properties.get("sasl.mechanism", "").upper()
    supported = (*_PASSWORD_MECHANISMS, "OAUTHBEARER")
    if mechanism not in supported:
        raise bad(
            "sasl.mechanism",
            f"{mechanism!r} cannot be used by all three clients" if mechanism else "missing",
            f"use one of {', '.join(supported)}",
        )
    properties["sasl.mechanism"] = mechanism
    if mechanism in _PASSWORD_MECHANISMS:
        _require_none_of_oauth(properties, mechanism, bad)
        for name in ("sasl.username", "sasl.password"):
            if not properties.get(name):
                raise bad(name, f"missing, and {mechanism} needs it", "add it to the connection")
        return
    if properties.get("sasl.oauthbearer.method", "").lower() != "oidc":
        raise bad("sasl.oauthbearer.method", "only a token endpoint serves all three clients", 'set it to "oidc"')
    properties["sasl.oauthbearer.method"] = "oidc"
    for name in ("client.id", "client.secret", "token.endpoint.url"):
        if not properties.get(f"sasl.oauthbearer.{name}"):
            raise bad(f"sasl.oauthbearer.{name}", "missing, and the oidc method needs it", "add it to the connection")
    if not re.match(r"https?://", properties["sasl.oauthbearer.token.endpoint.url"]):
        raise bad("sasl.oauthbearer.token.endpoint.url", "not an http(s) address", "write https://…")
    for pair in filter(None, properties.get("sasl.oauthbearer.extensions", "").split(",")):
        if not re.fullmatch(r"[A-Za-z]+=.+", pair):
            raise bad("sasl.oauthbearer.extensions", "not a list of name=value", 'write "name=value,name=value"')


def _require_none_of_oauth(properties: Mapping[str, str], mechanism: str, bad: Bad) -> None:
    for name in _OAUTH:
        if name in properties:
            raise bad(name, f"has no meaning with sasl.mechanism={mechanism}", "use OAUTHBEARER, or remove it")
