"""The credential that a request shows. Pure."""

from __future__ import annotations

from collections.abc import Iterable

REALM = 'Bearer realm="agent-memory"'
"""What `WWW-Authenticate` says to whoever shows nothing that is valid."""

_LONGEST = 8_192


def shown_in(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The credential in `Authorization: Bearer`, or in `X-API-Key`; None where there is none, or
    more than one, or it is none that could be valid.
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
