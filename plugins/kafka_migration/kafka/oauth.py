"""Tokens for SASL/OAUTHBEARER on kafka-python, which brings no token endpoint client of its own.

librdkafka (``sasl.oauthbearer.method=oidc``) and the JVM (KIP-768) fetch tokens themselves, by the client
credentials grant of RFC 6749, section 4.4; this is the same grant, so that one connection serves all three.
"""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field

from kafka.net.sasl.oauth import AbstractTokenProvider

from kafka_migration.domain.errors import BadInput, CouldNotFindOut

#: A token is renewed once this share of its life is over: the JVM's sasl.login.refresh.window.factor.
_REFRESH_AFTER = 0.8
_TIMEOUT_SECONDS = 10.0


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Whoever follows a redirect sends the client's secret on to wherever it points."""

    def redirect_request(self, *_request: object) -> None:
        return None


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class ClientCredentialsTokens(AbstractTokenProvider):  # type: ignore[misc]
    """Fetches and renews access tokens. Picklable: a task that gets it fetches a token of its own."""

    url: str
    client_id: str
    client_secret: str
    scope: str = ""
    extension_pairs: dict[str, str] = field(default_factory=dict)
    _token: str = ""
    _renew_at: float = 0.0

    def __repr__(self) -> str:
        return f"ClientCredentialsTokens(url={self.url!r}, client_id={self.client_id!r})"

    def __getstate__(self) -> dict[str, object]:
        names = ("url", "client_id", "client_secret", "scope", "extension_pairs")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, object]) -> None:
        for name, value in {**state, "_token": "", "_renew_at": 0.0}.items():
            setattr(self, name, value)

    def token(self) -> str:
        """A token that is still good for a while. Raises BadInput if the endpoint refuses the client,
        CouldNotFindOut if it does not answer."""
        if time.monotonic() >= self._renew_at:
            self._fetch()
        return self._token

    def extensions(self) -> dict[str, str]:
        return self.extension_pairs

    def _fetch(self) -> None:
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        basic = base64.b64encode(f"{self.client_id}:{self.client_secret}".encode()).decode()
        request = urllib.request.Request(
            self.url,
            data=urllib.parse.urlencode(form).encode(),
            headers={"Authorization": f"Basic {basic}", "Accept": "application/json"},
        )
        asked = time.monotonic()
        try:
            # By no proxy of the environment: in clear, one would read the secret.
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects)
            with opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
                answer = json.load(response)
            self._token = str(answer["access_token"])
            self._renew_at = asked + _REFRESH_AFTER * float(answer.get("expires_in", 0))
        except urllib.error.HTTPError as error:
            if error.code in (400, 401, 403):
                raise BadInput(
                    f"the token endpoint {self.url} refused the client {self.client_id!r} (HTTP {error.code})",
                    field="sasl.oauthbearer.client.id",
                    remedy="check the client id, its secret and its scope in the connection",
                ) from None
            if error.code in (301, 302, 303, 307, 308):
                raise BadInput(
                    f"the token endpoint {self.url} redirects elsewhere (HTTP {error.code}), and the client's secret is"
                    " sent nowhere else",
                    field="sasl.oauthbearer.token.endpoint.url",
                    remedy="write the address of the token endpoint itself into the connection",
                ) from None
            raise CouldNotFindOut(f"the token endpoint {self.url} answered HTTP {error.code}") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CouldNotFindOut(
                f"no token from {self.url} ({type(error).__name__})",
                remedy="check sasl.oauthbearer.token.endpoint.url, and that it answers with an access_token",
            ) from None
