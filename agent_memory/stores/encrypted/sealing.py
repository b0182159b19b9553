"""One key: AES-256-GCM, bound to the place where the sealed text stands."""

from __future__ import annotations

import binascii
import hmac
import os
from functools import lru_cache

from agent_memory.core.messages import compact_json
from agent_memory.errors import MissingExtra

Place = tuple[object, ...]
"""The place of a sealed text: its kind (see `name_of`), the namespace, and all else that it must
not be parted from."""

KEY_BYTES = 32
_MOST_TERMS = 100_000
MARK = "sealed.1."  # the number is the format's
PREFIX = len(MARK) + 65
"""The greatest length of the part that names the key: the mark, an id and a dot."""

_NONCE_BYTES = 12
_STEADY_NONCES = b"agent-memory: nonces derived from what they seal"
_BLIND_TERMS = b"agent-memory: numbers of words"
_NAMES = {
    "message": "Message {3} of session {2!r}",
    "system": "The system message of session {2!r}",
    "summary": "The summary of session {2!r}",
    "key": "A key of writes to session {2!r}",
    "fact": "Record {3!r} of block {2!r}",
    "vector": "Record {3!r} of block {2!r}",
    "segment": "What records of block {2!r} are found by",
    "receipt": "The receipt",
}


class Key:
    """One key, ready for use.

    Args:
        key_id: Its id, which stands beside all that it sealed.
        secret: Its 32 bytes.

    Attributes:
        has_opened: Whether it has opened something: then it is no other key under the same id.

    Raises:
        MissingExtra: `cryptography` is not installed.
    """

    has_opened = False

    def __init__(self, key_id: str, secret: bytes) -> None:
        self.id = key_id
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise MissingExtra("Encryption", "encryption") from None
        self._cipher = AESGCM(secret)
        self._refusals = (ValueError, InvalidTag)
        self._nonces = hmac.digest(secret, _STEADY_NONCES, "sha256")
        self._terms = hmac.digest(secret, _BLIND_TERMS, "sha256")
        self._blind = lru_cache(_MOST_TERMS)(self._blinded)

    def is_same(self, other: Key) -> bool:
        """Whether both have the same secret."""
        return hmac.compare_digest(self._nonces, other._nonces)

    def __repr__(self) -> str:
        return f"Key({self.id!r})"

    def blind(self, term: int) -> int:
        """Another number (32 bits) for a word's, the same each time, as only this key gives it."""
        return self._blind(term)

    def _blinded(self, term: int) -> int:
        digest = hmac.digest(self._terms, term.to_bytes(4, "big"), "sha256")
        return int.from_bytes(digest[:4], "big")

    def seal(self, place: Place, plain: bytes, *, steady: bool = False) -> str:
        """Encrypt `plain` for a place.

        Args:
            place: The place that it is stored at.
            plain: The bytes to encrypt.
            steady: Whether the same text at the same place gives the same every time. That shows
                whether it changed; else the nonce is drawn at random.
        """
        sealed = self._sealed(place, plain, steady)
        return f"{MARK}{self.id}.{binascii.b2a_base64(sealed, newline=False).decode()}"

    def seal_bytes(self, place: Place, plain: bytes) -> bytes:
        """The same as bytes, for what is large; steady."""
        return f"{MARK}{self.id}.".encode() + self._sealed(place, plain, steady=True)

    def _sealed(self, place: Place, plain: bytes, steady: bool) -> bytes:
        bound = _bound(place, self.id)
        if steady:
            given = len(bound).to_bytes(8, "big") + bound + plain
            nonce = hmac.digest(self._nonces, given, "sha256")[:_NONCE_BYTES]
        else:
            nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, plain, bound)

    def open(self, place: Place, body: str) -> bytes | None:
        """Decrypt a text. None if this key did not seal it, or sealed it for another place."""
        try:
            sealed = binascii.a2b_base64(body, strict_mode=True)
            if binascii.b2a_base64(sealed, newline=False).decode() != body:
                return None  # bits that stand for nothing were altered
        except self._refusals:
            return None
        return self.open_bytes(place, sealed)

    def open_bytes(self, place: Place, sealed: bytes) -> bytes | None:
        """The same of what `seal_bytes` gave, without its mark."""
        nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return self._cipher.decrypt(nonce, rest, _bound(place, self.id))
        except self._refusals:
            return None


def name_of(place: Place) -> str:
    """Return the name of a place, to begin a sentence with."""
    return _NAMES[str(place[0])].format(*place)


def _bound(place: Place, key_id: str) -> bytes:
    """The associated data: JSON, so that no two places give the same."""
    return compact_json((MARK, key_id, *place)).encode()
