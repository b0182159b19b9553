"""`Keys`: the keys of an encrypted store by id, several at once, from wherever they are kept."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Mapping
from typing import Self

from agent_memory.core.processes import fork_safe_lock
from agent_memory.errors import ConfigError, StoreUnavailable, Undecryptable
from agent_memory.stores.encrypted.sealing import KEY_BYTES, MARK, PREFIX, Key, Place, name_of

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")  # anything else may be a key, in the wrong place
_SHORTEST_KEY = 43  # characters of 32 bytes in base64, without padding


class Keys:
    """Keys by id: with one, new records are written; all of them open old ones.

    Safe to share between threads and stores. Ids are 1 to 64 letters, digits, "_" or "-", and
    readable in the database; a key is 32 random bytes.

    Args:
        keys: The keys by id, or a callable that gives the key of an id (from a key service), or
            None for an id that it does not know. It is asked once for each id.
        current: Id of the key to write with. Needed with a callable; else the first by default.

    Raises:
        ConfigError: No key, a bad id, or a key that is not 32 bytes.
        MissingExtra: `cryptography` is not installed.
    """

    def __init__(
        self,
        keys: Mapping[str, bytes] | Callable[[str], bytes | None],
        current: str | None = None,
    ) -> None:
        self._lock = fork_safe_lock()
        self._known: dict[str, Key] = {}
        self._ask: Callable[[str], bytes | None] | None = None
        self._source = "those given"
        if isinstance(keys, Mapping):
            for key_id, secret in keys.items():
                self._add(key_id, secret)
            current = next(iter(self._known), None) if current is None else current
        else:
            self._ask, self._source = keys, "those that the given callable knows"
        if current is None:
            raise ConfigError(
                "Encryption needs a key to write with. Give Keys at least one, or with a callable "
                "the id of the `current` one."
            )
        self._current = self._writing(current)

    @classmethod
    def from_environment(cls, variable: str = "AGENT_MEMORY_KEYS") -> Self:
        """Keys from an environment variable: `id:base64,id2:base64`, the current one first.

        `openssl rand -base64 32` makes one.

        Raises:
            ConfigError: The variable is missing, or an entry of it cannot be read.
            MissingExtra: `cryptography` is not installed.
        """
        text = os.environ.get(variable, "")
        if not text.strip():
            named = variable if _VARIABLE.fullmatch(variable) else "that `encryption` names"
            raise ConfigError(
                f"The environment variable {named} is not set, and encryption takes its keys "
                'from it. Set it to "id:base64,id2:base64", the key to write with first; '
                "`openssl rand -base64 32` makes one."
            )
        found: dict[str, bytes] = {}
        for place, entry in enumerate(text.split(","), 1):
            key_id, colon, encoded = (part.strip() for part in entry.partition(":"))
            # an entry may be a bare key, so none is repeated before its id is known to be one
            if not colon or not _ID.fullmatch(key_id):
                raise ConfigError(
                    f"Entry {place} of {variable} is not `id:base64`, with an id of letters, "
                    'digits, "_" and "-".'
                )
            named = f"Key {key_id!r} of {variable}"
            if len(key_id) >= _SHORTEST_KEY:  # perhaps the two stand in the wrong order
                named = f"The key of entry {place} of {variable}"
            secret = _decoded(encoded, named)
            if key_id in found:
                raise ConfigError(f"{variable} has two keys with the id {key_id!r}. Rename one.")
            found[key_id] = secret
        keys = cls(found)
        keys._source = f"those in {variable}"
        return keys

    def __repr__(self) -> str:
        return f"Keys(current={self._current.id!r})"

    @property
    def current(self) -> Key:
        """The key that new records are written with."""
        return self._current

    @property
    def known(self) -> list[Key]:
        """All keys that were given or asked for so far, the current one first."""
        return list(dict.fromkeys((self._current, *list(self._known.values()))))

    def rotate(self, key_id: str, secret: bytes | None = None) -> None:
        """Write with another key from now on; the former ones go on opening what they sealed.

        If several processes share a store, each must be able to get the new key before the first
        of them writes with it.

        Args:
            key_id: Id of the key.
            secret: Its 32 bytes, if it was not given before and there is no callable to ask.

        Raises:
            ConfigError: The key is not known, not 32 bytes, or another one has the id.
        """
        if secret is not None:
            self._add(key_id, secret)
        self._current = self._writing(key_id)

    def lacks(self, sealed: str) -> bool:
        """Whether a key is missing that something was sealed with, as far as its text tells."""
        key_id, dot, _ = sealed.removeprefix(MARK).partition(".")
        return bool(dot) and sealed.startswith(MARK) and key_id not in self._known

    def open(self, place: Place, sealed: str) -> bytes:
        """Decrypt a text that was sealed for a place.

        Raises:
            Undecryptable: It was altered, or sealed for another place or with another key.
            StoreUnavailable: The callable failed to give the key.
        """
        _, _, body = sealed.removeprefix(MARK).partition(".")
        return self._opened(place, sealed[:PREFIX], lambda key: key.open(place, body))

    def open_bytes(self, place: Place, sealed: bytes) -> bytes:
        """The same of what `Key.seal_bytes` gave."""
        _, _, body = sealed.removeprefix(MARK.encode()).partition(b".")
        prefix = sealed[:PREFIX].decode("ascii", "replace")
        return self._opened(place, prefix, lambda key: key.open_bytes(place, body))

    def _opened(self, place: Place, sealed: str, open_by: Callable[[Key], bytes | None]) -> bytes:
        """Decrypt with the key that the beginning of the sealed text names."""
        key_id, dot, _ = sealed.removeprefix(MARK).partition(".")
        key = self._known.get(key_id)
        if not sealed.startswith(MARK) or not dot or (key is None and not _ID.fullmatch(key_id)):
            raise Undecryptable(
                f"{name_of(place)} is not encrypted, or was altered. If it was stored before "
                "encryption was switched on, give EncryptedStore plaintext=True."
            )
        key = key or self._get(key_id)
        if key is None:
            raise Undecryptable(
                f"{name_of(place)} was encrypted with key {key_id!r}, which is not among "
                f"{self._source}. Add it there: a key is needed for as long as anything written "
                "with it is kept."
            )
        plain = open_by(key)
        if plain is None:
            raise Undecryptable(
                f"{name_of(place)} cannot be decrypted: it was altered, or belongs elsewhere, or "
                f"{key_id!r} is another key than it was written with, or the namespace another. "
                "Give that key, or restore the record from a backup."
            )
        key.has_opened = True
        return plain

    def has_opened(self, sealed: str) -> bool:
        """Whether the key that something was sealed with has opened something: so it is the right
        one, and what it does not open was altered, or belongs elsewhere."""
        key = self._known.get(sealed.removeprefix(MARK).partition(".")[0])
        return key is not None and key.has_opened

    def _writing(self, key_id: str) -> Key:
        key = self._get(_checked_id(key_id))
        if key is None:
            raise ConfigError(
                f"Key {key_id!r} is to be written with, and is not among {self._source}. Add it "
                "there, or name another."
            )
        return key

    def _add(self, key_id: str, secret: bytes) -> None:
        key = Key(_checked_id(key_id), _checked(secret, f"Key {key_id!r}"))
        with self._lock:
            before = self._known.setdefault(key_id, key)
        if before is not key and not before.is_same(key):
            raise ConfigError(f"Another key has the id {key_id!r}. Give the new one a new id.")

    def _get(self, key_id: str) -> Key | None:
        key = self._known.get(key_id)
        if key is not None or self._ask is None:
            return key
        with self._lock:
            key = self._known.get(key_id)
            if key is None:
                try:
                    secret = self._ask(key_id)
                except Exception as error:  # the caller's own function may raise anything
                    raise StoreUnavailable(
                        f"The callable given to Keys failed to give key {key_id!r} "
                        f"({type(error).__name__})."
                    ) from error
                if secret is None:
                    return None
                key = self._known[key_id] = Key(key_id, _checked(secret, f"Key {key_id!r}"))
        return key


def _decoded(encoded: str, what: str) -> bytes:
    try:
        secret = base64.b64decode(encoded.replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        raise ConfigError(f"{what} is not base64. `openssl rand -base64 32` makes one.") from None
    return _checked(secret, what)


def _checked_id(key_id: str) -> str:
    if not _ID.fullmatch(key_id):  # not repeated: it may be the key itself, given in its place
        raise ConfigError('The id of an encryption key is not 1 to 64 letters, digits, "_" or "-".')
    return key_id


def _checked(secret: bytes, what: str) -> bytes:
    if not isinstance(secret, bytes) or len(secret) != KEY_BYTES:
        size = f"{len(secret)} bytes" if isinstance(secret, bytes) else type(secret).__name__
        raise ConfigError(
            f"{what} is given as {size}, and AES-256 takes {KEY_BYTES} bytes. `openssl rand "
            "-base64 32` makes one."
        )
    return secret
