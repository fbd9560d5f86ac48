"""The approval key: with it answers are signed, so that whoever may write to the journal cannot make one up.

The key is looked for in the file that KAFKA_MIGRATION_APPROVAL_KEYS_FILE names, else in the password of the connection
``kafka_migration_approvals``, found as every connection is. It may be several keys, one a line: the first one signs,
and what any of them has signed holds (docs/security.md, Approvals).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_migration.domain.errors import BadInput
from kafka_migration.kafka.lookup import find_password, variable_of
from kafka_migration.plans.places import APPROVALS_CONNECTION

FILE_VARIABLE = "KAFKA_MIGRATION_APPROVAL_KEYS_FILE"
HOW_TO_SET = f"name the file that holds it in {FILE_VARIABLE} (docs/security.md, Approvals)"

_SCHEME = "hmac-sha256"
_LEAST_CHARACTERS = 32


@dataclass(frozen=True, slots=True)
class Keyring:
    """Keys that answers are signed with; the first one signs. Raises BadInput for one that can be guessed."""

    keys: tuple[str, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if any(len(key) < _LEAST_CHARACTERS for key in self.keys):
            raise BadInput(
                f"an approval key has fewer than {_LEAST_CHARACTERS} characters",
                remedy="make one with: openssl rand -hex 32",
            )

    def __bool__(self) -> bool:
        return bool(self.keys)

    def sign(self, value: Mapping[str, Any]) -> str:
        """The signature of ``value``, of JSON types, by the first key. Raises ValueError without keys."""
        if not self.keys:
            raise ValueError("there is no key to sign with")
        return _signed(self.keys[0], value)

    def has_signed(self, signature: str, value: Mapping[str, Any]) -> bool:
        """Whether one of the keys has signed exactly ``value``."""
        return any(hmac.compare_digest(signature.encode(), _signed(key, value).encode()) for key in self.keys)

    def knows(self, signature: str) -> bool:
        """Whether ``signature`` names one of the keys, whatever was signed."""
        return any(signature.startswith(f"{_SCHEME}:{_id_of(key)}:") for key in self.keys)


def find_keys(environ: Mapping[str, str] | None = None) -> Keyring:
    """The keys of this process; none if none is configured. Raises BadInput for a file that others may read.

    Blocks inside Airflow, as ``find_connection`` does.
    """
    path = (os.environ if environ is None else environ).get(FILE_VARIABLE)
    text = find_password(APPROVALS_CONNECTION, environ) if not path else _read(Path(path))
    lines = (line.strip() for line in (text or "").splitlines())
    return Keyring(tuple(line for line in lines if line and not line.startswith("#")))


def without_keys(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` for a process that answers and asks nothing, such as Spark's: without what leads to the keys."""
    left_out = {FILE_VARIABLE, variable_of(APPROVALS_CONNECTION)}
    return {name: value for name, value in environ.items() if name not in left_out}


def _read(path: Path) -> str:
    def bad(message: str, remedy: str) -> BadInput:
        return BadInput(message, field=FILE_VARIABLE, value=str(path), file=str(path), remedy=remedy)

    try:
        with path.open(encoding="ascii") as file:
            found = os.fstat(file.fileno())
            if found.st_uid not in (os.geteuid(), 0) or stat.S_IMODE(found.st_mode) & 0o077:
                raise bad("others may read or change the approval key", "chmod 600, and chown to who runs this command")
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise bad(f"the approval key cannot be read: {error}", HOW_TO_SET) from None


def _signed(key: str, value: Mapping[str, Any]) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return f"{_SCHEME}:{_id_of(key)}:{hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()}"


def _id_of(key: str) -> str:
    """A name for ``key`` that reveals nothing of it."""
    return hashlib.sha256(b"kafka-migration approval key\0" + key.encode()).hexdigest()[:8]
