"""How consumers are stopped and started, as a plan may state it: a command, an HTTP call, or "wait until it is so"."""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import ip_address
from typing import Annotated, Literal
from urllib.parse import quote, urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from kafka_migration.plans.base import Contradictions, PlanModel, Seconds, wrong
from kafka_migration.plans.patterns import Patterns, matches_any
from kafka_migration.plans.problems import is_secret_name

#: What a template may name. ``cluster`` is where the hook acts, ``source`` or ``target``; ``phase`` is ``cutover``, or
#: ``undo`` when a group is moved back; for producers, without a group, ``fence`` or ``lift``.
PLACEHOLDERS = ("group", "migration", "cluster", "phase")

#: Only such variables may be read into a header, so that no plan can send another secret of the process away.
SECRET_PREFIX = "KAFKA_MIGRATION_HOOK_"

_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_FROM_ENVIRONMENT = re.compile(rf"env:{SECRET_PREFIX}[A-Z0-9_]+")
#: Headers by which a proxy or a server takes another host, path or method than the request's, or another end of it.
_ROUTING = re.compile(
    r"host|forwarded|via|connection|upgrade|te|trailer|transfer-encoding|content-length|expect|x-real-ip|x-http-method"
    r"|(x-forwarded|x-original|x-rewrite|x-host|x-accel|x-envoy|x-override|proxy)(-.*)?|x-(http-)?method-override",
    re.IGNORECASE,
)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def fill(template: str, values: dict[str, str]) -> str:
    """``template`` with its placeholders replaced, in one pass.

    One pass, so that a group named ``{phase}`` stays what it is.
    """
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), template)


def known_placeholders(text: str, *, known: Collection[str] = PLACEHOLDERS) -> str:
    """``text``, if all its placeholders are ``known``."""
    for name in _PLACEHOLDER.findall(text):
        if name not in known:
            allowed = ", ".join(f"{{{p}}}" for p in known)
            raise wrong(f"{{{name}}} is not a placeholder", f"use one of {allowed}")
    if "\0" in text:
        raise wrong("a NUL character cannot be passed on", "remove it")
    return text


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise wrong(f"not a URL: {error}", "write it like https://deployer.example/stop/{group}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise wrong("not an http or https URL", "write it like https://deployer.example/stop/{group}")
    if "@" in parts.netloc:
        raise wrong(
            "credentials in a URL would stand in the plan, its digest and logs",
            f"send them as a header whose value is env:{SECRET_PREFIX}...",
        )
    if _PLACEHOLDER.search(parts.netloc):
        raise wrong("the host cannot be a placeholder", "use placeholders in the path or the query")
    if any(ord(c) <= 32 or ord(c) == 127 for c in text):
        raise wrong("a URL has no blanks or control characters", "write them percent-encoded")
    return known_placeholders(text)


def _is_private(url: str) -> bool:
    """Whether nobody on the way reads what is sent there."""
    parts = urlsplit(url)
    try:
        return parts.scheme == "https" or ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return parts.hostname == "localhost"


_Problem = tuple[str, str, str]
"""What of a header's value may be shown, what is wrong, and the remedy."""


def _header_problem(name: str, value: str) -> _Problem | None:
    if not _HEADER_NAME.fullmatch(name):
        return "", "not a header name", "use letters, digits and hyphens"
    if _ROUTING.fullmatch(name.replace("_", "-")):
        message = "this header could have another server or path answer than the URL's, which was allowed"
        return "", message, "remove it, and write into the URL what is meant"
    if value.startswith("env:"):
        return None
    if is_secret_name(name):
        remedy = f"put it into an environment variable and write env:{SECRET_PREFIX}..."
        return "", "a secret must not stand in a plan", remedy
    if not (value.isascii() and value.isprintable()):
        return value, "a header's value is printable ASCII", "remove other characters"
    return None


def _secret_problem(value: str, *, is_private: bool) -> _Problem | None:
    """Of a value that is read from the environment."""
    if not value.startswith("env:"):
        return None
    if not _FROM_ENVIRONMENT.fullmatch(value):
        remedy = f"name the variable {SECRET_PREFIX}..., in capitals, and set it where the hooks run"
        return value, "this environment variable may not be read by a plan", remedy
    if not is_private:
        remedy = "write an https URL (http will do for a server of this machine: 127.0.0.1, ::1 or localhost)"
        return value, "a secret would travel in clear", remedy
    return None


def a_program(command: tuple[str, ...]) -> tuple[str, ...]:
    """``command``, if what it runs is an absolute path or a file name; items besides may have placeholders."""
    if _PLACEHOLDER.search(command[0]):
        raise wrong("the program itself cannot be a placeholder", "name the program, and pass what it needs to it")
    if not command[0].strip() or ("/" in command[0] and not command[0].startswith("/")):
        raise wrong("the program is neither an absolute path nor a file name", "write /opt/bin/stop or stop")
    return command


class HttpCall(PlanModel):
    """One HTTP request without a body. Any answer of 2xx is success; redirects are not followed."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    """The request's method."""

    url: Annotated[str, AfterValidator(_url)]
    """http or https, under a prefix that the administrator lists in KAFKA_MIGRATION_ALLOWED_URLS. {group}, {migration},
    {cluster} and {phase} are replaced, percent-encoded, in path and query."""

    headers: dict[str, str] = Field(default_factory=dict)
    """Headers, but none that decides where the request goes, such as Host or X-Forwarded-For. A value
    env:KAFKA_MIGRATION_HOOK_... is read from that environment variable when the call is made; it travels by https only,
    or to this machine."""

    timeout_seconds: Seconds = 10.0
    """For the whole call, in seconds."""

    @field_validator("headers")
    @classmethod
    def _no_secret_in_plan(cls, headers: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        found = Contradictions()
        url = info.data.get("url")
        is_private = not isinstance(url, str) or _is_private(url)
        for name, value in headers.items():
            problem = _header_problem(name, value) or _secret_problem(value, is_private=is_private)
            if problem is not None:
                shown, message, remedy = problem
                found.add((name,), shown, message, remedy)
        found.raise_any("headers")
        return headers

    def url_for(self, values: dict[str, str]) -> str:
        """The URL with its placeholders replaced; a group's name can add no path segment and no parameter."""
        return fill(self.url, {name: quote(value, safe="") for name, value in values.items()})


class Hook(PlanModel):
    """One step that stops or starts consumers: exactly one of command, http and wait."""

    command: (
        Annotated[
            tuple[Annotated[str, AfterValidator(known_placeholders)], ...],
            Field(min_length=1),
            AfterValidator(a_program),
        ]
        | None
    ) = None
    """A program and its arguments, run without a shell. The program is an absolute path, or a file name, and must be
    one that the administrator lists in KAFKA_MIGRATION_ALLOWED_COMMANDS. {group}, {migration}, {cluster} and {phase}
    are replaced in the arguments."""

    http: HttpCall | None = None
    """An HTTP call."""

    wait: Literal[True] | None = None
    """Somebody else does it: wait until it is so."""

    timeout_seconds: Seconds | None = None
    """How long the command may run, in seconds (60 if not given)."""

    groups: Patterns | None = None
    """For groups whose whole name matches one of these only; without it, for every group."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Hook:
        found = Contradictions()
        given = [name for name in ("command", "http", "wait") if getattr(self, name) is not None]
        if len(given) != 1:
            what = " and ".join(given) or "none of them"
            found.add((), what, "a hook is exactly one of command, http and wait", "write one entry for each step")
        if self.timeout_seconds is not None and self.command is None and given:
            remedy = "write it inside http" if self.http else "use consumers.wait_seconds"
            found.add(("timeout_seconds",), self.timeout_seconds, "is for commands only", remedy)
        if self.groups == ():
            found.add(("groups",), [], "a hook for no group never runs", "name groups, or leave the field out")
        found.raise_any("hook")
        return self

    def names(self, placeholder: str) -> bool:
        """Whether it is called with what ``{placeholder}`` stands for."""
        parts = (*(self.command or ()), self.http.url if self.http else "")
        return any(f"{{{placeholder}}}" in part for part in parts)

    def is_for(self, group: str) -> bool:
        """Whether this hook runs for ``group``."""
        return self.groups is None or matches_any(self.groups, group)

    @property
    def command_timeout(self) -> float:
        """Seconds that the command may run."""
        return 60.0 if self.timeout_seconds is None else self.timeout_seconds
