"""Text of others as people see it: names of groups, client ids and reasons are free, and terminals obey some of it."""

from __future__ import annotations

import re

#: C0 and C1 controls, DEL, and what turns the direction of a line.
_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """``text`` with each character that a terminal would obey as its code (``\\x1b``); tabs and line ends stay."""
    return _OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)


def in_one_line(text: str) -> str:
    """As :func:`printable`, with line ends as ``\\n``: for where a line is an entry of its own."""
    return printable(text).replace("\n", "\\n")
