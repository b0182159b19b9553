"""The lines of logs. The newest lines are in the head, all others in separate documents.

If an append makes the lines of a head larger than `HEAVY`, the appending process copies them to
separate documents, then removes them from the head (`spill`). If the lines of one batch exceed
`HEAVY`, they are written as documents marked `staged`, then the head is changed to refer to
them. A stalled or killed process may leave documents of lines that are not in the log. Three rules
prevent reads of such documents:

- After the seq `spilled` of the head, only documents that the head refers to are read.
- Up to the seq `spilled`, no `staged` document is read.
- Each truncation begins a new generation `g`. If a seq has documents of two generations, only the
  document of the newer generation is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent_memory.errors import Damaged
from agent_memory.stores.kernel.contract import Line, Part
from agent_memory.stores.kernel.rules import chunks
from agent_memory.stores.mongodb import documents as mongo
from agent_memory.stores.mongodb.connection import Table
from agent_memory.stores.mongodb.documents import Doc

STATE: Doc = dict.fromkeys(
    ("id", "live", "log", "g", "end", "total", "begin", "low", "spilled", "weight", "cut"), 1
)
_LOG: Doc = {**STATE, "lines": 1}
_BATCH_SIZE = 100
"""The maximum number of lines that one update removes from a head."""
_TRIES = 50


class Logs:
    """Reads, moves and removes the lines of logs."""

    def __init__(self, heads: Table, messages: Table) -> None:
        self._heads = heads
        self._messages = messages

    def read(self, places: Sequence[str], parts: Sequence[Part]) -> list[Line]:
        """Return the lines that parts select. `places` has the `_id` of each part's head."""
        lines: dict[int, list[Line]] = {}
        for _ in range(_TRIES):
            missing = [n for n in range(len(parts)) if n not in lines]
            if not missing:
                return [line for n in range(len(parts)) for line in lines[n]]
            which = {"_id": {"$in": [places[n] for n in missing]}, "live": 1}
            heads = {head["_id"]: head for head in self._heads.all(which, _LOG)}
            seqs = {n: _seqs(heads.get(places[n]), parts[n]) for n in missing}
            some = {n: (heads[places[n]], wanted) for n, wanted in seqs.items() if wanted}
            lines |= {n: [] for n in missing if n not in some}
            rows = self._rows(list(some.values()))
            for n, (head, wanted) in some.items():
                own = {seq: rows[head["log"], seq] for seq in wanted if (head["log"], seq) in rows}
                if len(own) == len(wanted) and all(
                    row.get("g", 0) <= head["g"] and not mongo.is_away(row) for row in own.values()
                ):
                    lines[n] = [mongo.line_of(parts[n].session, row) for row in own.values()]
        raise Damaged(
            "Lines of a session are missing in MongoDB. Check whether somebody removed documents "
            "from the collection agent_memory_messages."
        )

    def _rows(self, wanted: Sequence[tuple[Doc, Sequence[int]]]) -> dict[tuple[str, int], Doc]:
        """Return rows by log and seq, for pairs of a head and seqs. Missing rows are left out."""
        rows: dict[tuple[str, int], Doc] = {}
        ranges: list[Doc] = []
        away: list[str] = []
        for head, seqs in wanted:
            log, lines = head["log"], head["lines"]
            older = [seq for seq in seqs if seq <= head["spilled"]]
            for some in chunks(older):
                consecutive = some[-1] - some[0] + 1 == len(some)
                where = {"$gte": some[0], "$lte": some[-1]} if consecutive else {"$in": some}
                ranges.append({"log": log, "seq": where})
            for seq in seqs[len(older) :]:
                if (row := lines.get(mongo.field_of(seq))) is not None:
                    rows[log, seq] = row
                    away += mongo.ids_of(log, row) if mongo.is_away(row) else []
        for some_ranges in chunks(ranges, 2):
            which = some_ranges[0] if len(some_ranges) == 1 else {"$or": some_ranges}
            for row in mongo.put_together(self._messages.all(which)):
                before = rows.get((row["log"], row["seq"]))
                if not row.get("staged") and (before is None or row["g"] > before["g"]):
                    rows[row["log"], row["seq"]] = row
        for names in chunks(away):
            fetched = mongo.put_together(self._messages.all({"_id": {"$in": names}}))
            rows |= {(row["log"], row["seq"]): row for row in fetched}
        return rows

    def stage(self, log: str, session: str, generation: int, rows: Sequence[Doc]) -> list[Doc]:
        """Write lines as documents before an append. Return the references for the head."""
        docs = [doc for row in rows for doc in mongo.in_documents(log, session, generation, row)]
        self._messages.insert([{**doc, "staged": 1} for doc in docs])
        return [mongo.reference(row) for row in rows]

    def unstage(self, log: str, rows: Sequence[Doc]) -> None:
        ids = [row_id for row in rows for row_id in mongo.ids_of(log, row)]
        self._messages.delete_all({"_id": {"$in": ids}})

    def tidy(self, head: Doc) -> None:
        """Remove truncated and expired lines, and move the lines of a heavy head to documents."""
        if head.get("cut"):
            self.clear_cut(head)
        if head["low"] <= head["begin"]:
            self._clear_expired(head["_id"])
        if head["weight"] > mongo.HEAVY:
            self.spill(head)

    def spill(self, head: Doc) -> None:
        """Move the lines of a head to separate documents. Stop if the head changed meanwhile."""
        if "lines" not in head:
            same = {"_id": head["_id"], "log": head["log"]}
            head = self._heads.find_one(same, _LOG) or {"lines": {}}
        rows = sorted(head["lines"].values(), key=lambda row: int(row["seq"]))
        for some in chunks(rows, _BATCH_SIZE):
            if not self._spill(head, some):
                return

    def _spill(self, head: Doc, rows: Sequence[Doc]) -> bool:
        log, session, g = head["log"], head["id"], head["g"]
        away = [mongo.ids_of(log, row)[0] for row in rows if mongo.is_away(row)]
        some = [
            mongo.in_documents(log, session, g, row)[0] for row in rows if not mongo.is_away(row)
        ]
        self._messages.insert(some)  # `insert` skips documents that another process has inserted
        if away:
            self._messages.update_all(
                {"_id": {"$in": away}}, {"$set": {"g": g}, "$unset": {"staged": ""}}
            )
        first, last = (f"lines.{mongo.field_of(rows[at]['seq'])}.w" for at in (0, -1))
        # if the head still has the first and the last line, it also has all lines between them
        done = self._heads.update(
            {"_id": head["_id"], "live": 1, "log": log, first: rows[0]["w"], last: rows[-1]["w"]},
            {
                "$set": {"spilled": rows[-1]["seq"]},
                "$inc": {"weight": -sum(map(mongo.weight, rows))},
                "$unset": {f"lines.{mongo.field_of(row['seq'])}": "" for row in rows},
            },
        )
        if not done:
            self._take_back(head, rows)
        return done

    def _take_back(self, head: Doc, rows: Sequence[Doc]) -> None:
        """Remove the documents of those rows that are no longer in the log."""
        log = head["log"]
        now = self._heads.find_one({"_id": head["_id"], "log": log, "live": 1}, _LOG)
        lost = list(rows)
        if now is not None:
            within = [row for row in rows if now["begin"] < row["seq"] <= now["spilled"]]
            stored = self._rows([(now, [row["seq"] for row in within])]) if within else {}
            remaining = {
                (row["seq"], row["w"]) for row in (*now["lines"].values(), *stored.values())
            }
            lost = [row for row in rows if (row["seq"], row["w"]) not in remaining]
        if lost:
            self.unstage(log, lost)

    def clear_cut(self, head: Doc) -> None:
        cut = head["cut"]
        gone = {"seq": {"$gt": cut["end"]}, "g": {"$lt": cut["below"]}}
        self._messages.delete_all({"log": head["log"], **gone})
        which = {"_id": head["_id"], "log": head["log"], "cut.below": cut["below"]}
        self._heads.update(which, {"$unset": {"cut": ""}})

    def _clear_expired(self, place: str) -> None:
        for _ in range(_TRIES):
            head = self._heads.find_one({"_id": place, "live": 1}, _LOG)
            if head is None:
                return
            same = {"_id": place, **{name: head[name] for name in ("log", "g", "begin", "spilled")}}
            rows = [row for row in head["lines"].values() if row["seq"] <= head["begin"]]
            if rows:
                fields = {f"lines.{mongo.field_of(row['seq'])}": "" for row in rows}
                at = f"lines.{mongo.field_of(rows[0]['seq'])}.w"
                lighter = {"weight": -sum(map(mongo.weight, rows))}
                gone = {"$unset": fields, "$inc": lighter}
                if not self._heads.update({**same, at: rows[0]["w"]}, gone):
                    continue
            self._messages.delete_all({"log": head["log"], "seq": {"$lte": head["begin"]}})
            self._heads.update(same, {"$max": {"low": head["begin"] + 1}})
            return

    def drop(self, log: str) -> None:
        self._messages.delete_all({"log": log})


def _seqs(head: Doc | None, part: Part) -> list[int]:
    if head is None:
        return []
    if part.seqs is not None:
        return [seq for seq in part.seqs if head["begin"] < seq <= head["end"]]
    first = max(part.after, head["begin"], 0) + 1
    last = head["end"] if part.limit is None else min(head["end"], first + part.limit - 1)
    return list(range(first, last + 1))
