"""Which schemas of the source's schema registry the target's should have."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from kafka_migration.plans.base import ConnectionId, Contradictions, PlanModel
from kafka_migration.plans.patterns import Patterns, matches_any


class Schemas(PlanModel):
    """Two schema registries with Confluent's API, and which subjects move from one to the other (`schemas`): those of
    the plan's topics (TOPIC-key and TOPIC-value), and all that these refer to."""

    source: ConnectionId
    """Airflow connection (type http) of the registry that clients of the source use."""

    target: ConnectionId
    """Airflow connection (type http) of the registry that clients of the target use."""

    subjects: Patterns = Field(default=())
    """Regular expressions; each matches whole names of further subjects, which keep their names: of records that are
    not named after their topic."""

    @model_validator(mode="after")
    def _two_registries(self) -> Self:
        found = Contradictions()
        if self.source.upper() == self.target.upper():
            remedy = "name two registries, or remove the section schemas: one that both sides use needs no copy"
            found.add(("target",), self.target, "is the source's connection, too", remedy)
        found.raise_any("schemas")
        return self

    @property
    def connections(self) -> tuple[str, str]:
        """Ids of both, the source's first."""
        return self.source, self.target

    def names(self, subject: str) -> bool:
        """Whether ``subjects`` has it."""
        return matches_any(self.subjects, subject)
