"""Producers, as a plan may have them moved: who stops and starts them, and the fence that keeps them from writing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from kafka_migration.plans.base import ConnectionId, Contradictions, PlanModel, Seconds, a_principal, each_once
from kafka_migration.plans.hooks import Hook

EVERYBODY = "User:*"
#: One call to a broker may take so much of the fence's deadline: the last one, begun before, ends within it.
CALL_SHARE = 0.25


def _principal(text: str) -> str:
    why = "a denial for everybody would stop the mirror's own principal and the reverse link, too"
    remedy = "name principals one by one; those that ACLs let write are found without being named"
    return a_principal(text, everybody=(why, remedy))


Principal = Annotated[str, AfterValidator(_principal), Field(max_length=255)]
"""A principal as ACLs name it, such as User:orders-service."""


class Fence(PlanModel):
    """What keeps producers from writing to the source while they are moved."""

    kind: Literal["acl_deny", "hook", "none"] = "acl_deny"
    """acl_deny: each principal that may write is denied to, by ACLs, until they are removed; proved on every broker.
    hook: the plan's hooks close the way of clients to the source; proved by log ends that stand still. none: nothing
    keeps anybody from writing, and nothing is promised."""

    principals: tuple[Principal, ...] = ()
    """Of acl_deny: principals to deny writing to, besides those that an ACL lets write, which are found."""

    super_users: tuple[Principal, ...] = ()
    """Principals of the brokers' super.users, which brokers show to nobody. No ACL binds them, so no producer may be
    one of them."""

    probe: ConnectionId | None = None
    """Of acl_deny: the connection of a principal that nobody else uses, and that may write to the topics. It is denied
    last, and every broker is asked as it: a broker that denies it denies all others."""

    probe_principal: Principal | None = None
    """The probe's principal, where its connection does not name it (mutual TLS, tokens)."""

    own_principal: Principal | None = None
    """The principal of this migration on the source, which is never denied, where its connection does not name it
    (mutual TLS, tokens)."""

    close: tuple[Hook, ...] = ()
    """Of hook: run in order, to close the way of clients to the source. {cluster} is source, {phase} fence."""

    open: tuple[Hook, ...] = ()
    """Of hook: run in order, to open it again. {cluster} is source, {phase} lift."""

    deadline_seconds: Seconds = 30.0
    """Within so many seconds the fence is proved, or lifted again."""

    settle_seconds: Seconds = 2.0
    """Of acl_deny: so long after every broker denied, a write that was let in before may still land. What is written
    later is a straggler's."""

    window_seconds: Seconds = 5.0
    """Of hook and none: log ends must not move for so many seconds."""

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        found = Contradictions()
        for name in ("principals", "probe", "probe_principal", "super_users", "own_principal"):
            if self.kind != "acl_deny" and getattr(self, name):
                found.add((name,), getattr(self, name), "is for the kind acl_deny only", "remove it")
        for name in ("close", "open"):
            if self.kind == "hook" and not getattr(self, name):
                found.add((name,), [], "a fence of the kind hook needs it", "write a hook that does it")
            if self.kind != "hook" and getattr(self, name):
                found.add((name,), None, "is for the kind hook only", "remove it, or make the kind hook")
        if self.kind == "acl_deny" and self.probe is None:
            remedy = "name the connection of a principal that may write to the topics, and that nobody else uses"
            found.add(("probe",), None, "without a probe, no broker can be asked whether it denies", remedy)
        for at, principal in enumerate(self.principals):
            if principal in self.super_users:
                remedy = "give its producers a principal of their own, and name that"
                found.add(("principals", at), principal, "a super user cannot be fenced: no ACL binds it", remedy)
            if principal == self.own_principal:
                remedy = "give its producers a principal of their own, and name that"
                found.add(("principals", at), principal, "is the migration's own, which is never denied", remedy)
            if principal == self.probe_principal:
                found.add(("principals", at), principal, "is the probe's, which nobody else may use", "remove it")
        each_once(found, "principals", self.principals)
        least = self.settle_seconds if self.kind == "acl_deny" else self.window_seconds
        if self.deadline_seconds * (1 - CALL_SHARE) <= least:
            what = "settle_seconds" if self.kind == "acl_deny" else "window_seconds"
            message = f"{what} is {least:g} s, so the fence could never be proved"
            found.add(("deadline_seconds",), self.deadline_seconds, message, f"give a deadline of twice {least:g} s")
        found.raise_any("fence")
        return self


class Producers(PlanModel):
    """How producers are kept from the source, and stopped and started."""

    fence: Fence
    """What keeps producers from writing to the source while they are moved."""

    target_fence: Fence | None = None
    """What keeps producers from writing to the target while they are moved back (`switch --back`): with a probe, and
    hooks ({cluster} is target), of its own. By default as fence, which fits the kinds hook and none."""

    target_closed: bool = False
    """Deny everybody but the migration writing to the plan's topics on the target, from create until producers are
    switched; fence.principals are denied, too. Of a target_fence of the kind acl_deny."""

    stop: tuple[Hook, ...] = ()
    """Hooks that stop producers, run in order before the fence. Hooks as those of consumers, without a group:
    {cluster} is source (target, before they are moved back), {phase} fence."""

    start: tuple[Hook, ...] = ()
    """Hooks that start producers, run in order: again where they were, once the fence is lifted ({cluster} is source,
    {phase} lift), and on the target once they are switched over (target, switch); with source and target swapped, when
    they are moved back."""

    in_workflow: bool = False
    """Switch producers in the DAG and in the command run, once groups were moved. Without it both wait, at that place,
    until producers have left the source by themselves, or the command switch has moved them."""

    first: bool = False
    """Switch producers before groups are moved, not behind them: groups read the source to its end, or go on there by
    `mirror --reverse`, until cutover moves each to its very next record."""

    approval: bool = True
    """With in_workflow, first, or with waves: a person is asked before producers are switched (approve producers)."""

    groups_stay: bool = False
    """Once producers are switched, deny reading on the source as the groups that were moved, so that none of them goes
    on there; a rollback lifts that. Of acl_deny: the probe may read as these groups, too."""

    switch_seconds: Seconds = 45.0
    """Of a switch to the target: so long after the first denial everything is copied and sealed, or producers go on on
    the source. Longer than the fence's deadline, which is a part of it."""

    patience_seconds: Seconds = 60.0
    """The shortest time after which a producer gives a record up: of max.block.ms and delivery.timeout.ms of all of
    them. switch_seconds and the fence's deadline must be shorter."""

    @model_validator(mode="after")
    def _in_time_and_without_groups(self) -> Self:
        found = Contradictions()
        if self.fence.deadline_seconds >= self.patience_seconds:
            found.add(
                ("patience_seconds",),
                self.patience_seconds,
                f"producers give records up before the fence's deadline of {self.fence.deadline_seconds:g} s is over",
                "give fence.deadline_seconds a smaller value, or have producers wait longer (max.block.ms,"
                " delivery.timeout.ms)",
            )
        if not self.fence.deadline_seconds < self.switch_seconds < self.patience_seconds:
            found.add(
                ("switch_seconds",),
                self.switch_seconds,
                f"must lie between fence.deadline_seconds ({self.fence.deadline_seconds:g}), which is a part of it, and"
                f" patience_seconds ({self.patience_seconds:g}), after which producers give records up",
                "change one of the three",
            )
        if self.target_closed and (self.target_fence is None or self.target_fence.kind != "acl_deny"):
            found.add(
                ("target_closed",), True, "needs a target_fence of the kind acl_deny", "write one, with a probe there"
            )
        if self.groups_stay and self.fence.kind != "acl_deny":
            found.add(("groups_stay",), True, "is for a fence of the kind acl_deny only", "remove it")
        if self.groups_stay and self.first:
            found.add(
                ("groups_stay",),
                True,
                "denies groups that were moved before producers are switched",
                "remove it, or first",
            )
        for where, hook in self._hooks():
            if hook.groups is not None:
                found.add((*where, "groups"), None, "a hook for producers has no groups", "remove it")
            if hook.names("group"):
                found.add(where, "{group}", "a hook for producers is run for no group", "remove the placeholder")
            if hook.wait:
                found.add((*where, "wait"), True, "there is nothing to wait for here", "remove this hook")
        found.raise_any("producers")
        return self

    def fence_on(self, side: Literal["source", "target"]) -> Fence:
        """What keeps producers from writing there."""
        return self.target_fence or self.fence if side == "target" else self.fence

    @property
    def hook_seconds(self) -> float:
        """How long all hooks may take together, each once for either cluster."""
        return sum(2 * (hook.http.timeout_seconds if hook.http else hook.command_timeout) for _, hook in self._hooks())

    def _hooks(self) -> Iterator[tuple[tuple[str | int, ...], Hook]]:
        places: tuple[tuple[tuple[str, ...], tuple[Hook, ...]], ...] = (
            (("fence", "close"), self.fence.close),
            (("fence", "open"), self.fence.open),
            (("target_fence", "close"), self.target_fence.close if self.target_fence else ()),
            (("target_fence", "open"), self.target_fence.open if self.target_fence else ()),
            (("stop",), self.stop),
            (("start",), self.start),
        )
        return (((*place, at), hook) for place, hooks in places for at, hook in enumerate(hooks))

    def hooks(self) -> Iterator[tuple[str, Hook]]:
        """Every hook, by its place in the plan: ``producers.fence.close[0]``."""
        for (*place, at), hook in self._hooks():
            yield f"producers.{'.'.join(map(str, place))}[{at}]", hook
