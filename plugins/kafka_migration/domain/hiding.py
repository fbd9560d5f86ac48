"""Secrets, kept out of messages and logs."""

from __future__ import annotations

from collections.abc import Collection


def hidden(text: str, secrets: Collection[str]) -> str:
    """``text`` without ``secrets``. The longest first: one may begin as another does."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "<hidden>")
    return text
