"""Authenticates requests by API key or JWT, checks the credential's rights and users, counts them.

No field of a request can extend these rights and users.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, build_opener

from agent_memory.client.calls import Right
from agent_memory.client.service import MARK
from agent_memory.core.cache import Cache
from agent_memory.core.limits import check_id, quoted
from agent_memory.errors import ConfigError, InvalidId, InvalidInput
from agent_memory.listening import REALM
from agent_memory.server.problems import Kind, Refused, other_user

if TYPE_CHECKING:
    from jwt import PyJWK

    from agent_memory.server.keys import KeyRing

RIGHTS: tuple[Right, ...] = get_args(Right)
EVERYBODY = "*"

_PATTERN = "*"


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated credential."""

    name: str
    # the users that the credential may act for: ids, prefixes of ids with a `*` at the end, or "*"
    # for everybody
    users: tuple[str, ...]
    # The rights of the credential for these users. "admin" is a right on the whole service.
    rights: frozenset[Right]
    label: str = ""  # a description for people, possibly empty

    @classmethod
    def of_user(cls, name: str, user_id: str, rights: Iterable[Right]) -> Principal:
        """Return the principal of one user. An id that is a pattern is refused.

        Raises:
            InvalidId: The id is invalid, or ends with `*` and would match other users.
        """
        check_id("The user's id", user_id)
        if user_id.endswith(_PATTERN):
            raise InvalidId(f"The user's id is {quoted(user_id)}. Use an id without * at the end.")
        return cls(name, (user_id,), frozenset(rights))

    def user(self, named: str | None) -> str:
        """Return the id of the user that a call acts for. `named` is the user in the request."""
        if named is None:
            own = one_user(self.users)
            if own is not None:
                return own
            raise Refused(Kind.INVALID, "This credential is for several users. Add ?user_id=.")
        if not any(_is_of(named, pattern) for pattern in self.users):
            raise other_user()
        check_id("user_id", named)
        return named

    def require(self, right: Right) -> None:
        if right not in self.rights:
            has = ", ".join(name for name in RIGHTS if name in self.rights)
            raise Refused(
                Kind.FORBIDDEN, f'This call needs the right "{right}". The credential has: {has}.'
            )


def one_user(users: tuple[str, ...]) -> str | None:
    """Return the only user of a credential. None if it is for several users."""
    return users[0] if len(users) == 1 and not users[0].endswith(_PATTERN) else None


def checked_users(users: Iterable[str]) -> tuple[str, ...]:
    """Validate the users of a credential, and return them without duplicates."""
    unique = tuple(dict.fromkeys(users))
    for user in unique:
        check_id("The user's id", user)
        if _PATTERN in user[:-1]:
            raise InvalidInput(
                f"The users {quoted(user)} are not valid. Put the * at the end, as in team-*."
            )
    if not unique:
        raise InvalidInput("No users are given. Pass ids, team-* for a prefix, or * for all.")
    return unique


def checked_rights(rights: Iterable[str], users: tuple[str, ...]) -> frozenset[Right]:
    names = list(rights)
    allowed: frozenset[Right] = frozenset([right for right in RIGHTS if right in names])
    if not allowed or len(allowed) < len(set(names)):
        raise InvalidInput(f"The rights are {quoted(names)}. Pass some of {', '.join(RIGHTS)}.")
    if "admin" in allowed and users != (EVERYBODY,):
        raise InvalidInput('"admin" gives access to all users. Pass * as the users.')
    return allowed


def _is_of(user_id: str, pattern: str) -> bool:
    if pattern.endswith(_PATTERN):
        return user_id.startswith(pattern[:-1])
    return user_id == pattern


logger = logging.getLogger(__name__)

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
"""Only asymmetric algorithms, where a fetched public key cannot sign tokens."""

_LEEWAY_SECONDS = 30
_CACHE_SECONDS = 300.0
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
        self._fetching = threading.Lock()
        self._keys: dict[str | None, PyJWK] = {}
        self._fetched = -_CACHE_SECONDS
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
            return Principal.of_user("jwt", claims[self._user_claim], self._rights)
        except (jwt.PyJWTError, InvalidId, ValueError):
            return None

    def _key(self, kid: str | None) -> PyJWK | None:
        """Return the issuer's key with an id, or None.

        The keys are fetched again after 5 minutes, or if the id is unknown, but at most every 15
        seconds.
        """
        now = monotonic()
        due = now - self._fetched >= _CACHE_SECONDS or kid not in self._keys
        # while a thread fetches, the others use the known keys, or wait if there are none
        if due and self._fetching.acquire(timeout=0 if self._keys else _FETCH_SECONDS):
            try:
                if now - self._tried >= _PAUSE_SECONDS:
                    self._tried = now
                    self._keys, self._fetched = _keys_at(self._url), now
            except (OSError, ValueError) as error:
                logger.warning("The issuer's keys cannot be fetched: %s", type(error).__name__)
            finally:
                self._fetching.release()
        if not self._keys:
            raise Refused(Kind.UNAVAILABLE)
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


_MOST_REMEMBERED = 10_000


class Credentials:
    """Authenticates callers by API key or, with a verifier `tokens`, also by JWT."""

    def __init__(self, ring: KeyRing, tokens: Tokens | None = None) -> None:
        self._ring = ring
        self._tokens = tokens
        self._remembered: Cache[str, tuple[Principal, float]] = Cache(_MOST_REMEMBERED)

    def remembered(self, shown: str, seconds: float) -> Principal | None:
        """Return the principal of a credential that was valid in the last `seconds`, or None.

        The credential may have been revoked since. Call `principal_of` before acting on it.
        """
        principal, at = self._remembered.get(shown, (None, 0.0))
        return principal if monotonic() - at < seconds else None

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
        self._remembered.put(shown, (principal, monotonic()))
        return principal


def unauthenticated() -> Refused:
    """Return the error for a missing or invalid credential."""
    return Refused(Kind.UNAUTHENTICATED, headers={"WWW-Authenticate": REALM})


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of every request."""

    body_bytes: int = 4 * 1024 * 1024  # maximum size of a request's body
    # average number of requests per second for a credential, in each process; 0 for no limit
    per_second: float = 50.0
    burst: int = 200  # number of requests that a credential may make without a pause
    call_seconds: float = 60.0  # the time limit of a call


class Buckets:
    """Counts the requests of credentials in this process. For one event loop only."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left: Cache[str, tuple[float, float]] = Cache(_MOST_REMEMBERED)  # requests left, time

    def wait(self, name: str, now: float) -> int:
        """Count a request and return 0. If it exceeds the limit, return the seconds to wait."""
        limits = self._limits
        if not limits.per_second:
            return 0
        left, at = self._left.get(name, (limits.burst, now))
        left = min(limits.burst, left + max(0.0, now - at) * limits.per_second)
        wait = 0 if left >= 1 else max(1, ceil((1 - left) / limits.per_second))
        # the cache evicts the least recently used bucket, which is usually full again
        self._left.put(name, (left if wait else left - 1, now))
        return wait
