"""How principals of the source are called on the target, where ACLs are copied, and how their users get passwords."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from kafka_migration.plans.base import Contradictions, Name, PlanModel, Seconds, a_principal, each_once, without_unused
from kafka_migration.plans.hooks import a_program, known_placeholders


def _principal(text: str) -> str:
    return a_principal(text, everybody=("stands for everybody, who is called so on every cluster", "remove it"))


Principal = Annotated[str, AfterValidator(_principal), Field(max_length=255)]
"""A principal as ACLs name it, such as User:orders-service."""


def _of_a_user(text: str) -> str:
    return known_placeholders(text, known=("user", "migration"))


class ScramUsers(PlanModel):
    """SCRAM users of the source who may use something of the plan's, and whom the target lacks: made there by
    `access --apply`, with new passwords, since brokers show nobody's: by a connection with TLS. Exactly one of command
    and disabled."""

    command: (
        Annotated[
            tuple[Annotated[str, AfterValidator(_of_a_user)], ...], Field(min_length=1), AfterValidator(a_program)
        ]
        | None
    ) = None
    """A program and its arguments, run for each user without a shell, that prints the user's new password as its only
    line; allowed as commands of hooks are. {user} (the name on the target) and {migration} are replaced in the
    arguments. It may be run again for one user, and the last password counts."""

    timeout_seconds: Seconds = 60.0
    """How long the command may run for one user, in seconds."""

    disabled: Literal[True] | None = None
    """With a random password that nobody knows: nobody can log in until an administrator sets another."""

    exclude: tuple[Name, ...] = ()
    """Users, by their names on the target, who are not made: those who authenticate otherwise there."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        found = Contradictions()
        if (self.command is None) == (self.disabled is None):
            what = "none of them" if self.command is None else "both"
            found.add((), what, "passwords come by exactly one of command and disabled", "write one of the two")
        each_once(found, "exclude", self.exclude)
        found.raise_any("users")
        return self


class Access(PlanModel):
    """Which ACLs of the source the target should have (`access`): those of the plan's topics and groups, and what their
    principals need besides."""

    principals: dict[Principal, Principal] = Field(default_factory=dict)
    """Principals that are called otherwise on the target; all others keep their names. Two may become one, unless one
    of them is denied something."""

    exclude: tuple[Principal | Literal["User:*"], ...] = ()
    """Principals of the source whose ACLs the target need not have; User:* for those of everybody."""

    own_principal: Principal | None = None
    """The migration's own principal on the target, where its connection does not name it (certificates, tokens): what
    denies it, or limits it, is not copied."""

    users: ScramUsers | None = None
    """How SCRAM users that the target lacks are made there. Left out, they are listed only."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        found = Contradictions()
        each_once(found, "exclude", self.exclude)
        for name in self.principals:
            if name in self.exclude:
                found.add(("principals", name), self.principals[name], "is excluded, too", "remove one of the two")
        found.raise_any("access")
        return self

    @model_serializer(mode="wrap")
    def _without_what_is_not_used(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_unused(dump(self), "users")
