"""Errors of a Redis server, as sentences that say what to do."""

from __future__ import annotations

import re

from agent_memory.errors import StoreError, StoreUnavailable
from agent_memory.stores.redis.driver import exceptions

_NOT_NOW = ("MISCONF", "NOREPLICAS", "BUSY", "CLUSTERDOWN", "TRYAGAIN")
_WITHIN = re.compile(r": -([A-Z]+) ")
"""How servers before version 7 tell of an error within a script."""


def failure(error: Exception, place: str) -> StoreError:
    """The error to raise for one of the driver's. Neither holds a password.

    Args:
        error: The error of the driver or the system.
        place: Server and database.
    """
    server, text = f"The Redis server at {place}", str(error)
    within = _WITHIN.search(text)
    code = within[1] if within else ""
    refused = isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError)
    if refused or text.startswith(("NOAUTH", "WRONGPASS")):
        return StoreUnavailable(
            f"{server} refuses the user or password that the setting `store` names, or wants them "
            "and it names none."
        )
    if isinstance(error, exceptions.NoPermissionError) or code == "NOPERM":
        return StoreUnavailable(
            f"{server} does not permit the user in the setting `store` what is needed ({text}). "
            "Permit him: ~agent_memory:* +@all -@dangerous +info"
        )
    if isinstance(error, exceptions.BusyLoadingError):
        return StoreUnavailable(f"{server} is still loading its data. Try again in a moment.")
    if isinstance(error, exceptions.ReadOnlyError) or code == "READONLY":
        return StoreUnavailable(
            f"{server} is a replica, which takes no writes. Name its primary in the setting "
            "`store`."
        )
    if isinstance(error, exceptions.OutOfMemoryError) or code == "OOM":
        return StoreUnavailable(f"{server} has reached its maxmemory and takes no writes.")
    if text.startswith(_NOT_NOW) or code in _NOT_NOW:
        return StoreUnavailable(f"{server} takes no writes now: {text}")
    if "DB index is out of range" in text or "SELECT is not allowed" in text:
        return StoreUnavailable(
            f"{server} has no database of that number. Correct the end of the setting `store`."
        )
    if isinstance(error, exceptions.TimeoutError | TimeoutError):
        return StoreUnavailable(
            f"{server}, as the setting `store` names it, does not answer in time."
        )
    if isinstance(error, exceptions.ConnectionError | OSError):
        return StoreUnavailable(
            f"{server}, as the setting `store` names it, cannot be reached: {text}"
        )
    return StoreError(f"{server} failed: {text}")
