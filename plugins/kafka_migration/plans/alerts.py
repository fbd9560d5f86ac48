"""Who is notified: Airflow's own notifiers, as a plan may name them."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from kafka_migration.plans.base import Contradictions, PlanModel, Seconds, wrong
from kafka_migration.plans.hooks import fill
from kafka_migration.plans.problems import is_secret_name

# Of a provider only: a plan must not be a way to run any code.
_NOTIFIER = re.compile(r"airflow\.providers\.[a-z0-9_.]+\.notifications\.[a-z0-9_.]+\.[A-Za-z0-9_]*Notifier")
_TEMPLATE = re.compile(r"\{\{|\{%|\{#")
_CREDENTIALS = re.compile(r"://[^/\s]*@")
_FILES = re.compile(r"file|template|path|attach|config", re.IGNORECASE)
"""Names of arguments that notifiers read from disk, where secrets lie."""
_ADDRESSES = re.compile(
    r"(?:^|_)(?:base)?(?:urls?|uris?|host\w*|prox(?:y|ies)|endpoints?|servers?|gateways?)(?:$|_)", re.IGNORECASE
)
"""Names of arguments by which what a connection keeps secret would be sent to another place than its own."""
_CONNECTION = re.compile(r"conn(ection)?(_id)?$", re.IGNORECASE)
_SCALARS = (str, int, float, bool, type(None))


def _argument(value: Any) -> Any:
    several = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    for scalar in several:
        if not isinstance(scalar, _SCALARS):
            raise wrong("not a plain value", "write text, a number, true, false, null, or a list of these")
        if isinstance(scalar, str) and _TEMPLATE.search(scalar):
            # Airflow would fill it in, and knows connections and variables.
            raise wrong(
                "a template could send a secret away", "use {migration}, {dag}, {what}, {remedy} and {link} only"
            )
        if isinstance(scalar, str) and _CREDENTIALS.search(scalar):
            raise wrong(
                "credentials in a URL would stand in the plan, its digest and logs",
                "put the URL into an Airflow connection, and name that",
            )
    return several if isinstance(value, (list, tuple)) else value


Argument = Annotated[
    Any,
    AfterValidator(_argument),
    WithJsonSchema({"type": ["string", "number", "boolean", "null", "array"]}),
]
"""A scalar of JSON, or a tuple of these."""


def _notifier(text: str) -> str:
    if not _NOTIFIER.fullmatch(text):
        raise wrong(
            "not a notifier of one of Airflow's providers",
            "write the whole path of its class, such as airflow.providers.smtp.notifications.smtp.SmtpNotifier",
        )
    return text


class Notifier(PlanModel):
    """One of Airflow's notifiers, and what it is made with."""

    notifier: Annotated[str, AfterValidator(_notifier)]
    """The path of the class of a provider that is installed, such as
    airflow.providers.smtp.notifications.smtp.SmtpNotifier."""

    arguments: dict[str, Argument] = Field(default_factory=dict)
    """By name, what the class takes. In texts {migration}, {dag}, {what}, {remedy} and {link} (of the migration's page
    in Airflow) are replaced, and nothing else is filled in. Secrets belong into the Airflow connection that is named
    here."""

    @field_validator("arguments")
    @classmethod
    def _no_secret_in_plan(cls, arguments: dict[str, Argument]) -> dict[str, Argument]:
        found = Contradictions()
        for name in arguments:
            if is_secret_name(name):
                remedy = "put it into an Airflow connection, and name that, as in the notifier's documentation"
                found.add((name,), "", "a secret must not stand in a plan", remedy)
            elif _FILES.search(name):
                found.add((name,), "", "a file could send a secret away", "write the text itself, without a file")
            elif _ADDRESSES.search(name):
                remedy = "put the address into the Airflow connection that is named here"
                found.add((name,), "", "another address would get the connection's secret", remedy)
        found.raise_any("arguments")
        return arguments

    @property
    def connections(self) -> dict[str, Argument]:
        """The arguments that name a connection."""
        return {name: value for name, value in self.arguments.items() if _CONNECTION.search(name)}

    def filled(self, *, migration: str, dag: str, what: str, remedy: str, link: str) -> dict[str, Any]:
        """The arguments with their placeholders replaced, as JSON types. ``what`` happened, such as "mirror failed"."""
        values = {"migration": migration, "dag": dag, "what": what, "remedy": remedy, "link": link}

        def one(value: Any) -> Any:
            return fill(value, values) if isinstance(value, str) else value

        return {
            name: [one(scalar) for scalar in value] if isinstance(value, tuple) else one(value)
            for name, value in self.arguments.items()
        }


class Alerts(PlanModel):
    """Who is notified when a run of this plan's DAGs or a task of the migration fails, when the mirror dies, when
    something needs a person while it runs, when an approval waits, or when a validation takes too long."""

    notifiers: tuple[Notifier, ...] = ()
    """Airflow's notifiers (mail, Slack, PagerDuty, and so on): each is notified of everything."""

    validation_seconds: Seconds | None = None
    """A run of the validation's DAG that has not ended so many seconds after it was queued alerts, and goes on; null:
    never."""

    @field_validator("validation_seconds")
    @classmethod
    def _somebody_is_notified(cls, seconds: float | None, info: ValidationInfo) -> float | None:
        if seconds is not None and info.data.get("notifiers") == ():
            raise wrong("there are no notifiers", "name notifiers, or remove this")
        return seconds
