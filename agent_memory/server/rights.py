"""What a credential may do, and for whom. Pure: the request has no say in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from agent_memory.core.ids import check_id
from agent_memory.core.limits import quoted
from agent_memory.errors import InvalidInput
from agent_memory.server.problems import FORBIDDEN, INVALID, Refused, not_found

Right = Literal["read", "write", "delete", "admin"]
RIGHTS: tuple[Right, ...] = get_args(Right)
EVERYBODY = "*"

_PATTERN = "*"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks.

    Attributes:
        name: What the log calls it: a key's prefix, or who a JWT is from. No secret.
        users: The users it may act for: their ids; or a beginning of ids with a `*` behind it, and
            "*" for everybody.
        rights: What it may do for them. "admin" is about the whole service.
        label: What people call it; empty where nobody said.
    """

    name: str
    users: tuple[str, ...]
    rights: frozenset[Right]
    label: str = ""

    def user(self, named: str | None) -> str:
        """For which user a call is.

        Args:
            named: Whom the request names, if anybody.

        Raises:
            Refused: The credential is not for that user; or it is for several, and nobody is named.
        """
        if named is None:
            own = one_user(self.users)
            if own is not None:
                return own
            raise Refused(INVALID, "Say for which user: this credential is for several. ?user_id=")
        if not any(_is_of(named, pattern) for pattern in self.users):
            raise not_found()
        check_id("user_id", named)
        return named

    def require(self, right: Right) -> None:
        """Refuse what it may not do.

        Raises:
            Refused: It lacks the right.
        """
        if right not in self.rights:
            has = ", ".join(one for one in RIGHTS if one in self.rights)
            raise Refused(
                FORBIDDEN, f"This needs the right to {right}, and the credential has: {has}."
            )


def one_user(users: tuple[str, ...]) -> str | None:
    """The user of a credential that is for one alone; None for several."""
    return users[0] if len(users) == 1 and not users[0].endswith(_PATTERN) else None


def checked_users(users: Iterable[str]) -> tuple[str, ...]:
    """The users of a credential.

    Raises:
        InvalidInput: There is none, or a `*` stands elsewhere than at the end.
    """
    found = tuple(dict.fromkeys(users))
    for one in found:
        check_id("The user's id", one)
        if _PATTERN in one[:-1]:
            raise InvalidInput(
                f"The users {quoted(one)} are not usable: a * stands at the end, as in team-*."
            )
    if not found:
        raise InvalidInput("Say for which users: their ids, team-* for a beginning, * for all.")
    return found


def checked_rights(rights: Iterable[str], users: tuple[str, ...]) -> frozenset[Right]:
    """The rights of a credential.

    Raises:
        InvalidInput: There is none, or no such one, or "admin" is to be limited to some users.
    """
    given = list(rights)
    found: frozenset[Right] = frozenset([one for one in RIGHTS if one in given])
    if not found or len(found) < len(set(given)):
        raise InvalidInput(f"The rights are {quoted(given)}. Give some of {', '.join(RIGHTS)}.")
    if "admin" in found and users != (EVERYBODY,):
        raise InvalidInput('Who has "admin" sees what concerns all users. Give the users as *.')
    return found


def _is_of(user_id: str, pattern: str) -> bool:
    if pattern.endswith(_PATTERN):
        return user_id.startswith(pattern[:-1])
    return user_id == pattern
