"""Messages that are too long for their room, shown in part. Pure.

A message keeps its role, and a call its id and name, so that pairs stay pairs. Its text becomes an
excerpt, a call's arguments stay valid JSON, and pictures that do not fit are named in words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agent_memory.core.excerpts import ELLIPSIS, LONGEST_TOKEN, Mark, excerpt
from agent_memory.core.frames import (
    Piece,
    View,
    answers,
    bare_call,
    calls_of,
    frame_of,
    least_view,
    pieces_of,
)
from agent_memory.core.kept import KEPT
from agent_memory.core.messages import Message, content_text
from agent_memory.core.records import Entry
from agent_memory.core.tokens.counter import TokenCounter
from agent_memory.core.tools import READ_MESSAGE

_TRIES = 6
_LONG = 2_000  # characters of a text that is not counted again
_LEAST_TEXT = 40
"""Tokens below which a value in a call's arguments is not worth an excerpt."""
_NOTE = f"[{ELLIPSIS} {{}} calls and their results left out]"


def mark_of(seq: int | None) -> Mark:
    """What stands in the gaps of a message.

    Args:
        seq: Its place in the log, where it can be read on; None for one that cannot be.
    """

    def mark(missing: int, offset: int) -> str:
        way = "" if seq is None else f"; {READ_MESSAGE}(seq={seq}, offset={offset}) reads on"
        return f"[{ELLIPSIS} {missing:,} characters left out{way} {ELLIPSIS}]"

    return mark


@dataclass(frozen=True, slots=True)
class Shortener:
    """Shortens messages.

    Attributes:
        counter: The configured token counter.
        question: What excerpts are made for.
        readable: Seq of the newest message that can be read on.
    """

    counter: TokenCounter
    question: str = ""
    readable: int = 0

    def message(self, message: Message, room: int, seq: int | None = None) -> Message | None:
        """A message within `room` tokens; None where not even its frame fits."""
        view = message.to_openai()
        if view is None:
            return None
        cut = self._view(view, room, seq)
        if cut is None:
            return None
        return Message(**{**cut, "created_at": message.created_at, "metadata": message.metadata})

    def cost(self, view: View) -> int:
        """Tokens of a message; a long text is counted once."""
        content, count = view.get("content"), self.counter.chat
        if not isinstance(content, str) or len(content) < _LONG:
            return count(view)
        bare = {"role": "user", "content": ""}
        key = ("cost", self.counter.encoding, hash(content), len(content))
        long = KEPT.get(key, lambda: count({**bare, "content": content}) - count(bare))
        return count({**view, "content": ""}) + long

    def entry(self, entry: Entry, room: int) -> Entry | None:
        """An entry that shows its message within `room` tokens: itself, where it fits."""
        if entry.tokens <= room:
            return entry
        seq = entry.seq if entry.seq <= self.readable else None
        cut = self.message(entry.message, room, seq)
        if cut is None:
            return None
        return replace(entry, message=cut, tokens=self.cost(cut.to_openai() or {}))

    def least(self, message: Message) -> int:
        """Tokens of the least that can be shown of a message."""
        return sum(self.counter.chat(least_view(view)) for view in message.views())

    def unit(self, entries: Sequence[Entry], room: int) -> list[Entry] | None:
        """A message, or a call with its results, within `room` tokens; None where it cannot be.

        Short messages stay whole, the others share what is left. Where there are too many calls
        even for their frames, the newest results stay, and the call says how many are gone.
        """
        if sum(entry.tokens for entry in entries) <= room:
            return list(entries)
        entries = [one for entry in entries for one in self._apart(entry)]
        least = [self.least(entry.message) for entry in entries]
        if sum(least) > room:
            fewer = self._fewer(entries, room)
            return fewer and self.unit(fewer, room)
        rooms = shares([entry.tokens for entry in entries], room, least)
        shown = [self.entry(one, most) for one, most in zip(entries, rooms, strict=True)]
        kept = [one for one in shown if one is not None]
        return kept if len(kept) == len(shown) else None

    def fewest(self, entries: Sequence[Entry]) -> int:
        """Tokens of the least that can be shown of a unit: of many calls and results, the newest
        result."""
        entries = [one for entry in entries for one in self._apart(entry)]
        least = sum(self.least(one.message) for one in entries)
        asked = [call for one in entries for call in calls_of(one) if answers(entries[-1], call)]
        if len(entries) < 3 or not asked:
            return least
        frame = least_view({"role": "assistant", "tool_calls": asked[-1:]})
        return min(least, self.counter.chat(frame) + self.least(entries[-1].message) + 1)

    def _apart(self, entry: Entry) -> list[Entry]:
        """An entry as one for each of the messages that a chat shows it as."""
        views = entry.message.views()
        if len(views) < 2:
            return [entry]
        made = [Message(**{**view, "created_at": entry.created_at}) for view in views]
        return [replace(entry, message=one, tokens=self.counter.message(one)) for one in made]

    def _fewer(self, entries: Sequence[Entry], room: int) -> list[Entry] | None:
        """The newest results of a unit with their calls, so many that their frames fit."""
        calls = [call for one in entries for call in calls_of(one)]
        results = [one for one in entries if any(answers(one, call) for call in calls)]
        used = sum(
            self.counter.chat({"role": one.message.role}) for one in entries if calls_of(one)
        )
        bare, note = self.counter.chat({}), self.counter.text(_NOTE.format(len(calls)))
        kept: list[Entry] = []
        asked: list[Any] = []
        for answer in reversed(results):
            its = [call for call in calls if answers(answer, call)]
            least = self.least(answer.message)
            used += least
            used += sum(self.counter.chat({"tool_calls": [bare_call(one)]}) - bare for one in its)
            text = min(answer.tokens - least, _LEAST_TEXT) if kept else 0
            if used + text + (note if kept else 0) > room:
                break
            used += text
            kept.append(answer)
            asked += its
        if not kept or len(kept) == len(results):
            return None
        gone = _NOTE.format(len(calls) - len(asked))
        fewer: list[Entry] = []
        for one in entries:
            newest = [call for call in calls_of(one) if call in asked]
            if newest:
                view = one.message.to_openai() or {}
                said = [text for text in (gone, content_text(view.get("content"))) if text]
                given = {"content": "\n".join(said), "tool_calls": newest}
                message = Message(**{**view, **given, "created_at": one.created_at})
                fewer.append(replace(one, message=message, tokens=self.counter.message(message)))
            elif one in kept:
                fewer.append(one)
        return fewer

    def _view(self, view: View, room: int, seq: int | None) -> View | None:
        least = least_view(view)
        if self.counter.chat(least) > room:
            return None
        mark, pieces = mark_of(seq), pieces_of(view, self._part)
        for frame in (frame_of(view, view.keys()), frame_of(view, ("name",)), least):
            cost = self.counter.chat(frame)
            if frame is not least and cost > room // 2:
                continue
            left = room - cost
            for _ in range(_TRIES):
                if left <= 0:
                    break
                shown = self._filled(frame, pieces, left, mark)
                over = self.cost(shown) - room
                if over <= 0:
                    return shown
                left -= over + 1
        return least

    def _filled(self, frame: View, pieces: Sequence[Piece], room: int, mark: Mark) -> View:
        """The frame with what each piece may take of the room."""
        rooms = [room]  # one alone need not be counted: it is too long
        if len(pieces) > 1:
            rooms = shares([one.cost(self.counter) for one in pieces], room)
        shown = frame
        for one, most in zip(pieces, rooms, strict=False):
            shown = one.put(shown, self._shown(one, most, mark))
        return shown

    def _shown(self, piece: Piece, room: int, mark: Mark) -> Any:
        if isinstance(piece.value, list):
            return self._parts(piece.value, room, mark)
        if piece.is_arguments:
            return self._arguments(piece.value, room, mark)
        return self._text(piece.value, room, mark)

    def _text(self, text: str, room: int, mark: Mark) -> str:
        question = self.question if self.question != text else ""
        return excerpt(text, question, self.counter.text, room, mark)

    def _arguments(self, text: str, room: int, mark: Mark) -> str:
        """A call's arguments: valid JSON, of which long values say that they are cut."""

        def said(missing: int, _: int) -> str:
            return mark(missing, 0)

        if self.counter.text(text) <= room:
            return text
        try:
            given = json.loads(text)
        except ValueError:
            given = None
        if isinstance(given, dict) and len(text) <= room * LONGEST_TOKEN * _LEAST_TEXT:
            values = {key: _json(value) for key, value in given.items()}
            costs = [self.counter.text(value) for value in values.values()]
            frame = self.counter.text(_json(dict.fromkeys(given, "")))
            rooms = shares(costs, max(0, room - frame - room // 8))
            cut = {
                key: value if cost <= most else self._text(_plain(value), most, said)
                for (key, value), cost, most in zip(given.items(), costs, rooms, strict=True)
            }
            if self.counter.text(whole := _json(cut)) <= room:
                return whole
        for most in (room * 3 // 4, room // 2, room // 4):
            shown = _json({"cut": self._text(text, most, said)})
            if self.counter.text(shown) <= room:
                return shown
        return "{}"

    def _parts(self, parts: list[Any], room: int, mark: Mark) -> list[Any]:
        """A content of parts: pictures and the like while they fit, the text as an excerpt."""
        costs = [self._part(part) for part in parts]
        text = sum(cost for part, cost in zip(parts, costs, strict=True) if _is_text(part))
        left = max(room - text, room // 2)
        shown: list[Any] = []
        gone = 0
        for part, cost in zip(parts, costs, strict=True):
            if _is_text(part) or cost <= left:
                left -= 0 if _is_text(part) else cost
                shown.append(part)
            else:
                gone += 1
        if gone:
            shown.append({"type": "text", "text": f"[{gone} attached parts left out]"})
        spare = room - sum(self._part(part) for part in shown)
        if spare >= 0:
            return shown
        note = shown.pop()["text"] if gone else ""
        others = [part for part in shown if not _is_text(part)]
        rest = room - sum(map(self._part, others)) - self.counter.text(note) - 2
        said = self._text(content_text(parts), max(1, rest), mark)
        return [{"type": "text", "text": f"{said}\n{note}" if note else said}, *others]

    def _part(self, part: Any) -> int:
        bare = self.counter.chat({"role": "user", "content": []})
        return self.counter.chat({"role": "user", "content": [part]}) - bare


def shares(costs: Sequence[int], room: int, least: Sequence[int] | None = None) -> list[int]:
    """What each of several may take of a room: all it costs, or as much as any other.

    Args:
        costs: What each would take.
        room: What there is; at least the sum of `least`.
        least: What each takes in any case.
    """
    floor = list(least or [0] * len(costs))
    given = [min(cost, low) for cost, low in zip(costs, floor, strict=True)]
    left = room - sum(given)
    order = sorted(range(len(costs)), key=lambda place: costs[place] - given[place])
    for done, place in enumerate(order):
        more = max(0, min(costs[place] - given[place], left // (len(order) - done)))
        given[place] += more
        left -= more
    return given


def _is_text(part: Any) -> bool:
    return isinstance(part, str) or (
        isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part["text"], str)
    )


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
