"""Named check results. A check that could not run is UNCHECKED, and a gate never counts that as a pass."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


class Verdict(enum.StrEnum):
    """How a check came out. UNCHECKED: it could not run, so nothing is claimed."""

    PASS = "PASS"
    FAIL = "FAIL"
    WARN = "WARN"
    UNCHECKED = "UNCHECKED"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One named check: its verdict, the evidence seen, and what to do if it is not a pass."""

    name: str
    verdict: Verdict
    evidence: str
    remedy: str = ""

    @classmethod
    def passed(cls, name: str, evidence: str) -> Self:
        """There is nothing to do."""
        return cls(name=name, verdict=Verdict.PASS, evidence=evidence)

    @classmethod
    def failed(cls, name: str, evidence: str, remedy: str) -> Self:
        """It shuts a gate."""
        return cls(name=name, verdict=Verdict.FAIL, evidence=evidence, remedy=remedy)

    @classmethod
    def warned(cls, name: str, evidence: str, remedy: str) -> Self:
        """It is shown, and shuts no gate."""
        return cls(name=name, verdict=Verdict.WARN, evidence=evidence, remedy=remedy)

    @classmethod
    def unchecked(cls, name: str, evidence: str, remedy: str = "") -> Self:
        """It could not be found out, which shuts a gate, too."""
        return cls(name=name, verdict=Verdict.UNCHECKED, evidence=evidence, remedy=remedy)

    def as_dict(self) -> dict[str, str]:
        """JSON types only."""
        return {
            "name": self.name,
            "verdict": str(self.verdict),
            "evidence": self.evidence,
            "remedy": self.remedy,
        }


@dataclass(frozen=True, slots=True)
class Gate:
    """A decision made of checks: open only if none failed and none is unchecked. WARN is shown, not blocking."""

    name: str
    results: tuple[CheckResult, ...]

    @classmethod
    def of(cls, name: str, results: Iterable[CheckResult]) -> Gate:
        return cls(name, tuple(results))

    @property
    def is_open(self) -> bool:
        return bool(self.results) and not self.blockers

    @property
    def blockers(self) -> tuple[CheckResult, ...]:
        return tuple(r for r in self.results if r.verdict in (Verdict.FAIL, Verdict.UNCHECKED))

    @property
    def shut_by(self) -> str:
        """What keeps it shut, for people: a line for each check, and its remedy below; "" if it is open."""
        return "\n".join(f"{r.name} {r.verdict}: {r.evidence}\n  remedy: {r.remedy}" for r in self.blockers)

    @property
    def exit_code(self) -> int:
        """0 open; 1 something failed; 3 nothing failed, but something could not be found out."""
        if self.is_open:
            return 0
        return 1 if any(r.verdict is Verdict.FAIL for r in self.results) else 3
