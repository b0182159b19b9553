"""The API keys of the service, stored with the memory.

A key consists of `am_`, an id, and a secret. The key's record has only its SHA-256, which is safe
for a secret of 256 random bits. All processes on a store share its keys. Each request reads the
record again, so that a key is invalid as soon as `revoke` has returned.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from hmac import compare_digest

from pydantic import TypeAdapter

from agent_memory.client.calls import Right
from agent_memory.client.service import MARK
from agent_memory.core.limits import quoted
from agent_memory.core.records import Record, Scope
from agent_memory.core.system_collections import KEYS
from agent_memory.core.timestamps import duration_of
from agent_memory.errors import InvalidInput, StoreError
from agent_memory.ltm_blocks.base import record_id
from agent_memory.server.credentials import Principal, checked_rights, checked_users, one_user
from agent_memory.stores.base import RecordStore

_BLOCK = KEYS.name
_KEY = re.compile(r"(am_[0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_PREFIX = re.compile(r"am_[0-9a-f]{12}")
_NO_DIGEST = "0" * 64
_USE_SECONDS = 60.0
_LONGEST_LABEL = 200
_SEVERAL = "keys"


@dataclass(frozen=True, slots=True)
class Key:
    """A key without its secret. `used_at` is exact to a minute."""

    prefix: str
    label: str
    users: tuple[str, ...]
    rights: frozenset[Right]
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    used_at: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    @property
    def principal(self) -> Principal:
        return Principal(self.prefix, self.users, self.rights, self.label)


_CODEC = TypeAdapter(Key)


class KeyRing:
    """Creates, verifies and revokes keys."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._noted: dict[str, datetime] = {}

    def create(
        self,
        label: str,
        users: Iterable[str],
        rights: Iterable[str] = ("read", "write"),
        *,
        ttl: float | timedelta | None = None,
    ) -> tuple[str, Key]:
        """Create a key. Return its text, which is not stored, and its description.

        `users` are ids, prefixes such as `team-*`, or `*` for everybody. `ttl` is in seconds.
        """
        if not label.strip() or len(label) > _LONGEST_LABEL:
            raise InvalidInput(
                f"The label has {len(label)} characters. Use 1 to {_LONGEST_LABEL} characters."
            )
        age = None if ttl is None else duration_of("ttl", ttl)
        user_ids = checked_users(users)
        allowed = checked_rights(rights, user_ids)
        now = datetime.now(UTC)
        prefix = f"{MARK}{secrets.token_hex(6)}"
        token = f"{prefix}_{secrets.token_urlsafe(32)}"
        key = Key(prefix, label, user_ids, allowed, now, None if age is None else now + age)
        self._put(key, _digest(token))
        return token, key

    def key_of(self, token: str) -> Key | None:
        """Return the key of a token. None if the key is unknown, expired or revoked.

        The duration of the comparison does not reveal how much of the token is right.
        """
        shown = _KEY.fullmatch(token)
        record = self._store.record(_BLOCK, _id(shown[1])) if shown else None
        digest = _NO_DIGEST if record is None else record.metadata["digest"]
        if not compare_digest(digest, _digest(token)) or record is None:
            return None
        key = _CODEC.validate_python(record.metadata)
        now = datetime.now(UTC)
        if not key.is_valid(now):
            return None
        self._note_use(record, key.prefix, now)
        return key

    def all(self) -> list[Key]:
        """Return all keys, oldest first, including expired and revoked keys."""
        keys, used = [], {}
        for owner in self._store.owners(_BLOCK, ""):
            for record in self._store.records(_BLOCK, owner):
                if "digest" in record.metadata:
                    keys.append(_CODEC.validate_python(record.metadata))
                else:
                    used[record.text] = record.created_at
        dated = (replace(key, used_at=used.get(key.prefix)) for key in keys)
        return sorted(dated, key=lambda key: (key.created_at, key.prefix))

    def revoke(self, prefix: str) -> Key:
        """Revoke a key, named by its prefix or by its text. Later requests with it are refused.

        The key's records are always written again, which encrypts them with the current key.
        """
        prefix = "_".join(prefix.split("_")[:2])  # without the secret, which no error may repeat
        record = _PREFIX.fullmatch(prefix) and self._store.record(_BLOCK, _id(prefix))
        if not record:
            raise InvalidInput(
                f"There is no key {quoted(prefix)}. Pass a prefix that `agent-memory keys list` "
                "shows."
            )
        digest, key = record.metadata["digest"], _CODEC.validate_python(record.metadata)
        key = replace(key, revoked_at=key.revoked_at or datetime.now(UTC))
        self._put(key, digest)
        if used := self._store.record(_BLOCK, record_id("use", record.id)):
            self._store.put_records(_BLOCK, [used])
        return key

    def _put(self, key: Key, digest: str) -> None:
        metadata = {"digest": digest, **_CODEC.dump_python(key, mode="json", exclude={"used_at"})}
        # a key for one user belongs to that user, so `delete_user` erases it
        user_id = one_user(key.users)
        owner = _SEVERAL if user_id is None else Scope(user_id).owner
        record = Record(_id(key.prefix), owner, "", 0, 0, key.label, (), key.created_at, metadata)
        self._store.put_records(_BLOCK, [record])

    def _note_use(self, record: Record, prefix: str, now: datetime) -> None:
        """Store when a key was used, in a separate record.

        A write to the key's own record could undo a concurrent revocation.
        """
        before = self._noted.get(prefix)
        if before is None or (now - before).total_seconds() >= _USE_SECONDS:
            self._noted[prefix] = now
            name = record_id("use", record.id)
            used = Record(name, record.owner, "", 0, 0, prefix, (), now, {})
            with suppress(StoreError):  # the database is read-only: reading calls still work
                self._store.put_records(_BLOCK, [used])


def _id(prefix: str) -> str:
    return record_id("key", prefix)


def _digest(token: str) -> str:
    return sha256(token.encode(errors="surrogatepass")).hexdigest()
