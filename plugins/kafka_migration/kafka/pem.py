"""PEM files as the three clients want them: librdkafka and kafka-python by name, the JVM partly by content."""

from __future__ import annotations

import base64
import re
from pathlib import Path

from kafka_migration.domain.errors import BadInput

_KEY = re.compile(r"-----BEGIN (?P<locked>ENCRYPTED )?PRIVATE KEY-----(?P<body>[A-Za-z0-9+/=\s]*)-----END", re.ASCII)
#: Object identifier 1.2.840.113549.1.5.13 in DER (RFC 8018, appendix A.4).
_PBES2 = bytes.fromhex("06092a864886f70d01050d")


def _bad(conn_id: str, name: str, message: str, remedy: str) -> BadInput:
    return BadInput(message, file=f"connection {conn_id}", field=name, remedy=remedy)


def require_readable(conn_id: str, name: str, path: Path) -> None:
    """Raises BadInput unless ``path`` can be read here: the clients' own messages do not name the property."""
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise _bad(
            conn_id,
            name,
            f"cannot read {path} ({error.strerror or type(error).__name__})",
            "the file must exist, readable, on every machine of the migration: here and on Spark's workers",
        ) from None


def require_usable_key(conn_id: str, key: Path, *, has_password: bool) -> None:
    """Raises BadInput for a key that one of the three clients cannot read: its own message would be obscure."""
    text = _text(conn_id, "ssl.key.location", key)
    block = _KEY.search(text)
    if block is None:
        raise _bad(
            conn_id,
            "ssl.key.location",
            f"{key} holds no PKCS#8 key, and the JVM reads no other kind",
            "convert it: openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in OLD -out NEW (or with -nocrypt)",
        )
    if not block["locked"]:
        return
    if not has_password:
        # OpenSSL would ask for it on the terminal, and wait.
        raise _bad(conn_id, "ssl.key.password", f"missing, and {key} is encrypted", "add it to the connection")
    if _PBES2 in base64.b64decode(block["body"])[:64]:
        raise _bad(
            conn_id,
            "ssl.key.location",
            f"{key} is encrypted by PBES2, which Kafka's client cannot open before Java 19",
            "convert it: openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in OLD -out NEW (or with -nocrypt)",
        )


def jvm_keystore(conn_id: str, *, certificate: Path, key: Path, password: str) -> dict[str, str]:
    """The JVM's key store properties (KIP-651) for PEM files: one file for both is passed by name, two are inlined."""
    out = {"ssl.keystore.type": "PEM"}
    if certificate == key:
        out["ssl.keystore.location"] = str(key)
    else:
        out["ssl.keystore.certificate.chain"] = _text(conn_id, "ssl.certificate.location", certificate)
        out["ssl.keystore.key"] = _text(conn_id, "ssl.key.location", key)
    if password:
        out["ssl.key.password"] = password
    return out


def _text(conn_id: str, name: str, path: Path) -> str:
    require_readable(conn_id, name, path)
    return path.read_text(encoding="utf-8", errors="replace")
