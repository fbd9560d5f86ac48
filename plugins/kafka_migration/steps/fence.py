"""The fence as a command runs it: with the plan's hooks, and with its beginning and end in the journal."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_migration.domain.checks import Gate
from kafka_migration.domain.direction import Side
from kafka_migration.fence import fence, record
from kafka_migration.fence.bans import BACK_WRITES, LIFTED_BY, WRITES, Ban
from kafka_migration.fence.fence import Fenced, Hooks, Lifted
from kafka_migration.fence.ground import require_producers
from kafka_migration.groups.hooks import HookCall, Phase, require_runnable, run_hook
from kafka_migration.inventory import plan_changes
from kafka_migration.link import switched
from kafka_migration.migration.history import phase
from kafka_migration.steps.step import Decision

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.plans.hooks import Hook

_PHASE = "fence"


def check(ctx: Context) -> Decision:
    """What the fence would do, and whether it may. Changes nothing."""
    found = fence.check(ctx)
    gate = Gate.of("fence", found.checks)
    return Decision(exit_code=gate.exit_code, message=gate.shut_by, value=found)


def run(ctx: Context, *, environ: Mapping[str, str] | None = None) -> Decision:
    """Stop producers, fence the topics, and prove it; in a dry run as :func:`check`.

    Raises what :func:`kafka_migration.fence.fence.apply` raises, and Refused for hooks that may not run here or a plan
    that the migration may not go on with, before anything is changed.
    """
    plan_changes.require(ctx)
    if ctx.dry_run:
        return check(ctx)
    for call in hook_calls(ctx, (hook for _, hook in require_producers(ctx).hooks()), "fence"):
        require_runnable(call, environ=environ)
    ctx.make_state()
    with phase(ctx, _PHASE) as account:
        found: Fenced = fence.apply(ctx, run_hooks(ctx, environ))
        proof = found.proof.as_dict() if found.proof else {}
        facts = {"topics": len(found.names), "proved_ms": proof.get("proved_ms"), "promises": proof.get("promises")}
        account.ends(0, f"{len(found.names)} topics fenced", **facts)
    return Decision(facts=facts, value=found)


def newest(ctx: Context) -> Ban:
    """The fence that keeps producers from where they would write, or did last: on the target if one stands there, and
    they were not switched to the source."""
    back = record.read(ctx, BACK_WRITES)
    is_back = back is not None and back.stands and switched.away_from(ctx, "target") is None
    return BACK_WRITES if is_back else WRITES


def lift(ctx: Context, ban: Ban | None = None, *, environ: Mapping[str, str] | None = None) -> Decision:
    """Lift ``ban``, by default the newest fence, and start producers again; and end what a rehearsal has left. Its
    evidence names the fences that stay."""
    with phase(ctx, f"{_PHASE} lifted") as account:
        ban = ban or newest(ctx)
        found = _lift(ctx, ban, environ)
        stay = (f"{text}; {LIFTED_BY[key]}" for key, text in record.described(ctx).items() if key != ban.key)
        found = replace(found, evidence="; ".join((found.evidence, *stay)))
        account.ends(0, found.evidence, removed=found.removed)
    return Decision(facts={} if ctx.dry_run else {"removed": found.removed}, value=found)


def _lift(ctx: Context, ban: Ban, environ: Mapping[str, str] | None) -> Lifted:
    last = record.read(ctx, ban)
    may_be_lifted = last is not None and last.stands and switched.away_from(ctx, ban.side) is None
    if record.rehearsals(ctx) and not may_be_lifted:
        # Behind a switch the fence stays, and to be asked to lift it is refused.
        return fence.end_rehearsals(ctx)[0]
    found = fence.lift(ctx, run_hooks(ctx, environ, ban.side), ban, sweeps=True)
    fence.end_rehearsals(ctx)
    return found


def run_hooks(ctx: Context, environ: Mapping[str, str] | None, cluster: Side = "source") -> Hooks:
    """What runs hooks of producers on the source, or on the target, in order."""

    def run_all(hooks: Iterable[Hook], name: Phase) -> None:
        for call in hook_calls(ctx, hooks, name, cluster):
            done = run_hook(call, environ=os.environ if environ is None else environ)
            ctx.log(f"{done.what}: {done.said}")

    return run_all


def hook_calls(ctx: Context, hooks: Iterable[Hook], name: Phase, cluster: Side = "source") -> list[HookCall]:
    """Calls of ``hooks`` of producers, on the source or on the target."""
    migration = ctx.plan.name
    return [HookCall(hook=hook, group="", migration=migration, cluster=cluster, phase=name) for hook in hooks]
