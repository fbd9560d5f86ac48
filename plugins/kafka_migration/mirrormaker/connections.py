"""How MirrorMaker's Java clients reach a cluster, as a connection that all clients of a migration understand."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kafka_migration.kafka import jaas
from kafka_migration.kafka.connections import KERBEROS, ClusterConnection
from kafka_migration.kafka.properties import MECHANISMS, SAME, SECRETS
from kafka_migration.mirrormaker.options import Counterpart, ignored, no_counterpart, not_needed, taken, to_do
from kafka_migration.plans.problems import without_user

#: Java's names of properties that mean the same everywhere, and librdkafka's.
_SAME = {java: ours for ours, (_, java, _) in SAME.items()}
_OAUTH = {
    "sasl.oauthbearer.token.endpoint.url": "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.scope": "sasl.oauthbearer.scope",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}
_OF_JAAS = {
    **jaas.PROPERTIES,
    "clientId": "sasl.oauthbearer.client.id",
    "clientSecret": "sasl.oauthbearer.client.secret",
    "scope": "sasl.oauthbearer.scope",
}
#: Options of Kerberos' login module that change nothing for who comes by a keytab.
_OF_KEYTABS = frozenset(
    {"useKeyTab", "storeKey", "doNotPrompt", "refreshKrb5Config", "useTicketCache", "renewTGT", "debug"}
)
_STORES = frozenset(
    f"ssl.{store}.{name}"
    for store, names in (
        ("truststore", ("location", "type", "password", "certificates")),
        ("keystore", ("location", "type", "password", "certificate.chain", "key")),
    )
    for name in names
)
_OTHERS = frozenset(
    {"security.protocol", "sasl.mechanism", "sasl.jaas.config", "sasl.login.callback.handler.class"}
    | {"sasl.kerberos.service.name"}
    | {"ssl.key.password", "ssl.endpoint.identification.algorithm"}
)
_TOKEN_HANDLER = re.compile(
    r"org\.apache\.kafka\.common\.security\.oauthbearer\.(secured\.)?OAuthBearerLoginCallbackHandler"
)
#: ${provider:path:key} and ${provider:key}, as Kafka's ConfigTransformer finds them.
PROVIDED = re.compile(r"\$\{[^}]*?:.*?\}")

_TO_PEM = {
    "truststore": "convert it: keytool -exportcert -rfc -keystore {store} -alias ALIAS -file ca.pem (for each alias);"
    " then write ssl.ca.location into the connection",
    "keystore": "convert it to PKCS#12 (keytool -importkeystore -srckeystore {store} -destkeystore k.p12 -deststoretype"
    " PKCS12), and that by openssl pkcs12 into two PEM files; then write ssl.certificate.location, ssl.key.location and"
    " ssl.key.password into the connection",
}


def is_connection_property(name: str) -> bool:
    """Whether this option of Java's clients becomes one of a connection."""
    return name in _SAME or name in _OAUTH or name in _STORES or name in _OTHERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A connection in librdkafka's names, and what became of each option of Java's; ``properties`` hold secrets."""

    conn_id: str
    properties: Mapping[str, str]
    counterparts: Mapping[str, Counterpart]

    @property
    def is_complete(self) -> bool:
        """Whether a person has nothing to write into it."""
        return not any(one.is_open for one in self.counterparts.values())

    def shown(self) -> dict[str, str]:
        """The properties, without secrets."""
        return {name: "<hidden>" if name in SECRETS else without_user(value) for name, value in self.properties.items()}


def connection(conn_id: str, given: Mapping[str, str]) -> Connection:
    """The connection of what is ``given``, by Java's names. Raises BadInput for what no client would take."""
    made = _Made(conn_id, given)
    for name, value in given.items():
        if is_connection_property(name):
            made.take(name, value)
    if made.properties.get("sasl.mechanism", "").upper() == "OAUTHBEARER":
        made.properties["sasl.oauthbearer.method"] = "oidc"
    found = Connection(conn_id=conn_id, properties=made.properties, counterparts=made.counterparts)
    if found.is_complete:
        # What is missing is said by the same checks that `check` would fail by.
        ClusterConnection(conn_id, found.properties)
    return found


class _Made:
    def __init__(self, conn_id: str, given: Mapping[str, str]) -> None:
        self.properties: dict[str, str] = {}
        self.counterparts: dict[str, Counterpart] = {}
        self._conn_id, self._given = conn_id, given

    def take(self, name: str, text: str) -> None:
        # As Kafka trims every value, of passwords, too.
        value = text.strip()
        protocol = self._given.get("security.protocol", "PLAINTEXT").strip().upper()
        kind = name.partition(".")[0]
        if not PROVIDED.search(protocol) and (
            (kind == "ssl" and not protocol.endswith("SSL")) or (kind == "sasl" and not protocol.startswith("SASL"))
        ):
            self.counterparts[name] = ignored(f"security.protocol of {self._conn_id} is {protocol}")
            return
        special: Mapping[str, Callable[[str], Counterpart]] = {
            "bootstrap.servers": self._servers,
            "sasl.jaas.config": self._from_jaas,
            "sasl.mechanism": self._mechanism,
            "sasl.login.callback.handler.class": self._token_handler,
            "ssl.endpoint.identification.algorithm": self._verification,
            "ssl.key.password": self._key_password,
        }
        if name in special:
            self.counterparts[name] = special[name](value)
        elif name in _STORES:
            self.counterparts[name] = self._from_store(name.split(".")[1], name, value)
        else:
            self.counterparts[name] = self._set(_SAME.get(name) or _OAUTH.get(name) or name, value)

    def _set(self, name: str, value: str) -> Counterpart:
        if PROVIDED.search(value):
            return to_do(f"the value comes from a config provider: write it into {self._conn_id}, as {name}")
        if name in SAME and SAME[name][2] and not value.isdecimal():
            return no_counterpart("is left to the clients' default")
        self.properties[name] = value
        return taken(f"{self._conn_id}: {name}")

    def _servers(self, value: str) -> Counterpart:
        # As Java's clients read them: a protocol before a host means nothing.
        hosts = [part.strip().rpartition("://")[2] for part in value.split(",") if part.strip()]
        return self._set("bootstrap.servers", ",".join(hosts))

    def _mechanism(self, value: str) -> Counterpart:
        if not PROVIDED.search(value) and value.upper() not in MECHANISMS:
            return no_counterpart(f"{value} is not supported: use one of {', '.join(MECHANISMS)}, or mutual TLS")
        taken_over = self._set("sasl.mechanism", value.upper())
        if value.upper() == KERBEROS and "sasl.jaas.config" not in self._given:
            return to_do(
                "the login stands in the JVM's own file (java.security.auth.login.config): write its principal and"
                f" keytab into {self._conn_id}, as sasl.kerberos.principal and sasl.kerberos.keytab"
            )
        return taken_over

    def _from_jaas(self, value: str) -> Counterpart:
        found = jaas.options(value, modules=jaas.PASSWORD_MODULES | {jaas.OAUTH_MODULE, jaas.KERBEROS_MODULE})
        known = {_OF_JAAS[name]: text for name, text in (found or {}).items() if name in _OF_JAAS}
        if found is None or not known:
            return no_counterpart(
                "only user name and password, client id and secret, or principal and keytab, can be taken from a login"
                " module"
            )
        if PROVIDED.search(value):
            return to_do(f"a value comes from a config provider: write {', '.join(known)} into {self._conn_id}")
        extensions = {n.removeprefix("extension_"): text for n, text in found.items() if n.startswith("extension_")}
        left = [n for n in found if n not in _OF_JAAS.keys() | _OF_KEYTABS and not n.startswith("extension_")]
        if left or any("," in text for text in extensions.values()):
            named = ", ".join([*left, *(f"extension_{n}" for n, text in extensions.items() if "," in text)])
            return no_counterpart(f"a connection has no {named}: write what it needs instead into {self._conn_id}")
        for name, text in known.items():
            self.properties.setdefault(name, text)
        if extensions:
            self.properties["sasl.oauthbearer.extensions"] = ",".join(f"{n}={text}" for n, text in extensions.items())
        return taken(f"{self._conn_id}: {', '.join(known)}")

    def _token_handler(self, value: str) -> Counterpart:
        if _TOKEN_HANDLER.fullmatch(value):
            return taken(f"{self._conn_id}: sasl.oauthbearer.method")
        return no_counterpart("tokens come from sasl.oauthbearer.token.endpoint.url, for a client id and its secret")

    def _verification(self, value: str) -> Counterpart:
        return self._set("ssl.endpoint.identification.algorithm", value.lower() or "none")

    def _key_password(self, value: str) -> Counterpart:
        if self._is_pem("keystore"):
            return self._set("ssl.key.password", value)
        return to_do("write the password of the PEM key into the connection, as ssl.key.password")

    def _is_pem(self, store: str) -> bool:
        return self._given.get(f"ssl.{store}.type", "JKS").strip().upper() == "PEM"

    def _from_store(self, store: str, name: str, value: str) -> Counterpart:
        part = name.removeprefix(f"ssl.{store}.")
        if part in ("certificates", "certificate.chain", "key"):
            ours = {"certificates": "ca", "certificate.chain": "certificate", "key": "key"}[part]
            return to_do(f"write it to a PEM file, and its path into {self._conn_id}, as ssl.{ours}.location")
        if part == "type":
            return taken("PEM is what connections take") if self._is_pem(store) else not_needed("see the location")
        if part == "password":
            return not_needed("PEM files of certificates have none")
        if not self._is_pem(store):
            return to_do(_TO_PEM[store].format(store=value))
        if store == "truststore":
            return self._set("ssl.ca.location", value)
        # One file holds both, as the JVM wants it.
        self._set("ssl.certificate.location", value)
        self._set("ssl.key.location", value)
        return taken(f"{self._conn_id}: ssl.certificate.location, ssl.key.location")
