"""JWTs: who signed them, for whom they are, and whom they name."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, build_opener

from agent_memory.core.ids import check_id
from agent_memory.errors import ConfigError, InvalidId
from agent_memory.server.problems import UNAVAILABLE, Refused
from agent_memory.server.rights import Principal, Right, checked_rights

if TYPE_CHECKING:
    from jwt import PyJWK

logger = logging.getLogger(__name__)

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
"""Those with a key of two halves: the half that we fetch can sign nothing."""

_LEEWAY_SECONDS = 30
_KEPT_SECONDS = 300.0
_PAUSE_SECONDS = 15.0
_FETCH_SECONDS = 5.0
_MOST_BYTES = 1_000_000
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Issuer:
    """Whose JWTs are taken.

    Attributes:
        jwks_url: Where its public keys are.
        issuer: What `iss` must be.
        audience: What `aud` must name.
        user_claim: The claim that names the user.
        rights: What its users may do, each for themselves.
    """

    jwks_url: str
    issuer: str
    audience: str
    user_claim: str = "sub"
    rights: frozenset[Right] = frozenset({"read", "write", "delete"})


def issuer_of(
    jwks_url: str, issuer: str, audience: str, user_claim: str, rights: Iterable[str]
) -> Issuer:
    """Whose JWTs are to be taken.

    Raises:
        ConfigError: The address is not one that only its owner can answer at, or something lacks.
        InvalidInput: There are no such rights, or "admin" is among them: a JWT is for one user.
    """
    where = urlsplit(jwks_url)
    safe = where.scheme == "https" or (where.scheme == "http" and where.hostname in _LOOPBACK)
    if not (safe and where.hostname):
        raise ConfigError("The keys of the issuer are fetched over https. Give such a --jwks URL.")
    if not (issuer and audience and user_claim):
        raise ConfigError("Say whose JWTs are taken: give --issuer and --audience with --jwks.")
    return Issuer(jwks_url, issuer, audience, user_claim, checked_rights(rights, ("one",)))


class Tokens:
    """Reads JWTs. Safe to share between threads.

    Args:
        issuer: Whose.
    """

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        self._lock = threading.Lock()
        self._fetching = threading.Lock()
        self._keys: dict[str | None, PyJWK] = {}
        self._fetched = -_KEPT_SECONDS
        self._tried = -_PAUSE_SECONDS

    def principal_of(self, token: str) -> Principal | None:
        """Who asks with a token; None for one that is not valid.

        Raises:
            Refused: The keys of the issuer cannot be fetched right now.
        """
        import jwt

        issuer = self._issuer
        try:
            told = jwt.get_unverified_header(token)
            key = self._key(told.get("kid"))
            if key is None:
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=[one for one in _ALGORITHMS if one == key.algorithm_name],
                issuer=issuer.issuer,
                audience=issuer.audience,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", issuer.user_claim]},
            )
            user_id = claims[issuer.user_claim]
            check_id("The user's id", user_id)
        except (jwt.PyJWTError, InvalidId, ValueError):
            return None
        if user_id.endswith("*"):  # here it would stand for others too
            return None
        return Principal("jwt", (user_id,), issuer.rights)

    def _key(self, kid: str | None) -> PyJWK | None:
        """The issuer's key of an id.

        It is fetched anew when it is old or lacks one, but not for each token that anybody sends.
        """
        with self._lock:
            now = time.monotonic()
            old = now - self._fetched >= _KEPT_SECONDS
            due = (old or kid not in self._keys) and now - self._tried >= _PAUSE_SECONDS
            due = due and self._fetching.acquire(blocking=False)
            if due:
                self._tried = now
        if due:  # others go on meanwhile with what is known
            try:
                self._keys = _keys_at(self._issuer.jwks_url)
                self._fetched = now
            except (OSError, ValueError) as error:
                logger.warning("The issuer's keys cannot be fetched: %s", type(error).__name__)
            finally:
                self._fetching.release()
        elif not self._keys and self._fetching.acquire(timeout=_FETCH_SECONDS):
            self._fetching.release()  # nothing is known before the first fetch ends
        if not self._keys:
            raise Refused(UNAVAILABLE)
        return self._keys.get(kid)


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *given: Any, **named: Any) -> None:
        return None


def _keys_at(url: str) -> dict[str | None, PyJWK]:
    """The keys that an issuer publishes, by their ids."""
    import jwt

    with build_opener(_NoRedirects).open(url, timeout=_FETCH_SECONDS) as answer:
        told = answer.read(_MOST_BYTES + 1)
    if len(told) > _MOST_BYTES:
        raise ValueError("the keys are too large")
    try:
        return {one.key_id: one for one in jwt.PyJWKSet.from_dict(json.loads(told)).keys}
    except (jwt.PyJWTError, AttributeError, TypeError) as error:
        raise ValueError("the keys are none") from error
