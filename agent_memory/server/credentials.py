"""Authenticate credentials: keys and JWTs."""

from __future__ import annotations

from time import monotonic

from agent_memory.client.service import MARK
from agent_memory.core.cache import Cache
from agent_memory.listening.bearer import REALM
from agent_memory.server.keys import KeyRing
from agent_memory.server.problems import UNAUTHENTICATED, Refused
from agent_memory.server.rights import Principal
from agent_memory.server.tokens import Tokens

_REMEMBERED_SECONDS = 60.0
_MOST_REMEMBERED = 10_000


class Credentials:
    """Authenticates keys and JWTs.

    Args:
        ring: The keys.
        tokens: Reads JWTs; None to accept none.
    """

    def __init__(self, ring: KeyRing, tokens: Tokens | None = None) -> None:
        self._ring = ring
        self._tokens = tokens
        self._remembered: Cache[str, tuple[Principal, float]] = Cache(_MOST_REMEMBERED)

    def remembered(self, shown: str) -> Principal | None:
        """Return the cached principal of a credential, if it was valid in the last 60 seconds.

        The credential may have been revoked since. Call `principal_of` before acting on it.
        """
        principal, until = self._remembered.get(shown, (None, 0.0))
        return principal if monotonic() < until else None

    def principal_of(self, shown: str) -> Principal:
        """Return the principal of a credential. Reads the store.

        Args:
            shown: The credential, from `bearer.shown_in`.

        Raises:
            Refused: It is not valid. The error does not say which part is wrong.
        """
        found = None
        if shown.startswith(MARK):
            key = self._ring.key_of(shown)
            found = None if key is None else key.principal
        elif self._tokens is not None:
            found = self._tokens.principal_of(shown)
        if found is None:
            self._remembered.drop(shown)
            raise unauthenticated()
        self._remembered.put(shown, (found, monotonic() + _REMEMBERED_SECONDS))
        return found


def unauthenticated() -> Refused:
    """Return the error for a missing or invalid credential."""
    return Refused(UNAUTHENTICATED, WWW_Authenticate=REALM)
