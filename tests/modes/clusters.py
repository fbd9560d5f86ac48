"""A cluster with all ways in that a connection may have: four mechanisms of SASL over TLS, and certificates."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient

from demo.brokers import EmbeddedKafka, security
from demo.brokers.certificates import Authority
from tests.kafka.guarded import ALLOWED_URLS, CLIENT_ID, TokenEndpoint, add_scram_users, by_sasl, listener

USER, PASSWORD = "mover", 'pass,word="of" the mover'
CERTIFICATES = "mutual TLS"
MODES = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", CERTIFICATES)


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
        sasl = by_sasl(self.authority, self.endpoint, mode, USER, PASSWORD)
        return {"bootstrap.servers": self.kafka.bootstrap_servers, **sasl}


@contextmanager
def secured(name: str, authority: Authority, endpoint: TokenEndpoint) -> Iterator[Secured]:
    """One, while the block runs. Whoever has a certificate of ``authority``, or a token of ``endpoint``, gets in."""
    by_password = security.scram(authority, {})
    properties = {
        **by_password.properties,
        **{f"listener.name.client.{option}": value for option, value in listener(endpoint, {USER: PASSWORD}).items()},
        "super.users": f"{by_password.properties['super.users']};User:{USER};User:{CLIENT_ID}",
    }
    kafka = EmbeddedKafka(
        name=name,
        security=security.Security(properties=properties, admin=by_password.admin),
        # Where the brokers may fetch the keys of tokens from.
        jvm_options=[f"-D{ALLOWED_URLS}={endpoint.keys_url}"],
    )
    with kafka:
        add_scram_users(AdminClient({**kafka.admin_properties, "log_level": 0}), {USER: PASSWORD})
        yield Secured(kafka, authority, endpoint)


def authority_in(folder: Path) -> Authority:
    """Of the run's own."""
    return Authority(folder / "certificates")
