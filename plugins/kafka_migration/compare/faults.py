"""What went wrong in Spark, in one line, without secrets."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kafka_migration.domain.hiding import hidden

_LONGEST_REASON = 600
_PYTHON = "Traceback (most recent call last):"


def reason_of(error: BaseException, secrets: Collection[str] = ()) -> str:
    """The root of a Spark error in one line, without secrets."""
    text = f"{type(error).__name__}: {error}"
    cause = _thrown(error)
    if _PYTHON in text:
        # What a task of ours raised: its message stands behind the trace, whose lines are indented.
        messages = [line for line in text.split(_PYTHON)[-1].splitlines() if line and not line[0].isspace()]
        text = messages[0] if messages else text
    elif cause is not None:
        while cause.getCause() is not None:
            cause = cause.getCause()
        text = str(cause.toString())
    line = " ".join(_without_trace(text).split())
    line = hidden(line, secrets)
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]}…"


def _thrown(error: BaseException) -> Any:
    """The JVM's exception behind ``error``, or None. Of an object of the JVM's, every attribute seems to be there."""
    from py4j.java_gateway import JavaObject

    origin = getattr(error, "_origin", None)
    for found in (getattr(error, "java_exception", None), getattr(origin, "java_exception", None), origin):
        if isinstance(found, JavaObject):
            return found
    return None


def _without_trace(text: str) -> str:
    """A task's failure reaches the driver as text, with the trace of the executor: the innermost cause counts."""
    lines = text.splitlines()
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    if causes:
        return causes[-1]
    return "\n".join(line for line in lines if not line.startswith("\tat "))
