"""The rights and users of a credential, which no field of a request can extend. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from agent_memory.client.calls import Right
from agent_memory.core.ids import check_id
from agent_memory.core.limits import quoted
from agent_memory.errors import InvalidInput
from agent_memory.server.problems import FORBIDDEN, INVALID, Refused, other_user

RIGHTS: tuple[Right, ...] = get_args(Right)
EVERYBODY = "*"

_PATTERN = "*"


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated credential."""

    name: str
    # the users that the credential may act for: ids, prefixes of ids with a `*` at the end, or "*"
    # for everybody
    users: tuple[str, ...]
    # The rights of the credential for these users. "admin" is a right on the whole service.
    rights: frozenset[Right]
    label: str = ""  # a description for people, possibly empty

    def user(self, named: str | None) -> str:
        """Return the id of the user that a call acts for. `named` is the user in the request."""
        if named is None:
            own = one_user(self.users)
            if own is not None:
                return own
            raise Refused(INVALID, "This credential is for several users. Add ?user_id=.")
        if not any(_is_of(named, pattern) for pattern in self.users):
            raise other_user()
        check_id("user_id", named)
        return named

    def require(self, right: Right) -> None:
        if right not in self.rights:
            has = ", ".join(name for name in RIGHTS if name in self.rights)
            raise Refused(
                FORBIDDEN, f'This call needs the right "{right}". The credential has: {has}.'
            )


def one_user(users: tuple[str, ...]) -> str | None:
    """Return the only user of a credential. None if it is for several users."""
    return users[0] if len(users) == 1 and not users[0].endswith(_PATTERN) else None


def checked_users(users: Iterable[str]) -> tuple[str, ...]:
    """Validate the users of a credential, and return them without duplicates."""
    unique = tuple(dict.fromkeys(users))
    for user in unique:
        check_id("The user's id", user)
        if _PATTERN in user[:-1]:
            raise InvalidInput(
                f"The users {quoted(user)} are not valid. Put the * at the end, as in team-*."
            )
    if not unique:
        raise InvalidInput("No users are given. Pass ids, team-* for a prefix, or * for all.")
    return unique


def checked_rights(rights: Iterable[str], users: tuple[str, ...]) -> frozenset[Right]:
    names = list(rights)
    allowed: frozenset[Right] = frozenset([right for right in RIGHTS if right in names])
    if not allowed or len(allowed) < len(set(names)):
        raise InvalidInput(f"The rights are {quoted(names)}. Pass some of {', '.join(RIGHTS)}.")
    if "admin" in allowed and users != (EVERYBODY,):
        raise InvalidInput('"admin" gives access to all users. Pass * as the users.')
    return allowed


def _is_of(user_id: str, pattern: str) -> bool:
    if pattern.endswith(_PATTERN):
        return user_id.startswith(pattern[:-1])
    return user_id == pattern
