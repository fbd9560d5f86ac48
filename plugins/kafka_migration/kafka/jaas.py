"""The JVM's ``sasl.jaas.config``: one login module with quoted options.

Kafka reads it with java.io.StreamTokenizer: inside double quotes a backslash begins an escape, and nothing else is
special but the quote itself. Line ends would end the string; connections refuse them before they come here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set

_OPTION = re.compile(r"""\s+([A-Za-z_][\w.]*)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)""")
_MODULE = re.compile(r"\s*[\w.$]+\.(\w+)\s+(?:required|requisite|sufficient|optional)")
#: Login modules that know a user name and a password.
PASSWORD_MODULES = frozenset({"PlainLoginModule", "ScramLoginModule"})
OAUTH_MODULE = "OAuthBearerLoginModule"
#: The JDK's own; IBM's has other options.
KERBEROS_MODULE = "Krb5LoginModule"
#: Options of modules, and librdkafka's names of the same.
PROPERTIES = {
    "username": "sasl.username",
    "password": "sasl.password",
    "principal": "sasl.kerberos.principal",
    "keyTab": "sasl.kerberos.keytab",
    "serviceName": "sasl.kerberos.service.name",
}
_ESCAPE = re.compile(r"\\(.)")


def escaped(text: str) -> str:
    """``text`` as it stands between the quotes."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def entry(module: str, options: Mapping[str, str]) -> str:
    """``module required name="value" …;``"""
    return f"{module} required " + " ".join(f'{name}="{escaped(text)}"' for name, text in options.items()) + ";"


def options(text: str, *, modules: Set[str] = PASSWORD_MODULES) -> dict[str, str] | None:
    """The options of one login module of these ``modules``, or None if ``text`` is anything else."""
    module = _MODULE.match(text)
    if module is None or module[1] not in modules:
        return None
    found: dict[str, str] = {}
    at = module.end()
    while option := _OPTION.match(text, at):
        name, raw = option.groups()
        is_quoted = raw[0] in "\"'"
        # Escapes of letters and digits (\n, \101) would need StreamTokenizer's whole table: not taken.
        if is_quoted and any(letter.isalnum() for letter in _ESCAPE.findall(raw[1:-1])):
            return None
        found[name] = _ESCAPE.sub(r"\1", raw[1:-1]) if is_quoted else raw
        at = option.end()
    return found if text[at:].strip() == ";" else None
