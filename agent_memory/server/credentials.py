"""Authenticates requests by API key or JWT."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, build_opener

from agent_memory.client.service import MARK
from agent_memory.core.cache import Cache
from agent_memory.core.ids import check_id
from agent_memory.errors import ConfigError, InvalidId
from agent_memory.listening.asgi import REALM
from agent_memory.server.keys import KeyRing
from agent_memory.server.problems import UNAUTHENTICATED, UNAVAILABLE, Refused
from agent_memory.server.rights import Principal, checked_rights

if TYPE_CHECKING:
    from jwt import PyJWK


logger = logging.getLogger(__name__)

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
"""Only asymmetric algorithms, where a fetched public key cannot sign tokens."""

_LEEWAY_SECONDS = 30
_KEPT_SECONDS = 300.0
_PAUSE_SECONDS = 15.0
_FETCH_SECONDS = 5.0
_MOST_BYTES = 1_000_000
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Tokens:
    """Verifies the JWTs of a trusted issuer. Thread-safe.

    Raises:
        ConfigError: The URL is neither https nor on loopback, or a setting is missing.
        InvalidInput: A right is unknown, or is "admin", which a JWT for one user cannot have.
    """

    def __init__(
        self, jwks_url: str, issuer: str, audience: str, user_claim: str, rights: Iterable[str]
    ) -> None:
        where = urlsplit(jwks_url)
        safe = where.scheme == "https" or (where.scheme == "http" and where.hostname in _LOOPBACK)
        if not (safe and where.hostname):
            raise ConfigError(
                "The issuer's keys must be fetched over https. Pass an https --jwks URL."
            )
        if not (issuer and audience and user_claim):
            raise ConfigError(
                "--jwks needs the issuer and the audience. Add --issuer and --audience."
            )
        self._url = jwks_url
        self._issuer = issuer
        self._audience = audience
        self._user_claim = user_claim
        self._rights = checked_rights(rights, ("one",))
        self._lock = threading.Lock()
        self._fetching = threading.Lock()
        self._keys: dict[str | None, PyJWK] = {}
        self._fetched = -_KEPT_SECONDS
        self._tried = -_PAUSE_SECONDS

    def principal_of(self, token: str) -> Principal | None:
        """Return the principal of a token. None if the token is not valid."""
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            key = self._key(header.get("kid"))
            if key is None:
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=[name for name in _ALGORITHMS if name == key.algorithm_name],
                issuer=self._issuer,
                audience=self._audience,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", self._user_claim]},
            )
            user_id = claims[self._user_claim]
            check_id("The user's id", user_id)
        except (jwt.PyJWTError, InvalidId, ValueError):
            return None
        if user_id.endswith("*"):  # `Principal.users` would match other users with this prefix
            return None
        return Principal("jwt", (user_id,), self._rights)

    def _key(self, kid: str | None) -> PyJWK | None:
        """Return the issuer's key with an id, or None.

        The keys are fetched again after 5 minutes, or if the id is unknown, but at most every 15
        seconds.
        """
        with self._lock:
            now = time.monotonic()
            old = now - self._fetched >= _KEPT_SECONDS
            due = (old or kid not in self._keys) and now - self._tried >= _PAUSE_SECONDS
            due = due and self._fetching.acquire(blocking=False)
            if due:
                self._tried = now
        if due:  # other threads use the known keys meanwhile
            try:
                self._keys = _keys_at(self._url)
                self._fetched = now
            except (OSError, ValueError) as error:
                logger.warning("The issuer's keys cannot be fetched: %s", type(error).__name__)
            finally:
                self._fetching.release()
        elif not self._keys and self._fetching.acquire(timeout=_FETCH_SECONDS):
            self._fetching.release()  # this thread only waited for another thread's fetch
        if not self._keys:
            raise Refused(UNAVAILABLE)
        return self._keys.get(kid)


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _keys_at(url: str) -> dict[str | None, PyJWK]:
    """Fetch the keys that an issuer publishes. Return a dict from key id to key."""
    import jwt

    with build_opener(_NoRedirects).open(url, timeout=_FETCH_SECONDS) as answer:
        body = answer.read(_MOST_BYTES + 1)
    if len(body) > _MOST_BYTES:
        raise ValueError("the keys are too large")
    try:
        return {key.key_id: key for key in jwt.PyJWKSet.from_dict(json.loads(body)).keys}
    except (jwt.PyJWTError, AttributeError, TypeError) as error:
        raise ValueError("the response is not a key set") from error


_REMEMBERED_SECONDS = 60.0
_MOST_REMEMBERED = 10_000


class Credentials:
    """Authenticates callers by API key or, with a verifier `tokens`, also by JWT."""

    def __init__(self, ring: KeyRing, tokens: Tokens | None = None) -> None:
        self._ring = ring
        self._tokens = tokens
        self._remembered: Cache[str, tuple[Principal, float]] = Cache(_MOST_REMEMBERED)

    def remembered(self, shown: str) -> Principal | None:
        """Return the principal of a credential that was valid in the last 60 seconds, or None.

        The credential may have been revoked since. Call `principal_of` before acting on it.
        """
        principal, until = self._remembered.get(shown, (None, 0.0))
        return principal if monotonic() < until else None

    def principal_of(self, shown: str) -> Principal:
        """Return the principal of a credential, from the store or the JWT.

        The error for an invalid credential does not say what is wrong with it.
        """
        principal = None
        if shown.startswith(MARK):
            key = self._ring.key_of(shown)
            principal = None if key is None else key.principal
        elif self._tokens is not None:
            principal = self._tokens.principal_of(shown)
        if principal is None:
            self._remembered.drop(shown)
            raise unauthenticated()
        self._remembered.put(shown, (principal, monotonic() + _REMEMBERED_SECONDS))
        return principal


def unauthenticated() -> Refused:
    """Return the error for a missing or invalid credential."""
    return Refused(UNAUTHENTICATED, headers={"WWW-Authenticate": REALM})
