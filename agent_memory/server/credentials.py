"""Who asks: what the headers of a request show."""

from __future__ import annotations

from collections.abc import Iterable

from agent_memory.server.keys import MARK, KeyRing
from agent_memory.server.problems import UNAUTHENTICATED, Refused
from agent_memory.server.rights import Principal
from agent_memory.server.tokens import Tokens

_LONGEST = 8_192
_CHALLENGE = 'Bearer realm="agent-memory"'


class Credentials:
    """Knows keys and JWTs.

    Args:
        ring: The keys.
        tokens: Reads JWTs; None where none are taken.
    """

    def __init__(self, ring: KeyRing, tokens: Tokens | None = None) -> None:
        self._ring = ring
        self._tokens = tokens

    def principal_of(self, shown: str) -> Principal:
        """Who asks; looks into the store.

        Args:
            shown: The credential, as `shown_in` gave it.

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
            raise unauthenticated()
        return found


def shown_in(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The credential that a request shows: `Authorization: Bearer`, or `X-API-Key`.

    Raises:
        Refused: There is none, or more than one, or it is none that could be valid.
    """
    found = []
    for name, value in headers:
        if name == b"authorization":
            kind, _, token = value.partition(b" ")
            found.append(token.strip() if kind.lower() == b"bearer" else b"")
        elif name == b"x-api-key":
            found.append(value.strip())
    if len(found) != 1 or not 0 < len(found[0]) <= _LONGEST or not found[0].isascii():
        raise unauthenticated()
    return found[0].decode("ascii")


def unauthenticated() -> Refused:
    """What is told to whoever shows nothing that is valid."""
    return Refused(UNAUTHENTICATED, WWW_Authenticate=_CHALLENGE)
