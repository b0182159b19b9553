"""Who asks: a key, or a JWT."""

from __future__ import annotations

from time import monotonic

from agent_memory.client.service import MARK
from agent_memory.listening.bearer import REALM
from agent_memory.server.keys import KeyRing
from agent_memory.server.problems import UNAUTHENTICATED, Refused
from agent_memory.server.rights import Principal
from agent_memory.server.tokens import Tokens

_REMEMBERED_SECONDS = 60.0
_MOST_REMEMBERED = 10_000


class Credentials:
    """Knows keys and JWTs.

    Args:
        ring: The keys.
        tokens: Reads JWTs; None where none are taken.
    """

    def __init__(self, ring: KeyRing, tokens: Tokens | None = None) -> None:
        self._ring = ring
        self._tokens = tokens
        self._remembered: dict[str, tuple[Principal, float]] = {}

    def remembered(self, shown: str) -> Principal | None:
        """Who asked with a credential in the last minute; looks nowhere.

        It may be over since: before anything is done for whoever shows it, `principal_of` looks.
        """
        principal, until = self._remembered.get(shown, (None, 0.0))
        return principal if monotonic() < until else None

    def principal_of(self, shown: str) -> Principal:
        """Who asks; looks into the store.

        Args:
            shown: The credential, as `bearer.shown_in` gave it.

        Raises:
            Refused: It is not valid; which of its parts is wrong is not told.
        """
        found = None
        if shown.startswith(MARK):
            key = self._ring.key_of(shown)
            found = None if key is None else key.principal
        elif self._tokens is not None:
            found = self._tokens.principal_of(shown)
        if found is None:
            self._remembered.pop(shown, None)
            raise unauthenticated()
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[shown] = found, monotonic() + _REMEMBERED_SECONDS
        return found


def unauthenticated() -> Refused:
    """What is told to whoever shows nothing that is valid."""
    return Refused(UNAUTHENTICATED, WWW_Authenticate=REALM)
