"""Files that come with the package and are no modules: inside it where it was installed, beside it in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
_CHECKOUT = _PACKAGE.parents[1]


def shipped(name: str) -> Path:
    """The path of ``name``, relative to the checkout, such as ``spark_jobs/mirror.py``."""
    inside = _PACKAGE / name
    return inside if inside.exists() else _CHECKOUT / name


def checkout() -> Path | None:
    """The checkout that this package runs from; None where it was installed."""
    return _CHECKOUT if (_CHECKOUT / "spark_jobs").is_dir() else None
