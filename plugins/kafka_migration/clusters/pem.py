"""PEM files as the three clients want them: librdkafka and kafka-python by name, the JVM partly by content."""

from __future__ import annotations

from pathlib import Path

from kafka_migration.domain.errors import BadInput


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


def require_unencrypted(conn_id: str, key: Path) -> None:
    """Raises BadInput if ``key`` needs a password: OpenSSL would ask for it on the terminal and wait."""
    if "ENCRYPTED" in _text(conn_id, "ssl.key.location", key):
        raise _bad(
            conn_id, "ssl.key.password", f"missing, and {key} is encrypted", "add it to the connection"
        )


def jvm_keystore(conn_id: str, *, certificate: Path, key: Path, password: str) -> dict[str, str]:
    """The JVM's key store properties (KIP-651) for PEM files.

    One file for both is passed by name; two are inlined. Raises BadInput for a key that is not PKCS#8.
    """
    text = _text(conn_id, "ssl.key.location", key)
    if "BEGIN PRIVATE KEY" not in text and "BEGIN ENCRYPTED PRIVATE KEY" not in text:
        raise _bad(
            conn_id,
            "ssl.key.location",
            f"{key} holds no PKCS#8 key, and the JVM reads no other kind",
            "convert it: openssl pkcs8 -topk8 -in OLD -out NEW",
        )
    out = {"ssl.keystore.type": "PEM"}
    if certificate == key:
        out["ssl.keystore.location"] = str(key)
    else:
        out["ssl.keystore.certificate.chain"] = _text(conn_id, "ssl.certificate.location", certificate)
        out["ssl.keystore.key"] = text
    if password:
        out["ssl.key.password"] = password
    return out


def _text(conn_id: str, name: str, path: Path) -> str:
    require_readable(conn_id, name, path)
    return path.read_text(encoding="utf-8", errors="replace")
