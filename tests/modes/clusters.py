"""A cluster with all ways in that a connection may have: four mechanisms of SASL over TLS, and certificates."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from demo.brokers import EmbeddedKafka, security
from demo.brokers.certificates import Authority
from kafka_migration.kafka import jaas
from tests.kafka.guarded import ALLOWED_URLS, CLIENT_ID, CLIENT_SECRET, TokenEndpoint

USER, PASSWORD = "mover", 'pass,word="of" the mover'
CERTIFICATES = "mutual TLS"
MODES = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", CERTIFICATES)
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@dataclass(frozen=True)
class Secured:
    """A running cluster. ``admin`` are librdkafka's properties of who may do everything; so may each mode's user."""

    kafka: EmbeddedKafka
    authority: Authority
    endpoint: TokenEndpoint

    @property
    def admin(self) -> Mapping[str, str]:
        return self.kafka.admin_properties

    def properties(self, mode: str) -> dict[str, str]:
        """Of a connection."""
        if mode == CERTIFICATES:
            # The listener that wants certificates.
            return {"bootstrap.servers": self.kafka.internal_servers, **self.authority.client(USER)}
        found = {
            "bootstrap.servers": self.kafka.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.ca),
            "sasl.mechanism": mode,
        }
        if mode == "OAUTHBEARER":
            return found | {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": CLIENT_ID,
                "sasl.oauthbearer.client.secret": CLIENT_SECRET,
                "sasl.oauthbearer.token.endpoint.url": self.endpoint.url,
            }
        return found | {"sasl.username": USER, "sasl.password": PASSWORD}


@contextmanager
def secured(name: str, authority: Authority, endpoint: TokenEndpoint) -> Iterator[Secured]:
    """One, while the block runs. Whoever has a certificate of ``authority``, or a token of ``endpoint``, gets in."""
    by_password = security.scram(authority, {})
    listener = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "plain.sasl.jaas.config": jaas.entry(_PLAIN, {f"user_{USER}": PASSWORD}),
        "scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
        "oauthbearer.sasl.jaas.config": f"{_OAUTH} required;",
        "oauthbearer.sasl.server.callback.handler.class": "org.apache.kafka.common.security.oauthbearer"
        ".OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": endpoint.keys_url,
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    properties = {
        **by_password.properties,
        **{f"listener.name.client.{option}": value for option, value in listener.items()},
        "super.users": f"{by_password.properties['super.users']};User:{USER};User:{CLIENT_ID}",
    }
    kafka = EmbeddedKafka(
        name=name,
        security=security.Security(properties=properties, admin=by_password.admin),
        # Where the brokers may fetch the keys of tokens from.
        jvm_options=[f"-D{ALLOWED_URLS}={endpoint.keys_url}"],
    )
    with kafka:
        admin = AdminClient({**kafka.admin_properties, "log_level": 0})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            wanted = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            for future in admin.alter_user_scram_credentials([wanted]).values():
                future.result(30)
        yield Secured(kafka, authority, endpoint)


def authority_in(folder: Path) -> Authority:
    """Of the run's own."""
    return Authority(folder / "certificates")
