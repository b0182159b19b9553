"""Keys of appends in an encrypted store: the digest of what was said under one is sealed.

A bare digest of a short text would tell it to whoever tries all short texts.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from agent_memory.core.idempotency import KeptKey, Once, WriteKey
from agent_memory.stores.encrypted.keys import Keys
from agent_memory.stores.encrypted.messages import sealed_text
from agent_memory.stores.encrypted.sealing import Place


class WriteKeySeals:
    """Seals the digests of keys, and opens them.

    Args:
        keys: The keys of the store.
        namespace: The namespace of the sessions.
        plaintext: Whether digests that are not sealed are taken as they are.
    """

    def __init__(self, keys: Keys, namespace: str, plaintext: bool) -> None:
        self._keys = keys
        self._namespace = namespace
        self._plaintext = plaintext

    def terms(self, session_id: str, once: Once) -> Once:
        """Terms with sealed digests, which know what was sealed before."""

        def sealed(key: WriteKey) -> WriteKey:
            is_same = partial(self._is_same, session_id, key)
            return replace(
                key, digest=self._seal(session_id, key.name, key.digest), matches=is_same
            )

        return once.with_keys(sealed)

    def sealed(self, session_id: str, key: KeptKey) -> KeptKey:
        """A key as it is to be stored."""
        return replace(key, digest=self._seal(session_id, key.name, key.digest))

    def opened(self, session_id: str, key: KeptKey) -> KeptKey:
        """A stored key as it was given.

        Raises:
            Undecryptable: It cannot be opened.
        """
        return replace(key, digest=self._open(session_id, key.name, key.digest))

    def _is_same(self, session_id: str, key: WriteKey, digest: str) -> bool:
        return key.is_of(self._open(session_id, key.name, digest))

    def _seal(self, session_id: str, name: str, digest: str) -> str:
        return self._keys.current.seal(self._place(session_id, name), digest.encode())

    def _open(self, session_id: str, name: str, digest: str) -> str:
        if self._plaintext and not sealed_text(digest):
            return digest
        return self._keys.open(self._place(session_id, name), digest).decode()

    def _place(self, session_id: str, name: str) -> Place:
        return ("key", self._namespace, session_id, name)
