"""A certificate authority of one run: it signs what brokers and clients show each other, and dies with the run."""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from demo.brokers.ports import HOST

_VALID_DAYS = 30


class Authority:
    """Writes PEM files into one directory, readable by this user only.

    ``ca.crt`` is what everybody trusts. For each issued name: ``<name>.crt``, ``<name>.key`` (PKCS#8, the only form
    that the JVM reads too), and ``<name>.pem`` with both, which is the key store that brokers take. The authority's
    own key is never written, so nothing can be signed once the process is gone.
    """

    def __init__(self, directory: Path) -> None:
        """Make the directory and the authority.

        Raises:
            FileExistsError: another authority has written here; its files and these would not belong together.
        """
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of this run")])
        self.ca = directory / "ca.crt"
        _write(self.ca, self._issue(self._name, self._key.public_key(), is_ca=True))

    def issue(self, name: str, *, password: str = "") -> None:
        """A certificate with the common name ``name``, and its key, locked with ``password`` if given.

        Raises:
            FileExistsError: the name has one already.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._issue(subject, key.public_key(), is_ca=False)
        lock = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        data = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)
        for ending, content in (("crt", certificate), ("key", data), ("pem", data + certificate)):
            _write(self.directory / f"{name}.{ending}", content)

    def client(self, name: str) -> dict[str, str]:
        """librdkafka properties of a client that shows the certificate of ``name``, issued at the first call."""
        if not (self.directory / f"{name}.crt").exists():
            self.issue(name)
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.ca),
            "ssl.certificate.location": str(self.directory / f"{name}.crt"),
            "ssl.key.location": str(self.directory / f"{name}.key"),
        }

    def _issue(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, is_ca: bool) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        names = [x509.IPAddress(ipaddress.ip_address(HOST)), x509.DNSName("localhost")]
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            # A clock that was set back a little must not keep everybody out.
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)


def _write(path: Path, content: bytes) -> None:
    # Never readable by others, not even for a moment.
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(content)
