"""What all parts of the plan's model share: strictness, units, and how a validator reports what is wrong."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

#: The type of every error that our own validators raise; ``ctx`` holds ``remedy``.
OURS = "plan"

#: How a migration, or a wave of it, may be called: a part of file names, journal keys and names in Airflow.
PLAIN_NAME = r"[a-z0-9][a-z0-9._-]{0,62}"

Seconds = Annotated[float, Field(gt=0, le=31_536_000, allow_inf_nan=False)]
"""A duration in seconds, up to a year."""

ConnectionId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,200}$")]
"""The id of an Airflow connection."""


class PlanModel(BaseModel):
    """A part of the plan: unknown keys refused, no conversion between types, immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


def without_unused(dumped: dict[str, Any], field: str) -> dict[str, Any]:
    """What was ``dumped``, without ``field`` if that has no value: so that the digests of plans without it stay what
    they were before there was any."""
    return {name: value for name, value in dumped.items() if value or name != field}


def wrong(message: str, remedy: str) -> PydanticCustomError:
    """The error that a validator raises for one value: what is wrong with it, and what to write instead."""
    return PydanticCustomError(OURS, "{message}", {"message": message, "remedy": remedy})


class Contradictions:
    """Collects what contradicts between fields, so that a validator reports all of it and not the first."""

    def __init__(self) -> None:
        self._found: list[InitErrorDetails] = []

    def add(self, where: tuple[str | int, ...], value: Any, message: str, remedy: str) -> None:
        """``where`` is relative to the model or field whose validator collects."""
        self._found.append(InitErrorDetails(type=wrong(message, remedy), loc=where, input=value))

    def raise_any(self, title: str) -> None:
        """Raises what was collected; pydantic puts the path of the enclosing fields before each ``where``."""
        if self._found:
            raise ValidationError.from_exception_data(title, self._found)


def each_once(found: Contradictions, field: str, names: tuple[str, ...]) -> None:
    """Add every name that stands in ``names`` a second time."""
    for at, name in enumerate(names):
        if name in names[:at]:
            found.add((field, at), name, "given twice", "remove one of them")


def a_principal(text: str, *, everybody: tuple[str, str]) -> str:
    """``text``, if it is a principal as ACLs name them; ``everybody`` is why User:* is none here, and the remedy."""
    kind, colon, name = text.partition(":")
    if not colon or not kind.isalnum() or not name or text != text.strip():
        raise wrong("not a principal as ACLs name them", "write it like User:orders-service")
    if name == "*":
        raise wrong(*everybody)
    return text


def _a_name(text: str) -> str:
    if not text.strip() or text != text.strip():
        raise wrong("a name is neither empty nor padded with blanks", "write the name exactly as it is used")
    return text


Name = Annotated[str, AfterValidator(_a_name), Field(max_length=255)]
"""The name of a topic, group or person; patterns may be tried on it, so it is no longer than they are safe for."""
