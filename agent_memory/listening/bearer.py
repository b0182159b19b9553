"""Read the credential of a request. Pure."""

from __future__ import annotations

from collections.abc import Iterable

REALM = 'Bearer realm="agent-memory"'
"""The `WWW-Authenticate` header of responses to requests without a valid credential."""

_LONGEST = 8_192


def shown_in(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the credential in `Authorization: Bearer` or `X-API-Key`.

    None if there is none, several, or one that cannot be valid: empty, too long, or not ASCII.
    """
    found = []
    for name, value in headers:
        if name == b"authorization":
            kind, _, token = value.partition(b" ")
            found.append(token.strip() if kind.lower() == b"bearer" else b"")
        elif name == b"x-api-key":
            found.append(value.strip())
    if len(found) != 1 or not 0 < len(found[0]) <= _LONGEST or not found[0].isascii():
        return None
    return found[0].decode("ascii")
