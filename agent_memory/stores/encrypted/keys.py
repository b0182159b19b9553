"""The keys of an encrypted store. The cipher is AES-256-GCM.

Each ciphertext is bound to its place, such as a session and seq. It cannot be decrypted elsewhere.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Self

from agent_memory.core.messages import compact_json
from agent_memory.core.processes import fork_safe_lock
from agent_memory.errors import ConfigError, MissingExtra, StoreUnavailable, Undecryptable
from agent_memory.stores.kernel.coding import MARK

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")  # another "name" may be a key, passed by mistake
_SHORTEST_KEY = 43  # number of characters of 32 bytes in base64, without padding

Place = tuple[object, ...]
"""The place of a ciphertext: its kind (a key of `_NAMES`), the namespace, and further fields."""

_KEY_BYTES = 32
_MOST_TERMS = 100_000
_PREFIX = len(MARK) + 65  # the length of the mark, the longest id and a dot

_NONCE_BYTES = 12
_FINGERPRINT = b"agent-memory: nonces derived from what they seal"
_BLIND_TERMS = b"agent-memory: numbers of words"
_NAMES = {
    "message": "Message {3} of session {2!r}",
    "system": "The system message of session {2!r}",
    "summary": "The summary of session {2!r}",
    "key": "A key of writes to session {2!r}",
    "fact": "Record {3!r} of block {2!r}",
    "vector": "Record {3!r} of block {2!r}",
    "features": "The search features of block {2!r}",
    "receipt": "The receipt",
}


class Key:
    """An encryption key.

    Args:
        key_id: The key's id, which each ciphertext of the key contains.
        secret: The key's 32 bytes.

    Attributes:
        has_decrypted: Whether the key has decrypted any data. If so, it is the right key of its id.

    Raises:
        MissingExtra: `cryptography` is not installed.
    """

    has_decrypted = False

    def __init__(self, key_id: str, secret: bytes) -> None:
        self.id = key_id
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise MissingExtra("Encryption", "encryption") from None
        self._cipher = AESGCM(secret)
        self._refusals = (ValueError, InvalidTag)
        self._fingerprint = hmac.digest(secret, _FINGERPRINT, "sha256")
        self._terms = hmac.digest(secret, _BLIND_TERMS, "sha256")
        self.blind = lru_cache(_MOST_TERMS)(self._blinded)

    def is_same(self, other: Key) -> bool:
        return hmac.compare_digest(self._fingerprint, other._fingerprint)

    def __repr__(self) -> str:
        return f"Key({self.id!r})"

    def _blinded(self, term: int) -> int:
        """Return the 32-bit id that replaces a word's id. Equal ids get equal replacements."""
        digest = hmac.digest(self._terms, term.to_bytes(4, "big"), "sha256")
        return int.from_bytes(digest[:4], "big")

    def encrypt(self, place: Place, plain: bytes) -> str:
        """Encrypt bytes for a place, with a random nonce."""
        encrypted = binascii.b2a_base64(self._encrypted(place, plain), newline=False)
        return f"{MARK}{self.id}.{encrypted.decode()}"

    def encrypt_bytes(self, place: Place, plain: bytes) -> bytes:
        return f"{MARK}{self.id}.".encode() + self._encrypted(place, plain)

    def _encrypted(self, place: Place, plain: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, plain, _bound(place, self.id))

    def decrypt(self, place: Place, encrypted: bytes) -> bytes | None:
        """Decrypt the part of a ciphertext after the key's id.

        Return None if the ciphertext was altered, or was encrypted for another place or with
        another key.
        """
        nonce, rest = encrypted[:_NONCE_BYTES], encrypted[_NONCE_BYTES:]
        try:
            return self._cipher.decrypt(nonce, rest, _bound(place, self.id))
        except self._refusals:
            return None


class Keys:
    """Keys by id. One key encrypts new data, and all keys decrypt.

    Threads and stores can share the object. A key is 32 random bytes. Its id has 1 to 64 letters,
    digits, "_" or "-", and is readable in the database.

    Args:
        keys: The keys by id, or a callable that returns the key for an id, for example from a key
            service. The callable returns None for an unknown id. Keys are cached, but None is not.
        current: The id of the key that encrypts new data, by default the first of a mapping.
            Required with a callable.

    Raises:
        ConfigError: There is no key to encrypt with, an id is invalid, or a key is not 32 bytes.
        MissingExtra: `cryptography` is not installed.
    """

    def __init__(
        self, keys: Mapping[str, bytes] | Callable[[str], bytes | None], current: str | None = None
    ) -> None:
        self._lock = fork_safe_lock()
        self._by_id: dict[str, Key] = {}
        self._ask: Callable[[str], bytes | None] | None = None
        self._source = "those given"
        if isinstance(keys, Mapping):
            for key_id, secret in keys.items():
                self._add(key_id, secret)
            current = next(iter(self._by_id), None) if current is None else current
        else:
            self._ask, self._source = keys, "those that the callable of Keys returns"
        if current is None:
            raise ConfigError(
                "Encryption needs a key for new data. Pass at least one key to Keys. With a "
                "callable, pass the key's id as `current`."
            )
        self._current = self._writing(current)

    @classmethod
    def from_environment(cls, variable: str = "AGENT_MEMORY_KEYS") -> Self:
        """Return keys from an environment variable: `id:base64,id2:base64`, the current key first.

        `openssl rand -base64 32` creates a key.

        Raises:
            ConfigError: The variable is missing, or one of its entries cannot be read.
            MissingExtra: `cryptography` is not installed.
        """
        text = os.environ.get(variable, "")
        if not text.strip():
            named = variable if _VARIABLE.fullmatch(variable) else "that `encryption` names"
            raise ConfigError(
                f"The environment variable {named} is not set, but encryption reads its keys from "
                'it. Set it to "id:base64,id2:base64". The first key encrypts new data. '
                "`openssl rand -base64 32` creates a key."
            )
        by_id: dict[str, bytes] = {}
        for place, entry in enumerate(text.split(","), 1):
            key_id, colon, encoded = (part.strip() for part in entry.partition(":"))
            # an entry may be a key without an id: errors show an entry only after its id is checked
            if not colon or not _ID.fullmatch(key_id):
                raise ConfigError(
                    f"Entry {place} of {variable} is not `id:base64`, with an id of letters, "
                    'digits, "_" and "-".'
                )
            named = f"Key {key_id!r} of {variable}"
            if len(key_id) >= _SHORTEST_KEY:  # the "id" may be the key
                named = f"The key of entry {place} of {variable}"
            secret = _decoded(encoded, named)
            if key_id in by_id:
                raise ConfigError(f"{variable} has two keys with the id {key_id!r}. Rename one.")
            by_id[key_id] = secret
        keys = cls(by_id)
        keys._source = f"those in {variable}"
        return keys

    def __repr__(self) -> str:
        return f"Keys(current={self._current.id!r})"

    @property
    def current(self) -> Key:
        """Return the key that encrypts new data."""
        return self._current

    @property
    def all(self) -> list[Key]:
        """Return the keys that were passed or loaded so far, the current key first."""
        return list(dict.fromkeys((self._current, *list(self._by_id.values()))))

    def rotate(self, key_id: str, secret: bytes | None = None) -> None:
        """Encrypt with another key from now on. Earlier keys still decrypt.

        If several processes share a store, give the new key to all of them before one process
        encrypts with it.

        Args:
            key_id: The id of the key.
            secret: The key's 32 bytes, if neither the mapping nor the callable has the key.

        Raises:
            ConfigError: The key is unknown or not 32 bytes, or another key has the id.
        """
        if secret is not None:
            self._add(key_id, secret)
        self._current = self._writing(key_id)

    def lacks(self, encrypted: bytes) -> bool:
        """Return whether the key that a ciphertext names is missing."""
        key_id, _ = _parts(encrypted)
        return bool(key_id) and key_id not in self._by_id

    def decrypt(self, place: Place, encrypted: str | bytes) -> bytes:
        """Decrypt a result of `Key.encrypt` or `Key.encrypt_bytes`.

        Raises:
            Undecryptable: The key is missing or wrong, or the ciphertext was altered or is from
                another place.
            StoreUnavailable: The callable failed to return the key.
        """
        key_id, body = _parts(encrypted)
        if not key_id:
            raise Undecryptable(
                f"{_name_of(place)} is not encrypted, or was altered. If it was stored before "
                "encryption was switched on, give EncryptedStore plaintext=True."
            )
        key = self._get(key_id)
        if key is None:
            raise Undecryptable(
                f"{_name_of(place)} was encrypted with key {key_id!r}, which is not among "
                f"{self._source}. Add the key there. A key is needed as long as any data is "
                "encrypted with it."
            )
        plain = key.decrypt(place, body)
        if plain is None:
            raise Undecryptable(
                f"{_name_of(place)} cannot be decrypted: it was altered or moved, or it was "
                f"encrypted with another key named {key_id!r}, or in another namespace. Pass that "
                "key or namespace, or restore the record from a backup."
            )
        key.has_decrypted = True
        return plain

    def has_decrypted(self, encrypted: str) -> bool:
        """Return whether the key that a ciphertext names has decrypted any data."""
        key = self._by_id.get(_parts(encrypted)[0])
        return key is not None and key.has_decrypted

    def _writing(self, key_id: str) -> Key:
        key = self._get(_checked_id(key_id))
        if key is None:
            raise ConfigError(
                f"Key {key_id!r}, which should encrypt new data, is not among {self._source}. Add "
                "the key there, or name another key."
            )
        return key

    def _add(self, key_id: str, secret: bytes) -> None:
        key = Key(_checked_id(key_id), _checked(secret, f"Key {key_id!r}"))
        with self._lock:
            before = self._by_id.setdefault(key_id, key)
        if before is not key and not before.is_same(key):
            raise ConfigError(f"Another key has the id {key_id!r}. Give the new key a new id.")

    def _get(self, key_id: str) -> Key | None:
        key = self._by_id.get(key_id)
        if key is not None or self._ask is None:
            return key
        with self._lock:
            key = self._by_id.get(key_id)
            if key is None:
                try:
                    secret = self._ask(key_id)
                except Exception as error:  # the caller's own function may raise anything
                    raise StoreUnavailable(
                        f"The callable given to Keys failed to return key {key_id!r} "
                        f"({type(error).__name__})."
                    ) from error
                if secret is None:
                    return None
                key = self._by_id[key_id] = Key(key_id, _checked(secret, f"Key {key_id!r}"))
        return key


def _parts(encrypted: str | bytes) -> tuple[str, bytes]:
    """Return the key's id in a ciphertext, and the encrypted bytes.

    The id is empty if `encrypted` is not a ciphertext. The bytes are empty if a text is not exactly
    the base64 encoding of bytes.
    """
    begin = encrypted if isinstance(encrypted, str) else encrypted[:_PREFIX]
    text = begin if isinstance(begin, str) else begin.decode("ascii", "replace")
    key_id, dot, body = text.removeprefix(MARK).partition(".")
    if not text.startswith(MARK) or not dot or not _ID.fullmatch(key_id):
        return "", b""
    if isinstance(encrypted, bytes):
        return key_id, encrypted[len(MARK) + len(key_id) + 1 :]
    try:
        encrypted = binascii.a2b_base64(body, strict_mode=True)
    except ValueError:
        return key_id, b""
    is_whole = binascii.b2a_base64(encrypted, newline=False).decode() == body
    return key_id, encrypted if is_whole else b""


def _decoded(encoded: str, what: str) -> bytes:
    try:
        secret = base64.b64decode(encoded.replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        raise ConfigError(
            f"{what} is not base64. `openssl rand -base64 32` creates a key."
        ) from None
    return _checked(secret, what)


def _checked_id(key_id: str) -> str:
    if not _ID.fullmatch(key_id):  # the error does not show the id, which may be the key itself
        raise ConfigError('The id of an encryption key is not 1 to 64 letters, digits, "_" or "-".')
    return key_id


def _checked(secret: bytes, what: str) -> bytes:
    if not isinstance(secret, bytes) or len(secret) != _KEY_BYTES:
        is_bytes = isinstance(secret, bytes)
        size = f"{len(secret)} bytes" if is_bytes else f"of type {type(secret).__name__}"
        raise ConfigError(
            f"{what} is {size}, but AES-256 needs {_KEY_BYTES} bytes. `openssl rand -base64 32` "
            "creates a key."
        )
    return secret


def _name_of(place: Place) -> str:
    return _NAMES[str(place[0])].format(*place)


def _bound(place: Place, key_id: str) -> bytes:
    """Return the associated data of a ciphertext, which differs for each place and key id."""
    return compact_json((MARK, key_id, *place)).encode()
