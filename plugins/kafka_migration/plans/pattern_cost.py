"""In how many ways a regular expression can match one name: a bound on how long trying it may take.

Python's matcher tries them one after the other, so a pattern such as ``(a+)+b`` takes longer than anybody waits on a
name of thirty letters. Counted from above, by the parsed pattern; the bound is what decides, not the pattern's looks.
"""

from __future__ import annotations

from collections.abc import Iterable
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

#: Characters of the longest name that is reckoned with.
_NAME = 256

#: As many as three repetitions of any length have one after the other: a fraction of a second at the very worst.
AFFORDABLE: int = (_NAME + 1) ** 3

_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)


def cost_of(pattern: str) -> int:
    """In how many ways ``pattern`` may match a name of the longest kind, at most; anything beyond AFFORDABLE may be
    counted as just that. ``pattern`` must compile."""
    return _sequence(_parser.parse(pattern))


def _sequence(items: Iterable[tuple[Any, Any]]) -> int:
    ways = 1
    for code, detail in items:
        ways = min(ways * _one(code, detail), AFFORDABLE + 1)
    return ways


def _one(code: Any, detail: Any) -> int:
    if code in _REPEATS:
        least, most, body = detail
        within, most = _sequence(body), min(int(most), _NAME)
        # How often, and each time in how many ways.
        return (most - min(int(least), most) + 1) * (1 if within == 1 else _power(within, most))
    if code is codes.BRANCH:
        return _branches(detail[1])
    if code is codes.SUBPATTERN:
        return _sequence(detail[-1])
    if code in (codes.ASSERT, codes.ASSERT_NOT):
        return _sequence(detail[1])
    if code is codes.ATOMIC_GROUP:
        return _sequence(detail)
    if code is codes.GROUPREF_EXISTS:
        return _branches([part for part in detail[1:] if part is not None])
    return 1


def _branches(branches: list[Any]) -> int:
    """All of them together; but no name goes two ways if each begins with a letter of its own."""
    ways = [_sequence(branch) for branch in branches]
    first = [branch[0] for branch in branches if len(branch) and branch[0][0] is codes.LITERAL]
    letters = {letter for _, letter in first}
    return max(ways) if len(letters) == len(branches) else sum(ways)


def _power(base: int, exponent: int) -> int:
    ways = 1
    for _ in range(exponent):
        ways *= base
        if ways > AFFORDABLE:
            return AFFORDABLE + 1
    return ways
