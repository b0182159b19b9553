"""Users, and all kinds of credentials: those that open something, and those that open nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random

from agent_memory.server.keys import KeyRing
from agent_memory.server.rights import RIGHTS, Right
from benchmarks.torture_canaries import Aviary
from benchmarks.torture_http.issuer import RIGHTS as JWT_RIGHTS
from benchmarks.torture_http.issuer import Issuer
from benchmarks.torture_users import User

_KEPT_IDS = 40
_MOST_DEAD = 400


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential.

    Attributes:
        token: It.
        kind: What it is called in the report.
        rights: What it allows; nothing where it is not valid.
        several: Whether a request must name the user.
    """

    token: str
    kind: str
    rights: frozenset[str] = frozenset()
    several: bool = False


@dataclass
class Person:
    """A user as others may attack him.

    Attributes:
        user: His name, his word, and the lock on his life.
        good: The credentials that are valid for him.
        ids: Names of what is his, newest last, by the field that takes them.
    """

    user: User
    good: list[Credential] = field(default_factory=list)
    ids: dict[str, deque[str]] = field(default_factory=dict)

    def knows(self, name: str, value: str) -> None:
        """Note that something of his is called so."""
        known = self.ids.setdefault(name, deque(maxlen=_KEPT_IDS))
        if value not in known:
            known.append(value)


class People:
    """Everybody.

    Args:
        count: How many users.
        ring: Makes keys.
        issuer: Makes JWTs.
        aviary: Makes words.
    """

    def __init__(self, count: int, ring: KeyRing, issuer: Issuer, aviary: Aviary) -> None:
        self._ring = ring
        self._issuer = issuer
        self.all = {name: Person(User(name, aviary)) for name in (f"u{n:03}" for n in range(count))}
        self.names = list(self.all)
        self.dead: deque[Credential] = deque(maxlen=_MOST_DEAD)
        self._everybody = self._key("a key for everybody", ["*"], ("read", "write", "delete"))
        self.admin = self._key("an admin's key", ["*"], RIGHTS)
        self._teams = {
            beginning: self._key(f"a key for {beginning}*", [f"{beginning}*"], RIGHTS[:3])
            for beginning in {name[:-1] for name in self.names}
        }
        for name in self.names:
            self.arm(name)

    def arm(self, name: str) -> None:
        """Give a user new credentials; those he had are for the attackers."""
        person = self.all[name]
        self.dead += [one for one in person.good if not one.several and "JWT" not in one.kind]
        person.good = [
            self._key("a key", [name], ("read", "write", "delete")),
            self._key("a key that reads", [name], ("read",)),
            self._key("a key that writes", [name], ("write",)),
            self._key("a key for two", [name, f"{name}-other"], ("read", "write", "delete")),
            Credential(self._issuer.good(name), "a JWT", frozenset(JWT_RIGHTS.split(","))),
            self._everybody,
            self._teams[name[:-1]],
        ]
        self.dead += [Credential(token, kind) for kind, token in self._issuer.bad(name).items()]
        over, _ = self._ring.create("over", [name], ["read"], ttl=timedelta(microseconds=1))
        self.dead.append(Credential(over, "a key that is over"))
        key = person.good[0].token
        self.dead.append(Credential(f"{key[:-1]}{'A' if key[-1] != 'A' else 'B'}", "a guessed key"))

    def rotate(self, name: str, chance: Random) -> None:
        """Revoke one of a user's own keys, and make another like it."""
        person = self.all[name]
        place = chance.randrange(4)
        old = person.good[place]
        users = [name, f"{name}-other"] if old.several else [name]
        person.good[place] = self._key(old.kind, users, sorted(old.rights))
        self._ring.revoke(old.token[:15])
        self.dead.append(Credential(old.token, "a revoked key"))

    def _key(self, kind: str, users: Sequence[str], rights: Sequence[Right | str]) -> Credential:
        token, key = self._ring.create(kind, users, rights)
        several = len(users) > 1 or users[0].endswith("*")
        return Credential(token, kind, frozenset(key.rights), several)
