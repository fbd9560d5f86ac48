"""Running the plan's hooks: how consumers are stopped and started by what a company already has.

A plan names programs and URLs, and many people may write plans. So whoever runs this process allows them, in
environment variables that no plan can change, and nothing goes through a shell:

- ``KAFKA_MIGRATION_ALLOWED_COMMANDS``: absolute paths of executables, separated by colons. Empty or unset: none.
- ``KAFKA_MIGRATION_COMMAND_ENVIRONMENT``: names of further variables that commands may see, separated by colons.
- ``KAFKA_MIGRATION_ALLOWED_URLS``: URL prefixes, separated by blanks. Scheme, host and port must be equal, the path
  must begin with the prefix's, whole segments at a time, and what the prefix asks for in its query must be asked for
  likewise. Servers, and proxies before them, differ in how often they decode a path and what they drop from it; so it
  is compared as the most eager of them would read it, and one that could lead out of the prefix is refused. Empty or
  unset: none.

A hook may run twice for one group (a kill between running it and recording that), so it has to be idempotent.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import select
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from kafka_migration.domain.checks import CheckResult
from kafka_migration.domain.direction import Side
from kafka_migration.domain.errors import CouldNotFindOut, Refused
from kafka_migration.domain.hiding import hidden
from kafka_migration.domain.leash import Leash
from kafka_migration.domain.printable import in_one_line
from kafka_migration.plans.access import ScramUsers
from kafka_migration.plans.hooks import Hook, HttpCall, fill
from kafka_migration.plans.model import Plan
from kafka_migration.plans.problems import is_secret_name

Phase = Literal["cutover", "rollback", "undo", "fence", "lift", "switch"]

ALLOWED_COMMANDS = "KAFKA_MIGRATION_ALLOWED_COMMANDS"
COMMAND_ENVIRONMENT = "KAFKA_MIGRATION_COMMAND_ENVIRONMENT"
ALLOWED_URLS = "KAFKA_MIGRATION_ALLOWED_URLS"

#: What every command sees of this process's environment. Nothing that could carry a secret.
_HARMLESS = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
#: Request Timeout and Too Many Requests: as with 5xx, another call may fare better.
_MAY_PASS = (408, 429)
_SHOWN_CHARACTERS, _READ_BYTES = 600, 65_536
#: Characters from which on a value is looked for in a command's output: shorter ones would be found in any text.
_SECRET = 6
_NAMED_SECRET = re.compile(
    r"(?i)((?:authorization|password|passwd|secret|token|api[-_]?key|credentials?)[\w-]*[\"']?\s*[=:]\s*(?:bearer\s+|basic\s+)?)"
    r"(?!<hidden>)[^\s,;&]+"
)
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\u00a0-\uffff]+")
_PORTS = {"http": 80, "https": 443}
#: Nobody encodes a name that often.
_MOST_DECODINGS = 5


class HookFailed(Refused):
    """A hook ran and failed: another exit code than 0, another answer than 2xx."""


class HookUnanswered(CouldNotFindOut):
    """A hook did not end in time, or its server did not answer, or with 5xx, 408 or 429: what it did is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """A hook for one group, or for the producers of a plan (``group`` is "" then). ``cluster`` is where clients are
    stopped or started, or kept out."""

    hook: Hook
    group: str
    migration: str
    cluster: Side
    phase: Phase

    @property
    def values(self) -> dict[str, str]:
        """What placeholders are replaced with."""
        return {"group": self.group, "migration": self.migration, "cluster": self.cluster, "phase": self.phase}

    def __str__(self) -> str:
        """One line for people. Headers are not in it."""
        if self.hook.command:
            return _shown(self.hook.command, self.values)
        if self.hook.http:
            return f"{self.hook.http.method} {self.hook.http.url_for(self.values)}"
        return "wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRun:
    """What a hook did: ``seconds`` it took, and the shortened end of its output."""

    what: str
    seconds: float
    said: str

    def as_dict(self) -> dict[str, object]:
        return {"what": self.what, "seconds": round(self.seconds, 3), "said": self.said}


def run_hook(call: HookCall, *, environ: Mapping[str, str] | None = None) -> HookRun:
    """Run a command or an HTTP call to its end. ``environ`` is the administrator's; by default the process's own.

    Raises HookFailed if it fails, HookUnanswered if it does not answer in time, Refused if it may not run.
    """
    environ = os.environ if environ is None else environ
    began = time.monotonic()
    if call.hook.command:
        output = _run_command(call, call.hook.command, environ)
    elif call.hook.http:
        output = _run_http(call, call.hook.http, environ)
    else:
        raise ValueError("waiting is the caller's: only the caller knows what for")
    return HookRun(what=str(call), seconds=time.monotonic() - began, said=output)


def require_runnable(call: HookCall, *, environ: Mapping[str, str] | None = None) -> None:
    """Raise Refused if ``call`` may not run here. Nothing is run."""
    environ = os.environ if environ is None else environ
    _evidence(call.hook, environ)
    if call.hook.command:
        _safe_arguments(str(call), call.hook.command, call.values)
    if call.hook.http:
        require_allowed(call.hook.http.url_for(call.values), environ)


def check_hooks(plan: Plan, *, environ: Mapping[str, str] | None = None) -> tuple[CheckResult, ...]:
    """Whether every hook of the plan may run here, as named checks. Nothing is run."""
    environ = os.environ if environ is None else environ
    named = [
        (f"consumers.{place}[{at}]", hook)
        for place in ("stop", "start")
        for at, hook in enumerate(getattr(plan.consumers, place))
    ]
    named += plan.producers.hooks() if plan.producers is not None else ()
    results = []
    for place, hook in named:
        name = f"hook {place}"
        try:
            evidence = _evidence(hook, environ)
        except Refused as error:
            results.append(CheckResult.failed(name, error.message, remedy=error.remedy))
        else:
            results.append(CheckResult.passed(name, evidence))
    return tuple(results)


def _evidence(hook: Hook, environ: Mapping[str, str]) -> str:
    if hook.command:
        return f"runs {allowed_program(hook.command[0], environ)}"
    if hook.http:
        require_allowed(hook.http.url, environ)
        headers_of(hook.http, environ)
        return f"calls {hook.http.method} {hook.http.url}"
    return "waits for others"


# -- commands -------------------------------------------------------------------------------------------------------


def allowed_program(program: str, environ: Mapping[str, str]) -> str:
    """The administrator's path of ``program`` (an absolute path or a file name). Raises Refused if it is not allowed.

    What runs is the path in the administrator's list, never the plan's spelling: two links to one program that acts
    by its name (busybox) are equal once resolved, yet not the same command.
    """
    allowed = [path for path in environ.get(ALLOWED_COMMANDS, "").split(":") if path.startswith("/")]
    found = _meant(program, allowed)
    if not found:
        raise Refused(
            f"command {program} is not allowed here (allowed: {', '.join(allowed) or 'nothing'})",
            remedy=f"have the administrator add its absolute path to {ALLOWED_COMMANDS} where the hooks run",
        )
    if len({os.path.realpath(path) for path in found}) > 1:
        raise Refused(
            f"command {program} is ambiguous: {', '.join(sorted(found))}",
            remedy="write the absolute path into the plan",
        )
    path = found[0]
    if not os.path.isfile(path) or not os.access(path, os.X_OK):
        raise Refused(
            f"command {path} is not an executable file on this machine",
            remedy=f"install it there, or correct {ALLOWED_COMMANDS}",
        )
    return path


def _meant(program: str, allowed: list[str]) -> list[str]:
    """Which of the allowed paths a plan's ``program`` may mean."""
    if not program.startswith("/"):
        return [path for path in allowed if Path(path).name == program]
    same = [path for path in allowed if path == program]
    return same or [path for path in allowed if os.path.realpath(path) == os.path.realpath(program)]


def _arguments(command: tuple[str, ...], values: Mapping[str, str]) -> list[str]:
    return [fill(item, dict(values)) for item in command[1:]]


def _shown(command: tuple[str, ...], values: Mapping[str, str]) -> str:
    """A command for people."""
    return in_one_line("command " + " ".join([command[0], *_arguments(command, values)]))


def _safe_arguments(what: str, command: tuple[str, ...], values: Mapping[str, str]) -> list[str]:
    arguments = _arguments(command, values)
    for template, argument in zip(command[1:], arguments, strict=True):
        # A group may have any name, and one like --force must not become an option of the program.
        if argument.startswith("-") and not template.startswith("-"):
            raise Refused(
                f"{what}: the argument {argument!r} would be taken for an option",
                remedy=f"pass it with its option in one item of the plan, such as --name={template}",
            )
        if "\0" in argument:
            raise Refused(
                f"{what}: no program takes the argument {argument!r}", remedy="do by hand what the command would do"
            )
    return arguments


def _run_command(call: HookCall, command: tuple[str, ...], environ: Mapping[str, str]) -> str:
    # What the administrator hands on may be secret, and the command's output goes into messages and the journal.
    known = _environment(environ).items()
    secrets = [value for name, value in known if _may_be_secret(name) and len(value) >= _SECRET]
    # Into a file, not a pipe: a command that leaves consumers running passes its output on to them, and a pipe would
    # then stay open, and this call hang, for as long as they run.
    with tempfile.TemporaryFile() as output:
        streams = {"stdout": output, "stderr": subprocess.STDOUT}
        try:
            code = _exit_code(str(call), command, call.values, environ, call.hook.command_timeout, **streams)
        except subprocess.TimeoutExpired:
            raise HookUnanswered(
                f"{call}: did not end within {call.hook.command_timeout:g} s, and was killed; its output:"
                f" {_tail(output, secrets)}",
                remedy="check what it does, or give it a longer timeout_seconds",
            ) from None
        shown = _tail(output, secrets)
    if code != 0:
        raise HookFailed(
            f"{call}: {_ending(code)}; its output: {shown}", remedy="make it succeed by hand, then run this again"
        )
    return shown


def require_password_command(
    users: ScramUsers, names: Iterable[str], migration: str, *, environ: Mapping[str, str] | None = None
) -> None:
    """Raise Refused if the plan's command may not run here for each user of these ``names``. Nothing is run."""
    command = users.command or ()
    allowed_program(command[0], os.environ if environ is None else environ)
    for name in names:
        values = {"user": name, "migration": migration}
        try:
            _safe_arguments(_shown(command, values), command, values)
        except Refused as error:
            remedy = f"{error.remedy}; or name the user in access.users.exclude, and have it made by hand"
            raise Refused(error.message, remedy=remedy) from None


def run_for_password(users: ScramUsers, user: str, migration: str, *, environ: Mapping[str, str] | None = None) -> str:
    """The password that the plan's command prints for ``user``: in no message, log or file, whatever goes wrong.

    Raises as :func:`run_hook`, and HookFailed for what is not one line.
    """
    environ = os.environ if environ is None else environ
    command, values = users.command or (), {"user": user, "migration": migration}
    what = _shown(command, values)
    remedy = "its output may hold the password, and is not shown: run it by hand, then this again"
    # A pipe, which is on no disk; read when the command is done, so that nothing it leaves running is waited for.
    printed, (read, write) = b"", os.pipe()
    try:
        os.set_blocking(read, False)
        streams = {"stdout": write, "stderr": subprocess.DEVNULL}
        code = _exit_code(what, command, values, environ, users.timeout_seconds, **streams)
        with suppress(BlockingIOError):
            printed = os.read(read, _READ_BYTES)
    except subprocess.TimeoutExpired:
        raise HookUnanswered(
            f"{what}: did not end within {users.timeout_seconds:g} s, and was killed", remedy=remedy
        ) from None
    finally:
        os.close(read)
        os.close(write)
    if code != 0:
        raise HookFailed(f"{what}: {_ending(code)}", remedy=remedy)
    try:
        (password,) = printed.decode().splitlines()
    except ValueError:
        password = ""
    if not password.strip():
        raise HookFailed(f"{what}: printed something else than one line", remedy=remedy)
    return password


def _exit_code(
    what: str,
    command: tuple[str, ...],
    values: Mapping[str, str],
    environ: Mapping[str, str],
    seconds: float,
    **streams: Any,
) -> int:
    """How a command ends. Raises subprocess.TimeoutExpired once it was killed, HookFailed if it cannot be started."""
    program = allowed_program(command[0], environ)
    arguments = _safe_arguments(what, command, values)
    with Leash() as leash:
        try:
            process = leash.start(
                [program, *arguments], stdin=subprocess.DEVNULL, env=_environment(environ), cwd="/", **streams
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise HookFailed(
                f"{what}: cannot be started: {error}", remedy=f"check {program} and its interpreter"
            ) from error
        try:
            return _wait(process, seconds)
        finally:
            # Whatever ended the wait (a timeout, Ctrl-C, the end of the task), nothing of the command outlives this
            # call unfinished: a stop would land after the next try's start. The leash is for a kill of this process.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    names = [*_HARMLESS, *environ.get(COMMAND_ENVIRONMENT, "").split(":")]
    return {name: environ[name] for name in names if name in environ}


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int:
    """As its own wait, which looks only twenty times a second: clients stand still until this returns."""
    if sys.platform == "linux":
        watched = os.pidfd_open(process.pid)
        try:
            poll = select.poll()
            poll.register(watched, select.POLLIN)
            began = time.monotonic()
            poll.poll(seconds * 1000)
            seconds -= time.monotonic() - began
        finally:
            os.close(watched)
    return process.wait(max(0.0, seconds))


def _may_be_secret(variable: str) -> bool:
    return is_secret_name(variable) or variable.upper().endswith("KEY")


def _tail(output: IO[bytes], secrets: Collection[str]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _READ_BYTES))
    text = hidden(output.read(_READ_BYTES).decode(errors="replace"), secrets)
    # Only then shortened: a secret that is cut in two is not found.
    text = _UNPRINTABLE.sub(" ", _NAMED_SECRET.sub(r"\1<hidden>", text)).strip()
    is_cut = size > _READ_BYTES or len(text) > _SHOWN_CHARACTERS
    return f"...{text[-_SHOWN_CHARACTERS:]}" if is_cut else text or "nothing"


# -- HTTP calls -----------------------------------------------------------------------------------------------------


def _run_http(call: HookCall, http: HttpCall, environ: Mapping[str, str]) -> str:
    try:
        status = call_http(http, http.url_for(call.values), environ)
    except NoAnswer as error:
        raise HookUnanswered(
            f"{call}: {error}", remedy="check the URL and the server, or give it a longer timeout_seconds"
        ) from None
    if status in _MAY_PASS or status >= 500:
        raise HookUnanswered(
            f"{call}: answered {status}", remedy="see why the server gives no clear answer, then run this again"
        )
    if not 200 <= status < 300:
        raise HookFailed(f"{call}: answered {status}", remedy="make it answer 2xx, then run this again")
    return str(status)


class NoAnswer(Exception):
    """The server did not answer, or not in time, as the message has it."""


def require_allowed(url: str, environ: Mapping[str, str]) -> None:
    """Raise Refused unless one of the administrator's prefixes covers ``url``, whose placeholders are replaced."""
    wanted = urlsplit(url)
    prefixes = environ.get(ALLOWED_URLS, "").split()
    if any(_covers(urlsplit(prefix), wanted) for prefix in prefixes):
        return
    raise Refused(
        f"URL {url} is not allowed here (allowed: {', '.join(prefixes) or 'nothing'})",
        remedy=f"have the administrator add a prefix of it to {ALLOWED_URLS} where the hooks run",
    )


def _covers(prefix: SplitResult, wanted: SplitResult) -> bool:
    if prefix.scheme not in _PORTS or _server(prefix) != _server(wanted):
        return False
    base, path = _segments(prefix.path), _segments(wanted.path)
    if base is None or path is None or path[: len(base)] != base:
        return False
    asked = parse_qs(wanted.query, keep_blank_values=True)
    return all(asked.get(name) == values for name, values in parse_qs(prefix.query, keep_blank_values=True).items())


def _segments(path: str) -> list[str] | None:
    """What is between the slashes of ``path``, decoded for good; None if a server could resolve it to another path."""
    for _ in range(_MOST_DECODINGS):
        decoded = unquote(path)
        if decoded == path:
            break
        path = decoded
    else:
        return None
    segments = path.replace("\\", "/").strip("/").split("/")
    # Parameters of a segment (..;a=b) are dropped by some servers before dots are resolved. A group may be called so.
    is_odd = any(part.partition(";")[0] in (".", "..") or not part.isprintable() for part in segments)
    return None if is_odd else [part for part in segments if part]


def _server(url: SplitResult) -> tuple[str, str | None, int | None]:
    return url.scheme, url.hostname, _PORTS.get(url.scheme) if url.port is None else url.port


def headers_of(http: HttpCall, environ: Mapping[str, str]) -> dict[str, str]:
    """The headers to send, with those from the environment filled in. Raises Refused for a variable that is unfit."""
    return {name: _header(name, value, environ) for name, value in http.headers.items()}


def _header(name: str, value: str, environ: Mapping[str, str]) -> str:
    if not value.startswith("env:"):
        return value
    variable = value.removeprefix("env:")
    found = environ.get(variable, "")
    # Checked here, because the HTTP library's own message would show the value.
    if not found or not found.isascii() or not found.isprintable():
        what = "holds what no header can" if found else "is not set"
        raise Refused(
            f"header {name}: the environment variable {variable} {what}",
            remedy="set it, as one line of printable ASCII, where the hooks run",
        )
    return found


def call_http(http: HttpCall, url: str, environ: Mapping[str, str]) -> int:
    """Make the call and return the answer's status. The rest of the answer is not read: it may echo a secret.

    Redirects are not followed: their target is nobody's choice here. Raises Refused before the call if it may not be
    made, NoAnswer if none came in time.
    """
    require_allowed(url, environ)
    return asyncio.run(_call(http, url, headers_of(http, environ)))


@functools.cache
def _trusted() -> ssl.SSLContext:
    """The certificates that servers are known by. To load them takes longer than most calls do, and clients wait."""
    import httpx

    return httpx.create_ssl_context(trust_env=False)


async def _call(http: HttpCall, url: str, headers: Mapping[str, str]) -> int:
    # Imported here: only plans with such hooks pay for it.
    import httpx

    try:
        # One limit around everything: the library's own are for each read, and a slow answer has many of them.
        async with (
            asyncio.timeout(http.timeout_seconds),
            # trust_env would read a proxy and, from ~/.netrc, credentials that the plan does not name.
            httpx.AsyncClient(
                verify=_trusted() if urlsplit(url).scheme == "https" else False,
                trust_env=False,
                follow_redirects=False,
                timeout=http.timeout_seconds,
            ) as client,
            client.stream(http.method, url, headers=dict(headers)) as answer,
        ):
            return answer.status_code
    except TimeoutError:
        raise NoAnswer(f"no answer within {http.timeout_seconds:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NoAnswer(f"no answer ({type(error).__name__}: {error})") from None
