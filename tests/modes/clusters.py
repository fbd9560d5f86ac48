"""A cluster with all ways in that a connection may have: five mechanisms of SASL over TLS, and certificates."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient

from demo.brokers import EmbeddedKafka, security
from demo.brokers.certificates import Authority
from demo.brokers.kdc import Kdc
from tests.kafka.guarded import ALLOWED_URLS, CLIENT_ID, TokenEndpoint, add_scram_users, by_sasl, listener

USER, PASSWORD = "mover", 'pass,word="of" the mover'
CERTIFICATES, KERBEROS = "mutual TLS", "GSSAPI"
MODES = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", CERTIFICATES, KERBEROS)


@dataclass(frozen=True)
class Secured:
    """A running cluster. ``admin`` are librdkafka's properties of who may do everything; so may each mode's user.

    By Kerberos, the user is ``principal``, which no other cluster knows.
    """

    kafka: EmbeddedKafka
    authority: Authority
    endpoint: TokenEndpoint
    kdc: Kdc | None
    principal: str

    @property
    def admin(self) -> Mapping[str, str]:
        return self.kafka.admin_properties

    def properties(self, mode: str) -> dict[str, str]:
        """Of a connection."""
        if mode == CERTIFICATES:
            # The listener that wants certificates.
            return {"bootstrap.servers": self.kafka.internal_servers, **self.authority.client(USER)}
        if mode == KERBEROS:
            assert self.kdc is not None, "without a KDC"
            by_ticket = security.kerberos_client(self.kdc, self.principal, "SASL_SSL")
            ca = {"ssl.ca.location": str(self.authority.ca)}
            return {"bootstrap.servers": self.kafka.bootstrap_servers, **by_ticket, **ca}
        sasl = by_sasl(self.authority, self.endpoint, mode, USER, PASSWORD)
        return {"bootstrap.servers": self.kafka.bootstrap_servers, **sasl}


@contextmanager
def secured(name: str, authority: Authority, endpoint: TokenEndpoint, kdc: Kdc | None = None) -> Iterator[Secured]:
    """One, while the block runs. Whoever has a certificate of ``authority``, a token of ``endpoint``, or a ticket of
    ``kdc``, gets in."""
    by_password, principal = security.scram(authority, {}), f"{USER}-of-the-{name}"
    by_others = listener(endpoint, {USER: PASSWORD})
    if kdc is not None:
        enabled = by_others["sasl.enabled.mechanisms"]
        by_others |= security.kerberos_listener(kdc) | {"sasl.enabled.mechanisms": f"{enabled},{KERBEROS}"}
    users = (USER, CLIENT_ID, principal)
    properties = {
        **by_password.properties,
        **{f"listener.name.client.{option}": value for option, value in by_others.items()},
        "super.users": ";".join([by_password.properties["super.users"], *(f"User:{user}" for user in users)]),
    }
    kafka = EmbeddedKafka(
        name=name,
        security=security.Security(properties=properties, admin=by_password.admin),
        # Where the brokers may fetch the keys of tokens from.
        jvm_options=[f"-D{ALLOWED_URLS}={endpoint.keys_url}", *([kdc.jvm_option] if kdc is not None else [])],
    )
    with kafka:
        add_scram_users(AdminClient({**kafka.admin_properties, "log_level": 0}), {USER: PASSWORD})
        yield Secured(kafka, authority, endpoint, kdc, principal)


def authority_in(folder: Path) -> Authority:
    """Of the run's own."""
    return Authority(folder / "certificates")
