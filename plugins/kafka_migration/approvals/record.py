"""Answers as the journal keeps them: each a record of its own, numbered, named after its content, and signed.

They are called ``<gate>/<number>-<answer>``, those of a wave ``<gate>/<wave>/<number>-<answer>``. The highest number
counts, and of two with the same number the one that closes the gate. So an older answer that is written again changes
nothing: its number is part of its name, and of what was signed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_migration.approvals.evidence import Facts, GateName
from kafka_migration.domain.errors import StateConflict
from kafka_migration.migration.joined import replaced

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

KIND = "approval"
FORMAT = 2

APPROVED, REJECTED, REVOKED = "approved", "rejected", "revoked"
#: Where an answer came from, and so what its approver is a user of: Airflow, or the machine that ran the command.
AIRFLOW, COMMAND = "airflow", "command"

_NAME = re.compile(r"(?P<gate>[a-z]+)/((?P<scope>[^/]+)/)?(?P<number>\d{1,18})-(?P<answer>[a-z]+)")
#: Facts beyond this size are not kept beside the answer (a record of the journal has a limit of about 1 MB): a change
#: is noticed all the same, by the digest, but not named.
_MOST_FACTS_BYTES = 400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """An answer as the journal keeps it. ``seen_at`` is when the evidence was taken that the person saw; ``via`` where
    the answer came from, "" if an earlier version wrote it, which neither signed nor numbered it. ``scope`` is the key
    of the wave that was approved, "" for the whole plan."""

    gate: GateName
    answer: str
    digest: str
    approver: str
    at: datetime
    seen_at: datetime
    facts: Facts | None
    via: str = ""
    reason: str = ""
    number: int = 0
    signature: str = ""
    scope: str = ""

    def as_dict(self) -> dict[str, Any]:
        """JSON types only; without the facts."""
        return {
            "gate": str(self.gate),
            "answer": self.answer,
            "digest": self.digest,
            "approver": self.approver,
            "via": self.via,
            "reason": self.reason,
            "at": self.at.isoformat(timespec="milliseconds"),
            "seen_at": self.seen_at.isoformat(timespec="milliseconds"),
            **({"scope": self.scope} if self.scope else {}),
        }


def answers(ctx: Context) -> dict[GateName, Approval]:
    """The answer that counts at each gate of the scope. Raises StateConflict for one that this version cannot read.

    Who rejects or revokes the rollback of the whole plan means its waves as well.
    """
    own: dict[GateName, Approval] = {}
    # The one that was written last counts: by their times, they may be of machines whose clocks differ.
    for (gate, scope), answer in _newest(ctx).items():
        closes_waves = gate is GateName.ROLLBACK and not scope and answer.answer != APPROVED
        if scope == ctx.scope.key or closes_waves:
            own[gate] = answer
    return own


def of_waves(ctx: Context, gate: GateName) -> list[Approval]:
    """The newest answer at ``gate`` of each wave that has one."""
    return [answer for (of, scope), answer in sorted(_newest(ctx).items()) if of is gate and scope]


def _newest(ctx: Context) -> dict[tuple[GateName, str], Approval]:
    """By gate and scope, in the order in which they were written."""
    newest: dict[tuple[GateName, str], tuple[tuple[int, bool], str]] = {}
    values = ctx.journal.all(KIND)
    for name in values:
        place = _place(name)
        if place is not None:
            # Of two that were given at once, the one that closes the gate.
            rank, key = (place.number, place.answer != APPROVED), (place.gate, place.scope)
            newest[key] = max(newest.get(key, ((-1, False), "")), (rank, name))
    keys = {name: key for key, (_, name) in newest.items()}
    return {keys[name]: _read(name, value) for name, value in values.items() if name in keys}


def is_signed(ctx: Context) -> bool:
    """Whether answers are signed: by the plan, or by the one that it is to replace."""
    return ctx.plan.approvals.signed or bool((before := replaced(ctx)) and before.approvals.signed)


def history(ctx: Context) -> list[dict[str, Any]]:
    """Every answer that the journal keeps, oldest first, as plain values; those of earlier versions included."""
    found: list[dict[str, Any]] = []
    left_out = ("earlier", "facts", "format", "signature")
    for value in ctx.journal.all(KIND).values():
        found += [dict(earlier) for earlier in value.get("earlier", [])]
        found.append({k: v for k, v in value.items() if k not in left_out})
    return sorted(found, key=lambda answer: str(answer.get("at")))


class _Place(NamedTuple):
    gate: GateName
    scope: str
    number: int
    answer: str


def _place(name: str) -> _Place | None:
    """What the name of a record has of its answer; None if no version uses such a name."""
    if name in tuple(GateName):
        # As earlier versions wrote it: one record for each gate.
        return _Place(GateName(name), "", 0, "")
    found = _NAME.fullmatch(name)
    if found is None or found["gate"] not in tuple(GateName):
        return None
    return _Place(GateName(found["gate"]), found["scope"] or "", int(found["number"]), found["answer"])


def removed(ctx: Context, gate: GateName) -> tuple[str, int] | None:
    """Scope and number of an answer at ``gate`` that was removed from the journal and would count otherwise; None if
    none was. At the rollback gate of a wave those of the whole plan count, too."""
    for scope in (ctx.scope.key, "") if gate is GateName.ROLLBACK else (ctx.scope.key,):
        gone = max(_numbers(gate, scope, ctx.journal.deleted(KIND)), default=-1)
        if gone >= max(_numbers(gate, scope, ctx.journal.all(KIND)), default=0):
            return scope, gone
    return None


def _numbers(gate: GateName, scope: str, names: Iterable[str]) -> list[int]:
    places = (place for place in map(_place, names) if place is not None)
    return [place.number for place in places if (place.gate, place.scope) == (gate, scope)]


def write(
    ctx: Context,
    gate: GateName,
    answer: str,
    digest: str,
    approver: str,
    *,
    via: str,
    seen_at: datetime | None = None,
    facts: Facts | None = None,
    reason: str = "",
) -> Approval:
    """Give an answer the next number, sign it if answers of the plan are signed, and keep it (not in a dry run)."""
    at = ctx.clock.now()
    if len(json.dumps(_plain(facts))) > _MOST_FACTS_BYTES:
        facts = None
    # As the journal keeps it, since that is what is signed.
    approval = Approval(
        gate=gate,
        answer=answer,
        digest=digest,
        approver=approver,
        at=_rounded(at),
        seen_at=_rounded(seen_at or at),
        facts=facts,
        via=via,
        reason=reason,
        number=max(_numbers(gate, ctx.scope.key, (*ctx.journal.all(KIND), *ctx.journal.deleted(KIND))), default=0) + 1,
        scope=ctx.scope.key,
    )
    keys = ctx.approval_keys() if is_signed(ctx) else None
    # What closes a gate does so without a signature, too: it must be possible from anywhere.
    approval = replace(approval, signature=keys.sign(signed_content(ctx, approval)) if keys else "")
    if not ctx.dry_run:
        name = f"{ctx.scope.own(gate)}/{approval.number}-{answer}"
        value = {**signed_content(ctx, approval), "facts": _plain(approval.facts), "signature": approval.signature}
        ctx.journal.record(KIND, name, value)
    return approval


def signed_content(ctx: Context, approval: Approval) -> dict[str, Any]:
    """What the signature of an answer covers: the answer, its migration and its target; the facts by their digest."""
    return {
        "format": FORMAT,
        "migration": ctx.plan.name,
        "target": ctx.target.cluster_id(),
        "number": approval.number,
        **approval.as_dict(),
    }


def _rounded(at: datetime) -> datetime:
    return datetime.fromisoformat(at.isoformat(timespec="milliseconds"))


def _plain(facts: Facts | None) -> dict[str, dict[str, str]] | None:
    return None if facts is None else {section: dict(items) for section, items in facts.items()}


def _read(name: str, value: Mapping[str, Any]) -> Approval:
    try:
        place = _place(name)
        is_earlier = value["format"] == 1 and "/" not in name
        if not (is_earlier or value["format"] == FORMAT) or value["answer"] not in (APPROVED, REJECTED, REVOKED):
            raise ValueError(f"format {value['format']}, answer {value['answer']}")
        number = 0 if is_earlier else value["number"]
        content = (value.get("gate"), value.get("scope", ""), number, value["answer"])
        if place is None or (not is_earlier and place != content):
            raise ValueError(f"its content is that of {value['gate']}/{number}-{value['answer']}")
        return Approval(
            gate=place.gate,
            answer=value["answer"],
            digest=value["digest"],
            approver=value["approver"],
            at=datetime.fromisoformat(value["at"]),
            seen_at=datetime.fromisoformat(value["seen_at"]),
            facts=value["facts"],
            via=value.get("via", ""),
            reason=value.get("reason", ""),
            number=number,
            signature=value.get("signature", ""),
            scope=place.scope,
        )
    except (KeyError, ValueError, TypeError) as error:
        raise StateConflict(
            f"this version cannot read the approval {name} in the journal ({error})",
            remedy="answer again with the version of this tool that runs now",
        ) from error
