"""The prompt log: stored contexts, and the common beginning of two contexts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from typing import Any, TypeAlias

from agent_memory.core.context import BlockInfo, MemoryContext
from agent_memory.core.formats.exact import as_json
from agent_memory.core.idempotency import digest
from agent_memory.core.messages import Message
from agent_memory.core.packing import Shown
from agent_memory.core.records import Entry, LeftOut, Recall, Record
from agent_memory.core.window import is_user

Piece: TypeAlias = tuple[int, int]
"""The comparison key and the tokens of a context's message or of its `<memory>` element."""


def pieces(shown: Shown, context: MemoryContext) -> list[Piece]:
    """Return a context as pieces, in the order in which a model gets them."""
    leading = zip(shown.leading, shown.leading_tokens, strict=True)
    above = [(hash((message.role, _text_in(message))), tokens) for message, tokens in leading]
    entries = [*shown.turns, *shown.drafts]
    below = [
        (hash((entry.seq, entry.tokens, _text_in(entry.message))), entry.tokens)
        for entry in entries
    ]
    if context.recalls:
        recalls = hash(tuple([(recall.block, str(recall)) for recall in context.recalls]))
        tokens = context.tokens - shown.tokens
        if context.memory_role == "leading":
            first, first_tokens = above[0] if above else (0, 0)
            return [(hash((first, recalls)), first_tokens + tokens), *above[1:], *below]
        newest = next((at for at in reversed(range(len(entries))) if is_user(entries[at])), 0)
        below.insert(newest, (recalls, tokens))
    return [*above, *below]


def _text_in(message: Message) -> str | None:
    return message.content if isinstance(message.content, str) else None


def same(before: Sequence[Piece], now: Sequence[Piece]) -> int:
    """Return the tokens of the pieces with which both contexts begin."""
    both = zip(before, now, strict=False)
    return sum(piece[1] for _, piece in takewhile(lambda pair: pair[0][0] == pair[1][0], both))


_LONGEST = 300  # the most characters of the text of a record that was left out
_MOST = 10
_DIGITS = 4
_ELSEWHERE = 0  # the seq of messages that are in no log: those of a framework's own window

Fields = dict[str, Any]
"""Plain JSON."""


@dataclass(frozen=True, slots=True)
class LoggedPrompt:
    """A context that was sent to a model, as `AgentMemory.contexts` returns it.

    Attributes:
        session_id: The session.
        turn: Seq of the first message of the turn.
        question: The query text of the recalls. Empty if the context was made without a question.
        at: The time of the context (UTC).
        context: The context, without texts and messages that were deleted later.
        window: Seqs of the messages that the context shows, in order.
        shortened: Seqs of the messages that the context shortens.
        left_out: Records that were found but are not in the context, each with the reason. A
            record's text is the beginning of its source messages.
        cost: The cost in US dollars. None if the price of a model is not known.
        exact: Whether `messages` equals the sent messages byte by byte. False if a part of them
            was changed or deleted later.
        missing: The number of messages and recalls that no longer exist.
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
        """Return the messages in the provider's format in which they were sent."""
        return self.context.to_messages()


@dataclass(frozen=True, slots=True)
class StoredContext:
    turn: int
    # The number of messages of the turn before this model call. A turn has one call for each round
    # of tools.
    step: int
    upto: int  # the last seq of the log that the context depends on
    question: str
    fields: Fields  # all other data, as plain JSON
    # Texts that are not in the log, by their names in `fields`. Texts of records without source
    # messages are not included, unless their block is static.
    texts: Mapping[str, Text]


@dataclass(frozen=True, slots=True)
class Text:
    """A text of a context. `upto` is the seq of its newest source message.

    `session_id` is the session of that message, or empty for the session of the context.
    """

    text: str
    session_id: str = ""
    upto: int = 0


def encode_context(
    context: MemoryContext,
    shown: Shown,
    logged: Sequence[Entry],
    question: str,
    left_out: Sequence[LeftOut],
) -> StoredContext:
    """Return the stored form of a context.

    `logged` holds the window's entries as they stand in the log, and `question` the query text.
    """
    messages = {entry.seq: entry.message for entry in logged if entry.session_id}
    newest = next((entry.seq for entry in reversed(shown.turns) if is_user(entry)), 0)
    turn = shown.drafts[0].seq if shown.drafts else newest
    above = {digest(text): Text(text) for text in [message.to_json() for message in shown.leading]}
    fields: Fields = {
        "above": list(above),
        "turns": [_turn(entry, messages) for entry in shown.turns],
        "asked": [message.to_json() for message in context.turn_messages],
        "recalls": [_named(recall) for recall in context.recalls],
        "left_out": [[_named(item.recall), item.why] for item in left_out[:_MOST]],
        "blocks": {name: info.kind for name, info in context.blocks.items()},
        "role": context.memory_role,
        "format": context.format,
        "tokens": context.tokens,
        "max_tokens": context.max_tokens,
        "kept_tokens": context.cacheable_tokens,
        "warnings": list(context.warnings),
        "cost": context.cost,
        "print": digest_of_context(context),
        "cut": sorted(shown.cut),
    }
    static = {name for name, info in context.blocks.items() if info.kind == "static"}
    texts = {
        name_of(recall): _text(recall)
        for recall in context.recalls
        if recall.sources or recall.block in static
    }
    upto = max([turn, *shows(fields)])
    count = len(context.turn_messages)
    return StoredContext(turn, count, upto, question, fields, {**above, **texts})


def decode_context(
    record: Record,
    entries: Mapping[int, Entry],
    text_of: Callable[[str], str | None],
    source_text: Callable[[Recall], str],
) -> LoggedPrompt:
    """Restore a context from its record.

    `text_of` returns the text that is stored under a name from `name_of`, or None. `source_text`
    returns the text of those source messages of a recall that still exist.
    """
    fields, at, missing = record.metadata, record.created_at, 0

    def recall_of(named: Sequence[Any], text: str | None) -> Recall:
        _, block, record, score, tokens, time, sources, views, turns = named
        places = tuple([(name, seq) for name, seq in sources])
        return Recall(
            block, record, text or "", score, tokens, time=time, sources=places, views=views,
            turns=tuple(turns),
        )  # fmt: skip

    leading = [text_of(name) for name in fields["above"]]
    messages = [Message.from_json(text, at) for text in leading if text is not None]
    missing += len(leading) - len(messages)
    for item in fields["turns"]:
        seq, text = (item, None) if isinstance(item, int) else item
        if seq not in entries and seq != _ELSEWHERE:
            missing += 1
        else:
            message = entries[seq].message if text is None else Message.from_json(text, at)
            messages.append(message)
    recalls = [recall_of(named, text_of(named[0])) for named in fields["recalls"]]
    missing += sum(not recall.text for recall in recalls)
    left_out = [
        LeftOut(replace(recall, text=source_text(recall)[:_LONGEST]), why)
        for recall, why in ((recall_of(named, None), why) for named, why in fields["left_out"])
    ]
    context = MemoryContext(
        shown=messages,
        recalls=[recall for recall in recalls if recall.text],
        tokens=fields["tokens"],
        max_tokens=fields["max_tokens"],
        warnings=fields["warnings"],
        head=None,
        blocks={name: BlockInfo(kind, None) for name, kind in fields["blocks"].items()},
        memory_role=fields["role"],
        format=fields["format"],
        turn_messages=[Message.from_json(text, at) for text in fields["asked"]],
        cacheable_tokens=fields["kept_tokens"],
    )
    return LoggedPrompt(
        session_id=record.session_id,
        turn=record.first,
        question=record.text,
        at=at,
        context=replace(context, recalls=recalls),
        window=tuple(shows(fields)),
        shortened=tuple(fields["cut"]),
        left_out=tuple(left_out),
        cost=fields["cost"],
        exact=digest_of_context(context) == fields["print"],
        missing=missing,
    )


def shows(fields: Fields) -> list[int]:
    """Return the seqs of the log's messages that a context shows."""
    seqs = [turn if isinstance(turn, int) else turn[0] for turn in fields["turns"]]
    return [seq for seq in seqs if seq != _ELSEWHERE]


def text_names(fields: Fields) -> list[str]:
    """Return the names of the texts that a context has."""
    return [*fields["above"], *(named[0] for named in fields["recalls"])]


def name_of(recall: Recall) -> str:
    """Return the name under which the text of a recall is stored."""
    return digest([recall.block, recall.id, recall.text])


def digest_of_context(context: MemoryContext) -> str:
    """Return a digest of the arguments with which a context is sent."""
    return digest(as_json(context.to_arguments()))


def _named(recall: Recall) -> list[Any]:
    views = {name: round(value, _DIGITS) for name, value in recall.views.items()}
    score, sources = round(recall.score, _DIGITS), [list(source) for source in recall.sources]
    named = name_of(recall), recall.block, recall.id
    return [*named, score, recall.tokens, recall.display_time, sources, views, list(recall.turns)]


def _turn(shown: Entry, messages: Mapping[int, Message]) -> int | list[Any]:
    """Return the seq of a shown message, with its JSON if it differs from the log's message."""
    if shown.seq not in messages:
        return [_ELSEWHERE, shown.message.to_json()]
    same = messages[shown.seq] == shown.message
    return shown.seq if same else [shown.seq, shown.message.to_json()]


def _text(recall: Recall) -> Text:
    if not recall.sources:
        return Text(recall.text)
    home = recall.sources[0][0]
    return Text(recall.text, home, max(seq for name, seq in recall.sources if name == home))
