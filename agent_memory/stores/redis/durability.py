"""The durability of a Redis server, and the rewriting of its files after a deletion."""

from __future__ import annotations

import logging
import time

from agent_memory.errors import ConfigError, StoreError
from agent_memory.stores.redis.server import RedisServer

_WAIT_SECONDS = 5.0
_QUICKER = "already in progress"
"""In the error if another rewrite has begun since. It began after the deletion, so it suffices."""

logger = logging.getLogger(__name__)


def durability_note(server: RedisServer) -> str:
    """Describe what an acknowledged write survives, by the server's settings."""
    settings = _settings(server, "appendonly", "appendfsync", "save", "maxmemory-policy")
    kept, evicts = settings.get("appendonly"), settings.get("maxmemory-policy", "noeviction")
    if kept is None:
        note = (
            "The server does not tell its settings. Look that it has `appendonly yes`, and "
            "`appendfsync everysec` or `always`: without them a restart loses updates."
        )
    elif kept != "yes":
        snapshots = "the last snapshot" if settings.get("save") else "nothing"
        note = (
            f"appendonly is off: when the server stops, {snapshots} is kept. Updates survive the "
            "end of your process, not the server's. Set `appendonly yes`."
        )
    elif settings.get("appendfsync") == "always":
        note = "appendfsync is always: an update that returned survives a power loss."
    elif settings.get("appendfsync") == "everysec":
        note = (
            "appendfsync is everysec: an update that returned survives the end of the server; a "
            "power loss takes the last second or two."
        )
    else:
        note = (
            "appendfsync is no: an update that returned survives the end of the server; a power "
            "loss takes what the system had not yet written, often half a minute."
        )
    if evicts != "noeviction":
        note += (
            f" maxmemory-policy is {evicts}: a server that fills up throws memory away. Set "
            "`maxmemory-policy noeviction`."
        )
    return note


def require_power(server: RedisServer) -> None:
    """Refuse a server that does not sync each write to the disk."""
    settings = _settings(server, "appendonly", "appendfsync")
    if settings != {"appendonly": "yes", "appendfsync": "always"}:
        raise ConfigError(
            f"durability='power' needs `appendonly yes` and `appendfsync always` on the Redis "
            f"server at {server.place}. {durability_note(server)}"
        )


def rewrite_files(server: RedisServer) -> None:
    """Make the server rewrite its append-only file and its snapshot, each if it is enabled."""
    try:
        if _persistence(server).get("aof_enabled") == "1":
            _when_idle(server, "BGREWRITEAOF")
        if _settings(server, "save").get("save", "on"):
            _when_idle(server, "BGSAVE")
    except StoreError as error:
        logger.warning(
            "%s What was deleted may stand in the server's files until it writes them anew.", error
        )


def _when_idle(server: RedisServer, command: str) -> None:
    """Begin a rewrite after the end of a running one, which may have begun before the deletion."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        state = _persistence(server)
        if "1" not in (state.get("rdb_bgsave_in_progress"), state.get("aof_rewrite_in_progress")):
            try:
                server.ask(command)
            except StoreError as error:
                if _QUICKER not in str(error):
                    raise
            return
        if time.monotonic() > deadline:
            raise StoreError(f"The Redis server at {server.place} is busy writing its files.")
        time.sleep(0.05)


def _persistence(server: RedisServer) -> dict[str, str]:
    lines = server.ask("INFO", "persistence").decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _settings(server: RedisServer, *names: str) -> dict[str, str]:
    """Return settings by name; none if the server does not reveal them."""
    found: dict[str, str] = {}
    for name in names:
        try:
            answer = server.ask("CONFIG", "GET", name)
        except StoreError:  # managed servers have no CONFIG, and others forbid it
            return found
        if answer:
            found[name] = answer[1].decode()
    return found
