"""HTTP hooks: whoever runs this process allows the URLs that may be called, never a plan.

``KAFKA_MIGRATION_ALLOWED_URLS``: URL prefixes, separated by blanks. Scheme, host and port must be equal, the path must
begin with the prefix's, whole segments at a time, and what the prefix asks for in its query must be asked for likewise.
Servers, and proxies before them, differ in how often they decode a path and what they drop from it; so it is compared
as the most eager of them would read it, and one that could lead out of the prefix is refused. Empty or unset: none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from kafka_migration.domain.errors import Refused
from kafka_migration.plans.hooks import HttpCall

ALLOWED_URLS = "KAFKA_MIGRATION_ALLOWED_URLS"

_PORTS = {"http": 80, "https": 443}
#: Nobody encodes a name that often.
_MOST_DECODINGS = 5


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


async def _call(http: HttpCall, url: str, headers: Mapping[str, str]) -> int:
    # Imported here: only plans with such hooks pay for it.
    import httpx

    try:
        # One limit around everything: the library's own are for each read, and a slow answer has many of them.
        async with (
            asyncio.timeout(http.timeout_seconds),
            # trust_env would read a proxy and, from ~/.netrc, credentials that the plan does not name.
            httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=http.timeout_seconds) as client,
            client.stream(http.method, url, headers=dict(headers)) as answer,
        ):
            return answer.status_code
    except TimeoutError:
        raise NoAnswer(f"no answer within {http.timeout_seconds:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NoAnswer(f"no answer ({type(error).__name__}: {error})") from None
