"""Which properties a connection may have, and what must hold among them: before anything is translated.

Everything else is refused by name. A value is never quoted when its property is unknown: it may be a secret under a
misspelled name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from kafka_migration.domain.errors import BadInput
from kafka_migration.kafka import jaas

Bad = Callable[[str, str, str], BadInput]

SECRETS = frozenset({"sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret"})
PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (*PASSWORD_MECHANISMS, "OAUTHBEARER", "GSSAPI")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "sasl.kerberos.keytab")

#: librdkafka name -> (kafka-python name, JVM name, is a number), where the meaning is simply the same.
SAME: dict[str, tuple[str, str, bool]] = {
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
_SASL = ("sasl.mechanism", "sasl.username", "sasl.password")
_OAUTH = tuple(
    f"sasl.oauthbearer.{name}"
    for name in ("method", "client.id", "client.secret", "token.endpoint.url", "scope", "extensions")
)
_KERBEROS = tuple(f"sasl.kerberos.{name}" for name in ("principal", "keytab", "service.name"))
_KNOWN = frozenset((*SAME, *_SSL, *_SASL, *_OAUTH, *_KERBEROS, "ssl.endpoint.identification.algorithm"))
#: The mechanisms by which a property means something.
_MEANT_FOR: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_OAUTH, ("OAUTHBEARER",)),
    **dict.fromkeys(_KERBEROS, ("GSSAPI",)),
    **dict.fromkeys(("sasl.username", "sasl.password"), (*PASSWORD_MECHANISMS, "OAUTHBEARER")),
}

#: Names that Java users write, and old librdkafka names.
_ALIASES = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanisms": "sasl.mechanism",
    "request.timeout.ms": "socket.timeout.ms",
    "ssl.truststore.location": "ssl.ca.location",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}

#: Properties that a connection may have, but that every client of a migration decides for itself.
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
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
    }
)

#: What all three clients do anyway.
_AS_EVER = frozenset(
    {
        ("enable.ssl.certificate.verification", "true"),
        ("socket.keepalive.enable", "true"),
        ("allow.auto.create.topics", "false"),
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
    "sasl.kerberos.kinit.cmd": "remove it: tickets are acquired from sasl.kerberos.keytab, and again before they end",
    "oauth_cb": "a function cannot be handed to Spark; use sasl.oauthbearer.method=oidc with a token endpoint",
    "sasl.oauthbearer.config": "use sasl.oauthbearer.method=oidc with a token endpoint",
}


def is_property(name: str) -> bool:
    """Whether a connection may have it, by librdkafka's name or one that means the same."""
    return name in _KNOWN or name in _ALIASES


def normalised(conn_id: str, given: Mapping[str, object]) -> dict[str, str]:
    """``given`` under librdkafka's names, values as text. Raises BadInput with property and remedy."""

    def bad(name: str, message: str, remedy: str) -> BadInput:
        return BadInput(message, file=f"connection {conn_id}", field=name, remedy=remedy)

    texts = {name: _text(value) for name, value in given.items() if value is not None}
    _drop_pem_type(texts, bad)
    login = texts.pop("sasl.jaas.config", None)
    properties: dict[str, str] = {}
    for written, value in texts.items():
        if written in _DECIDED_HERE or (written, value.lower()) in _AS_EVER:
            continue
        name = _ALIASES.get(written, written)
        _require_usable(written, name, value, properties.get(name, value), bad)
        # A blank around a host is a slip; inside a password it may be meant.
        properties[name] = value if name in SECRETS else value.strip()
    if login is not None:
        _from_jaas(login, properties, bad)
    _check_servers(properties, bad)
    _check_numbers(properties, bad)
    _check_security(properties, bad)
    return properties


def _require_usable(written: str, name: str, value: str, synonym: str, bad: Bad) -> None:
    """``synonym`` is what the same property has under another of its names."""
    if name not in _KNOWN:
        raise bad(
            written,
            "this property cannot be translated to all of librdkafka, kafka-python and the JVM",
            _REMEDIES.get(written, "remove it from the connection, or check its spelling"),
        )
    if synonym != value:
        raise bad(written, f"differs from its synonym {name}", "keep one of the two")
    if re.search(r"[\x00-\x1f\x7f]", value):
        raise bad(written, "holds a control character (a line end, perhaps)", "remove it")


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
    options = jaas.options(text, modules=jaas.PASSWORD_MODULES | {jaas.KERBEROS_MODULE}) or {}
    found = {name: options[option] for option, name in jaas.PROPERTIES.items() if option in options}
    if not {"sasl.username", "sasl.password"} <= found.keys() and not found.keys() >= {*_KERBEROS[:2]}:
        raise bad(
            "sasl.jaas.config",
            "only user name and password (PLAIN, SCRAM), or principal and keyTab (Kerberos), can be taken from it",
            "write sasl.username and sasl.password, or sasl.kerberos.principal and sasl.kerberos.keytab, instead",
        )
    for name, value in found.items():
        if properties.setdefault(name, value) != value:
            raise bad(name, "differs from sasl.jaas.config", "keep one of the two")


def _check_servers(properties: dict[str, str], bad: Bad) -> None:
    servers = properties.get("bootstrap.servers", "")
    for server in servers.split(","):
        if not re.fullmatch(r"\s*(\[[0-9a-fA-F:.%]+\]|[^\s:/\[\],]+):\d{1,5}\s*", server):
            raise bad(
                "bootstrap.servers",
                f"{servers!r} is not a list of host:port" if servers else "missing",
                'write it as "host:9092" or "host1:9092,host2:9092"',
            )
    properties["bootstrap.servers"] = ",".join(server.strip() for server in servers.split(","))


def _check_numbers(properties: Mapping[str, str], bad: Bad) -> None:
    for name, (_, _, number) in SAME.items():
        if number and name in properties and not properties[name].isdecimal():
            raise bad(name, f"{properties[name]!r} is not a number of milliseconds", "write it in digits")


def _check_security(properties: dict[str, str], bad: Bad) -> None:
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    properties["security.protocol"] = protocol
    if protocol not in PROTOCOLS:
        raise bad("security.protocol", f"{protocol!r} is unknown", f"use one of {', '.join(PROTOCOLS)}")
    if protocol.endswith("SSL"):
        _check_tls(properties, bad)
    else:
        _require_none(properties, (*_SSL, "ssl.endpoint.identification.algorithm"), protocol, bad)
    if protocol.startswith("SASL"):
        _check_sasl(properties, bad)
    else:
        _require_none(properties, (*_SASL, *_OAUTH, *_KERBEROS), protocol, bad)


def _check_tls(properties: Mapping[str, str], bad: Bad) -> None:
    if ("ssl.certificate.location" in properties) != ("ssl.key.location" in properties):
        raise bad("ssl.certificate.location", "certificate and key belong together", "name both files, or neither")
    if properties.get("ssl.endpoint.identification.algorithm", "https") not in ("https", "none"):
        raise bad("ssl.endpoint.identification.algorithm", "unknown", 'use "https" or "none"')


def _require_none(properties: Mapping[str, str], names: tuple[str, ...], protocol: str, bad: Bad) -> None:
    # A password beside PLAINTEXT is a forgotten security.protocol: going on would try without it.
    for name in names:
        if name in properties:
            fix = "SASL_PLAINTEXT or SASL_SSL" if name.startswith("sasl") else "SSL or SASL_SSL"
            raise bad(name, f"has no meaning with security.protocol={protocol}", f"use {fix}, or remove it")


def _check_sasl(properties: dict[str, str], bad: Bad) -> None:
    mechanism = properties.get("sasl.mechanism", "").upper()
    if mechanism not in MECHANISMS:
        raise bad(
            "sasl.mechanism",
            f"{mechanism!r} cannot be used by all three clients" if mechanism else "missing",
            f"use one of {', '.join(MECHANISMS)}",
        )
    properties["sasl.mechanism"] = mechanism
    _require_none_of_others(properties, mechanism, bad)
    if mechanism == "OAUTHBEARER":
        _check_oauth(properties, bad)
    elif mechanism == "GSSAPI":
        _check_kerberos(properties, bad)
    else:
        _require(properties, ("sasl.username", "sasl.password"), mechanism, bad)


def _require(properties: Mapping[str, str], names: tuple[str, ...], mechanism: str, bad: Bad) -> None:
    for name in names:
        if not properties.get(name):
            raise bad(name, f"missing, and {mechanism} needs it", "add it to the connection")


def _check_kerberos(properties: dict[str, str], bad: Bad) -> None:
    _require(properties, _KERBEROS[:2], "GSSAPI", bad)
    keytab = properties["sasl.kerberos.keytab"].removeprefix("FILE:")
    if not keytab.startswith("/"):
        raise bad("sasl.kerberos.keytab", f"{keytab} is no absolute path", "processes start in folders of their own")
    properties["sasl.kerberos.keytab"] = keytab
    # As librdkafka and most brokers have it.
    properties.setdefault("sasl.kerberos.service.name", "kafka")


def _check_oauth(properties: dict[str, str], bad: Bad) -> None:
    if properties.get("sasl.oauthbearer.method", "").lower() != "oidc":
        raise bad("sasl.oauthbearer.method", "only a token endpoint serves all three clients", 'set it to "oidc"')
    properties["sasl.oauthbearer.method"] = "oidc"
    for name in ("client.id", "client.secret", "token.endpoint.url"):
        if not properties.get(f"sasl.oauthbearer.{name}"):
            raise bad(f"sasl.oauthbearer.{name}", "missing, and the oidc method needs it", "add it to the connection")
    _check_endpoint(properties["sasl.oauthbearer.token.endpoint.url"], bad)
    for pair in filter(None, properties.get("sasl.oauthbearer.extensions", "").split(",")):
        if not re.fullmatch(r"[A-Za-z]+=.+", pair):
            raise bad("sasl.oauthbearer.extensions", "not a list of name=value", 'write "name=value,name=value"')


def _check_endpoint(url: str, bad: Bad) -> None:
    name = "sasl.oauthbearer.token.endpoint.url"
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise bad(name, "not an address", "write https://…") from None
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc:
        raise bad(name, "not an http(s) address", "write https://…, without a user")
    if parts.scheme == "http" and not is_loopback(host):
        raise bad(
            name,
            f"the client's secret would cross the network to {host} in clear",
            "use https (http will do for a server of this machine: 127.0.0.1, ::1 or localhost)",
        )


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this very machine, by its name or number."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _require_none_of_others(properties: Mapping[str, str], mechanism: str, bad: Bad) -> None:
    for name, mechanisms in _MEANT_FOR.items():
        if name in properties and mechanism not in mechanisms:
            raise bad(
                name, f"has no meaning with sasl.mechanism={mechanism}", f"use {', '.join(mechanisms)}, or remove it"
            )
