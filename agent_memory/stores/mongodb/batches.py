"""Batches by what they are about, and the update that a batch makes of a head. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from agent_memory.errors import StoreError
from agent_memory.stores.kernel.coding import HEAD, KEY, head_id
from agent_memory.stores.kernel.contract import (
    Append,
    Batch,
    Condition,
    Delete,
    DeleteWhere,
    DocId,
    Due,
    Expire,
    Hold,
    LogEndsAt,
    Missing,
    Put,
    Scan,
    Truncate,
    Wake,
    Write,
)
from agent_memory.stores.kernel.rules import named
from agent_memory.stores.mongodb.documents import (
    NEVER,
    Doc,
    field_of,
    filters_of,
    marked,
    row_of,
    token,
    values_of,
    weight,
)
from agent_memory.stores.mongodb.logs import HEAVY
from agent_memory.stores.mongodb.staging import Effects

_AT_ONCE = 1_000


class HeadChange:
    """The writes of a batch about one session, as one update of its head.

    Attributes:
        head: The head.
        op: The batch's name.
        begins: Whether the session is new.
        which: The filters of which one has to match.
        set: The fields that are set.
        rows: The lines that are appended.
        cut_at: The seq after which the log is cut first, if it is.
        since: Since when keys are kept, if older ones are to go.
        log: The log's name, where it is known.
        generation: Of the log after the change, where `log` is known.
    """

    def __init__(self, batch: Batch, head: DocId, op: str, now: int) -> None:
        self.head, self.op = head, op
        self.begins = begins_session(batch, head)
        own = [one for one in batch.conditions if session_of(one) == head.id]
        self.which = [{"live": 1, **one} for one in filters_of(own, now)]
        self.set: Doc = {}
        self.rows: list[Doc] = []
        self.cut_at: int | None = None
        self.since: int | None = None
        self.log: str | None = token() if self.begins else None
        self.generation = 0
        self._mins: Doc = {}
        self._begin = self._lighter = 0
        self._unset: list[str] = []
        for write in batch.writes:
            match write:
                case Put(document) if document.key == head:
                    self.set |= values_of(document)
                case Put(document) if document.collection == KEY:
                    oldest = min(self._mins.get("oldest_key", document.first), document.first)
                    self._mins["oldest_key"] = oldest
                case Append(lines):
                    self.rows += [row_of(line, op) for line in lines]
                case Truncate(_, after):
                    self.cut_at = max(after, 0)
                case Expire(_, upto):
                    self._begin = upto
                case DeleteWhere(scan) if is_upkeep(scan):
                    self.since = scan.first_below
                case Wake(ids, micros) if head in ids:
                    self._mins["due"] = now + micros
                case Due() | Hold() if write.id == head:
                    self.set |= timing_of(write, now)
        self.is_small = not (self.rows or self.begins or self._begin or self.cut_at is not None)
        self.is_heavy = sum(map(weight, self.rows)) > HEAVY
        if self.rows:
            self.set |= {"end": self.rows[-1]["seq"], "total": self.rows[-1]["total"]}

    def truncate(self, seen: Doc, total: int) -> None:
        """Cut the log first, as it was seen."""
        self.log, self.generation = seen["log"], seen["g"]
        after = self.cut_at or 0
        if after >= seen["end"]:
            return
        self.generation += 1
        gone = [row for row in seen["lines"].values() if row["seq"] > after]
        self._lighter = sum(map(weight, gone))
        self._unset = [field_of(row["seq"]) for row in gone]
        cut = {"end": after, "below": self.generation}
        spilled = min(seen["spilled"], after)
        self.set = {"end": after, "total": total, **self.set}
        self.set |= {"g": self.generation, "spilled": spilled, "cut": cut}

    def update(self) -> Doc:
        """Return the update of a session that is there."""
        lines = {f"lines.{field_of(row['seq'])}": row for row in self.rows}
        unset = {f"lines.{name}": "" for name in self._unset if f"lines.{name}" not in lines}
        heavier = sum(map(weight, self.rows)) - self._lighter
        change = {
            "$set": {**self.set, **lines},
            "$unset": unset,
            "$min": self._mins,
            "$max": {"begin": self._begin} if self._begin else {},
            "$inc": {"weight": heavier} if heavier else {},
        }
        return {name: values for name, values in change.items() if values} | marked(self.op)

    def first_state(self) -> Doc:
        """Return the fields of a session that begins."""
        begin = self.rows[0]["seq"] - 1 if self.rows else 0
        return {
            **{"live": 1, "holder": "", "until": 0, "due": NEVER, "log": self.log, "g": 0},
            **{"end": 0, "total": 0, "begin": begin, "low": begin + 1, "spilled": 0, "ops": {}},
            **self._mins,
            **self.set,
            "weight": sum(map(weight, self.rows)),
            "lines": {field_of(row["seq"]): row for row in self.rows},
            "marks": [self.op],
        }


def timing_of(write: Write, now: int) -> Doc:
    """Return the fields of `Due` or `Hold`."""
    match write:
        case Due(_, micros):
            return {"due": NEVER if micros is None else now + micros}
        case Hold(_, holder, micros):
            return {"holder": holder, "until": now + micros if holder else 0}
    return {}


def is_unbounded(scan: Scan) -> bool:
    return scan.owner is None and scan.session is None


def is_upkeep(scan: Scan) -> bool:
    """Return whether a scan selects the old keys of a session. They are deleted afterwards."""
    return scan.collection == KEY and scan.first_below is not None


def session_of(condition: Condition) -> str | None:
    """Return the session that a condition is about."""
    if isinstance(condition, LogEndsAt):
        return condition.session
    return condition.id.id if condition.id.collection == HEAD else None


def head_of(batch: Batch) -> DocId | None:
    """Return the head that a batch changes, or else the one that it has conditions about.

    Raises:
        StoreError: It changes several.
    """
    changed: set[DocId] = set()
    for write in batch.writes:
        match write:
            case Put(document):
                changed.add(document.key)
            case Append(lines):
                changed |= {head_id(line.session) for line in lines}
            case Truncate(session, _) | Expire(session, _):
                changed.add(head_id(session))
            case Due(at) | Hold(at):
                changed.add(at)
            case Wake(ids) | Delete(ids):
                changed |= {*ids}
    heads = [at for at in changed if at.collection == HEAD]
    if len(heads) > 1:
        raise StoreError("A batch in MongoDB changes one session at most.")
    if heads:
        return heads[0]
    return next((head_id(one) for it in batch.conditions if (one := session_of(it))), None)


def begins_session(batch: Batch, head: DocId | None) -> bool:
    """Return whether a batch begins a session."""
    return any(isinstance(one, Missing) and one.id == head for one in batch.conditions)


def target_of(batch: Batch, effects: Effects) -> DocId | None:
    """Return the only document that a batch is about, if it is no head."""
    ids, logs = named(batch.conditions)
    ids |= {at for at, _ in effects.values()}
    for write in batch.writes:
        match write:
            case Due(at) | Hold(at):
                ids.add(at)
            case Wake(some):
                ids |= {*some}
    return next(iter(ids)) if len(ids) == 1 and not logs else None


def chunks(items: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (items[at : at + _AT_ONCE] for at in range(0, len(items), _AT_ONCE))
