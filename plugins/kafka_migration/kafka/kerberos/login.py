"""Who connects, and by which keytab: one login a connection, so that one process is another principal on each side.

MIT's library keeps tickets in a cache in memory that has the login's own name. It acquires them from the keytab when
they are first needed, and again when half of their life is over; so nothing has to be renewed from outside.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from typing import Any

import kafka.errors as kafka_errors
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI

from kafka_migration.domain.errors import BadInput

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
