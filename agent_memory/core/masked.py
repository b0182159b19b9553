"""Addresses as they may be shown. Loads nothing: the command line begins with it."""

from __future__ import annotations


def without_password(url: str) -> str:
    """A URL fit to be printed: with neither password nor options, which may hold one too."""
    scheme, mark, rest = url.partition("://")
    user, at, place = rest.rpartition("@")
    name, colon, _ = user.partition(":")
    # over HTTP a token may stand alone in the user's place
    alone = "***" if at and scheme in ("http", "https") else name
    hidden = f"{name}:***" if colon else alone
    return f"{scheme}{mark}{hidden}{at}{place.partition('?')[0]}"
