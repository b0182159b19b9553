"""Shortening of messages that are too long for the tokens they may take (their room). Pure.

A message keeps its role. A call keeps its id and name, so that its results still match it. A text
becomes an excerpt. A call's arguments stay valid JSON. A note replaces pictures that do not fit.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from agent_memory.core.excerpts import ELLIPSIS, LONGEST_TOKEN, Mark, excerpt
from agent_memory.core.formats.neutral import dumped, mapping
from agent_memory.core.formats.registry import Ids
from agent_memory.core.messages import Message, content_text
from agent_memory.core.records import Entry
from agent_memory.core.shapes import BEFORE, HIDDEN, Arranging, View, shape_of
from agent_memory.core.token_counter import TokenCounter
from agent_memory.core.tools import READ_MESSAGE

_IDS, _NO_IDS = Ids(unique=True), Ids(None)
_TRIES = 6
_LEAST_TEXT = 40
"""The tokens reserved for the text of each further result that `Shortener._fewer` shows."""
_OUTPUTS = ("stdout", "stderr", "logs", "text")
"""The fields of an item's output whose texts may be cut."""
_NOTE = f"[{ELLIPSIS} {{}} calls and their results left out]"


def mark_of(seq: int | None) -> Mark:
    """Return the function that renders the mark of a gap.

    The mark names the tool that reads the omitted text. If `seq` is None, there is no such tool.
    """

    def mark(missing: int, offset: int) -> str:
        way = "" if seq is None else f"; {READ_MESSAGE}(seq={seq}, offset={offset}) reads on"
        return f"[{ELLIPSIS} {missing:,} characters left out{way} {ELLIPSIS}]"

    return mark


def format_in(message: Message) -> dict[str, Any]:
    return {"format": message.format} if message.format else {}


@dataclass(frozen=True, slots=True)
class Shortener:
    """Shortens messages to excerpts with the passages that are relevant to `question`.

    `readable` is the seq of the newest message that a tool can read in full.
    """

    counter: TokenCounter
    question: str = ""
    readable: int = 0

    def message(self, message: Message, room: int, seq: int | None = None) -> Message | None:
        """Return a message within `room` tokens. None if even its shortest form does not fit."""
        if HIDDEN in message.metadata:
            return self._item(message, room, mark_of(seq))
        view = message.to_openai()
        if view is None:
            return None
        cut = self._view(view, room, seq)
        if cut is None:
            return None
        common = {"created_at": message.created_at, "metadata": message.metadata}
        return Message(**cut, **common, **format_in(message))

    def entry(self, entry: Entry, room: int) -> Entry | None:
        """Return the entry within `room` tokens. None if even its shortest form does not fit."""
        if entry.tokens <= room:
            return entry
        seq = entry.seq if entry.seq <= self.readable else None
        cut = self.message(entry.message, room, seq)
        if cut is None:
            return None
        is_hidden = HIDDEN in cut.metadata
        tokens = self._cost_of_item(cut) if is_hidden else self.counter.message(cut)
        return replace(entry, message=cut, tokens=tokens)

    def least(self, message: Message) -> int:
        """Return the tokens of the shortest form of a message."""
        if HIDDEN in message.metadata:
            return self._cost_of_item(self._with_output(message, 1, mark_of(None)))
        return sum(self.counter.chat(_least_view(view)) for view in message.views())

    def unit(self, entries: Sequence[Entry], room: int) -> list[Entry] | None:
        """Return a unit (a message, or a call with its results) within `room` tokens.

        Short messages stay whole, and longer messages share the rest of the room. If even the
        shortest forms of all messages do not fit, only the newest results stay. A note on the call
        gives the number of the omitted calls. None if even the call with one result does not fit.
        """
        if sum(entry.tokens for entry in entries) <= room:
            return list(entries)
        calls = [call for entry in entries for call in shape_of(entry.message).calls]
        has_ids = any(call.id is not None for call in calls)
        entries = self._chat(entries, _IDS if has_ids else _NO_IDS)
        least = [self.least(entry.message) for entry in entries]
        if sum(least) > room:
            fewer = self._fewer(self._chat(entries, _IDS), room)
            return fewer and self.unit(fewer, room)
        rooms = shares([entry.tokens for entry in entries], room, least)
        shown = [self.entry(each, most) for each, most in zip(entries, rooms, strict=True)]
        shortened = [entry for entry in shown if entry is not None]
        return shortened if len(shortened) == len(shown) else None

    def fewest(self, entries: Sequence[Entry]) -> int:
        """Return the fewest tokens that a unit may take. Of several results, the newest counts."""
        entries = self._chat(entries, _IDS)
        least = sum(self.least(entry.message) for entry in entries)
        answered = [
            call for entry in entries for call in _calls_of(entry) if _answers(entries[-1], call)
        ]
        if len(entries) < 3 or not answered:
            return least
        frame = _least_view({"role": "assistant", "tool_calls": answered[-1:]})
        return min(least, self.counter.chat(frame) + self.least(entries[-1].message) + 1)

    def _item(self, message: Message, room: int, mark: Mark) -> Message | None:
        """Return an item without a chat form, with excerpts of the texts in its output."""
        most = room
        while most:
            cut = self._with_output(message, most, mark)
            if self._cost_of_item(cut) <= room:
                return cut
            most //= 2
        return None

    def _with_output(self, message: Message, most: int, mark: Mark) -> Message:
        """Cut each text in an item's output to `most` tokens."""

        def cut(value: Any) -> Any:
            if isinstance(value, list):
                return list(map(cut, value))
            if isinstance(value, dict):
                return {key: cut(part) if key in _OUTPUTS else part for key, part in value.items()}
            is_long = isinstance(value, str) and self.counter.text(value) > most
            return self._text(value, most, mark) if is_long else value

        fields = (message.raw or {}).items()
        raw = {key: cut(part) if key == "output" else part for key, part in fields}
        return message.model_copy(update={"raw": raw})

    def _cost_of_item(self, message: Message) -> int:
        return sum(map(self.counter.item, (*message.metadata.get(BEFORE, ()), message.raw or {})))

    def _chat(self, entries: Sequence[Entry], ids: Ids) -> list[Entry]:
        """Return one entry for each chat message, with the call ids that `ids` requires."""
        chat_entries: list[Entry] = []
        for shown in Arranging(ids).shown([shape_of(entry.message) for entry in entries]) or ():
            entry = entries[shown.place]
            if not shown.is_same or len(shape_of(entry.message).views) > 1:
                common = {"created_at": entry.created_at, **format_in(entry.message)}
                message = Message(**{**shown.view, **common})
                entry = replace(entry, message=message, tokens=self.counter.message(message))
            chat_entries.append(entry)
        return chat_entries

    def _fewer(self, entries: Sequence[Entry], room: int) -> list[Entry] | None:
        """Return the newest results of a unit that fit, with the calls. None if none or all fit."""
        calls = [call for entry in entries for call in _calls_of(entry)]
        results = [entry for entry in entries if any(_answers(entry, call) for call in calls)]
        used = sum(
            self.counter.chat({"role": entry.message.role}) for entry in entries if _calls_of(entry)
        )
        bare, note = self.counter.chat({}), self.counter.text(_NOTE.format(len(calls)))
        shown_results: list[Entry] = []
        shown_calls: list[Any] = []
        for answer in reversed(results):
            own_calls = [call for call in calls if _answers(answer, call)]
            least = self.least(answer.message)
            used += least
            used += sum(
                self.counter.chat({"tool_calls": [_bare_call(call)]}) - bare for call in own_calls
            )
            text = min(answer.tokens - least, _LEAST_TEXT) if shown_results else 0
            if used + text + (note if shown_results else 0) > room:
                break
            used += text
            shown_results.append(answer)
            shown_calls += own_calls
        if not shown_results or len(shown_results) == len(results):
            return None
        gone = _NOTE.format(len(calls) - len(shown_calls))
        fewer: list[Entry] = []
        for entry in entries:
            newest = [call for call in _calls_of(entry) if call in shown_calls]
            if newest:
                view = entry.message.to_openai() or {}
                texts = [text for text in (gone, content_text(view.get("content"))) if text]
                fields = {"content": "\n".join(texts), "tool_calls": newest}
                fields |= format_in(entry.message)
                message = Message(**{**view, **fields, "created_at": entry.created_at})
                fewer.append(replace(entry, message=message, tokens=self.counter.message(message)))
            elif entry in shown_results:
                fewer.append(entry)
        return fewer

    def _view(self, view: View, room: int, seq: int | None) -> View | None:
        least = _least_view(view)
        if self.counter.chat(least) > room:
            return None
        mark, pieces = mark_of(seq), _pieces_of(view)
        for frame in (_frame_of(view, view.keys()), _frame_of(view, ("name",)), least):
            cost = self.counter.chat(frame)
            if frame is not least and cost > room // 2:
                continue
            left = room - cost
            for _ in range(_TRIES):
                if left <= 0:
                    break
                shown = self._filled(frame, pieces, left, mark)
                over = self.counter.chat(shown) - room
                if over <= 0:
                    return shown
                left -= over + 1
        return least

    def _filled(self, frame: View, pieces: Sequence[_Piece], room: int, mark: Mark) -> View:
        rooms = [room]  # a single piece gets all of the room
        if len(pieces) > 1:
            rooms = shares([self._cost_of(piece.value) for piece in pieces], room)
        shown = frame
        for piece, most in zip(pieces, rooms, strict=False):
            shown = piece.put(shown, self._shown(piece, most, mark))
        return shown

    def _shown(self, piece: _Piece, room: int, mark: Mark) -> Any:
        if isinstance(piece.value, list):
            return self._parts(piece.value, room, mark)
        if len(piece.path) > 1:
            return self._arguments(piece.value, room, mark)
        return self._text(piece.value, room, mark)

    def _text(self, text: str, room: int, mark: Mark) -> str:
        question = self.question if self.question != text else ""
        return excerpt(text, question, self.counter.text, room, mark)

    def _arguments(self, text: str, room: int, mark: Mark) -> str:
        """Return a call's arguments as valid JSON, in which long values are marked as cut."""

        def value_mark(missing: int, _: int) -> str:
            return mark(missing, 0)

        if self.counter.text(text) <= room:
            return text
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = None
        if isinstance(parsed, dict) and len(text) <= room * LONGEST_TOKEN * _LEAST_TEXT:
            values = {key: _json(value) for key, value in parsed.items()}
            costs = [self.counter.text(value) for value in values.values()]
            frame = self.counter.text(_json(dict.fromkeys(parsed, "")))
            rooms = shares(costs, max(0, room - frame - room // 8))
            cut = {
                key: value if cost <= most else self._text(dumped(value), most, value_mark)
                for (key, value), cost, most in zip(parsed.items(), costs, rooms, strict=True)
            }
            if self.counter.text(shown := _json(cut)) <= room:
                return shown
        for most in (room * 3 // 4, room // 2, room // 4):
            shown = _json({"cut": self._text(text, most, value_mark)})
            if self.counter.text(shown) <= room:
                return shown
        return "{}"

    def _parts(self, parts: list[Any], room: int, mark: Mark) -> list[Any]:
        """Return the pictures and files that fit, and the text as an excerpt."""
        costs = [self._part(part) for part in parts]
        text = sum(cost for part, cost in zip(parts, costs, strict=True) if _is_text(part))
        left = max(room - text, room // 2)
        shown: list[Any] = []
        omitted = 0
        for part, cost in zip(parts, costs, strict=True):
            if _is_text(part) or cost <= left:
                left -= 0 if _is_text(part) else cost
                shown.append(part)
            else:
                omitted += 1
        if omitted:
            shown.append({"type": "text", "text": f"[{omitted} attached parts left out]"})
        spare = room - sum(self._part(part) for part in shown)
        if spare >= 0:
            return shown
        note = shown.pop()["text"] if omitted else ""
        others = [part for part in shown if not _is_text(part)]
        rest = room - sum(map(self._part, others)) - self.counter.text(note) - 2
        cut_text = self._text(content_text(parts), max(1, rest), mark)
        return [{"type": "text", "text": f"{cut_text}\n{note}" if note else cut_text}, *others]

    def _cost_of(self, value: Any) -> int:
        return sum(map(self._part, value)) if isinstance(value, list) else self.counter.text(value)

    def _part(self, part: Any) -> int:
        bare = self.counter.chat({"role": "user", "content": []})
        return self.counter.chat({"role": "user", "content": [part]}) - bare


def shares(costs: Sequence[int], room: int, least: Sequence[int] | None = None) -> list[int]:
    """Divide `room` tokens among messages or pieces by their costs.

    If the room is too small, the cheapest messages get their cost, and the others share the
    remaining room equally. Each message gets at least its number in `least`. The sum of `least`
    must not exceed the room.
    """
    floor = list(least or [0] * len(costs))
    amounts = [min(cost, low) for cost, low in zip(costs, floor, strict=True)]
    left = room - sum(amounts)
    order = sorted(range(len(costs)), key=lambda place: costs[place] - amounts[place])
    for place_in_order, place in enumerate(order):
        more = max(0, min(costs[place] - amounts[place], left // (len(order) - place_in_order)))
        amounts[place] += more
        left -= more
    return amounts


def _is_text(part: Any) -> bool:
    return isinstance(part, str) or (
        isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part["text"], str)
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class _Piece(NamedTuple):
    """A part of a message that may be shortened: the content, another text, a call's arguments.

    `path` holds the keys and indexes that lead to the piece. Only a call's arguments need several.
    """

    value: Any
    path: tuple[Any, ...]

    def put(self, view: View, value: Any) -> View:
        changed: View = view.copy()
        holder: Any = changed
        for key in self.path[:-1]:
            holder[key] = holder[key].copy()
            holder = holder[key]
        holder[self.path[-1]] = value
        return changed


def _frame_of(view: View, keys: Collection[str]) -> View:
    """Return the shortest form of a view, with the fields in `keys` that are not pieces.

    Calls keep all fields except their arguments.
    """
    frame = _least_view(view)
    for key in filter(keys.__contains__, view):
        if key != "content" and (key == "name" or not isinstance(view[key], str)):
            frame.setdefault(key, view[key])
    calls = view.get("tool_calls")
    if isinstance(calls, list) and calls:
        frame["tool_calls"] = [_bare_call(call, extras=True) for call in calls]
    return frame


def _least_view(view: View) -> View:
    """Return the shortest form of a view: role, ids and names of calls, id of an answered call."""
    least: View = {"role": view.get("role")}
    if "tool_call_id" in view:
        least["tool_call_id"] = view["tool_call_id"]
    calls, function = view.get("tool_calls"), view.get("function_call")
    if isinstance(calls, list) and calls:
        least["tool_calls"] = [_bare_call(call) for call in calls]
    if isinstance(function, dict):
        least["function_call"] = {"name": function.get("name"), "arguments": "{}"}
    if view.get("role") == "function":
        least["name"] = view.get("name")
    is_call = "tool_calls" in least or "function_call" in least
    least["content"] = None if is_call else ELLIPSIS
    return least


def _bare_call(call: Any, *, extras: bool = False) -> Any:
    """Return a call without its arguments, with or without its provider's extra fields."""
    function = mapping(call).get("function")
    if not isinstance(function, dict):
        return call
    if not extras:
        call = {key: call[key] for key in ("id", "type") if key in call}
        function = {"name": function.get("name")}
    return {**call, "function": {**function, "arguments": "{}"}}


def _pieces_of(view: View) -> list[_Piece]:
    pieces: list[_Piece] = []
    for key, value in view.items():
        is_text = isinstance(value, str) and key not in ("role", "name", "tool_call_id")
        if value and (is_text or (key == "content" and isinstance(value, list))):
            pieces.append(_Piece(value, (key,)))
    functions = [
        (("tool_calls", place, "function"), call.get("function"))
        for place, call in enumerate(view.get("tool_calls") or ())
        if isinstance(call, dict)
    ]
    for path, function in (*functions, (("function_call",), view.get("function_call"))):
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if isinstance(arguments, str) and arguments:
            pieces.append(_Piece(arguments, (*path, "arguments")))
    return pieces


def _calls_of(entry: Entry) -> list[Any]:
    return (entry.message.to_openai() or {}).get("tool_calls") or []


def _answers(entry: Entry, call: Any) -> bool:
    view = entry.message.to_openai() or {}
    return isinstance(call, dict) and view.get("tool_call_id") == call.get("id")
