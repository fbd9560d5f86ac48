"""A cluster that lets nobody in without TLS and credentials, with every mechanism that a connection may have.

Principals: ``admin`` may do everything; ``reader`` has what a test grants it; both have passwords that are awkward to
quote. Tokens are issued by a small endpoint that signs them for real.
"""

from __future__ import annotations

import json
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import jwt
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import rsa

from demo.brokers import EmbeddedKafka
from demo.brokers.certificates import Authority
from kafka_migration.kafka import jaas
from kafka_migration.kafka.connections import ClusterConnection

PASSWORDS = {"admin": "ad min\\,\"=;'", "reader": 're=ad,er\\\\"x'}
CLIENT_ID, CLIENT_SECRET = "token-client", "se/cr+et=of the client"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


class TokenEndpoint:
    """Issues signed tokens to one client, and tells the keys to verify them with. ``asked`` counts ``tokens``."""

    def __init__(self) -> None:
        self.asked = 0
        self.tokens: list[str] = []
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(200, endpoint.keys())

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                kind, _, given = self.headers.get("Authorization", "").partition(" ")
                known = b64decode(given).decode() == f"{CLIENT_ID}:{CLIENT_SECRET}" if kind == "Basic" else False
                if not known or form.get("grant_type") != ["client_credentials"]:
                    self.answer(401, {"error": "invalid_client"})
                    return
                endpoint.asked += 1
                self.answer(200, {"access_token": endpoint.token(), "token_type": "Bearer", "expires_in": 300})

            def answer(self, code: int, body: object) -> None:
                data = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Not on the terminal."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"
        self.keys_url = f"http://127.0.0.1:{self._server.server_port}/keys"

    def token(self) -> str:
        now = int(time.time())
        claims = {"sub": CLIENT_ID, "iat": now, "exp": now + 300, "scope": "kafka", "aud": "kafka"}
        self.tokens.append(jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": "one"}))
        return self.tokens[-1]

    def keys(self) -> dict[str, object]:
        numbers = self._key.public_key().public_numbers()

        def text(number: int) -> str:
            return urlsafe_b64encode(number.to_bytes((number.bit_length() + 7) // 8, "big")).rstrip(b"=").decode()

        key = {
            "kty": "RSA",
            "use": "sig",
            "alg": "RS256",
            "kid": "one",
            "n": text(numbers.n),
            "e": text(numbers.e),
        }
        return {"keys": [key]}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Guarded:
    """The running cluster, and connections to it."""

    def __init__(self, cluster: EmbeddedKafka, authority: Authority, endpoint: TokenEndpoint) -> None:
        self.cluster, self.authority, self.endpoint = cluster, authority, endpoint
        self.servers = cluster.bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": cluster.internal_servers})

    def properties(self, user: str = "admin", mechanism: str = "PLAIN", **changes: str) -> dict[str, str]:
        """Properties of a connection; ``changes`` with underscores for dots."""
        return {
            "bootstrap.servers": self.servers,
            **by_sasl(self.authority, self.endpoint, mechanism, user, PASSWORDS.get(user, "")),
            **{name.replace("_", "."): value for name, value in changes.items()},
        }

    def connection(self, user: str = "admin", mechanism: str = "PLAIN", **changes: str) -> ClusterConnection:
        return ClusterConnection("guarded", self.properties(user, mechanism, **changes))

    def certified(self, name: str, endings: tuple[str, str], **changes: str) -> ClusterConnection:
        """A connection with a certificate of its own, issued at the first call."""
        if not (self.authority.directory / f"{name}.crt").exists():
            self.authority.issue(name)
        certificate, key = (str(self.authority.directory / f"{name}.{ending}") for ending in endings)
        files = {"ssl_certificate_location": certificate, "ssl_key_location": key}
        return self.connection(**files, **changes)

    @contextmanager
    def granted(self, kind: ResourceType, resource: str, *operations: str, user: str = "reader") -> Iterator[None]:
        """``user`` may do ``operations`` meanwhile; ``resource`` is a prefix, except the cluster's own name."""
        pattern = ResourcePatternType.LITERAL if kind is ResourceType.BROKER else ResourcePatternType.PREFIXED
        bindings = [
            AclBinding(kind, resource, pattern, f"User:{user}", "*", AclOperation[operation], AclPermissionType.ALLOW)
            for operation in operations
        ]
        for future in self._admin.create_acls(bindings).values():
            future.result(30)
        try:
            yield
        finally:
            filters = [
                AclBindingFilter(
                    it.restype,
                    it.name,
                    it.resource_pattern_type,
                    it.principal,
                    it.host,
                    it.operation,
                    it.permission_type,
                )
                for it in bindings
            ]
            for future in self._admin.delete_acls(filters).values():
                future.result(30)

    def add_scram_users(self) -> None:
        add_scram_users(self._admin, {**PASSWORDS, "com,ma=x": "secret"})


def by_sasl(authority: Authority, endpoint: TokenEndpoint, mechanism: str, user: str, password: str) -> dict[str, str]:
    """librdkafka's properties of a client that comes by SASL over TLS, without servers. Tokens are those of the one
    client that ``endpoint`` knows."""
    sasl = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    if mechanism == "OAUTHBEARER":
        sasl = {
            "sasl.mechanism": mechanism,
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": CLIENT_ID,
            "sasl.oauthbearer.client.secret": CLIENT_SECRET,
            "sasl.oauthbearer.token.endpoint.url": endpoint.url,
        }
    return {"security.protocol": "SASL_SSL", "ssl.ca.location": str(authority.ca), **sasl}


def listener(endpoint: TokenEndpoint, passwords: Mapping[str, str]) -> dict[str, str]:
    """Properties of a listener that lets in whoever comes by any mechanism of SASL; ``passwords`` of PLAIN's users."""
    return {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "plain.sasl.jaas.config": jaas.entry(_PLAIN, {f"user_{user}": known for user, known in passwords.items()}),
        "scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
        "scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
        "oauthbearer.sasl.jaas.config": f"{_OAUTH} required;",
        "oauthbearer.sasl.server.callback.handler.class": "org.apache.kafka.common.security.oauthbearer"
        ".OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": endpoint.keys_url,
        "sasl.oauthbearer.expected.audience": "kafka",
    }


def add_scram_users(admin: AdminClient, passwords: Mapping[str, str]) -> None:
    """Of both kinds."""
    for user, password in passwords.items():
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            one = UserScramCredentialUpsertion(user, ScramCredentialInfo(kind, 4096), password.encode())
            for future in admin.alter_user_scram_credentials([one]).values():
                future.result(30)


@contextmanager
def guarded_cluster(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    """Start it, and end it."""
    authority, endpoint = Authority(directory), TokenEndpoint()
    authority.issue("broker")
    options = {
        **listener(endpoint, PASSWORDS),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.ca),
        "ssl.client.auth": "requested",
    }
    properties: dict[str, str | None] = {
        "listener.security.protocol.map": "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:admin;User:{CLIENT_ID};User:com,ma=x",
        **{f"listener.name.client.{name}": value for name, value in options.items()},
    }
    # The JVM fetches keys only from addresses that it was told of when it started.
    with monkeypatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-D{ALLOWED_URLS}={endpoint.keys_url}")
        cluster = EmbeddedKafka(name="guarded", properties=properties).start()
    try:
        guarded = Guarded(cluster, authority, endpoint)
        guarded.add_scram_users()
        yield guarded
    finally:
        cluster.stop()
        endpoint.close()
