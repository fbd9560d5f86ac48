"""Digests of plans, inventories and evidence: what an approval binds to."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def digest_of(value: Any) -> str:
    """SHA-256 over the canonical JSON of ``value`` (sorted keys, no blanks), as ``sha256:<64 hex digits>``.

    ``value`` must consist of JSON types only: anything else raises TypeError rather than be digested by its
    accidental string form.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
