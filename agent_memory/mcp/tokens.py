"""The tokens of an MCP server over HTTP, and their users."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from agent_memory.config.sources import read_text
from agent_memory.core.ids import check_id
from agent_memory.errors import ConfigError

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,}=*")
_HASHED = "sha256:"
_HASH = re.compile(r"[0-9a-f]{64}")


class Tokens:
    """The users' tokens, stored as SHA-256.

    Args:
        users: One or several tokens for each user. A token has at least 16 letters, digits and
            -._~+/, as from `secrets.token_urlsafe(32)`; or is "sha256:" and its hash in
            hexadecimal.

    Raises:
        ConfigError: A token is invalid, two users have the same token, or there is none.
        InvalidId: A user's id is invalid.
    """

    def __init__(self, users: Mapping[str, object]) -> None:
        self._users: dict[bytes, str] = {}
        for place, (user, given) in enumerate(users.items(), 1):
            check_id("The user's id", user)
            for token in given if isinstance(given, list) else [given]:
                if self._users.setdefault(_digest(place, token), user) != user:
                    raise ConfigError(f"{user!r} has the token of another user. Use another token.")
        if not self._users:
            raise ConfigError("There are no tokens. Add one for at least one user.")

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """Read a TOML or JSON file of tokens: each key is a user, each value a token or a list.

        Raises:
            ConfigError: The file cannot be read, or its content is invalid.
            InvalidId: A user's id is invalid.
        """
        parse = {".toml": tomllib.loads, ".json": json.loads}.get(path.suffix.lower())
        if parse is None:
            raise ConfigError(f"{path} is not a .toml or .json file.")
        try:
            users = parse(read_text(path, "the tokens in"))
        except ValueError:  # the message may have a token
            raise ConfigError(f"{path} is not valid {path.suffix[1:].upper()}.") from None
        if not isinstance(users, dict):
            raise ConfigError(f"{path} must hold a table of users and their tokens.")
        return cls(users)

    def __repr__(self) -> str:
        return f"Tokens(of {len(set(self._users.values()))} users)"

    def user_of(self, token: bytes) -> str | None:
        """Return the user of a token; None if it is unknown. Takes the same time for each token."""
        digest, found = hashlib.sha256(token).digest(), None
        for known, user in self._users.items():
            if hmac.compare_digest(known, digest):
                found = user
        return found


def _digest(place: int, token: object) -> bytes:
    if isinstance(token, str) and token.startswith(_HASHED):
        if _HASH.fullmatch(token.removeprefix(_HASHED)):
            return bytes.fromhex(token.removeprefix(_HASHED))
    elif isinstance(token, str) and _TOKEN.fullmatch(token):
        return hashlib.sha256(token.encode()).digest()
    raise ConfigError(
        f"The token of user {place} in the table is invalid. Use at least 16 letters, digits "
        f'and -._~+/, or "{_HASHED}" and 64 hexadecimal digits. To create one: '
        'python -c "import secrets; print(secrets.token_urlsafe(32))"'
    )
