"""Keys of appends in MongoDB: the newest in the session's document, the others on their own.

An append writes its keys with the one write of the session's document. Once there are many of them
whoever appended writes them down as documents of their own (`file`), and drops them from the
session's. A key's document that a stalled or killed process left says what was appended once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from typing import Any

from agent_memory.core.idempotency import KeptKey
from agent_memory.errors import StoreError
from agent_memory.stores.coding import from_micros, to_micros
from agent_memory.stores.mongodb.connection import Table
from agent_memory.stores.mongodb.documents import token

Doc = dict[str, Any]

MOST_KEYS = 32
"""How many keys a session's document may hold before they are filed."""

OF_KEYS: Doc = dict.fromkeys(("log", "version", "end", "keys", "filed", "filed_from", "cut"), 1)
_AT_ONCE = 500


class SessionKeys:
    """The keys of sessions.

    Args:
        sessions: The collection of sessions.
        keys: The collection of keys on their own.
    """

    def __init__(self, sessions: Table, keys: Table) -> None:
        self._sessions = sessions
        self._keys = keys

    def known(self, session: Doc, names: Collection[str] | None) -> dict[str, KeptKey]:
        """The keys of a session, of these names if any are given."""
        own: Doc = session.get("keys", {})
        found = {name: own[name] for name in own if names is None or name in names}
        filed: list[Doc] = []
        if session.get("filed"):
            which: Doc = {"log": session["log"]}
            if names is None:
                filed = self._keys.all(which)
            else:
                left = [name for name in names if name not in found]
                for at in range(0, len(left), _AT_ONCE):
                    some = {"$in": left[at : at + _AT_ONCE]}
                    filed += self._keys.all({**which, "name": some})
        for doc in sorted(filed, key=lambda one: int(one["g"])):
            if doc["name"] not in own and not _is_gone(session, doc):
                found[doc["name"]] = doc
        return {name: _key(name, values) for name, values in found.items()}

    def old(self, session: Doc, since: int | None, new: Collection[str]) -> list[str]:
        """Names of keys in a session's document that were kept before a time, but for new ones."""
        if since is None:
            return []
        own: Doc = session.get("keys", {})
        return [name for name, one in own.items() if one["at"] < since and name not in new]

    def tidy(self, session: Doc, since: int | None) -> None:
        """File the keys of a session's document if there are many, and remove old ones."""
        with suppress(StoreError):  # what was appended is, and whoever is next will tidy up
            if len(session.get("keys", {})) > MOST_KEYS:
                self._file(session)
            if since is not None and session.get("filed") and session["filed_from"] < since:
                self._prune(session, since)

    def _file(self, session: Doc) -> None:
        key, log, keys = session["_id"], session["log"], session["keys"]
        docs = [_doc(log, name, values) for name, values in keys.items()]
        self._keys.insert(docs)
        filed = self._sessions.update(
            {"_id": key, "log": log, **{f"keys.{name}.w": one["w"] for name, one in keys.items()}},
            {
                "$unset": {f"keys.{name}": "" for name in keys},
                "$inc": {"filed": 1},
                "$min": {"filed_from": min(one["at"] for one in keys.values())},
            },
        )
        if filed:
            return
        now = self._sessions.one({"_id": key}, fields=OF_KEYS) or {"log": None}
        if now["log"] == log and now.get("filed") != session.get("filed"):
            return  # by this very write, or by another: both file the same
        there = {(name, one["w"]) for name, one in now.get("keys", {}).items()}
        lost = [doc["_id"] for doc in docs if (doc["name"], doc["w"]) not in there]
        self._keys.delete_all({"_id": {"$in": lost}})

    def _prune(self, session: Doc, since: int) -> None:
        which = {"log": session["log"]}
        self._keys.delete_all({**which, "at": {"$lt": since}})
        oldest = self._keys.all(which, fields={"at": 1}, by=[("at", 1)], limit=1)
        at = oldest[0]["at"] if oldest else since
        same = {"_id": session["_id"], "filed": session["filed"], **which}
        self._sessions.update(same, {"$set": {"filed_from": at}})

    def put(self, session: Doc, keys: Sequence[KeptKey], lease_owner: str | None) -> bool:
        """Keep keys over those of the same names; False where a lease is not held any more."""
        log, write = session["log"], token()
        values = {one.name: key_values(one, session["version"], write) for one in keys}
        docs = [_doc(log, name, one) for name, one in values.items()]
        for at in range(0, len(docs), _AT_ONCE):
            self._keys.insert(docs[at : at + _AT_ONCE])
        which = {"_id": session["_id"], "log": log}
        if lease_owner is not None:
            which["lease_owner"] = lease_owner
        change: Doc = {
            "$inc": {"filed": 1},
            "$min": {"filed_from": min(to_micros(one.at) for one in keys)},
        }
        own = session.get("keys", {}).keys() & values.keys()
        if own:
            change["$unset"] = {f"keys.{name}": "" for name in own}
        if not self._sessions.update(which, change):
            self._keys.delete_all({"log": log, "w": write})
            return False
        names = list(values)
        for at in range(0, len(names), _AT_ONCE):
            some = {"$in": names[at : at + _AT_ONCE]}
            self._keys.delete_all({"log": log, "name": some, "w": {"$ne": write}})
        return True

    def clear_cut(self, session: Doc) -> None:
        """Remove the documents of keys whose messages were cut off."""
        cut = session["cut"]
        above = {"$gt": cut.get("keys", cut["end"])}
        self._keys.delete_all({"log": session["log"], "n": above, "g": {"$lt": cut["below"]}})

    def drop(self, session: Doc) -> None:
        """Remove all documents of keys of a session."""
        self._keys.delete_all({"log": session["log"]})


def key_values(key: KeptKey, version: int, write: str) -> Doc:
    """A key's fields, but for its name.

    Args:
        key: The key.
        version: The session's, when it was kept.
        write: Names the append.
    """
    return {
        "n": key.seq, "e": key.end, "t": key.total, "at": to_micros(key.at), "d": key.digest,
        "g": version, "w": write,
    }  # fmt: skip


def fields_of(keys: Iterable[KeptKey], version: int, write: str) -> Doc:
    """Keys as fields of a session's document, by their names."""
    return {one.name: key_values(one, version, write) for one in keys}


def _key(name: str, values: Doc) -> KeptKey:
    at = from_micros(values["at"])
    return KeptKey(name, values["d"], values["n"], values["e"], values["t"], at)


def _doc(log: str, name: str, values: Doc) -> Doc:
    return {"_id": f"{log}.{name}.{values['w']}", "log": log, "name": name, **values}


def _is_gone(session: Doc, doc: Doc) -> bool:
    """Whether the message of a key on its own was cut off, and its document is yet to go."""
    cut = session.get("cut")
    if not cut:
        return False
    return bool(doc["n"] > cut.get("keys", cut["end"]) and doc["g"] < cut["below"])
