"""Where a session's entries are: the newest in the tail of its document, the others on their own.

An append is one write of one document: the session's, whose `tail` takes the entries in. Once the
tail is heavy, whoever appended writes the entries down as documents of their own (`spill`), and
drops them from the tail. Only the session's document tells which entries there are: `end`, and up
to which of them (`spilled`) they stand on their own. So an entry's document that a stalled or
killed process left is never taken for an entry:

- above `spilled` it is not looked at, but for one that the tail refers to;
- `staged` it is not, until the tail's reference to it was spilled;
- of two in one place that with the higher `g` is the entry, the other one was cut off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_memory.core.records import Entry
from agent_memory.errors import Damaged
from agent_memory.stores.mongodb.connection import Table
from agent_memory.stores.mongodb.documents import (
    entry_doc,
    entry_of,
    ids_of,
    in_pieces,
    is_away,
    put_together,
    tail_key,
    weight,
)
from agent_memory.stores.mongodb.keys import SessionKeys

Doc = dict[str, Any]

HEAVY = 32 * 2**10
"""Bytes of a tail that is to be spilled, and of messages that do not go into it."""

_LOG: Doc = dict.fromkeys(("sid", "log", "version", "end", "expired", "spilled", "tail"), 1)
MOST_AT_ONCE = 100
"""How many entries leave a tail with one write."""

_AT_ONCE = 1000
_TRIES = 50


class Log:
    """The entries of sessions.

    Args:
        sessions: The collection of sessions.
        entries: The collection of entries on their own.
        keys: The keys under which they were appended.
    """

    def __init__(self, sessions: Table, entries: Table, keys: SessionKeys) -> None:
        self._sessions = sessions
        self._entries = entries
        self._keys = keys

    def read(self, key: str, after: int, limit: int | None) -> list[Entry]:
        """The entries of a session after `after`, at most `limit`."""
        for _ in range(_TRIES):
            session = self._sessions.one({"_id": key}, fields=_LOG)
            if session is None:
                return []
            first, last = max(after, session["expired"], 0) + 1, session["end"]
            seqs = range(first, (last if limit is None else min(last, first + limit - 1)) + 1)
            found = self._found(session, seqs, {"$gte": first, "$lte": seqs[-1]} if seqs else {})
            if found is not None:
                return found
        raise _damaged()

    def pick(self, key: str, seqs: Sequence[int]) -> list[Entry]:
        """The entries of a session with these seqs."""
        for _ in range(_TRIES):
            session = self._sessions.one({"_id": key}, fields=_LOG)
            if session is None:
                return []
            wanted = sorted({seq for seq in seqs if session["expired"] < seq <= session["end"]})
            parts = [
                self._found(session, some, {"$in": some})
                for some in (wanted[at : at + _AT_ONCE] for at in range(0, len(wanted), _AT_ONCE))
            ]
            found = [part for part in parts if part is not None]
            if len(found) == len(parts):
                return [entry for part in found for entry in part]
        raise _damaged()

    def _found(self, session: Doc, seqs: Sequence[int], places: Doc) -> list[Entry] | None:
        """The entries in these places; None where the log was cut or spilled meanwhile."""
        if not seqs:
            return []
        tail = {values["n"]: values for values in session["tail"].values()}
        docs: dict[int, Doc] = {}
        if seqs[0] <= session["spilled"]:
            which = {"log": session["log"], "n": {**places}}
            if "$lte" in places:
                which["n"]["$lte"] = min(seqs[-1], session["spilled"])
            for doc in put_together(self._entries.all(which, by=[("n", 1)])):
                before = docs.get(doc["n"])
                if not doc.get("staged") and (before is None or doc["g"] > before["g"]):
                    docs[doc["n"]] = doc
        own = {seq: tail[seq] for seq in seqs if seq > session["spilled"] and seq in tail}
        log = session["log"]
        away = [name for one in own.values() if is_away(one) for name in ids_of(log, one)]
        docs.update(own)
        if away:
            found = put_together(self._entries.all({"_id": {"$in": away}}))
            docs.update((doc["n"], doc) for doc in found)
        whole = all(seq in docs and "message" in docs[seq] for seq in seqs)
        if not whole or any(docs[seq]["g"] > session["version"] for seq in seqs):
            return None
        return [entry_of(session["sid"], docs[seq]) for seq in seqs]

    def total(self, session: Doc, end: int) -> int | None:
        """The running total at an entry; None where the log was cut or spilled meanwhile."""
        if end <= 0:
            return 0
        values = session["tail"].get(tail_key(end))
        if values is not None:
            return int(values["total"])
        found = self._found(session, [end], {"$in": [end]})
        return found[0].total if found else None

    def stage(self, log: str, rows: Sequence[Doc]) -> list[Doc]:
        """Write entries on their own before they are appended; what the tail says of them."""
        docs = [doc for row in rows for doc in in_pieces(log, row)]
        self._entries.insert([{**doc, "staged": 1} for doc in docs])
        return [{key: value for key, value in row.items() if key != "message"} for row in rows]

    def unstage(self, log: str, rows: Sequence[Doc]) -> None:
        """Remove entries that were not appended after all."""
        names = [name for row in rows for name in ids_of(log, row)]
        self._entries.delete_all({"_id": {"$in": names}})

    def holds(self, log: str, row: Doc) -> bool:
        """Whether an entry stands on its own, appended by the very write that the row is of."""
        doc = self._entries.one({"_id": entry_doc(log, row)["_id"]}, fields={"message": 0})
        return doc is not None and not doc.get("staged")

    def spill(self, session: Doc) -> int:
        """Write down the entries of a tail on their own, and drop them from it.

        Returns:
            By how much the tail became lighter.
        """
        if session.get("cut"):
            self.clear_cut(session)
        rows = sorted(session["tail"].values(), key=lambda row: int(row["n"]))
        lighter = 0
        for at in range(0, len(rows), MOST_AT_ONCE):
            some = rows[at : at + MOST_AT_ONCE]
            if not self._spill(session["_id"], session["log"], some):
                break
            lighter += sum(map(weight, some))
        return lighter

    def _spill(self, key: str, log: str, rows: Sequence[Doc]) -> bool:
        away = [entry_doc(log, row)["_id"] for row in rows if is_away(row)]
        # those that are there, another process wrote
        self._entries.insert([entry_doc(log, row) for row in rows if not is_away(row)])
        if away:
            self._entries.update_all({"_id": {"$in": away}}, {"$unset": {"staged": ""}})
        first, last = (f"tail.{tail_key(rows[at]['n'])}.w" for at in (0, -1))
        # as long as both ends of it are there, so is all between them
        dropped = self._sessions.update(
            {"_id": key, "log": log, first: rows[0]["w"], last: rows[-1]["w"]},
            {
                "$set": {"spilled": rows[-1]["n"]},
                "$inc": {"weight": -sum(map(weight, rows))},
                "$unset": {f"tail.{tail_key(row['n'])}": "" for row in rows},
            },
        )
        if not dropped:
            self._take_back(key, log, [entry_doc(log, row) for row in rows])
        return dropped

    def _take_back(self, key: str, log: str, written: Sequence[Doc]) -> None:
        """Remove what was written for a tail that was cut off meanwhile, or is deleted."""
        session = self._sessions.one({"_id": key}, fields=_LOG) or {"log": None}
        if session["log"] != log:
            names = [name for doc in written for name in ids_of(log, doc)]
            self._entries.delete_all({"_id": {"$in": names}})
            return
        kept = {(doc["n"], doc["w"]) for doc in session["tail"].values()}
        lost = [
            doc
            for doc in written
            if doc["n"] > session["spilled"] and (doc["n"], doc["w"]) not in kept
        ]
        within = [doc for doc in written if doc["n"] <= session["spilled"]]
        if within:
            places = {"$gte": within[0]["n"], "$lte": within[-1]["n"]}
            fields = {"n": 1, "g": 1, "staged": 1}
            highest: dict[int, int] = {}
            for doc in self._entries.all({"log": log, "n": places}, fields=fields):
                if not doc.get("staged"):
                    highest[doc["n"]] = max(doc["g"], highest.get(doc["n"], 0))
            lost += [
                doc
                for doc in within
                if doc["g"] < highest.get(doc["n"], 0) or doc["n"] <= session["expired"]
            ]
        if lost:
            names = [name for doc in lost for name in ids_of(log, doc)]
            self._entries.delete_all({"_id": {"$in": names}})

    def expire(self, key: str) -> None:
        """Remove the entries up to a session's `expired`."""
        while True:
            session = self._sessions.one({"_id": key}, fields=_LOG)
            if session is None:
                return
            if all(row["n"] > session["expired"] for row in session["tail"].values()):
                break
            self.spill(session)  # whoever spills the same at the same time then takes it back
        self._entries.delete_all({"log": session["log"], "n": {"$lte": session["expired"]}})

    def clear_cut(self, session: Doc) -> None:
        """Remove the documents of entries that were cut off, and of their keys."""
        cut = session["cut"]
        above = {"$gt": cut["end"]}
        self._entries.delete_all({"log": session["log"], "n": above, "g": {"$lt": cut["below"]}})
        self._keys.clear_cut(session)
        which = {"_id": session["_id"], "log": session["log"], "cut.below": cut["below"]}
        self._sessions.update(which, {"$unset": {"cut": ""}})

    def drop(self, session: Doc) -> None:
        """Remove all documents of entries and keys of a session."""
        self._entries.delete_all({"log": session["log"]})
        self._keys.drop(session)


def _damaged() -> Damaged:
    return Damaged(
        "Entries of a session are missing in MongoDB. Were documents removed from the collection "
        "agent_memory_entries by hand?"
    )
