"""`SentContext`: a context as it was sent to a model, and how it is kept. Pure.

What the log has is kept as numbers. What was recalled is kept beside it, each text for as long as
the session that it comes from; here are only its name and what tells whether a text is the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from html import unescape
from typing import Any

from agent_memory.core.context import BlockInfo, MemoryContext
from agent_memory.core.messages import Message, compact_json
from agent_memory.core.packing import Shown
from agent_memory.core.records import Entry, Head, LeftOut, Recall, Summary, empty_head
from agent_memory.core.window import is_user

_LONGEST = 300  # characters of what was left out
_MOST = 10
_DIGITS = 4
_ELSEWHERE = 0  # the number of a message that no log has: a framework's own window was given

Fields = dict[str, Any]
"""Plain JSON."""


@dataclass(frozen=True, slots=True)
class SentContext:
    """What a model was sent, as `AgentMemory.contexts` tells it.

    Attributes:
        session_id: The conversation.
        turn: Number of the message that the turn begins with, in the log.
        question: What was recalled for; empty for nothing.
        at: When it was made (UTC).
        context: The context. Of what was deleted since, texts and messages are missing.
        window: Numbers of the messages that it shows, in order.
        shortened: Those of them that it shows in part.
        left_out: What blocks had found and the context has not, with the why: the beginnings of the
            messages that it comes from.
        cost: US dollars that it took; None where the price of a model is not known.
        exact: Whether `messages` is what was sent, to the byte. False once something of it was
            changed or deleted.
        missing: How many messages and recalls are not there any more.
    """

    session_id: str
    turn: int
    question: str
    at: datetime
    context: MemoryContext
    window: tuple[int, ...]
    shortened: tuple[int, ...]
    left_out: tuple[LeftOut, ...]
    cost: float | None
    exact: bool
    missing: int

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What was sent, in the form in which it was."""
        return self.context.to_messages()


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of a context.

    Attributes:
        turn: See `SentContext`.
        step: How many messages the turn had so far: a model is asked once for each round of tools.
        upto: The last number of the log that it depends on.
        question: What was recalled for.
        fields: All else.
        texts: The texts that it does not share with the log, by what `fields` name them. Of what
            was kept outright there is none: it may be deleted at any time, by itself.
    """

    turn: int
    step: int
    upto: int
    question: str
    fields: Fields
    texts: Mapping[str, Text]


@dataclass(frozen=True, slots=True)
class Text:
    """A text that a context had, and until when it is kept.

    Attributes:
        text: The text.
        session_id: The session that it goes with; empty for the context's own.
        upto: The last message of that session which it derives from.
    """

    text: str
    session_id: str = ""
    upto: int = 0


def kept_of(
    context: MemoryContext,
    shown: Shown,
    logged: Sequence[Entry],
    question: str,
    left_out: Sequence[LeftOut],
) -> Kept:
    """What to keep of a context.

    Args:
        context: The context.
        shown: What it shows of the window and of the turn.
        logged: The window, as the log has it.
        question: What was recalled for.
        left_out: What is not in it, with the why.
    """
    said = {one.seq: one.message for one in logged if one.session_id}
    newest = next((one.seq for one in reversed(shown.turns) if is_user(one)), 0)
    turn = shown.drafts[0].seq if shown.drafts else newest
    above = {_digest(text): Text(text) for text in [one.to_json() for one in shown.leading]}
    fields: Fields = {
        "above": list(above),
        "turns": [_turn(one, said) for one in shown.turns],
        "asked": [one.to_json() for one in context.asked],
        "recalls": [_named(one) for one in context.recalls],
        "left_out": [[_named(one.recall), one.why] for one in left_out[:_MOST]],
        "blocks": {name: info.kind for name, info in context.blocks.items()},
        "role": context.memory_role,
        "format": context.format,
        "tokens": context.tokens,
        "max_tokens": context.max_tokens,
        "kept_tokens": context.kept_tokens,
        "warnings": list(context.warnings),
        "cost": context.cost,
        "print": print_of(context),
        "cut": sorted(shown.cut),
    }
    static = {name for name, info in context.blocks.items() if info.kind == "static"}
    texts = {
        name_of(one): _text(one) for one in context.recalls if one.sources or one.block in static
    }
    upto = max([turn, *shows(fields)])
    return Kept(turn, len(context.asked), upto, question, fields, {**above, **texts})


def sent_of(
    session_id: str,
    turn: int,
    question: str,
    at: datetime,
    fields: Fields,
    entries: Mapping[int, Entry],
    text_of: Callable[[str], str | None],
    said: Callable[[Recall], str],
) -> SentContext:
    """A context from what was kept of it.

    Args:
        session_id: The conversation.
        turn: See `SentContext`.
        question: What was recalled for.
        at: When it was made.
        fields: As kept.
        entries: What the log has of the messages that it shows.
        text_of: The text that is kept under a name of `name_of`; None for none.
        said: What was said where something that was left out comes from, as far as it is there.
    """
    missing = 0

    def recall_of(named: Sequence[Any], text: str | None) -> Recall:
        _, block, record, score, tokens, time, sources, views = named
        places = tuple([(name, seq) for name, seq in sources])
        return Recall(
            block, record, text or "", score, tokens, time=time, sources=places, views=views
        )

    leading = [text_of(one) for one in fields["above"]]
    messages = [Message.from_json(one, at) for one in leading if one is not None]
    missing += len(leading) - len(messages)
    for one in fields["turns"]:
        seq, text = (one, None) if isinstance(one, int) else one
        if seq not in entries and seq != _ELSEWHERE:
            missing += 1
        else:
            told = entries[seq].message if text is None else Message.from_json(text, at)
            messages.append(told)
    recalls = [recall_of(one, text_of(one[0])) for one in fields["recalls"]]
    missing += sum(not one.text for one in recalls)
    left_out = [LeftOut(recall_of(one, None), why) for one, why in fields["left_out"]]
    left_out = [replace(one, recall=_cut(one.recall, said(one.recall))) for one in left_out]
    context = MemoryContext(
        messages=messages,
        recalls=[one for one in recalls if one.text],
        tokens=fields["tokens"],
        max_tokens=fields["max_tokens"],
        warnings=fields["warnings"],
        head=_head(session_id, at, messages[: len(leading)]),
        blocks={name: BlockInfo(kind, None) for name, kind in fields["blocks"].items()},
        memory_role=fields["role"],
        format=fields["format"],
        asked=[Message.from_json(one, at) for one in fields["asked"]],
        kept_tokens=fields["kept_tokens"],
    )
    return SentContext(
        session_id=session_id,
        turn=turn,
        question=question,
        at=at,
        context=replace(context, recalls=recalls),
        window=tuple(shows(fields)),
        shortened=tuple(fields["cut"]),
        left_out=tuple(left_out),
        cost=fields["cost"],
        exact=print_of(context) == fields["print"],
        missing=missing,
    )


def shows(fields: Fields) -> list[int]:
    """The numbers of the messages of the log that it shows."""
    seqs = [one if isinstance(one, int) else one[0] for one in fields["turns"]]
    return [seq for seq in seqs if seq != _ELSEWHERE]


def name_of(recall: Recall) -> str:
    """Names a text that was recalled: the same text of the same thing has the same name."""
    return _digest([recall.block, recall.id, recall.text])


def print_of(context: MemoryContext) -> str:
    """Tells whether two contexts are sent as the same bytes."""
    return _digest(context.to_messages())


def _digest(value: object) -> str:
    return hashlib.sha256(compact_json(value).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _named(recall: Recall) -> list[Any]:
    views = {name: round(value, _DIGITS) for name, value in recall.views.items()}
    score, sources = round(recall.score, _DIGITS), [list(one) for one in recall.sources]
    named = name_of(recall), recall.block, recall.id
    return [*named, score, recall.tokens, recall.told_time, sources, views]


def _turn(shown: Entry, said: Mapping[int, Message]) -> int | list[Any]:
    """A message of the window: its number, and its text where the log has another, or none."""
    if shown.seq not in said:
        return [_ELSEWHERE, shown.message.to_json()]
    same = said[shown.seq] == shown.message
    return shown.seq if same else [shown.seq, shown.message.to_json()]


def _text(recall: Recall) -> Text:
    if not recall.sources:
        return Text(recall.text)
    home = recall.sources[0][0]
    return Text(recall.text, home, max(seq for name, seq in recall.sources if name == home))


def _cut(recall: Recall, text: str) -> Recall:
    return replace(recall, text=text[:_LONGEST])


def _head(session_id: str, at: datetime, messages: Sequence[Message]) -> Head | None:
    """A head that tells `to_messages` which message is the summary."""
    for one in messages:
        if one.metadata.get("kind") == "summary" and isinstance(one.content, str):
            text = unescape(one.content.removeprefix("<summary>\n").removesuffix("\n</summary>"))
            return replace(empty_head(session_id, None, at), summary=Summary(text, 0, 0, ""))
    return None
