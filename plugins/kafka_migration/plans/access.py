"""How principals of the source are called on the target, where ACLs are copied."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from kafka_migration.plans.base import Contradictions, PlanModel, a_principal, each_once


def _principal(text: str) -> str:
    return a_principal(text, everybody=("stands for everybody, who is called so on every cluster", "remove it"))


Principal = Annotated[str, AfterValidator(_principal), Field(max_length=255)]
"""A principal as ACLs name it, such as User:orders-service."""


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

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        found = Contradictions()
        each_once(found, "exclude", self.exclude)
        for name in self.principals:
            if name in self.exclude:
                found.add(("principals", name), self.principals[name], "is excluded, too", "remove one of the two")
        found.raise_any("access")
        return self
