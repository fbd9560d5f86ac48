"""What kafka-python lacks for SASL: tokens for OAUTHBEARER from an endpoint, and Kerberos by keytab.

Tokens: librdkafka (``sasl.oauthbearer.method=oidc``) and the JVM (KIP-768) fetch them themselves, by the client
credentials grant of RFC 6749, section 4.4; this is the same grant, so that one connection serves all three.

Kerberos: one login a connection, so that one process is another principal on each side. MIT's library keeps tickets in
a cache in memory that has the login's own name. It acquires them from the keytab when they are first needed, and again
when half of their life is over; so nothing has to be renewed from outside.

Executors unpickle both, and carry no confluent-kafka.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any

import kafka.errors as kafka_errors
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI
from kafka.net.sasl.oauth import AbstractTokenProvider

from kafka_migration.domain.errors import BadInput, CouldNotFindOut

#: A token is renewed once this share of its life is over: the JVM's sasl.login.refresh.window.factor.
_REFRESH_AFTER = 0.8
_TIMEOUT_SECONDS = 10.0
_TO_INSTALL = (
    "install it where commands, Airflow's tasks and triggers, and Spark's driver and executors run: pip install"
    " 'kafka-migration[kerberos]' (builds against libkrb5-dev, or krb5-devel)"
)
#: The library's numbers (krb5_err.et) as GSSAPI shows them, and what to do about each.
_REMEDIES = {
    2529638918: "the KDC does not know the principal: correct sasl.kerberos.principal, or have it made",
    2529638919: "the KDC does not know the broker: check sasl.kerberos.service.name, and the brokers' names",
    2529638936: "the keytab is older than the principal's keys: export it again",
    2529638943: "the keytab is older than the principal's keys: export it again",
    2529638949: "set this machine's clock right",
    2529639066: "name the realm's KDC in krb5.conf (KRB5_CONFIG)",
    2529639068: "check that the KDC runs, and its address in krb5.conf (KRB5_CONFIG)",
}
#: Worth another try: the KDC cannot be reached just now.
_PASSING = frozenset({2529639066, 2529639068})
#: Two threads that fill one cache at once would each empty it for the other.
_lock = threading.Lock()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Whoever follows a redirect sends the client's secret on to wherever it points."""

    def redirect_request(self, *_request: object) -> None:
        return None


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ClientCredentialsTokens(AbstractTokenProvider):  # type: ignore[misc]
    """Fetches and renews access tokens. Picklable: a task that gets it fetches a token of its own."""

    url: str
    client_id: str
    client_secret: str
    scope: str = ""
    extension_pairs: dict[str, str] = field(default_factory=dict)
    _token: str = ""
    _renew_at: float = 0.0

    def __repr__(self) -> str:
        return f"ClientCredentialsTokens(url={self.url!r}, client_id={self.client_id!r})"

    def __getstate__(self) -> dict[str, object]:
        names = ("url", "client_id", "client_secret", "scope", "extension_pairs")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, object]) -> None:
        for name, value in {**state, "_token": "", "_renew_at": 0.0}.items():
            setattr(self, name, value)

    def token(self) -> str:
        """A token that is still good for a while. Raises BadInput if the endpoint refuses the client,
        CouldNotFindOut if it does not answer."""
        if time.monotonic() >= self._renew_at:
            self._fetch()
        return self._token

    def extensions(self) -> dict[str, str]:
        return self.extension_pairs

    def _fetch(self) -> None:
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        basic = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        request = urllib.request.Request(
            self.url,
            data=urllib.parse.urlencode(form).encode(),
            headers={"Authorization": f"Basic {basic}", "Accept": "application/json"},
        )
        asked = time.monotonic()
        try:
            # By no proxy of the environment: in clear, one would read the secret.
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)
            with opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
                answer = json.load(response)
            self._token = str(answer["access_token"])
            self._renew_at = asked + _REFRESH_AFTER * float(answer.get("expires_in", 0))
        except urllib.error.HTTPError as error:
            if error.code in (400, 401, 403):
                raise BadInput(
                    f"the token endpoint {self.url} refused the client {self.client_id!r} (HTTP {error.code})",
                    field="sasl.oauthbearer.client.id",
                    remedy="check the client id, its secret and its scope in the connection",
                ) from None
            if error.code in (301, 302, 303, 307, 308):
                raise BadInput(
                    f"the token endpoint {self.url} redirects elsewhere (HTTP {error.code}), and the client's secret is"
                    " sent nowhere else",
                    field="sasl.oauthbearer.token.endpoint.url",
                    remedy="write the address of the token endpoint itself into the connection",
                ) from None
            raise CouldNotFindOut(f"the token endpoint {self.url} answered HTTP {error.code}") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CouldNotFindOut(
                f"no token from {self.url} ({type(error).__name__})",
                remedy="check sasl.oauthbearer.token.endpoint.url, and that it answers with an access_token",
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class KerberosLogin:
    """Picklable, and no secret: the keys are in the keytab, which each machine reads for itself."""

    principal: str
    keytab: str
    service: str

    def __str__(self) -> str:
        return f"{self.principal} by {self.keytab}"

    def require_usable(self, conn_id: str) -> None:
        """Raises BadInput if the keytab has no key of the principal, or the library is missing. Asks no KDC."""
        gssapi = _library(conn_id)
        try:
            # As who accepts, for which the key is all that is needed.
            gssapi.Credentials(name=self._name(), usage="accept", store={"keytab": self.keytab})
        except gssapi.exceptions.GSSError as error:
            raise BadInput(
                f"{self.keytab} has no key of {self.principal} ({_why(error)})",
                file=f"connection {conn_id}",
                field="sasl.kerberos.keytab",
                remedy="klist -k shows whose keys it has: correct sasl.kerberos.principal (without @REALM, krb5.conf's"
                " default_realm counts), or export another keytab",
            ) from None

    def context(self, host: str) -> Any:
        """The beginning of a conversation with the broker on ``host``, with tickets that are good for a while. Raises
        GSSError."""
        import gssapi

        service = gssapi.Name(f"{self.service}@{host}", gssapi.NameType.hostbased_service)
        store = {"client_keytab": self.keytab, "ccache": f"MEMORY:kafka-migration-{self._digest()}"}
        credentials = gssapi.Credentials(name=self._name(), usage="initiate", store=store)
        return gssapi.SecurityContext(
            name=service.canonicalize(gssapi.MechType.kerberos), creds=credentials, usage="initiate"
        )

    def _name(self) -> Any:
        import gssapi

        return gssapi.Name(self.principal, gssapi.NameType.kerberos_principal)

    def _digest(self) -> str:
        return hashlib.sha256(f"{self.principal}\0{self.keytab}".encode()).hexdigest()[:16]


class Kerberos(SaslMechanismGSSAPI):  # type: ignore[misc]
    """As its base, which knows only the process's own tickets, but as a :class:`KerberosLogin`.

    Raises kafka-python's errors: SaslAuthenticationFailedError for what another try does not mend, KafkaConnectionError
    where no KDC can be reached.
    """

    def __init__(self, *, host: str, sasl_kerberos_name: KerberosLogin, **_config: Any) -> None:
        import gssapi

        self._is_done = self._is_authenticated = False
        # Whom to act for: nobody but the principal itself.
        self.auth_id = ""
        try:
            with _lock:
                self._client_ctx = sasl_kerberos_name.context(host)
                self._next_token = self._client_ctx.step(None)
        except gssapi.exceptions.GSSError as error:
            raise _as_kafkas(error, f"{sasl_kerberos_name}, to {sasl_kerberos_name.service} on {host}") from None

    def receive(self, auth_bytes: bytes) -> None:
        """As its base."""
        import gssapi

        try:
            super().receive(auth_bytes)
        except gssapi.exceptions.GSSError as error:
            raise _as_kafkas(error, "the broker's answer") from None


def _library(conn_id: str) -> Any:
    try:
        import gssapi
    except (ImportError, OSError) as error:
        raise BadInput(
            f"GSSAPI needs the Python package gssapi ({error})",
            file=f"connection {conn_id}",
            field="sasl.mechanism",
            remedy=_TO_INSTALL,
        ) from None
    return gssapi


def _why(error: Any) -> str:
    """The mechanism's own text, without GSSAPI's general one."""
    texts = error.get_all_statuses(error.min_code, False)
    return "; ".join(text.decode(errors="replace") if isinstance(text, bytes) else str(text) for text in texts)


def _as_kafkas(error: Any, who: str) -> kafka_errors.KafkaError:
    code = error.min_code & 0xFFFFFFFF
    remedy = f"; {_REMEDIES[code]}" if code in _REMEDIES else ""
    kind = kafka_errors.KafkaConnectionError if code in _PASSING else kafka_errors.SaslAuthenticationFailedError
    return kind(f"Kerberos: {who}: {_why(error)}{remedy}")


register_sasl_mechanism("GSSAPI", Kerberos, overwrite=True)
