"""Whose turn it is: a queue of sessions that goes round the users. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator


class Turns:
    """Sessions that wait, each once; users take turns, and a user's sessions come in order."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        self._owners: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def __iter__(self) -> Iterator[str]:
        return iter(self._owners)

    def add(self, session_id: str, owner: str) -> None:
        """Have a session wait; one that waits already keeps its place, whosever it is by now."""
        if session_id not in self._owners:
            self._owners[session_id] = owner
            self._waiting.setdefault(owner, OrderedDict())[session_id] = None

    def take(self) -> tuple[str, str] | None:
        """The session whose turn it is, and its owner, who goes to the end; None: nobody waits."""
        if not self._waiting:
            return None
        owner, sessions = self._waiting.popitem(last=False)
        session_id, _ = sessions.popitem(last=False)
        del self._owners[session_id]
        if sessions:
            self._waiting[owner] = sessions
        return session_id, owner
