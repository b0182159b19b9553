"""The keys of an MCP server over HTTP: which token is whose."""

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
    """Whose each token is. Of the tokens it keeps the SHA-256 only.

    Args:
        users: For each user a token, or several: at least 16 letters, digits and -._~+/, such as
            `secrets.token_urlsafe(32)` gives; or "sha256:" and the token's hash in hexadecimal.

    Raises:
        ConfigError: A token is not usable, or is two users', or there is none.
        InvalidId: A user's id is not usable.
    """

    def __init__(self, users: Mapping[str, object]) -> None:
        self._users: dict[bytes, str] = {}
        for place, (user, given) in enumerate(users.items(), 1):
            check_id("The user's id", user)
            for token in given if isinstance(given, list) else [given]:
                if self._users.setdefault(_digest(place, token), user) != user:
                    raise ConfigError(f"{user!r} has the token of another user. Give them another.")
        if not self._users:
            raise ConfigError("There are no tokens, so nobody could come in. Give somebody one.")

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """The tokens of a TOML or JSON file: each key a user, each value as above.

        Raises:
            ConfigError: The file cannot be read, or its content is not usable.
            InvalidId: A user's id is not usable.
        """
        parse = {".toml": tomllib.loads, ".json": json.loads}.get(path.suffix.lower())
        if parse is None:
            raise ConfigError(f"{path} is not a .toml or .json file.")
        try:
            users = parse(read_text(path, "the tokens in"))
        except ValueError:  # its text may hold a token
            raise ConfigError(f"{path} is not valid {path.suffix[1:].upper()}.") from None
        if not isinstance(users, dict):
            raise ConfigError(f"{path} must hold a table of users and their tokens.")
        return cls(users)

    def __repr__(self) -> str:
        return f"Tokens(of {len(set(self._users.values()))} users)"

    def user_of(self, token: bytes) -> str | None:
        """Whose a token is; None for one that is nobody's. Takes as long for each."""
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
        f"The token of user {place} in the table is not usable. Give at least 16 letters, digits "
        f'and -._~+/, or "{_HASHED}" and 64 hexadecimal digits. This makes one: '
        'python -c "import secrets; print(secrets.token_urlsafe(32))"'
    )
